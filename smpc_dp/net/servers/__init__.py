"""Servers that compute on shares: their processes, the bridge to mpyc, and the connection to them."""
