"""Decentralised learning: learners, their schedules and graphs, averages as their primitive.

Guide: docs/guides/learning.md.
"""

# Without the capabilities that this one builds on it is absent too.
import smpc_dp.capabilities.pairs
import smpc_dp.capabilities.reports  # noqa: F401
