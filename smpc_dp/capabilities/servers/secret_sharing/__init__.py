"""Statistics and sums on Shamir shares among m >= 3 servers, computed by mpyc."""
