"""Commands of `reports`."""
