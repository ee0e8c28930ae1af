"""GOPA: gossip noise for private averaging, through an aggregator, direct and verifiable.

[Bellet 2021, section 4.1]. Specification: `protocols/gopa/README.md`.
"""
