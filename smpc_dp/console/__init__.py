"""Console of `smpc_dp`."""
