"""Simulation of `learn`."""
