"""Audits the release of a session for statistics of records: real rows, real noise, no more than what counts.

The release is what an observer is left with in the worst case: the sums of exactly the counted parties, each
with its share of noise, as the session's own code reads, clips, sums, encodes and draws them. It is tested on
neighbouring tables at points of the privacy profile, and its noise by its variance. Finding nothing proves
nothing.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.engine.session_protocol import CheckedParameters
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.empirical import (
    FALSE_ALARM,
    NO_RELEASE,
    Claim,
    Drawn,
    Finding,
    Progress,
    ReleaseAudit,
    audit,
)
from smpc_dp.privacy.mechanisms.mixed_shares import MixedShare
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.parameters import PlannedRecordParameters
from smpc_dp.records.plan import Plan
from smpc_dp.records.schema import Elapsed, Number, PartyNames, Schema
from smpc_dp.records.steps import SteppedPlan
from smpc_dp.records.table import Table, read_table

# Points of the profile, as parts of the claimed epsilon.
PARTS = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)
# Coordinates of a release that events are looked for in, and draws that are made at a time.
MOST_COORDINATES, AT_ONCE = 64, 1 << 22
# How far out of its bounds a number lies in the rows of the audit, in ranges.
FAR = 1000.0
# The first and the last date.
DATES = ("0001-01-01", "9999-12-31")
LEAST_SAMPLES = 100_000
# Deviations by which a share less must lower the measured variance, for enough draws.
APART = 8.0


# The variance of a squared draw over the square of the variance.
GAUSSIAN, LAPLACE = 2.0, 5.0


@dataclass(frozen=True)
class RecordAudit(ReleaseAudit):
    """Result of an empirical privacy audit of a session's noisy sums: findings, and measured noise variance.

    Attributes:
        counted: the parties whose sums and noise are in the release.
        variance: of the noise, over that which is claimed; least: below this it refutes the claim.
    """

    counted: int
    variance: float
    least: float
    false_alarm: ClassVar[float] = 2 * FALSE_ALARM

    @property
    def violations(self) -> tuple[str, ...]:
        """Sentences on what refutes the privacy claim; an empty tuple proves nothing."""
        shrunk = f"the noise has {self.variance:.4g} of the variance that is claimed"
        return (*super().violations, *([shrunk] if self.variance < self.least else []))

    def to_json(self) -> dict[str, object]:
        """Return the audit's result as plain JSON data."""
        noise = {"counted": self.counted, "variance": self.variance, "least_variance": self.least}
        return super().to_json() | noise


