"""Simulation of `reports`."""
