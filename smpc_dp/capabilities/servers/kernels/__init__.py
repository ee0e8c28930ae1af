"""Kernels of pairs on shares."""
