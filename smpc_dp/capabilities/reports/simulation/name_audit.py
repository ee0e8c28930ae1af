"""Audits released names: real tables that differ in the rows of one unit, counted and drawn as parties do."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.reports.local_names import Counts, LocalNames
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.privacy.empirical import Claim, Drawn, Finding, Progress, ReleaseAudit, audit
from smpc_dp.privacy.name_selection import ONE
from smpc_dp.privacy.sampling import NoiseSource

SAMPLES = 100_000
# Chances of release, without the unit's rows, at which its rows are looked for.
BASES = (0.05, 0.9)


def audit_names(
    plan: LocalNames,
    samples: int | None = None,
    randomness: Randomness | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> ReleaseAudit:
    """Return a sampling test of released names' privacy claim; a true claim fails with chance <= 0.001.

    Args:
        samples: releases on each of two neighbouring inputs; None is 100,000.
        epsilon, delta: another claim than the plan's; where one is None it is the plan's.
        progress: is called with how many releases are drawn, and of how many.
        randomness, executor: as of `smpc_dp.privacy.empirical.audit`.

    Raises ConfigError for numbers out of range.
    """
    selection, samples = plan.selection, SAMPLES if samples is None else samples
    claim = Claim(
        selection.epsilon if epsilon is None else epsilon, selection.delta if delta is None else delta
    )
    findings: list[Finding] = []
    moved, drawn = 0, Drawn(progress, samples, len(BASES))
    for base in BASES:
        rows = max(1, bisect.bisect_left(selection.chances, int(base * ONE)))
        pair = [
            [plan.counts(_table(plan, rows, which), "audit") for _ in range(plan.schema.party_factor)]
            for which in (0, 1)
        ]
        vectors = [_stacked(plan, counts) for counts in pair]
        moved = max(moved, int(np.abs(vectors[0] - vectors[1]).sum()))
        findings += audit(
            functools.partial(_released, plan, vectors),
            [claim],
            samples,
            tests=len(BASES),
            drawn=drawn,
            randomness=randomness,
            executor=executor,
        )
    findings.sort(key=lambda finding: finding.claim.epsilon - finding.lower)
    return ReleaseAudit(claim.epsilon, claim.delta, samples, tuple(findings), moved / selection.changes)


def _table(plan: LocalNames, rows: int, which: int) -> dict[str, Any]:
    """Return a party's test table: two names with `rows` rows each, and one unit's rows if present.

    The rows of the unit have the first name. With `which` 1 they have the second one where the number of rows
    is public, and are left out elsewhere.
    """
    unit = plan.schema.person_factor if which == 0 or plan.schema.rows == "public" else 0
    values = ["first"] * rows + ["second"] * rows + [("first", "second")[which]] * unit
    # one row more of the unit, which must not count
    spare = 1 if plan.schema.id and unit else 0
    values += values[-1:] * spare
    table: dict[str, Any] = dict.fromkeys(plan.columns, np.array(values, dtype=object))
    if plan.schema.id is not None:
        others = [f"other {index}" for index in range(2 * rows)]
        table[plan.schema.id] = np.array(others + ["unit"] * (unit + spare), dtype=object)
    return table


def _stacked(plan: LocalNames, counts: Sequence[Counts]) -> NDArray[np.int64]:
    """Return the parties' counts of both test names in each column, as one array."""
    names = ("first", "second")
    return np.array(
        [party[column].get(name, 0) for party in counts for column in plan.columns for name in names],
        dtype=np.int64,
    )


def _released(
    plan: LocalNames, vectors: Sequence[NDArray[np.int64]], which: int, count: int, key: bytes
) -> NDArray[np.float64]:
    """Return which names are released in `count` draws on one of two neighbouring inputs."""
    source = NoiseSource.keyed(key, b"audit")
    drawn = plan.selection.released(np.tile(vectors[which], count), source)
    return drawn.reshape(count, -1).astype(np.float64)
