"""Requests of `reports`."""
