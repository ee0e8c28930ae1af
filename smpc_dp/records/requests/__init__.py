"""Requests of `records`."""
