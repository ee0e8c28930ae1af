"""Boolean circuits: a builder, gadgets, and the Bristol Fashion format."""
