"""GOPA: gossip noise for private averaging [Bellet 2021, section 4.1].

Specification: `protocols/gopa/README.md`.
"""
