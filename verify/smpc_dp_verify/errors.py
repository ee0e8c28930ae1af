"""What a verifier raises, and how it shows what a log says."""

from __future__ import annotations

LONGEST_TEXT = 500


def printable(text: str) -> str:
    """Return a text of a log as one line: what is not printable escaped, the middle of a long one cut."""
    shown = text if len(text) <= 2 * LONGEST_TEXT else text[:LONGEST_TEXT] + text[-LONGEST_TEXT:]
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown)
    half = LONGEST_TEXT // 2 - 1
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[:half]}..{shown[-half:]}"


class Refused(Exception):
    """A log is malformed, or a statement in it is false."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


class TooMany(Refused):
    """More coordinates than are gone through here."""


def required(truth: object, reason: str) -> None:
    """Raise Refused unless something holds."""
    if not truth:
        raise Refused(reason)
