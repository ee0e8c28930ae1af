"""The bulletin board: an append-only log of signed entries, its store, its readers and its server."""
