"""Computation on secret shares by servers: sums, statistics of records, the kernels of pairs.

Specification: `protocols/mpyc/README.md`.
"""

# Without the capability that this one builds on it is absent too.
import smpc_dp.capabilities.pairs  # noqa: F401
