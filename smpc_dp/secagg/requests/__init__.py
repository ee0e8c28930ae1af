"""Requests of sessions for secure sums and averages."""
