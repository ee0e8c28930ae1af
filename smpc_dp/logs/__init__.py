"""Logs of signed entries: their format, store, readers and servers, checkpoints and receipts."""
