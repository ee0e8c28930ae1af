"""Empirical privacy audit: a lower bound on epsilon from samples of an implementation, as a black box.

Many releases are drawn on each of two neighbouring inputs. An event (a set of outputs) is chosen on one half
of the samples and counted on the other, so that the choice does not bias the count; Clopper-Pearson bounds
its two probabilities. If p and q are those on the two inputs, then epsilon is at least
log((p_low - delta) / q_up). A claim that this exceeds is refuted. That nothing exceeds it proves nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from smpc_dp.crypto.noise import KEY_BYTES
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.executors.shards import run_shards
from smpc_dp.privacy.mechanisms import (
    AdditiveNoise,
    DistributedSum,
    KaryRandomisedResponse,
    Mechanism,
    RealMechanism,
    Sensitivity,
)
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]
Outputs = NDArray[Any]
# Draw `count` releases on input 0 or on its neighbour, 1, with the key of a source of noise: shape (count,
# coordinates).
Sampler = Callable[[int, int, bytes], Outputs]
# Is called with how many releases are drawn, and of how many.
Progress = Callable[[int, int], None]

# The chance, at most, that a right claim is refuted, over everything that one audit looks at.
FALSE_ALARM = 1e-3
LEAST_SAMPLES = 10_000
MAX_SAMPLES = 1 << 27
# Of sessions whose release cannot be audited.
NO_RELEASE = "asks no statistics of records of parties that add noise"
# Releases of a shard.
BLOCK = 1 << 14
# Outcomes seen on fewer than this many values are also judged one by one, not only by half-lines.
_FEW_VALUES = 4096
_THRESHOLDS = 400


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim of (epsilon, delta)-differential privacy that an empirical audit tests."""

    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of an empirical privacy audit for one claim: a lower bound on epsilon, from samples.

    Attributes:
        claim: the claim tested.
        lower: epsilon is at least this at the claim's delta, or its run was one of the false alarms.
        hits, neighbour_hits: how often the event came up on either input, in `samples` counted releases each.
        event: the set of outputs, in words.
    """

    claim: Claim
    lower: float
    hits: int
    neighbour_hits: int
    samples: int
    event: str

    @property
    def refuted(self) -> bool:
        """Whether the samples contradict the privacy claim, but for the chance of a false alarm."""
        return self.lower > self.claim.epsilon

    @property
    def shown(self) -> str:
        """Lower bound on epsilon in words; says so if the samples show nothing."""
        if self.lower <= 0:
            return "nothing found: the lower bound is 0"
        return f"epsilon >= {self.lower:.6g} at delta = {self.claim.delta:.6g}"

    def to_json(self) -> dict[str, object]:
        """Return the output event, its counts in the samples and the bound as JSON data."""
        return {
            "epsilon": self.claim.epsilon,
            "delta": self.claim.delta,
            "epsilon_lower": max(self.lower, 0.0),
            "event": self.event,
            "hits": [self.hits, self.neighbour_hits],
            "counted": self.samples,
        }


@dataclass(frozen=True)
class ReleaseAudit:
    """Result of an empirical audit of a session: sampled releases compared with the claimed epsilon.

    Attributes:
        epsilon, delta: as claimed; samples: releases on each of two neighbouring inputs.
        findings: of all claims and pairs of inputs, the strongest first.
        moved: the greatest distance of two neighbours' exact releases, over what is planned for.
    """

    epsilon: float
    delta: float
    samples: int
    findings: tuple[Finding, ...]
    moved: float
    false_alarm: ClassVar[float] = FALSE_ALARM

    @property
    def violations(self) -> tuple[str, ...]:
        """Sentences on what refutes the privacy claim; empty if nothing does, which is no proof."""
        worst, result = self.findings[0], []
        if self.moved > 1 + 1e-9:
            result.append(f"neighbouring tables are {self.moved:.4g} times as far apart as is planned for")
        if worst.refuted:
            result.append(
                f"epsilon >= {worst.lower:.4g} at delta = {worst.claim.delta:.4g}, where "
                f"{worst.claim.epsilon:.4g} is claimed ({worst.event}: {worst.hits} against "
                f"{worst.neighbour_hits} times)"
            )
        return tuple(result)

    def to_json(self) -> dict[str, object]:
        """Return the result of the empirical audit, with the strongest finding alone, as JSON data."""
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "samples": self.samples,
            "violation": bool(self.violations),
            "violations": list(self.violations),
            "false_alarm": self.false_alarm,
            "tested": len(self.findings),
            "strongest": self.findings[0].to_json(),
            "moved": self.moved,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an empirical audit of a mechanism on several pairs of inputs, strongest finding first."""

    mechanism: str
    claim: Claim
    samples: int
    findings: tuple[Finding, ...]

    @property
    def refuted(self) -> bool:
        """Whether some finding contradicts the claimed privacy, but for the chance of a false alarm."""
        return any(finding.refuted for finding in self.findings)

    @property
    def lower(self) -> float:
        """Largest lower bound on epsilon, at the claim's delta, that samples show; at least 0."""
        return max([0.0, *(result.lower for result in self.findings if result.claim == self.claim)])

    def to_json(self) -> dict[str, object]:
        """Return the result of the empirical audit, with the strongest finding alone, as JSON data."""
        return {
            "mechanism": self.mechanism,
            "epsilon": self.claim.epsilon,
            "delta": self.claim.delta,
            "samples": self.samples,
            "epsilon_lower": self.lower,
            "violation": self.refuted,
            "false_alarm": FALSE_ALARM,
            "tested": len(self.findings),
            "strongest": self.findings[0].to_json(),
        }


