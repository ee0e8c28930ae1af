"""How many examples of Hypothesis a property is tested with."""

from __future__ import annotations

# `make test` tries one of so many, and none of these properties with fewer than LEAST.
SHARE = 4
LEAST = 10


class _Wanted:
    """Whether all examples are wanted: with --all and --part, which tests/conftest.py sets."""

    all = False


def want_all_examples() -> None:
    """Try all examples of the tests that are collected from now on."""
    _Wanted.all = True


def examples(number: int) -> int:
    """Return the number of examples to try of `number`: in `make test` a quarter."""
    return number if _Wanted.all else min(number, max(number // SHARE, LEAST))
