"""Simulations of statistics and evaluations of pairs in one process."""