@dataclass(frozen=True, slots=True)
class _Event:
    """Set of outputs that may tell two inputs apart: a half-space, or a set of values."""

    direction: Floats
    threshold: float
    above: bool
    values: Outputs | None

    def count(self, outputs: Outputs) -> int:
        """Return how many of the outputs lie in this set."""
        if self.values is not None:
            return int(np.isin(outputs[:, 0], self.values).sum())
        score = _scores(outputs, self.direction)
        return int((score >= self.threshold).sum() if self.above else (score <= self.threshold).sum())

    def __str__(self) -> str:
        if self.values is not None:
            return f"output in a set of {len(self.values)} values"
        if len(self.direction) == 1:
            return f"output {'>=' if self.above else '<='} {self.threshold * self.direction[0]:g}"
        return f"projection {'>=' if self.above else '<='} {self.threshold:.6g}"


class Drawn:
    """Counter of the sampled releases, which reports progress."""

    def __init__(self, progress: Progress | None, samples: int, tests: int) -> None:
        """`samples`: of each of two inputs in each of so many tests."""
        self._progress, self._total, self._done = progress, 2 * samples * tests, 0

    def add(self, which: int, releases: Outputs) -> None:  # noqa: ARG002
        """Add the number of these releases to the count, and report progress."""
        self._done += len(releases)
        if self._progress is not None:
            self._progress(self._done, self._total)


