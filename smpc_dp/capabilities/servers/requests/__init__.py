"""Requests of sessions to servers, and the processes of these."""