def audit_records(
    checked: CheckedParameters,
    samples: int | None = None,
    randomness: Randomness | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> RecordAudit:
    """Audit a session's claim by simulated releases; return findings, wrong with chance 0.002 at most.

    Args:
        samples: releases on each of two neighbouring inputs; None takes as many as show one missing share of
            the noise, 100,000 at least.
        epsilon, delta: another claim, in the place of the session's and of its profile; where one is None it
            is the session's.
        progress: is called with how many releases are drawn, and of how many.
        randomness, executor: as of `smpc_dp.privacy.empirical.audit`.

    Raises:
        ConfigError: another kind of session, an epsilon or delta that is none, or too many draws.
    """
    parameters: PlannedRecordParameters | None = next(
        (one for one in checked.requests if one.hides_records), None
    )
    if parameters is None:
        raise ConfigError.at("session", NO_RELEASE, ConfigCheck.UNSUPPORTED)
    request = parameters.request
    is_laplace = isinstance(request, Plan) and request.laplace is not None
    spread = LAPLACE if is_laplace else GAUSSIAN
    counted = request.mechanism.honest
    if samples is None:
        # The deviation of a measured variance is sqrt(2 / draws) of it; a share is 1 / counted.
        enough = spread * (APART * counted) ** 2 / (2 * min(request.length, MOST_COORDINATES))
        samples = max(LEAST_SAMPLES, math.ceil(enough))
    claims = _claims(parameters, epsilon, delta)
    pairs = _neighbours(parameters.schema, counted, parameters.public_rows)
    steps: Sequence[Plan | SteppedPlan] = request.audited if isinstance(request, SteppedPlan) else (request,)
    findings: list[Finding] = []
    moved, noise = 0.0, _Noise(progress, samples, len(pairs) * len(steps), spread)
    for pair, step in itertools.product(pairs, steps):
        vectors = [[step.vector(table) for table in tables] for tables in pair]
        difference = np.sum(vectors[0], axis=0).astype(float) - np.sum(vectors[1], axis=0).astype(float)
        moved = max(moved, _moved(request, difference))
        chosen = np.argsort(-np.abs(difference), kind="stable")[:MOST_COORDINATES]
        noise.exact = [np.sum(one, axis=0)[chosen] for one in vectors]
        noise.expected = counted * _variances(request)[chosen]
        findings += audit(
            functools.partial(_released, parameters, vectors, chosen),
            claims,
            samples,
            tests=len(pairs) * len(steps),
            drawn=noise,
            randomness=randomness,
            executor=executor,
        )
    findings.sort(key=lambda finding: finding.claim.epsilon - finding.lower)
    return RecordAudit(
        counted=counted,
        epsilon=claims[0].epsilon,
        delta=request.delta if delta is None else delta,
        samples=samples,
        findings=tuple(findings),
        variance=noise.variance,
        least=noise.least(),
        moved=moved,
    )


def _moved(request: Plan | SteppedPlan, difference: NDArray[np.float64]) -> float:
    """Return two neighbours' distance over the planned sensitivity, the larger of L1 and L2."""
    parts = [(difference, request.sensitivity)]
    share = request.mechanism.share
    if isinstance(share, MixedShare):
        laplace = share.is_laplace
        parts += [
            (difference[~laplace], share.gaussian.sensitivity),
            (difference[laplace], share.laplace.sensitivity),
        ]
    return max(
        max(float(np.linalg.norm(moved)) / bounds.l2, float(np.abs(moved).sum()) / bounds.l1)
        for moved, bounds in parts
    )


def _variances(request: Plan | SteppedPlan) -> NDArray[np.float64]:
    """Return the planned variance of one party's noise in each entry of the vector."""
    if isinstance(request, SteppedPlan):
        return np.full(request.length, float(request.variance))
    return np.concatenate(
        [np.full(one.block.cells, float(request.variance_of(one.block))) for one in request.blocks]
    )


def _claims(parameters: PlannedRecordParameters, epsilon: float | None, delta: float | None) -> list[Claim]:
    """Return the (epsilon, delta) claims to test: points of the session's profile, or a given, valid one."""
    request = parameters.request
    if epsilon is None and delta is None:
        composed = Composition([parameters.event()])
        return [
            Claim(part * request.epsilon, min(1.0, composed.delta(part * request.epsilon))) for part in PARTS
        ]
    claim = Claim(request.epsilon if epsilon is None else epsilon, request.delta if delta is None else delta)
    if not (0 <= claim.epsilon < math.inf and 0 <= claim.delta < 1):
        reason = f"epsilon must be 0 or more and delta in [0, 1), are {claim.epsilon:g} and {claim.delta:g}"
        raise ConfigError.at("epsilon", reason, ConfigCheck.RANGE)
    return [claim]


class _Noise(Drawn):
    """Accumulator of the simulated releases' noise, to compare its variance with the claimed one.

    `spread`: the variance of a square over the square of the variance; `exact`: the releases on the two
    inputs without noise; `expected`: the variance that is claimed, in each coordinate.
    """

    def __init__(self, progress: Progress | None, samples: int, tests: int, spread: float) -> None:
        super().__init__(progress, samples, tests)
        self.spread = spread
        self.exact: Sequence[NDArray[np.int64]] = ()
        self.expected = np.ones(1)
        self.draws, self.squares = 0, 0.0

    def add(self, which: int, releases: NDArray[np.float64]) -> None:
        """Add releases simulated on one of two inputs to the event counts, and to the squared noise."""
        super().add(which, releases)
        noise = releases - self.exact[which]
        self.draws += noise.size
        self.squares += float((np.square(noise) / self.expected).sum())

    @property
    def variance(self) -> float:
        """The measured variance of the noise over the claimed one."""
        return self.squares / max(self.draws, 1)

    def least(self) -> float:
        """Return the threshold that a right noise's variance ratio is below with chance FALSE_ALARM."""
        # Not at the top: it takes a while to load.
        from scipy.stats import chi2

        # squares of a wider law tell as much as fewer normal ones
        freedom = self.draws * GAUSSIAN / self.spread
        return float(chi2.ppf(FALSE_ALARM, freedom) / freedom)


def _released(
    parameters: PlannedRecordParameters,
    vectors: Sequence[Sequence[NDArray[np.int64]]],
    chosen: NDArray[np.int64],
    which: int,
    count: int,
    key: bytes,
) -> NDArray[np.float64]:
    """Simulate noisy sums of the parties on one of two inputs, shape (count, coordinates)."""
    length, source = parameters.request.length, NoiseSource.keyed(key, b"audit")
    parts = []
    for start in range(0, count, max(1, AT_ONCE // length)):
        size = min(count - start, max(1, AT_ONCE // length))
        total = np.zeros(size * length, dtype=np.uint64)
        for vector in vectors[which]:
            ring_vector, _ = parameters.encoding.encode(vector, party="audit")
            ring_vector = np.tile(ring_vector, size)
            ring_vector += parameters.own_noise(source, len(ring_vector)).view(np.uint64)
            total += ring_vector
        lowest = len(vectors[which]) * parameters.encoding.lowest
        released = total.view(np.int64).reshape(size, length) + lowest
        parts.append(released[:, chosen].astype(np.float64))
    return np.concatenate(parts)


def _neighbours(
    schema: Schema, parties: int, public_rows: Sequence[int] | None
) -> list[tuple[list[Table], list[Table]]]:
    """Return pairs of neighbouring inputs, all parties' tables, that differ in one unit's rows."""

    def tables(end: int) -> list[Table]:
        return [
            _table(
                schema,
                end if party < schema.party_factor else 0,
                None if public_rows is None else public_rows[party],
                party,
            )
            for party in range(parties)
        ]

    return [(tables(end), tables(-end if schema.rows == "public" else 0)) for end in (1, -1)]


def _table(schema: Schema, end: int, public_rows: int | None, index: int) -> Table:
    """Return a test table with one unit's rows at an extreme of all columns; `end` 0 for none of them.

    With public rows others fill it up, in the middle of their columns. `index`: of the party in the roster.
    """
    most = schema.person_factor if public_rows is None else min(schema.person_factor, public_rows)
    unit = most if end else 0
    others = 0 if public_rows is None else public_rows - unit
    columns: dict[str, list[Any]] = {}
    for name, column in schema.given.items():
        if isinstance(column, Number):
            columns[name] = [column.middle + end * FAR * column.width] * unit + [column.middle] * others
        else:
            columns[name] = [column.values[0 if end > 0 else -1]] * unit + [column.values[0]] * others
    for one in schema.derived.values():
        dates = DATES[::end] if isinstance(one, Elapsed) and end else DATES
        ends = zip((one.start, one.end), dates, strict=True) if isinstance(one, Elapsed) else ()
        columns |= {name: [day] * unit + [DATES[0]] * others for name, day in ends if name in schema.dates}
    if schema.id is not None:
        columns[schema.id] = ["unit"] * unit + [f"other {index}" for index in range(others)]
    arrays = {
        name: np.array(values, dtype=None if values else np.float64) for name, values in columns.items()
    }
    parties = schema.columns.get(schema.party_column or "")
    member = parties.values[index] if isinstance(parties, PartyNames) else None
    return read_table(arrays, schema, party="audit", member=member)
