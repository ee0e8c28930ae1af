"""Stored results: the file that a party writes, its audit, and the comparison of two of them."""
