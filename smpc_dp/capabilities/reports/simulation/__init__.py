"""Simulations of local reports in one process."""
