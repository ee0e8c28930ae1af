"""Vectors between parties, encrypted through an aggregator: gossip, and averages with local noise."""
