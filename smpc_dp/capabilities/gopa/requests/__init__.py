"""Requests of `gopa`."""
