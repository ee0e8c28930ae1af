"""Simulation of `servers`."""
