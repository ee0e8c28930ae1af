"""A dry run of a member's connection: `smpc-dp check`."""
