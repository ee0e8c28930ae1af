"""Bounds of papers on the error of learners with noise, with the factors that the papers leave out.

P: Bellet, Guerraoui, Taziki, Tommasi 2018. J: Jin, He, Dai 2018. T: Bellet 2021. What differs from
the printed formulas, and the tests that show it: docs/proofs/errata.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from smpc_dp.errors import ConfigCheck
from smpc_dp.privacy.arguments import ArgumentChecks

# Of a strongly convex loss: the induction for (10) begins there.
LEAST_ROUNDS = 5
# Of a local or a global step.
LEAST_CHANCE = 1e-9
# Of what bounds divide by: no bound overflows.
LEAST_NUMBER = 1e-30


class UtilityLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of a published bound on the loss of private decentralised coordinate descent after T updates."""

    ticks: int
    """T, updates of all parties together."""
    start: float
    """C^T (M(Theta(0)) - M*)."""
    noise: float
    """sum_t C^(T-1-t) E|noise(t)|^2 / (2 n L_min)."""

    @property
    def total(self) -> float:
        """Sum of the terms: the published bound on the loss from private training."""
        return self.start + self.noise


def utility_loss(
    gap: float, contraction: float, smallest: float, parties: int, squares: Sequence[float]
) -> UtilityLoss:
    """Return the bound of a paper's Theorem 2 on private coordinate descent, parties waking at random.

    As printed, but noise of tick t has the weight C^(T-1-t), and its squared norm counts all coordinates.

    Args:
        gap: M(Theta(0)) - M*. contraction: C, from 0 to 1. smallest: L_min, of the blocks' gradients.
        parties: n.
        squares: by tick t, sum_u E|d_u c_u eta_u(t)|^2 of the noise eta_u on party u's mean gradient:
            2 p (d_u c_u s_u)^2 summed for Laplace noise of scale s_u in p coordinates.

    Raises:
        ConfigError: an argument is out of range.
    """
    checks = ArgumentChecks()
    checks.require_within("gap", gap, 0.0, 1e100)
    checks.require_within("contraction", contraction, 0.0, 1.0)
    checks.require_within("smallest", smallest, 1e-100, 1e12)
    checks.require_integer("parties", parties, 1, 10**9)
    for square in squares:
        checks.require_within("squares", square, 0.0, 1e100)
    checks.raise_issues()
    ticks, noise = len(squares), 0.0
    for square in squares:
        noise = contraction * noise + square
    return UtilityLoss(ticks=ticks, start=contraction**ticks * gap, noise=noise / (2 * parties * smallest))


class StepsWithoutReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of published bounds: a private learning run whose batches are drawn without replacement."""

    nodes: int
    """M."""
    records: int
    """n, of all nodes together."""
    batch: int
    """b."""
    steps: int
    """T, batches that are taken: (9) counts those of all nodes, (10) those of each."""
    dimension: int
    """d, of a model: the paper has no such factor."""
    deviation: float
    """Of each coordinate of the noise eta N on a global step."""
    gradient: float
    """B, of a batch's gradient; and L, of a record's: its norm at most."""

    def check(self) -> None:
        """Raise ConfigError unless the arguments of the bounds are in range."""
        checks = ArgumentChecks()
        for name, value in (("nodes", self.nodes), ("records", self.records), ("batch", self.batch)):
            checks.require_integer(name, value, 1, 10**12)
        checks.require_integer("steps", self.steps, 1, self.records)
        checks.require_integer("dimension", self.dimension, 1, 10**9)
        checks.require_within("deviation", self.deviation, 0.0, 1e50)
        checks.require_positive("gradient", self.gradient)
        checks.raise_issues()


def _require_records(checks: ArgumentChecks, run: StepsWithoutReplacement, batches: int) -> None:
    """Record a fault unless the run has enough records for so many batches."""
    if batches * run.batch > run.records:
        checks.add_issue(
            "steps",
            f"{run.steps} take {batches} batches of {run.batch} without replacement: more than the "
            f"{run.records} records",
            ConfigCheck.RANGE,
        )


class ConvexBound(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of a published bound (9) on the mean excess loss of private steps, for convex losses."""

    start: float
    """(M + 1) R^2 / (4 T eta)."""
    gradients: float
    """eta B^2."""
    noise: float
    """d Var(eta N) / (2 eta), times the part of the steps that is global."""
    printed_noise: float
    """The same without d, as the paper prints it."""
    sampling: float
    """Of batches without replacement: 0 for fresh ones; for losses of linear scores alone."""

    @property
    def total(self) -> float:
        """Sum of the terms: the published bound on the mean excess loss."""
        return self.start + self.gradients + self.noise + self.sampling


