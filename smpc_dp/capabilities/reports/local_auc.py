"""AUC, the area under the ROC curve, under local differential privacy, labels public [Bellet 2021, 3.3.3].

Each party reports the position of its score in a binary tree; the aggregator walks down both labels' trees at
once, breadth first, and leaves out nodes that would add more noise than information.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.capabilities.pairs.kernels.fields import Codes, Field, Floats, checked_labels
from smpc_dp.capabilities.pairs.kernels.named import auc
from smpc_dp.capabilities.reports.local import FINGERPRINT_BYTES, noise_source
from smpc_dp.capabilities.reports.local_estimate import (
    LocalEstimate,
    interval_of,
    local_privacy,
    stack_reports,
)
from smpc_dp.capabilities.reports.local_tree import MAX_PARTIES, Histogram, Oracle, Tree
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.result import Privacy
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.local_auc import Split

A = 2.0
"""a of Theorem 3.5: a count is taken to be sqrt(a V) / 2 at least where a node may be discarded."""
MAX_NODES = 1 << 20
"""Of one level; a threshold that lets through more is too small."""


@dataclass(frozen=True)
class LocalAuc:
    """Public plan of locally private reports for the AUC of scores: randomises scores, and estimates."""

    score: Field
    tree: Tree

    @classmethod
    def plan(
        cls,
        score: Field,
        epsilon: float,
        *,
        levels: int,
        oracle: Oracle = "hadamard",
        split: Split = "users",
        coins: bytes | None = None,
    ) -> Self:
        """Return a plan of AUC reports; draws the public coins unless given, which members must share.

        Args:
            score: the range of a score and its grid.
            epsilon: of one party's report, above 0, at most 100.
            levels: scores are rounded to 2^levels runs of the grid, at most its points rounded up.
            oracle, split, coins: see `Tree`. With "hadamard" and "users" a report is one bit.

        Raises:
            ConfigError: an argument is out of range.
        """
        tree = Tree(levels, epsilon, oracle, split, secrets.token_bytes(32) if coins is None else coins)
        if levels > max(1, score.steps.bit_length()):
            raise ConfigError.at(
                "levels", f"2^{levels} is more than the grid's {score.steps + 1} points", ConfigCheck.RANGE
            )
        return cls(score, tree)

    @property
    def event(self) -> Event:
        """The privacy event that a party's ledger charges for one report."""
        return self.tree.event

    @property
    def epsilon(self) -> float:
        """The epsilon that one report spends, for all its answers together."""
        return self.privacy.epsilon or 0.0

    @property
    def privacy(self) -> Privacy:
        """The privacy claim of a party's single report, whoever sees it."""
        together = replace(self.tree.response(1), changed=self.tree.width).guarantee(0.0)
        return local_privacy(msgspec.structs.replace(together, mechanism=self.event.mechanism))

    @cached_property
    def fingerprint(self) -> bytes:
        """Hash of 8 bytes at the start of each report, which tells plans apart."""
        tree = self.tree
        terms = {
            "score": self.score.terms(),
            "levels": tree.levels,
            "oracle": tree.oracle,
            "split": tree.split,
            "ratio": str(tree.response(1).ratio),
            "coins": tree.coins.hex(),
        }
        return digest(Label.LOCAL_AUC, msgspec.json.encode(terms))[:FINGERPRINT_BYTES]

    def randomise(
        self,
        score: float,
        party: int,
        *,
        ledger: Ledger | None = None,
        label: str = "",
        run: bytes | None = None,
    ) -> bytes:
        """Randomise a party's score into a report's bytes; charges the ledger, if given, before.

        Each call is a release of its own. With `ledger` that is charged, durably, before anything is drawn.

        Args:
            party: the party's public number, from 0, different for each party.
            run: what the ledger charges, once; None: at random.

        Raises:
            PrivacyError: the score is outside of its range, or the ledger refuses. ConfigError: a wrong
            number. LocalError: the ledger cannot be written.
        """
        codes = self.score.codes([score])
        parties = checked_parties([party], 1)
        if ledger is not None:
            ledger.charge(run or secrets.token_bytes(16), self.event, label)
        answers = self.tree.answer(self._leaves(codes), parties, noise_source(None))
        return self.fingerprint + self.tree.encode(answers)[0]

    def randomise_many(
        self, scores: ArrayLike, parties: ArrayLike | None = None, randomness: Randomness | None = None
    ) -> Codes:
        """Randomise many parties' scores at once; return their answers, for simulations.

        `parties`: their numbers, by default 0..n-1; `randomness` None is the operating system's. Raises
        PrivacyError, ConfigError.
        """
        codes = self.score.codes(scores)
        if codes.ndim != 1:
            raise ConfigError.at(
                "scores", f"shape {codes.shape} is not one score for each party", ConfigCheck.SHAPE
            )
        return self.tree.answer(
            self._leaves(codes), checked_parties(parties, len(codes)), noise_source(randomness)
        )

    def _leaves(self, codes: Codes) -> Codes:
        """Return the tree's leaf into which each encoded score falls."""
        return (codes << self.tree.levels) // (self.score.steps + 1)

    def reports(self, answers: Codes) -> list[bytes]:
        """Encode each party's randomised answers as a report's bytes."""
        return [self.fingerprint + row for row in self.tree.encode(answers)]

    def estimate(
        self,
        reports: Sequence[bytes] | Codes,
        labels: ArrayLike,
        *,
        parties: ArrayLike | None = None,
        ties: float = 0.5,
        threshold: float | None = None,
        confidence: float = 0.95,
        lost: float = 0.0,
    ) -> LocalEstimate:
        """Return the estimated AUC of rounded scores, from reports and the parties' public labels.

        With fewer leaves than grid points scores that differ tie: no bound on that bias is known.

        A node whose counts have a product below the threshold is not entered: half of the pairs below it
        count [Bellet 2021, 3.3.3]. The root is always entered. The standard error is that of the
        responses and coins, for these parties; it leaves out negative covariances.

        Args:
            reports: from `randomise`, or the answers of `randomise_many`.
            labels: public, 0 or 1 for each report.
            parties: the number of each report's party, by default 0..n-1.
            ties: what a pair of equal rounded scores counts, 0 to 1; (3.11) has 0, which is the same where
                there are none.
            threshold: tau, of counts times counts; 0 enters all nodes. None: 4 (V+ + V-), with which the
                squared bias is at most what the first level alone may add to the variance.
            lost: the standard error from parties that are missing, which is added to that.

        Raises:
            ConfigError: a report is not one, a party reports twice, labels are not labels, an argument is out
            of range, or the threshold lets through more than 2^20 nodes of a level.
        """
        if not 0 < confidence < 1:
            raise ConfigError.at("confidence", f"must be between 0 and 1, is {confidence}", ConfigCheck.RANGE)
        if not 0 <= ties <= 1:
            raise ConfigError.at("ties", f"must be 0 to 1, is {ties}", ConfigCheck.RANGE)
        if threshold is not None and not 0 <= threshold < math.inf:
            raise ConfigError.at("threshold", f"must be 0 or more, is {threshold}", ConfigCheck.RANGE)
        numbers = checked_parties(parties, len(reports))
        answers = self._checked(reports, numbers)
        public_labels = checked_labels(labels, len(answers))
        up, down = (self.tree.histogram(numbers, answers, public_labels == label) for label in (1, 0))
        walk = Walk(up, down, ties, threshold)
        for level in range(1, self.tree.levels + 1):
            walk.descend(level, last=level == self.tree.levels)
        pairs = up.parties * down.parties
        value, error = walk.total / pairs, math.hypot(math.sqrt(walk.variance) / pairs, lost)
        discarded = min(1.0, math.sqrt(walk.discarded_below / pairs)) / 2
        is_rounded = 1 << self.tree.levels <= self.score.steps
        kernel = auc(self.score)
        return LocalEstimate(
            statistic=kernel.name,
            value=value,
            standard_error=error,
            standard_error_bound=None,
            bias_bound=None if is_rounded else discarded,
            confidence=confidence,
            # Of few reports nothing is proven that is less than the whole range.
            interval=interval_of(
                value,
                error,
                discarded,
                confidence,
                (kernel.low, kernel.high),
                pairs=min(up.parties, down.parties),
                spread=math.inf,
                bound=None,
            ),
            reports=len(answers),
            categories=1 << self.tree.levels,
            privacy=self.privacy,
            visited=walk.visited,
        )

    def answers(self, reports: Sequence[bytes], parties: ArrayLike) -> Codes:
        """Decode the reports of these parties to their randomised answers; ConfigError if invalid."""
        numbers = checked_parties(parties, len(reports))
        rows = stack_reports(reports, self.fingerprint, FINGERPRINT_BYTES + self.tree.size)
        return self.tree.decode(rows[:, FINGERPRINT_BYTES:], numbers)

    def _checked(self, reports: Sequence[bytes] | Codes, parties: Codes) -> Codes:
        """Return randomised answers, decoded if given as reports; raise ConfigError if invalid."""
        if not isinstance(reports, np.ndarray):
            return self.answers(reports, parties)
        if reports.ndim != 2 or reports.shape[1] != self.tree.width or reports.dtype.kind not in "iu":
            reason = f"{reports.dtype} {reports.shape}, not integers (n, {self.tree.width})"
            raise ConfigError.at("reports", reason, ConfigCheck.FORMAT)
        return self.tree.checked(reports.astype(np.int64, copy=False), parties)


