"""Audits of `logs`."""
