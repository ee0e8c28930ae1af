"""Sessions in one process: roles driven over connections in memory."""
