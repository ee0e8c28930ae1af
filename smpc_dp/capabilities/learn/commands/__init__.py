"""Commands of `learn`."""
