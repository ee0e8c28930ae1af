"""Bounds of papers hold on runs, with the factors that are printed wrongly or not at all."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.published_bounds import (
    MarginLoss,
    StepsWithoutReplacement,
    boosting_bound,
    classical_step_deviation,
    convex_bound,
    margin_loss_gap,
    strongly_convex_bound,
    utility_loss,
)

Floats = NDArray[np.float64]
RUN = StepsWithoutReplacement(
    nodes=10, records=60_000, batch=50, steps=120, dimension=50, deviation=0.1, gradient=1.0
)


def test_the_utility_loss_of_private_coordinate_descent_bounds_its_excess() -> None:
    """Quadratic losses of three parties, 1,000 runs of 30 ticks from zero, and from the minimum.

    Without the number of coordinates the noise's term is below what is measured from the minimum.
    """
    rng, p, ticks, runs = np.random.default_rng(1), 40, 30, 1_000
    weights = np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 1.0], [0.5, 1.0, 0.0]])
    objective = PersonalizedObjective(
        sparse.csr_array(weights), np.array([4, 8, 8]), 0.5, np.full(3, 0.5), 0.0
    )
    centres, wakes = rng.normal(size=(3, p)), rng.integers(0, 3, (ticks, runs))
    scaled, degrees = objective.degrees * objective.confidence, objective.degrees
    # F_u is |theta - centre|^2 / 2, all of it in what the objective takes for a ridge of 1/2.
    hessian = np.diag(scaled + 0.5 * degrees) - 0.5 * weights
    best = np.linalg.solve(hessian, scaled[:, None] * centres)

    def excess(away: Floats) -> float:
        return float(0.5 * np.einsum("...up,...vp,uv->...", away, away, hessian).mean())

    scales, every = np.array([0.2, 0.1, 0.1]), np.arange(runs)
    square, smallest = float((2 * p * (scaled * scales) ** 2).sum()), float(objective.blocks.min())
    for start in (np.zeros((3, p)), best):
        models = np.tile(start, (runs, 1, 1))
        for who in wakes:
            own = models[every, who]
            noisy = own - centres[who] + rng.laplace(size=own.shape) * scales[who][:, None]
            near = np.einsum("rv,rvp->rp", weights[who], models)
            slope = scaled[who][:, None] * noisy + 0.5 * (degrees[who][:, None] * own - near)
            models[every, who] = own - slope / objective.blocks[who][:, None]
        measured, gap = excess(models - best), excess(start - best)
        bound = utility_loss(gap, objective.contraction, smallest, 3, [square] * ticks)
        assert bound.start == pytest.approx(objective.contraction**ticks * gap)
        assert measured <= bound.total
    assert measured > utility_loss(0.0, objective.contraction, smallest, 3, [square / p] * ticks).total


def test_noise_of_a_late_tick_counts_in_full() -> None:
    loss = utility_loss(2.0, 0.5, 4.0, 3, [16.0, 24.0])
    assert (loss.start, loss.noise, loss.total) == (0.5, (8.0 + 24.0) / 24, 0.5 + 32 / 24)


def mean_loss(signed: Floats, model: Floats) -> float:
    return float(np.logaddexp(0, -signed @ model).mean())


def joined(
    records: Floats,
    loss: Callable[[Floats], float],
    slope: Callable[[Floats, Floats], Floats],
    start: Floats,
    rate: float,
    deviation: float,
    rng: np.random.Generator,
) -> float:
    """Return the mean loss over the steps of Algorithm 1, of two nodes, half of the steps global, b = 1."""
    length = len(start)
    shared, local, sums = start, np.array([start, start]), []
    for step, record in enumerate(rng.permutation(records)):
        node, is_global = step % 2, rng.random() < 0.5
        sums.append((loss(local[node]) + loss(shared)) / 2)
        down = rate * slope(record, shared if is_global else local[node])
        if is_global:
            noise = rng.normal(0, deviation, length)
            shared = local[node] = (shared + local[node]) / 2 - down - noise
        else:
            local[node] = local[node] - 2 * down
    return float(np.mean(sums))


def logistic_slope(record: Floats, model: Floats) -> Floats:
    return -record / (1 + math.exp(float(record @ model)))


def norm_slope(record: Floats, model: Floats) -> Floats:
    return model / max(float(np.linalg.norm(model)), 1e-12)


def norm(model: Floats) -> float:
    return float(np.linalg.norm(model))


@pytest.mark.parametrize(("distance", "deviation"), [(3.0, 0.0), (0.0, 0.01)])
def test_no_term_of_the_convex_bound_can_be_left_out(distance: float, deviation: float) -> None:
    """Losses |w|, from afar without noise, or from the minimiser with much: the bound is nearly reached."""
    rng, length, n, rate = np.random.default_rng(4), 60, 300, 0.01
    run = StepsWithoutReplacement(
        nodes=2, records=n, batch=1, steps=n, dimension=length, deviation=deviation, gradient=1.0
    )
    bound = convex_bound(run, rate, distance or 1e-9, 0.5)
    start = np.zeros(length)
    start[0] = distance
    measured = joined(np.zeros((n, 1)), norm, norm_slope, start, rate, deviation, rng)
    whole = bound.start + bound.gradients + bound.noise
    assert whole / 3 < measured <= whole
    assert measured > 3 * (bound.gradients + bound.printed_noise)


def test_the_convex_bound_holds_without_replacement() -> None:
    """Logistic losses, rows of norm 1, one pass: with noise or not, the first three terms are above it."""
    rng, n, length = np.random.default_rng(2), 200, 5
    table = rng.normal(size=(n, length))
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    labels = np.sign(table @ np.array([1.0, -1.0, 0.5, 0.0, 0.2]) + rng.normal(0, 1, n))
    signed, best = labels[:, None] * table, np.zeros(length)
    for _ in range(2_000):
        best += 4 * (signed / (1 + np.exp(signed @ best))[:, None]).mean(axis=0)
    radius = float(np.linalg.norm(best))
    for rate, deviation in ((0.1, 0.0), (1.0, 0.0), (0.1, 0.3)):
        run = StepsWithoutReplacement(
            nodes=2, records=n, batch=1, steps=n, dimension=length, deviation=deviation, gradient=1.0
        )
        # All models start at a distance of |best| from it.
        bound = convex_bound(run, rate, radius, 0.5)
        loss = functools.partial(mean_loss, signed)
        runs = [
            joined(signed, loss, logistic_slope, np.zeros(length), rate, deviation, rng) for _ in range(5)
        ]
        measured = float(np.mean(runs))
        assert measured - mean_loss(signed, best) <= bound.start + bound.gradients + bound.noise
        assert bound.sampling > 0


def test_terms_of_the_convex_bound_by_hand() -> None:
    """The noise of the paper's runs is .178 for d = 50, and .0036 as printed."""
    deviation = classical_step_deviation(0.1, 1.0, 50, 1.0, 60_000.0**-2)
    bound = convex_bound(msgspec.structs.replace(RUN, steps=1_200, deviation=deviation), 0.1, 2.0, 1.0)
    assert bound.noise == pytest.approx(0.178, rel=0.01)
    assert bound.printed_noise == pytest.approx(0.0036, rel=0.02)
    assert bound.start == pytest.approx(11 * 4 / (4 * 1_200 * 0.1))
    assert bound.gradients == pytest.approx(0.1)
    assert bound.sampling == pytest.approx(2 * (2 + 12 * 2**0.5) * 2 / 60_000**0.5)
    assert bound.total == pytest.approx(bound.start + bound.gradients + bound.noise + bound.sampling)


