"""The bulletin board: an append-only log of signed entries, its store, readers and server."""
