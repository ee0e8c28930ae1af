"""Sessions: their file, members, calls and tasks, the aggregator, connections by socket and in memory."""
