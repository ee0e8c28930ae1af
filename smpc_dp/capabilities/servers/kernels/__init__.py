"""Kernels of `servers`."""