def classical_step_deviation(rate: float, gradient: float, batch: int, epsilon: float, delta: float) -> float:
    """Return the deviation of a step's Gaussian noise by the classical formula, scaled by the rate.

    As the paper prints it: epsilon < 1 is the condition of its Theorem 1, and above it nothing is proven.

    Raises:
        ConfigError: an argument is out of range.
    """
    checks = ArgumentChecks()
    checks.require_positive("rate", rate)
    checks.require_positive("gradient", gradient)
    checks.require_integer("batch", batch, 1, 10**12)
    checks.require_budget(epsilon, delta)
    checks.raise_issues()
    return math.sqrt(2 * math.log(1.25 / delta)) * 2 * rate * gradient / (batch * epsilon)


def convex_bound(run: StepsWithoutReplacement, rate: float, diameter: float, part: float) -> ConvexBound:
    """Return a published bound (9) on the excess loss after steps of private SGD on a convex loss.

    The first three terms are proven for fresh batches (docs/proofs/local-global.md), the last is the paper's.

    Args:
        rate: eta. diameter: R, of the set of models. part: of the steps that are global, from 0 to 1.

    Raises:
        ConfigError: an argument is out of range.
    """
    run.check()
    checks = ArgumentChecks()
    checks.require_within("rate", rate, LEAST_NUMBER, 1e12)
    checks.require_positive("diameter", diameter)
    checks.require_within("part", part, 0.0, 1.0)
    _require_records(checks, run, run.steps)
    checks.raise_issues()
    noise = run.deviation**2 / (2 * rate) * part
    taken, n = run.batch * run.steps, run.records
    factor = 2 * (2 + 12 * math.sqrt(2)) * diameter * run.gradient / 3
    return ConvexBound(
        start=(run.nodes + 1) * diameter**2 / (4 * run.steps * rate),
        gradients=rate * run.gradient**2,
        noise=run.dimension * noise,
        printed_noise=noise,
        sampling=factor * (math.sqrt(taken) / n + 2 / (math.sqrt(n) + math.sqrt(n - taken))),
    )


class StronglyConvexBound(msgspec.Struct, frozen=True, kw_only=True):
    """Terms of a published bound (10) on models' squared distances from the optimum, strongly convex."""

    gradients: float
    """4 M B^2 / (3 a^2 gamma^2 t)."""
    noise: float
    """2 M d Var(N) / (3 a^2 gamma^2 t), Var(N) of a coordinate of the noise on a gradient."""
    sampling: float
    """M B^2 log t / (a^2 gamma^2 b t): the paper's order, with the factor 1."""

    @property
    def total(self) -> float:
        """Sum of the terms: the published bound, if the factor of `sampling` is 1."""
        return self.gradients + self.noise + self.sampling


def strongly_convex_bound(
    run: StepsWithoutReplacement, rate: float, convexity: float, least: float
) -> StronglyConvexBound:
    """Return a published bound (10) on models' distance from the optimum, for a strongly convex loss.

    The paper gives orders, without gamma and d. The first two terms are proven for fresh batches and
    LEAST_ROUNDS or more (docs/proofs/local-global.md); noise is that of steps of `rate`, for a gradient.

    Args:
        rate: eta of the run's `deviation`. convexity: gamma.
        least: a, the least chance of a local, or of a global step, at most a half.

    Raises:
        ConfigError: an argument is out of range.
    """
    run.check()
    checks = ArgumentChecks()
    checks.require_within("rate", rate, LEAST_NUMBER, 1e12)
    checks.require_within("convexity", convexity, LEAST_NUMBER, 1e12)
    checks.require_within("least", least, LEAST_CHANCE, 0.5)
    checks.require_integer("steps", run.steps, LEAST_ROUNDS, max(LEAST_ROUNDS, run.records))
    _require_records(checks, run, run.nodes * run.steps)
    checks.raise_issues()
    common = run.nodes / (least * convexity) ** 2 / run.steps
    return StronglyConvexBound(
        gradients=4 * common * run.gradient**2 / 3,
        noise=2 * common * run.dimension * (run.deviation / rate) ** 2 / 3,
        sampling=common * run.gradient**2 * math.log(run.steps) / run.batch,
    )


