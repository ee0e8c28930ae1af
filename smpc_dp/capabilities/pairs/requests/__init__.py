"""Requests of sessions for statistics and evaluations of pairs."""
