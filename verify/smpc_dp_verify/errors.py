"""What a verifier raises."""

from __future__ import annotations


class Refused(Exception):
    """A log is malformed, or a statement in it is false."""


def required(truth: object, reason: str) -> None:
    """Raise Refused unless something holds."""
    if not truth:
        raise Refused(reason)
