"""Requests of sessions for GOPA."""
