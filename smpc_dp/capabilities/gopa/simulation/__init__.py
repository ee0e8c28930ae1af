"""Simulations of GOPA in one process."""
