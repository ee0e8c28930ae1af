"""Programs on shares, as mpyc runs them among servers."""
