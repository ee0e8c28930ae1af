"""Statistics by secret sharing: programs that servers run on shares with mpyc."""
