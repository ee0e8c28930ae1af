"""Simulation of `gopa`."""
