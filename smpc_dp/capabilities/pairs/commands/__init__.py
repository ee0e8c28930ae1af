"""Commands of statistics and evaluations of pairs."""
