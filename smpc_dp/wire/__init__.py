"""Canonical sets, signed envelopes, and errors as codes: the bytes that protocols send."""