def quadratics(deviation: float, gamma: float, rounds: int) -> tuple[float, float]:
    """Return the squared distances from the minimum after Algorithm 1, 200 runs, and the longest gradient.

    Three nodes, fresh records, a = 1/2, steps 2/(gamma t).
    """
    rng, length, runs = np.random.default_rng(3), 20, 200
    shared, local, largest = np.zeros((runs, length)), np.zeros((3, runs, length)), 0.0
    best = np.full(length, 0.1)
    for t in range(1, rounds + 1):
        rate = 2 / (gamma * t)
        for node in range(3):
            is_global = rng.random((runs, 1)) < 0.5
            at = np.where(is_global, shared, local[node])
            slope = gamma * (at - best - rng.uniform(-0.1, 0.1, at.shape))
            largest = max(largest, float(np.linalg.norm(slope, axis=1).max()))
            both = (shared + local[node]) / 2 - rate * (slope + rng.normal(0, deviation, at.shape))
            local[node] = np.where(is_global, both, local[node] - 2 * rate * slope)
            shared = np.where(is_global, both, shared)
    away = ((local - best) ** 2).sum(axis=(0, 2)) + ((shared - best) ** 2).sum(axis=1)
    return float(away.mean()), largest


def test_the_strongly_convex_bound_needs_gamma_and_the_dimension() -> None:
    """The paper's noise term has neither 1/gamma^2 nor d: either way it is below what noise alone adds."""
    gamma, rounds = 0.1, 60
    exact, gradient = quadratics(0.0, gamma, rounds)
    run = msgspec.structs.replace(
        RUN, nodes=3, batch=1, steps=rounds, dimension=20, deviation=0.0, gradient=gradient
    )
    assert exact <= strongly_convex_bound(run, 1.0, gamma, 0.5).gradients
    noisy, gradient = quadratics(1.0, gamma, rounds)
    bound = strongly_convex_bound(
        msgspec.structs.replace(run, deviation=1.0, gradient=gradient), 1.0, gamma, 0.5
    )
    assert noisy <= bound.gradients + bound.noise
    assert bound.noise == pytest.approx(2 * 3 * 20 / (3 * 0.25 * gamma**2 * rounds))
    assert noisy - exact > max(bound.noise / 20, bound.noise * gamma**2)
    assert bound.total > bound.gradients + bound.noise


