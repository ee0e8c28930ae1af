"""Computations in parts that run at the same time: in processes of this machine, or on a cluster of Ray."""
