"""Requests of sessions for statistics of records."""
