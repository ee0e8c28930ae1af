"""Protocols as state machines without I/O, one folder each."""
