"""How much the parties' means differ: the pooled mean, Cochran's Q and I², without any party's estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator

from smpc_dp.records.ask import Statistic
from smpc_dp.records.features import party_squares, product
from smpc_dp.records.intervals import Interval, around, normal_quantile
from smpc_dp.records.noisy import Display, NoisySums
from smpc_dp.records.result import PROJECTED, WITHIN_NOISE, Estimate

IF_ALL = ", if each has a value: one that has none makes I^2 too small"


def heterogeneity(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield Q and I² of the parties' means, all rows having one variance.

    With n_i rows of mean m_i in party i, Q is the sum of n_i (m_i - m)^2 over the variance within parties. I²
    is 1 - (k - 1)/Q for k parties, at least 0 [Higgins and Thompson 2002]. k is the number of parties with
    rows where that is public; otherwise of all parties in the sum, and each one without a value makes I² too
    small: a note says so.
    """
    schema, (name,) = noisy.plan.schema, one.columns
    blocks = (
        party_squares(schema, name),
        product(schema, name, name),
        product(schema, name),
        product(schema, over=(name,)),
    )
    size = float(schema.number(name, one.text).steps)
    units = (size**2, size**2, size, 1.0)
    values = [float(noisy.sums(block)[0]) / unit for block, unit in zip(blocks, units, strict=True)]
    errors = [noisy.deviation(block) / unit for block, unit in zip(blocks, units, strict=True)]
    parties = noisy.holders
    z = normal_quantile(display.outside / len(blocks))
    low, high = _ratio(
        [around(value, error, z) for value, error in zip(values, errors, strict=True)], parties
    )
    squares, total, first, count = values
    within_parties = (total - squares) / (count - parties) if count > parties else 0.0
    hidden = count <= max(display.least(errors[3]), float(parties)) or within_parties <= 0
    # E[first^2] is above the square of the true sum by the noise variance
    between = 0.0 if hidden else squares - (first**2 - errors[2] ** 2) / count
    ratio = 0.0 if hidden else max(between, 0.0) / within_parties
    note = WITHIN_NOISE if hidden else PROJECTED if between < 0 else ""
    counted = f"for {parties} parties" + ("" if schema.rows == "public" else IF_ALL)
    note = f"{note}; {counted}" if note else counted
    spread = None if hidden else math.hypot(errors[0], 2 * first / count * errors[2]) / within_parties
    for label, value, ends, error in (
        ("Q", ratio, (low, high), spread),
        ("I^2", _share(ratio, parties), (_share(low, parties), _share(high, parties)), None),
    ):
        name_of = f"{label} of {name}"
        number = None if hidden else value
        yield Estimate.of(one, name_of, "", ends, value=number, error=error, over=count, note=note)


def _ratio(ends: list[Interval], parties: int) -> Interval:
    """Return the interval of Q for all values of the four sums in their intervals."""
    squares, total, first, count = ends
    if count[0] <= parties:
        return 0.0, math.inf
    least = 0.0 if first[0] <= 0 <= first[1] else min(first[0] ** 2, first[1] ** 2)
    most = max(first[0] ** 2, first[1] ** 2)
    between = max(squares[0] - most / count[0], 0.0), max(squares[1] - least / count[1], 0.0)
    inside = (total[0] - squares[1]) / (count[1] - parties), (total[1] - squares[0]) / (count[0] - parties)
    low = between[0] / inside[1] if inside[1] > 0 else 0.0
    return low, between[1] / inside[0] if inside[0] > 0 else math.inf


def _share(ratio: float, parties: int) -> float:
    """Return I² for a value of Q."""
    return max(0.0, 1 - (parties - 1) / ratio) if ratio > 0 else 0.0
