"""Requests of `servers`."""
