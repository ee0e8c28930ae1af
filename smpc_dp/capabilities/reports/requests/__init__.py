"""Requests of sessions for local reports."""
