"""Local reports: records under local differential privacy, sent to an analyst.

Specification: `protocols/reports/README.md`.
"""

# Without the capability that this one builds on it is absent too.
import smpc_dp.capabilities.pairs  # noqa: F401
