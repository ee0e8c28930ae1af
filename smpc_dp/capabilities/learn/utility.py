"""How well learners with noise do, by the bounds of papers, from public numbers alone.

The bounds: `privacy.published_bounds` and `privacy.diffusion`. What a party learns may be far better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective
from smpc_dp.capabilities.learn.local_global import LocalGlobal
from smpc_dp.capabilities.learn.pairing_schedule import graph_of
from smpc_dp.capabilities.learn.topology import mixing_gap
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.diffusion import DiffusionNoise, disagreement_bound, stationarity_bound
from smpc_dp.privacy.published_bounds import (
    LEAST_CHANCE,
    LEAST_ROUNDS,
    ConvexBound,
    MarginLoss,
    StepsWithoutReplacement,
    StronglyConvexBound,
    UtilityLoss,
    boosting_bound,
    classical_step_deviation,
    convex_bound,
    strongly_convex_bound,
    utility_loss,
)
from smpc_dp.privacy.record_gradients import grid_bits, plan_gradient_noise

Shape = Literal["ring", "complete"]
# Of the gap at the start, for which `boosting_utility` counts updates.
SHARES = (0.5, 0.2, 0.1, 0.01)


class PersonalizedUtility(msgspec.Struct, frozen=True, kw_only=True):
    """Result: bounds on the excess of private personalised models, for more and more updates."""

    contraction: float
    """C, of a tick."""
    smallest: float
    """L_min."""
    gap: float
    """M(0) - M* at most: logistic losses are ln 2 at the model 0."""
    updates: list[int]
    """T_u, of each party."""
    losses: list[UtilityLoss]
    """The bound after that many."""
    best: int
    """T_u of the least bound."""


@checks_numbers
def personalized_utility(
    sizes: Sequence[int],
    shape: Shape,
    length: int,
    epsilon: float,
    delta: float,
    *,
    most: int,
    coupling: float,
    ridge: float,
    record_bound: float,
) -> PersonalizedUtility:
    """Return excess bounds of private logistic models that start at 0, by number of updates.

    Args:
        sizes: m_u. length: of a model. most: updates of each party; powers of 2 below it are tried too.
        coupling, ridge, record_bound: as of the learner `personalized`.

    Raises:
        ConfigError: an argument is out of range, or the noise is too large.
    """
    checks = ArgumentChecks()
    checks.require_integer("updates", most, 1, 100_000)
    checks.require_integer("length", length, 1, 10_000_000)
    checks.require_positive("record_bound", record_bound)
    checks.require_within("ridge", ridge, 0.0, 1e12)
    checks.require_budget(epsilon, delta)
    checks.raise_issues()
    counts = np.array(sizes, dtype=np.intp)
    weights = graph_of(shape, len(sizes)).adjacency
    reach = math.hypot(record_bound, 1.0)
    objective = PersonalizedObjective(weights, counts, coupling, ridge / np.maximum(counts, 1), reach**2 / 4)
    bits = grid_bits(reach * objective.reaches)
    gap = float(objective.degrees @ objective.confidence) * math.log(2)
    updates = sorted({2**power for power in range(most.bit_length()) if 2**power <= most} | {most})
    losses = []
    for count in updates:
        shares = [1.0] * count
        noise = [
            plan_gradient_noise(epsilon, delta, shares, reach * float(one), bits) for one in objective.reaches
        ]
        # Noise on a model is L_u times as large on the gradient of M.
        variances = np.array([math.ldexp(float(one.variances[0]), -2 * bits) for one in noise])
        square = float((objective.blocks**2 * length * variances).sum())
        ticks = [square] * (count * len(sizes))
        smallest = float(objective.blocks.min())
        losses.append(utility_loss(gap, objective.contraction, smallest, len(sizes), ticks))
    best = int(np.argmin([one.total for one in losses]))
    return PersonalizedUtility(
        contraction=objective.contraction,
        smallest=float(objective.blocks.min()),
        gap=gap,
        updates=updates,
        losses=losses,
        best=updates[best],
    )


class BoostingUtility(msgspec.Struct, frozen=True, kw_only=True):
    """Result: the number of updates that suffice for boosting without noise, and its constants."""

    curvature: float
    """C_M."""
    gap: float
    """M(0) - M* at most."""
    excesses: list[float]
    """E[M(Theta(T))] - M*: some values below the gap."""
    ticks: list[int]
    """T, updates of all parties together that suffice for them."""
    printed_ticks: list[int]
    """As the thesis prints them."""


@checks_numbers
def boosting_utility(
    sizes: Sequence[int], shape: Shape, beta: float, coupling: float, loss: MarginLoss
) -> BoostingUtility:
    """Return how many updates suffice for boosting without noise, on a graph with weights 1.

    Args:
        sizes: m_u. beta, coupling: as of the learner `personalized-boosting`.

    Raises:
        ConfigError: an argument is out of range.
    """
    checks = ArgumentChecks()
    checks.require_positive("beta", beta)
    checks.raise_issues()
    none = np.zeros(len(sizes))
    weights = graph_of(shape, len(sizes)).adjacency
    objective = PersonalizedObjective(weights, np.array(sizes, dtype=np.intp), coupling, none, 0.0)
    bound = boosting_bound(objective.degrees.tolist(), objective.confidence.tolist(), coupling, beta, loss)
    excesses = [bound.gap * share for share in SHARES]
    return BoostingUtility(
        curvature=bound.curvature,
        gap=bound.gap,
        excesses=excesses,
        ticks=[bound.ticks(excess) for excess in excesses],
        printed_ticks=[bound.printed_ticks(excess) for excess in excesses],
    )


class LocalGlobalUtility(msgspec.Struct, frozen=True, kw_only=True):
    """Result: the error bounds (9) and (10) of [Jin, He, Dai] for local and global models."""

    rounds: int
    """T, batches of each node."""
    deviation: float
    """Of each coordinate of a global step, of the product's noise."""
    published_deviation: float
    """The paper's, by the classical Gaussian mechanism."""
    convex: ConvexBound
    """(9), with the product's noise."""
    strongly_convex: StronglyConvexBound | None
    """(10), likewise; null without a ridge, if all steps are global, or before its first round."""
    largest_rate: float
    """1/(2 mu). The steps of (10) are below it only from this round on:"""
    permitted_from: int | None


