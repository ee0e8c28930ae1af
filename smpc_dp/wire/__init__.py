"""Bytes of protocol messages: canonical sets, signed envelopes, and errors as codes."""
