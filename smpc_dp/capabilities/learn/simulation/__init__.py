"""Simulations of learners in one process."""
