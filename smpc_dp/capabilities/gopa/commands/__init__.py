"""Commands of GOPA."""
