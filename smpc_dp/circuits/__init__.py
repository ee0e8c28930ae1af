"""Boolean circuits: a builder, gadgets, the Bristol Fashion format, and the circuits that are published."""
