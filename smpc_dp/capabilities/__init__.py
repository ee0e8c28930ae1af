"""Capabilities beside secure sums, one folder each: what a session can compute, and how."""
