"""Vectors from party to party, sealed through an aggregator: gossip, and averages with local noise."""