def audit_mechanism(
    mechanism: Mechanism,
    claim: Claim,
    samples: int,
    randomness: Randomness | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> Audit:
    """Test a mechanism's privacy claim by samples on neighbouring inputs; return lower bounds on epsilon.

    Beside `claim` two more points of the privacy that the mechanism states for itself are tested, at smaller
    epsilon, where samples tell most. `samples` releases are drawn on each input of each pair; `progress` is
    called with how many are drawn, and of how many; `randomness`, `executor` as of `audit`.
    """
    claims = [claim]
    for part in (0.5, 0.1):
        delta = max(claim.delta, mechanism.delta(part * claim.epsilon))
        if delta < 1:
            claims.append(Claim(part * claim.epsilon, delta))
    pairs = neighbours(mechanism)
    findings: list[Finding] = []
    drawn = Drawn(progress, samples, len(pairs))
    for pair in pairs:
        findings += audit(
            functools.partial(_released, mechanism, pair),
            claims,
            samples,
            tests=len(pairs),
            drawn=drawn,
            randomness=randomness,
            executor=executor,
        )
    findings.sort(key=lambda finding: finding.claim.epsilon - finding.lower)
    return Audit(mechanism.name, claim, samples, tuple(findings))


def _released(
    mechanism: Mechanism, pair: tuple[Outputs, Outputs], which: int, count: int, key: bytes
) -> Outputs:
    """Return `count` releases of a mechanism on the first or second input, from a seeded source."""
    return mechanism.release_many(pair[which], NoiseSource.keyed(key, b"audit"), count)


def neighbours(mechanism: Mechanism) -> list[tuple[Outputs, Outputs]]:
    """Return pairs of neighbouring inputs as far apart as allowed; ConfigError for unknown mechanisms."""
    match mechanism:
        case KaryRandomisedResponse():
            zeros = np.zeros(mechanism.changed, dtype=np.int64)
            return [(zeros, zeros + 1)]
        case RealMechanism():
            encoding = mechanism.encoding
            room = float(encoding.upper) - float(encoding.lower)
            origin = np.full(encoding.length, float(encoding.lower))
            return [
                (origin, np.minimum(origin + difference, float(encoding.upper)))
                for difference in _differences(mechanism.sensitivity, room)
            ]
        case DistributedSum():
            return neighbours(mechanism.share)
        case AdditiveNoise():
            origin = np.zeros(mechanism.sensitivity.dimension, dtype=np.int64)
            return [
                (origin, difference.astype(np.int64))
                for difference in _differences(mechanism.sensitivity, math.inf)
            ]
        case _:
            raise ConfigError(f"{mechanism.name}: neighbouring inputs are not known", ConfigCheck.UNSUPPORTED)


def _differences(bounds: Sensitivity, room: float) -> list[Floats]:
    """Return differences of neighbouring inputs, of at most `room` per coordinate, for an audit.

    One coordinate moves, or all coordinates that may.
    """
    single = np.zeros(bounds.dimension)
    single[0] = min(bounds.linf, room)
    moved = bounds.coordinates
    each = min(bounds.linf, bounds.l1 / moved, bounds.l2 / math.sqrt(moved), room)
    spread = np.zeros(bounds.dimension)
    spread[:moved] = math.floor(each * (1 + 1e-9)) if bounds.integer else each
    return [single] if moved == 1 else [single, spread]


def audit(
    sample: Sampler,
    claims: Sequence[Claim],
    samples: int,
    tests: int = 1,
    drawn: Drawn | None = None,
    randomness: Randomness | None = None,
    executor: Executor | None = None,
) -> list[Finding]:
    """Test privacy claims on samples of two neighbouring inputs; return two findings for each claim.

    Args:
        sample: the implementation on two neighbouring inputs.
        claims: all of them are made at once, such as points of one privacy profile.
        samples: how many releases to draw on each input, 10,000 to 2^27; half of them choose the events.
        tests: how many audits share the false-alarm rate of 0.001.
        drawn: counts releases while they are drawn.
        randomness: of the keys that releases are drawn with, one for each block of 16,384; None: the
            operating system's.
        executor: draws the blocks, to which it is sent `sample`; None: this process does.

    Raises:
        ConfigError: no claims, or numbers out of range.
        LocalError: a block has more or fewer releases than it was asked for; as of `run_shards`.
    """
    if not claims:
        raise ConfigError("an audit needs a claim", ConfigCheck.MISSING)
    if not LEAST_SAMPLES <= samples <= MAX_SAMPLES:
        raise ConfigError.at(
            "samples", f"must be between {LEAST_SAMPLES} and {MAX_SAMPLES}, is {samples}", ConfigCheck.RANGE
        )
    half = samples // 2
    rest = samples - half
    drawn = drawn or Drawn(None, samples, tests)
    outputs = _draw(sample, (half, rest), drawn, randomness or SystemRandomness(), executor)
    first = [next(outputs), next(outputs)]
    candidates = _candidates(first[0], first[1])
    # every finding has two one-sided bounds
    alarm = FALSE_ALARM / (tests * len(claims) * 2 * 2)
    low, high = _bounds(np.array([counts for _, counts in candidates]), half, alarm)
    chosen: list[tuple[Claim, int, _Event]] = []
    for claim in claims:
        for this in (0, 1):
            gain = (low[:, this] - claim.delta) / high[:, 1 - this]
            chosen.append((claim, this, candidates[int(np.argmax(gain))][0]))
    fresh = [next(outputs), next(outputs)]
    findings = []
    for claim, this, event in chosen:
        hits, others = event.count(fresh[this]), event.count(fresh[1 - this])
        lower = _lower(hits, others, rest, claim.delta, alarm)
        findings.append(Finding(claim, lower, hits, others, rest, str(event)))
    return sorted(findings, key=lambda finding: finding.claim.epsilon - finding.lower)


def _draw(
    sample: Sampler, counts: Sequence[int], drawn: Drawn, randomness: Randomness, executor: Executor | None
) -> Iterator[Outputs]:
    """Yield, for each count, so many samples on the first and then on the second input, drawn in blocks."""
    parts = [
        (which, [min(BLOCK, count - start) for start in range(0, count, BLOCK)])
        for count in counts
        for which in (0, 1)
    ]
    calls = ((which, size, randomness.bytes(KEY_BYTES)) for which, sizes in parts for size in sizes)
    blocks = run_shards(executor, sample, calls, "block of releases")
    for which, sizes in parts:
        taken = []
        # The sizes end first, so that no block of the next part is taken.
        for size, block in zip(sizes, blocks, strict=False):
            if len(block) != size:
                raise LocalError(f"a block of {size} releases has {len(block)}")
            drawn.add(which, block)
            taken.append(block)
        yield np.concatenate(taken)


def clopper_pearson(hits: int, samples: int, alarm: float) -> tuple[float, float]:
    """Return lower and upper confidence bounds on a probability, each wrong with chance `alarm` at most."""
    low, high = _bounds(np.array([hits]), samples, alarm)
    return float(low[0]), float(high[0])


def _bounds(hits: NDArray[np.int64], samples: int, alarm: float) -> tuple[Floats, Floats]:
    """Return lower and upper Clopper-Pearson confidence bounds for each count of hits."""
    misses = samples - hits
    low = np.where(hits == 0, 0.0, betaincinv(np.maximum(hits, 1), misses + 1, alarm))
    high = np.where(misses == 0, 1.0, betaincinv(hits + 1, np.maximum(misses, 1), 1 - alarm))
    return low, high


def _lower(hits: int, others: int, samples: int, delta: float, alarm: float) -> float:
    """Return a lower bound on epsilon from the counts of an event on two inputs; -infinity if none."""
    low, _ = clopper_pearson(hits, samples, alarm)
    _, high = clopper_pearson(others, samples, alarm)
    return math.log((low - delta) / high) if low > delta else -math.inf


def _candidates(first: Outputs, second: Outputs) -> list[tuple[_Event, tuple[int, int]]]:
    """Return output events that may tell two inputs apart, with their counts in these first samples."""
    result: list[tuple[_Event, tuple[int, int]]] = []
    for direction in _directions(first, second):
        scores = _scores(first, direction), _scores(second, direction)
        ordered = np.sort(scores[0]), np.sort(scores[1])
        # a stable sort merges two rows that are in order
        both = np.sort(np.concatenate(ordered), kind="stable")
        # tails count most: thresholds at quantiles that are close together there
        part = 0.5 ** np.linspace(1, math.log2(len(both)), _THRESHOLDS // 2)
        ranks = np.unique(np.concatenate((part, 1 - part)) * (len(both) - 1)).astype(np.int64)
        for threshold in np.unique(both[ranks]):
            below = tuple(int(np.searchsorted(row, threshold, "right")) for row in ordered)
            above = tuple(len(row) - int(np.searchsorted(row, threshold, "left")) for row in ordered)
            result.append((_Event(direction, float(threshold), True, None), (above[0], above[1])))
            result.append((_Event(direction, float(threshold), False, None), (below[0], below[1])))
    if first.shape[1] == 1:
        result += _value_sets(first[:, 0], second[:, 0])
    return result


def _value_sets(first: Outputs, second: Outputs) -> list[tuple[_Event, tuple[int, int]]]:
    """Return events that are sets of values, chosen by ratio of frequencies, with their counts."""
    values = np.unique(np.concatenate((first, second)))
    if len(values) > _FEW_VALUES:
        return []
    counts = [np.bincount(np.searchsorted(values, row), minlength=len(values)) for row in (first, second)]
    ratio = np.log((counts[0] + 1.0) / (counts[1] + 1.0))
    one = np.ones(1)
    result = []
    for order in (np.argsort(-ratio, kind="stable"), np.argsort(ratio, kind="stable")):
        sums = [np.cumsum(row[order]) for row in counts]
        for end in np.unique(np.geomspace(1, len(values), min(len(values), 200)).astype(np.int64)):
            event = _Event(one, 0.0, True, np.sort(values[order[:end]]))
            result.append((event, (int(sums[0][end - 1]), int(sums[1][end - 1]))))
    return result


def _directions(first: Outputs, second: Outputs) -> list[Floats]:
    """Return directions to project outputs on: Fisher's discriminant, and the difference of the means."""
    width = first.shape[1]
    if width == 1:
        return [np.ones(1)]
    a, b = first.astype(np.float64), second.astype(np.float64)
    difference = a.mean(axis=0) - b.mean(axis=0)
    spread = (np.cov(a, rowvar=False) + np.cov(b, rowvar=False)) / 2
    # keeps it regular where coordinates carry the same noise; small, so that this is what it finds
    spread += 1e-9 * (1 + np.trace(spread) / width) * np.eye(width)
    fisher = np.linalg.solve(spread, difference)
    directions = [fisher, difference]
    return [row / np.abs(row).max() for row in directions if np.abs(row).max() > 0] or [np.eye(width)[0]]


def _scores(outputs: Outputs, direction: Floats) -> Floats:
    """Return the projection of each output on a direction."""
    scores: Floats = outputs.astype(np.float64) @ direction
    return scores