@pytest.mark.parametrize(
    ("change", "where"),
    [({"nodes": 0}, "nodes"), ({"steps": 1_201}, "steps"), ({"gradient": 0.0}, "gradient")],
)
def test_bad_runs_are_named(change: dict[str, float], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        convex_bound(msgspec.structs.replace(RUN, **change), 0.1, 2.0, 1.0)
    with pytest.raises(ConfigError, match="least"):
        strongly_convex_bound(RUN, 0.1, 0.1, 0.6)
    with pytest.raises(ConfigError, match="contraction"):
        utility_loss(1.0, 1.5, 1.0, 1, [])


def test_conditions_of_the_bounds_are_checked() -> None:
    with pytest.raises(ConfigError, match="steps: 1 take 1 batches of 50 without replace"):
        convex_bound(msgspec.structs.replace(RUN, records=10, steps=1), 0.1, 2.0, 1.0)
    # Theorem 4: each of the nodes takes T batches.
    with pytest.raises(ConfigError, match="steps: 121 take 1210 batches of 50 without replace"):
        strongly_convex_bound(msgspec.structs.replace(RUN, steps=121), 0.1, 0.1, 0.5)
    with pytest.raises(ConfigError, match=r"steps: 4 is not an integer in 5\.\."):
        strongly_convex_bound(msgspec.structs.replace(RUN, steps=4), 0.1, 0.1, 0.5)


@pytest.mark.parametrize(("epsilon", "delta", "where"), [(0, 1e-6, "epsilon"), (1.0, 2, "delta")])
def test_a_bad_budget_of_a_step_is_named(epsilon: float, delta: float, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        classical_step_deviation(0.1, 1.0, 50, epsilon, delta)


def test_no_bound_overflows() -> None:
    with pytest.raises(ConfigError, match="rate"):
        strongly_convex_bound(RUN, 1e-300, 1e-300, 0.5)
    with pytest.raises(ConfigError, match="gap"):
        utility_loss(1e300, 1.0, 1e-300, 1, [])
    extreme = msgspec.structs.replace(
        RUN, nodes=1, deviation=1e50, gradient=1e12, dimension=10**9, records=10**12, steps=5
    )
    assert math.isfinite(strongly_convex_bound(extreme, 1e-30, 1e-30, 1e-9).total)
    assert math.isfinite(convex_bound(extreme, 1e-30, 1e12, 1.0).total)
    assert math.isfinite(utility_loss(1e100, 1.0, 1e-100, 1, [1e100] * 10).total)


def loss_and_weights(loss: MarginLoss, margins: Floats) -> tuple[Floats, Floats]:
    """Return a party's loss and its derivative by each margin, over the last axis."""
    m = margins.shape[-1]
    if loss == "adaboost":
        terms = np.exp(-margins)
        total = terms.sum(axis=-1)
        return np.log(total), -terms / total[..., None]
    if loss == "logistic":
        return np.log1p(np.exp(-margins)).mean(axis=-1), -1 / (1 + np.exp(margins)) / m
    return ((1 - margins) ** 2).mean(axis=-1) / 2, (margins - 1) / m


@pytest.mark.parametrize("loss", ["adaboost", "logistic", "squared"])
def test_boosting_comes_as_near_as_is_bounded_for_other_losses(loss: MarginLoss) -> None:
    """Three parties, the mean of all 729 orders of six updates; the bound of the thesis is above ours."""
    rng, beta, coupling, n = np.random.default_rng(2), 0.8, 0.3, 3
    weights = np.array([[0.0, 1.0, 0.5], [1.0, 0.0, 2.0], [0.5, 2.0, 0.0]])
    degrees, confidence = weights.sum(axis=1), np.array([0.5, 1.0, 0.25])
    # The first predictor is good for one party and bad for its neighbour.
    records = [rng.uniform(-1, 1, (m, 2)) * 0.4 + [bias, 0.0] for m, bias in ((2, 0.6), (4, -0.6), (1, 0.6))]

    def objective(models: Floats) -> tuple[Floats, Floats]:
        apart = models[..., :, None, :] - models[..., None, :, :]
        value = coupling / 4 * np.einsum("uv,...uvk->...", weights, apart**2)
        gradient = coupling * np.einsum("uv,...uvk->...uk", weights, apart)
        for u, table in enumerate(records):
            own, slope = loss_and_weights(loss, models[..., u, :] @ table.T)
            value = value + degrees[u] * confidence[u] * own
            gradient[..., u, :] += degrees[u] * confidence[u] * (slope @ table)
        return value, gradient

    def split(flat: Floats) -> float:
        return float(objective((flat[:6] - flat[6:]).reshape(3, 2))[0])

    ball = {"type": "ineq", "fun": lambda flat: beta - flat.reshape(2, 3, 2).sum(axis=(0, 2))}
    least = minimize(
        split,
        np.zeros(12),
        method="SLSQP",
        bounds=[(0, None)] * 12,
        constraints=[ball],
        options={"ftol": 1e-12, "maxiter": 500},
    ).fun
    bound = boosting_bound(degrees.tolist(), confidence.tolist(), coupling, beta, loss)
    orders = np.array(list(itertools.product(range(n), repeat=6)))
    models, every = np.zeros((len(orders), n, 2)), np.arange(len(orders))
    for t in range(7):
        value, gradient = objective(models)
        gap = float(value.mean() - least)
        assert t or gap <= bound.gap
        assert (
            0
            < gap
            <= msgspec.structs.replace(bound, gap=float(objective(models[0] * 0)[0] - least)).excess(t)
        )
        assert t == 0 or bound.excess(t) < 6 * n * (bound.curvature + bound.gap) / t
        if t < 6:
            slope, step = gradient[every, orders[:, t]], 2 * n / (t + 1 + 2 * n)
            best = np.abs(slope).argmax(axis=1)
            models[every, orders[:, t]] *= 1 - step
            models[every, orders[:, t], best] -= step * beta * np.sign(slope[every, best])
    for excess in (bound.gap / 3, bound.gap / 50):
        ticks = bound.ticks(excess)
        assert bound.excess(ticks) <= excess < bound.excess(ticks - 1)
        assert ticks < bound.printed_ticks(excess)
    assert bound.ticks(1e9) == 0


@pytest.mark.parametrize("loss", ["adaboost", "logistic", "squared"])
@pytest.mark.parametrize("beta", [0.4, 1.7])
def test_the_curvature_and_the_gap_of_losses_of_margins_are_reached(loss: MarginLoss, beta: float) -> None:
    """By the second difference from -beta to beta at margins of 1 and -1, and by all margins of a record."""
    small = 1e-4

    def at(model: float) -> float:
        return float(loss_and_weights(loss, model * np.array([1.0, -1.0]))[0])

    curvature = (at(small) + at(-small) - 2 * at(0.0)) / small**2 * (2 * beta) ** 2
    bound = boosting_bound([1.0], [1.0], 1e-9, beta, loss)
    assert bound.curvature == pytest.approx(curvature, rel=1e-4)
    assert boosting_bound([2.0], [0.5], 3.0, beta, loss).curvature == pytest.approx(
        bound.curvature + 4 * beta**2 * 6
    )
    lowest = min(loss_and_weights(loss, np.array([margin]))[0] for margin in np.linspace(-beta, beta, 2001))
    start = float(loss_and_weights(loss, np.zeros(1))[0])
    assert margin_loss_gap(loss, beta) == pytest.approx(start - lowest, abs=1e-5)


def test_bad_boosting_is_named() -> None:
    with pytest.raises(ConfigError, match="coupling"):
        boosting_bound([1.0], [1.0], 0.0, 1.0, "adaboost")
    with pytest.raises(ConfigError, match="degrees"):
        boosting_bound([-1.0], [1.0], 1.0, 1.0, "adaboost")
