"""What a verifier raises."""

from __future__ import annotations


class Refused(Exception):
    """A log is malformed, or a statement in it is false."""


class Unsupported(Exception):
    """A log is of a kind that this verifier does not read."""


def required(truth: object, reason: str) -> None:
    """Raise Refused unless something holds."""
    if not truth:
        raise Refused(reason)
