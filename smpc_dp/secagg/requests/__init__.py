"""Requests of `secagg`."""
