"""Commands of `gopa`."""
