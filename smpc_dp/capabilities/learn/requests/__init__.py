"""Requests of `learn`."""
