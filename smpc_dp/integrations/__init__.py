"""Secure averages inside other libraries, each by an extra."""
