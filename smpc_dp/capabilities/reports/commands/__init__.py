"""Commands of local reports."""
