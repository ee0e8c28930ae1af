"""One estimate of a result, as it is compared with the file."""

from __future__ import annotations

import math
from typing import NamedTuple

from smpc_dp_verify.intervals import Ends

# What another order of operations makes of a number, as a part of it or of its noise.
NEAR = 1e-9
# What of an estimate is about a population.
OF_SAMPLING = ("sampling_error", "population_low", "population_high", "p_value")
# Numbers by their names in a result; NaN where programs may differ.
Fields = dict[str, float | None]


class Estimate(NamedTuple):
    """One estimate: name, unit, the labels of its cell by column, and its numbers.

    `scales`: of some numbers how far apart two are that differ like values by a standard error.
    """

    name: str
    unit: str
    cell: dict[str, str]
    numbers: Fields
    scales: tuple[tuple[str, float], ...] = ()


def bounded(ends: Ends) -> Fields:
    """Return the ends of an interval, None for one that is infinite."""
    return {name: None if math.isinf(end) else end for name, end in zip(("low", "high"), ends, strict=True)}
