"""Vectors from user to user, sealed through a hub: messages of gossip, and averages with local noise."""
