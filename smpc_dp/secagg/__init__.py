"""The secure sum: pairwise masks cancel in the total, which an aggregator computes.

Specification: `protocols/secagg/README.md`.
"""
