"""What mpyc computes on the shares of users' records."""
