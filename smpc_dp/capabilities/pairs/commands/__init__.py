"""Commands of `pairs`."""
