"""Two-party computation by garbled circuits, and statistics of pairs by it."""
