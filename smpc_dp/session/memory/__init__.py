"""Memory of `session`."""
