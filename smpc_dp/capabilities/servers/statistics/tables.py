"""Exact tables on shares: which cells have enough records from enough parties, and the counts of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from smpc_dp.capabilities.servers.kernels.share_gadgets import Shared, below_each
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.records.exact import NOT_SHOWN

# Masked openings of a program for each cell, besides those of records and of what is opened.
MASKED = 2


def shown_cells(mpc: Any, terms: ProgramTerms, columns: list[Shared], codes: Shared) -> Shared:
    """Return, on shares, for each cell 1 if it may be shown, then its count if it may, else 0.

    `columns` has the bits of the parties' counts of each cell, `codes` the counts, shape (parties, length).
    Sums are split into bits by masked openings of mpyc; the comparisons are exact.
    """
    bits = np.stack(columns, axis=1)
    contributors = np.sum(1 - below_each(bits, [1])[..., 0], axis=0)
    totals = np.sum(codes, axis=0)
    shown = _at_least(mpc, totals, terms.smallest_count, terms.parties * max(terms.upper))
    shown = shown * _at_least(mpc, contributors, terms.least_parties, terms.parties)
    return np.concatenate((shown, shown * totals))


def _at_least(mpc: Any, numbers: Shared, least: int, most: int) -> Shared:
    """Return shared bits that say whether shared numbers of 0..most reach the public number `least`."""
    size = max(most, least).bit_length()
    return 1 - below_each(mpc.np_to_bits(numbers, size), [least])[..., 0]


def read_tables(terms: ProgramTerms, opened: Sequence[int]) -> list[int] | None:
    """Return each cell's opened count, NOT_SHOWN for hidden ones; None for impossible values."""
    shown, counts = opened[: terms.length], opened[terms.length : 2 * terms.length]
    most = terms.parties * max(terms.upper)
    if len(counts) != terms.length:
        return None
    good = all(
        (terms.smallest_count <= count <= most) if bit == 1 else (bit, count) == (0, 0)
        for bit, count in zip(shown, counts, strict=True)
    )
    if not good:
        return None
    return [count if bit else NOT_SHOWN for bit, count in zip(shown, counts, strict=True)]