MarginLoss = Literal["adaboost", "logistic", "squared"]
# Of a party's loss as a function of its records' margins: the curvature, for changes of at most 1 of each.
MARGIN_CURVATURES: dict[MarginLoss, float] = {"adaboost": 1.0, "logistic": 0.25, "squared": 1.0}


def margin_loss_gap(loss: MarginLoss, beta: float) -> float:
    """Return how far a margin loss can fall, at most, from margins 0 to margins of `beta`.

    "adaboost" is (2.4) of T; the others are means over the records of log(1 + exp(-margin)) and of
    (1 - margin)^2 / 2.
    """
    if loss == "adaboost":
        return beta
    if loss == "logistic":
        return math.log(2) - math.log1p(math.exp(-beta))
    return (1 - max(0.0, 1 - beta) ** 2) / 2


class BoostingBound(msgspec.Struct, frozen=True, kw_only=True):
    """Published bound on the excess loss of decentralised Frank-Wolfe (boosting), started from models 0.

    Proven in docs/proofs/boosting.md.
    """

    parties: int
    """n."""
    curvature: float
    """C_M: 4 beta^2 sum_u d_u (c_u L + lambda_1), L the curvature of the loss, for margins of at most 1."""
    gap: float
    """p_0 = M(0) - M* at most."""

    def excess(self, ticks: int) -> float:
        """Return the bound on the excess loss after `ticks` updates of all parties together."""
        n = self.parties
        return 2 * n * self._scale / (ticks + 2 * n + 1)

    def ticks(self, excess: float) -> int:
        """Return the least number of updates after which the bound is at most `excess` (> 0)."""
        n = self.parties
        return max(0, math.ceil(2 * n * self._scale / excess) - 2 * n - 1)

    def printed_ticks(self, excess: float) -> int:
        """Return the number of updates by the thesis' formula, 6 n (C_M + p_0) / excess, rounded up."""
        return math.ceil(6 * self.parties * (self.curvature + self.gap) / excess)

    @property
    def _scale(self) -> float:
        """Factor of the bound: the larger of the curvature and a multiple of the first gap."""
        n = self.parties
        return max(self.curvature, self.gap * (2 * n + 1) / (2 * n))


def boosting_bound(
    degrees: Sequence[float], confidence: Sequence[float], coupling: float, beta: float, loss: MarginLoss
) -> BoostingBound:
    """Return the bound on decentralised boosting for this graph, confidence weights and margin loss.

    Args:
        degrees, confidence: d_u and c_u of all parties. coupling: lambda_1. beta: l1 norm of a model, at
        most. Base predictors are between -1 and 1.

    Raises:
        ConfigError: an argument is out of range.
    """
    checks = ArgumentChecks()
    for name, values in (("degrees", degrees), ("confidence", confidence)):
        for value in values:
            checks.require_within(name, value, 0.0, 1e100)
    checks.require_integer("parties", len(degrees), 1, 10**9)
    checks.require_positive("coupling", coupling)
    checks.require_within("beta", beta, 0.0, 1e50)
    checks.raise_issues()
    weights = [degree * share for degree, share in zip(degrees, confidence, strict=True)]
    curved = MARGIN_CURVATURES[loss] * sum(weights) + coupling * sum(degrees)
    return BoostingBound(
        parties=len(degrees), curvature=4 * beta**2 * curved, gap=sum(weights) * margin_loss_gap(loss, beta)
    )