def local_global_utility(settings: LocalGlobal, nodes: int, records: int) -> LocalGlobalUtility:
    """Return the error bounds for one pass of all nodes over `records` records in all.

    Raises:
        ConfigError: the settings, which the learner does not refuse, have no epsilon or delta, or there are
            too few records.
    """
    checks = ArgumentChecks()
    checks.require_budget(settings.epsilon, settings.delta)
    checks.raise_issues()
    noise, rate, gradient = settings.noise, settings.rate, settings.reach
    # Of the ridge too, in the ball.
    steepest = gradient + settings.ridge * settings.radius
    deviation = 0.0 if noise is None else math.ldexp(math.sqrt(noise.variances[0]), -settings.bits)
    run = StepsWithoutReplacement(
        nodes=nodes,
        records=records,
        batch=settings.batch,
        steps=nodes * settings.rounds,
        dimension=settings.loss.length,
        deviation=deviation,
        gradient=steepest,
    )
    part, strongly, permitted = settings.chance, None, None
    if settings.ridge and part < 1 and settings.rounds >= LEAST_ROUNDS:
        least, convexity = min(part, 1 - part), settings.ridge
        checks.require_within("chance", part, LEAST_CHANCE, 1 - LEAST_CHANCE)
        checks.raise_issues()
        each = msgspec.structs.replace(run, steps=settings.rounds)
        strongly = strongly_convex_bound(each, rate, convexity, least)
        permitted = math.ceil(1 / (least * convexity * settings.largest_rate))
    epsilon, delta = settings.epsilon or 0.0, settings.delta or 0.0
    return LocalGlobalUtility(
        rounds=settings.rounds,
        deviation=deviation,
        published_deviation=classical_step_deviation(rate, gradient, settings.batch, epsilon, delta),
        convex=convex_bound(run, rate, 2 * settings.radius, part),
        strongly_convex=strongly,
        largest_rate=settings.largest_rate,
        permitted_from=permitted,
    )


class DiffusionUtility(msgspec.Struct, frozen=True, kw_only=True):
    """Result: the noise of homomorphic diffusion, and its error bounds [Vlaski and Sayed 2020]."""

    scale: float
    """b_v, of the Laplace noise in each coordinate."""
    epsilon: float
    """epsilon(i) after all steps."""
    mixing_gap: float
    """1 - lambda_2."""
    disagreement: float
    """(28): of models from their centroid, mean square at most."""
    stationarity: float
    """(31): the mean over the steps of |grad J|^2 at the centroid at most."""
    stationarity_exact: float
    """The same without noise."""


@checks_numbers
def diffusion_utility(
    parties: int,
    shape: Shape,
    length: int,
    steps: int,
    step_size: float,
    clip: float,
    epsilon: float,
    *,
    smoothness: float,
    gap: float,
) -> DiffusionUtility:
    """Return the least homomorphic noise of diffusion for `epsilon`, and the error bounds with it.

    Args:
        length: of a model. clip: G, of gradients in the l1 norm. smoothness: delta, of the losses.
        gap: J(w_c,0) less the least value of J.

    Raises:
        ConfigError: an argument is out of range.
    """
    checks = ArgumentChecks()
    checks.require_positive("smoothness", smoothness)
    checks.require_positive("clip", clip, 1e9)
    checks.require_positive("gap", gap)
    checks.raise_issues()
    noise = DiffusionNoise.plan("homomorphic", epsilon, steps, step_size, clip, length)
    weights = graph_of(shape, parties).metropolis()
    mixing = mixing_gap(weights)
    apart = [
        disagreement_bound(weights, mixing, step_size, clip, scale, length)
        for scale in (noise.real_scale, 0.0)
    ]
    noisy, exact = (stationarity_bound(step_size, smoothness, clip, gap, of, steps) for of in apart)
    return DiffusionUtility(
        scale=noise.real_scale,
        epsilon=noise.epsilon(steps),
        mixing_gap=mixing,
        disagreement=apart[0],
        stationarity=noisy,
        stationarity_exact=exact,
    )
