"""Secagg of `smpc_dp`."""
