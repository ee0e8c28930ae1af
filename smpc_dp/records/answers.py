"""Estimates every answer from the noisy sums, with an interval for what the noise may have done."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import Block, Lacking, product
from smpc_dp.records.intervals import ErrorDistribution
from smpc_dp.records.noisy import Display, NoisySums, laplace_distribution
from smpc_dp.records.plan import Plan
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.result import Answers, Estimate, without_rows
from smpc_dp.records.schema import PartyNames, Schema

# Counts below this many noise deviations are not shown, nor means over such groups: that protects nothing.
DEFAULT_HIDE = 3.0


def estimate(
    plan: Plan,
    total: NDArray[np.int64],
    present: int,
    *,
    rows: int | None = None,
    holders: int | None = None,
    lost: frozenset[str] = frozenset(),
    level: float = 0.95,
    simultaneous: bool = False,
    hide: float = DEFAULT_HIDE,
) -> Answers:
    """Return all estimates, with intervals, that an opened noisy sum gives; ConfigError for unfit arguments.

    Args:
        plan: the planned request.
        total: the noisy sum of the parties' vectors, int64.
        present: the parties whose vectors and shares of noise are in it.
        rows: the number of rows of these parties, where it is public.
        holders: of these parties those with rows, where that is public; otherwise all count as such.
        lost: of a column of parties those that are not in the sum; answers about them alone are refused.
        level: of each interval, or, `simultaneous`, of all of them together.
        hide: counts below so many standard deviations of their noise are not shown; 0 shows all.
    """
    if not 0 < level < 1 or not hide >= 0:
        raise ConfigError.at(
            "level", f"must be in (0, 1), and hide 0 or more: {level}, {hide}", ConfigCheck.RANGE
        )
    noisy = noisy_sums(plan, total, present, rows, present if holders is None else holders, lost)
    outside = 1 - level
    if simultaneous:
        outside /= sum(1 for one in plan.statistics for _ in _estimates(one, noisy, Display(0.5, 0.0)))
    display = Display(outside, hide)
    estimates = [one for statistic in plan.statistics for one in _estimates(statistic, noisy, display)]
    return plan.answers(estimates, present, level=level, simultaneous=simultaneous, rows=rows)


def _estimates(one: Statistic, noisy: NoisySums, display: Display) -> Iterator[Estimate]:
    """Yield the estimates of one requested statistic, named with its condition on rows if there is one."""
    column = noisy.schema.party_column
    within = _parties_within(one, noisy.schema)
    all_lost = within if within <= noisy.lost else frozenset[str]()
    for estimate in statistic_of(one).estimates(one, noisy.by_condition[one.where], display):
        own = {estimate.cell[column]} if column in estimate.cell else set[str]()
        if lost := all_lost or noisy.lost & own:
            estimate = without_rows(estimate, lost)
        yield replace(estimate, name=one.named(estimate.name)) if one.where else estimate


def _parties_within(one: Statistic, schema: Schema) -> frozenset[str]:
    """Return the parties whose rows a condition on the column of parties admits; none without a condition."""
    column = schema.columns.get(schema.party_column or "")
    values = column.values if isinstance(column, PartyNames) else ()
    ranges = [each.ranges for each in one.where if each.column == schema.party_column]
    indices = (range(low, high + 1) for low, high in itertools.chain(*ranges))
    return frozenset(values[index] for index in itertools.chain(*indices))


def noisy_sums(
    plan: Plan,
    total: NDArray[np.int64],
    present: int,
    rows: int | None,
    holders: int,
    lost: frozenset[str] = frozenset(),
) -> NoisySums:
    """Split an opened total into noisy sums by block; raise ConfigError for a wrong shape or unfit `rows`."""
    if total.shape != (plan.length,):
        raise ConfigError.at("total", f"shape must be ({plan.length},), is {total.shape}", ConfigCheck.SHAPE)
    if (rows is None) != (plan.schema.rows == "private"):
        raise ConfigError.at("rows", f"rows are {plan.schema.rows}", ConfigCheck.CONFLICT)
    blocks = {
        block: (
            total[offset : offset + block.cells].astype(np.float64) / float(scale),
            plan.deviation_of(block, present),
        )
        for block, (offset, scale) in plan.offsets.items()
    }
    if rows is not None:
        blocks[product(plan.schema)] = np.array([float(rows)]), 0.0
    laplace = plan.laplace
    distributions: dict[Block, ErrorDistribution] = {}
    if laplace is not None:
        distributions = dict.fromkeys(plan.laplace_blocks, laplace_distribution(present / laplace.parts))
    for lacking in (block for block in plan.offsets if isinstance(block, Lacking)):
        if lacking.all_rows not in blocks:
            # the numbers of missing values alone are asked for
            continue
        (every, first), (absent, second) = blocks[lacking.all_rows], blocks[lacking]
        deviation = math.hypot(first, second)
        blocks[lacking.others] = every - absent, deviation
        if laplace is not None and lacking in distributions:
            parts = first / deviation, second / deviation
            distributions[lacking.others] = laplace_distribution(present / laplace.parts, parts)
    lacking_parties = max(plan.shares.parties - present, 0)
    return NoisySums(plan.schema, blocks, distributions, holders, lost, lacking_parties)
