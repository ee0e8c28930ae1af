"""Decentralised learning."""
