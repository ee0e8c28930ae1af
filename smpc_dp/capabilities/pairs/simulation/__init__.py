"""Simulation of `pairs`."""
