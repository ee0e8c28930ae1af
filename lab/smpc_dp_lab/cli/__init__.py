"""The commands `smpc-dp bench`, `smpc-dp reproduce` and `smpc-dp vectors`."""
