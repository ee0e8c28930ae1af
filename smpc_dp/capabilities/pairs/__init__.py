"""Pairs of parties: circuits, kernels, two-party evaluations and U-statistics.

Specification: `protocols/pairwise/README.md`.
"""
