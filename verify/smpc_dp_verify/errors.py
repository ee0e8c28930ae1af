"""What a verifier raises, and how it shows what a log says."""

from __future__ import annotations

LONGEST_TEXT = 500


def printable(text: str) -> str:
    """Return untrusted text as one line: unprintable characters escaped, a long text cut in the middle."""
    shown = text if len(text) <= 2 * LONGEST_TEXT else text[:LONGEST_TEXT] + text[-LONGEST_TEXT:]
    shown = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in shown)
    half = LONGEST_TEXT // 2 - 1
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[:half]}..{shown[-half:]}"


class Refused(Exception):
    """Error: a log or result is malformed, or a statement in it is false; the text says which check."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


class TooMany(Refused):
    """Error: an audit would need more cells or coordinates than this auditor computes with."""


def required(truth: object, reason: str) -> None:
    """Raise Refused, with this reason, if `truth` is false or empty; else do nothing."""
    if not truth:
        raise Refused(reason)
