"""Benchmarks, figures of the papers, and generators of the test vectors of smpc-dp; for its developers."""
