"""Requests of sessions for learners."""
