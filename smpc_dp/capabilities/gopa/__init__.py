"""GOPA: gossip noise for private averaging, through an aggregator, direct and verifiable."""
