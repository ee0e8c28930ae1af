"""Benchmarks: each measures this package, its peers and its limit alternately, in the same run."""
