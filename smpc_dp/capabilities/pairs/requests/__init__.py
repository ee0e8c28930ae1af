"""Requests of `pairs`."""
