"""Computation on secret shares by servers."""