class Walk:
    """Estimator of the AUC: walks down two tree histograms, level by level, summing products of counts.

    Attributes: total, the unnormalised AUC so far; variance, an estimate of its variance; visited, nodes
    whose counts were estimated; discarded_below, the greatest threshold that a node fell short of.
    """

    def __init__(self, up: Histogram, down: Histogram, ties: float, threshold: float | None) -> None:
        self._up, self._down, self._ties, self._threshold = up, down, ties, threshold
        self.total = self._estimated = self._least = 0.0
        self.visited, self.discarded_below = 0, 0.0
        self._nodes: Codes = np.zeros(1, dtype=np.int64)
        self._enter: NDArray[np.bool_] = np.ones(1, dtype=np.bool_)

    @property
    def variance(self) -> float:
        """The estimated variance of the sum so far, at least the known part of empty nodes."""
        return max(self._estimated, self._least)

    def descend(self, level: int, *, last: bool) -> None:
        """Add a tree level's part of the AUC to `total`; choose nodes to enter; ConfigError if too many."""
        enter = self._enter
        children = (2 * self._nodes[:, None] + np.arange(2)).ravel()
        if len(children) > MAX_NODES:
            reason = f"lets through {len(children)} nodes of level {level}, more than {MAX_NODES}"
            raise ConfigError.at("threshold", reason, ConfigCheck.TOO_LARGE)
        self.visited += len(children)
        up, down = (tree.counts(level, children).reshape(-1, 2) for tree in (self._up, self._down))
        noise = self._up.variance(level), self._down.variance(level)
        half_up, half_down = up[~enter].sum(axis=1) / 2, down[~enter].sum(axis=1) / 2
        self.total += 2 * float(half_up @ half_down)
        self._add((half_down, half_down), (half_up, half_up), noise, len(half_up))
        up, down = up[enter], down[enter]
        self.total += float(up[:, 1] @ down[:, 0])
        if not last:
            self._add((down[:, 0],), (up[:, 1],), noise, len(up))
            self._choose(level, children.reshape(-1, 2)[enter].ravel(), up.ravel(), down.ravel())
            return
        t = self._ties
        self.total += t * float((up * down).sum())
        self._add(
            (down[:, 0] + t * down[:, 1], t * down[:, 0]),
            (up[:, 1] + t * up[:, 0], t * up[:, 1]),
            noise,
            (1 + 2 * t * t) * len(up),
        )

    def _add(
        self, by_up: Sequence[Floats], by_down: Sequence[Floats], noise: tuple[float, float], products: float
    ) -> None:
        """Add the estimated variance of a sum of products of noisy counts to the walk's variance.

        `by_up` are estimates of what each estimate of label 1 is multiplied by, and their own noise counts:
        E[w^2] is the square of the mean and the variance. `products`: the sum of the squared coefficients.
        """
        both = products * noise[0] * noise[1]
        squares = [math.fsum(float(w @ w) for w in weights) for weights in (by_up, by_down)]
        self._estimated += noise[0] * squares[0] + noise[1] * squares[1] - both
        self._least += both

    def _choose(self, level: int, nodes: Codes, up: Floats, down: Floats) -> None:
        """Choose the nodes to enter on the next level: those whose counts' product reaches the threshold."""
        least = [math.sqrt(A * tree.variance(level)) / 2 for tree in (self._up, self._down)]
        threshold = self._threshold
        if threshold is None:
            threshold = 4 * (self._up.variance(level + 1) + self._down.variance(level + 1))
        self._nodes = nodes
        self._enter = np.maximum(up, least[0]) * np.maximum(down, least[1]) >= threshold
        if not self._enter.all():
            self.discarded_below = max(self.discarded_below, threshold)


def checked_parties(parties: ArrayLike | None, count: int) -> Codes:
    """Return the parties' distinct numbers, by default 0, 1, ...; raise ConfigError for invalid ones."""
    if parties is None:
        return np.arange(count, dtype=np.int64)
    array = np.asarray(parties)
    if array.shape != (count,) or array.dtype.kind not in "iu":
        reason = f"{array.dtype} {array.shape} is not an integer for each of {count} reports"
        raise ConfigError.at("parties", reason, ConfigCheck.FORMAT)
    if count and not (array.min() >= 0 and array.max() < MAX_PARTIES):
        raise ConfigError.at("parties", "a number is not in 0..2^40-1", ConfigCheck.RANGE)
    if len(np.unique(array)) < count:
        raise ConfigError.at("parties", "a party reports twice", ConfigCheck.DUPLICATE)
    return array.astype(np.int64)
