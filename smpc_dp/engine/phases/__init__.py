"""Phases of `engine`."""
