"""Simulations of servers in one process."""
