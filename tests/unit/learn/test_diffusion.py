"""Diffusion: the null space, the recursion, epsilon(i), what several links give away, and the bounds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.diffusion import diffuse, publish_models, update
from smpc_dp.capabilities.learn.topology import complete, erdos_renyi, mixing_gap, ring
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.diffusion import (
    DiffusionNoise,
    Kind,
    descent_bound,
    disagreement_bound,
    spread,
    stationarity_bound,
)
from smpc_dp.privacy.sampling import NoiseSource, discrete_laplace

Floats = NDArray[np.float64]


def source(seed: int = 0) -> NoiseSource:
    return NoiseSource.keyed(bytes(32), str(seed).encode())


class Tapped(PlainExchange):
    """Keeps what is sent and what arrives, mixed: all that an eavesdropper on all links has."""

    def __init__(self, parties: int) -> None:
        super().__init__(parties)
        self.sent: list[Floats] = []
        self.mixed: list[Floats] = []

    async def mix(self, vector: Floats, weights: sparse.csr_array) -> Floats:
        self.sent.append(vector)
        self.mixed.append(await super().mix(vector, weights))
        return self.mixed[-1]


def run(
    gradient: Callable[[Floats, int], Floats],
    weights: sparse.csr_array,
    length: int,
    steps: int,
    noise: DiffusionNoise | None,
    *,
    ridge: float = 0.0,
    step_size: float = 1.0,
    seed: int = 0,
) -> tuple[Floats, Tapped, list[Floats]]:
    parties = weights.shape[0]
    exchange, models = Tapped(parties), [np.zeros((parties, length))]
    result = asyncio.run(
        diffuse(
            exchange,
            weights,
            gradient,
            models[0],
            steps,
            step_size,
            ridge=ridge,
            noise=noise,
            source=None if noise is None else source(seed),
            watch=lambda _step, now: models.append(now),
        )
    )
    return result.models, exchange, models


def test_the_null_space_condition_holds_to_machine_precision() -> None:
    """(19) holds for the construction (20) itself, on the weights that the learner uses."""
    weights = erdos_renyi(20, 0.3, 1).metropolis()
    drawn = np.random.default_rng(1).laplace(size=(20, 5))
    dense = weights.toarray()
    q = np.tile(drawn[:, None, :], (1, 20, 1))  # q[l, k]
    own = weights.diagonal()[:, None]
    q[np.arange(20), np.arange(20)] = -(1 - own) / own * drawn
    total = np.einsum("lk,lkm->m", dense, q)
    scale = np.abs(dense[:, :, None] * q).sum(axis=(0, 1))
    assert np.all(np.abs(total) <= 4 * np.finfo(float).eps * scale)
    # For each agent by itself, too: the construction needs no coordination.
    each = np.einsum("lk,lkm->lm", dense, q)
    assert np.abs(each).max() <= 1e-13


@pytest.mark.parametrize("kind", ["homomorphic", "iid"])
def test_the_learner_is_the_recursion_of_the_paper(kind: Kind) -> None:
    """Edge by edge, with q_lk of (20): equal but for rounding to the grid and of mu rho."""
    parties, length, steps, mu, rho = 8, 3, 30, 0.5, 0.1
    weights = erdos_renyi(parties, 0.5, 2).metropolis()
    dense, targets = weights.toarray(), np.random.default_rng(3).normal(size=(parties, length))
    noise = DiffusionNoise.of_scale(kind, 1.0, mu, 50.0, length)
    result, _, _ = run(lambda w, _i: w - targets, weights, length, steps, noise, ridge=rho, step_size=mu)
    draws, models = source(), np.zeros((parties, length))
    for _ in range(steps):
        v = discrete_laplace(draws, parties * length, noise.scale).reshape(parties, length) * 2.0**-noise.bits
        phi = models - mu * (models - targets + rho * models)
        models = np.zeros_like(models)
        for k in range(parties):
            for j in range(parties):
                q = v[j]
                if kind == "homomorphic" and j == k:
                    q = -(1 - dense[k, k]) / dense[k, k] * v[k]
                models[k] += dense[j, k] * (phi[j] + q)
    np.testing.assert_allclose(result, models, atol=2e-4)


def test_the_centroid_does_not_see_the_noise() -> None:
    """Linear losses: the centroid is that of the run without noise; i.i.d. noise moves it."""
    weights, secret = ring(7).metropolis(), np.random.default_rng(4).uniform(-1, 1, (7, 4))
    plain, _, _ = run(lambda _w, _i: secret, weights, 4, 50, None, step_size=0.1)
    errors = {}
    for kind in ("homomorphic", "iid"):
        noise = DiffusionNoise.of_scale("iid" if kind == "iid" else "homomorphic", 1.0, 0.1, 10.0, 4)
        noisy, _, _ = run(lambda _w, _i: secret, weights, 4, 50, noise, step_size=0.1)
        errors[kind] = np.abs(noisy.mean(axis=0) - plain.mean(axis=0)).max()
        assert np.abs(noisy - plain).max() > 0.1
    assert errors["homomorphic"] < 50 * 2.0**-19
    assert errors["iid"] > 0.1


def log_ratio(
    exchange: Tapped,
    noise: DiffusionNoise,
    secret: Floats,
    other: Floats,
    shown: Floats | None = None,
    scale_shown: float = 1.0,
) -> float:
    """The log-likelihood ratio of all messages, agent 0 having `secret` (as it was) or `other`.

    Linear losses. Given the messages, other agents' noise is the same in both worlds. `shown`: agent 0's last
    model, published with noise of that scale, in grid steps.
    """
    unit, scale = 2.0**noise.bits, float(noise.scale)
    states, total = [np.zeros(len(secret)), np.zeros(len(secret))], 0.0
    for sent, mixed in zip(exchange.sent, exchange.mixed, strict=True):
        for world, slope in enumerate((secret, other)):
            phi = states[world] - np.trunc(noise.step_size * slope * unit * (1 - 1e-9))
            v = np.rint(sent[0] * unit) - phi
            total += (-1 if world == 0 else 1) * float(np.abs(v).sum()) / scale
            states[world] = np.rint(mixed[0] * unit) - (v if noise.kind == "homomorphic" else 0)
    if shown is not None:
        for world in (0, 1):
            off = float(np.abs(np.rint(shown * unit) - states[world]).sum())
            total += (-1 if world == 0 else 1) * off / scale_shown
    return total


@pytest.mark.parametrize("kind", ["homomorphic", "iid"])
def test_epsilon_is_reached_by_all_messages_together_and_never_exceeded(kind: Kind) -> None:
    """All coordinates differ by 2 G/M: as much as the l1 bound allows, sqrt(M) times the l2 norm."""
    length, steps, bound = 6, 5, 3.0
    secret = np.full(length, bound / length)
    noise = DiffusionNoise.of_scale(kind, 40.0, 0.5, bound, length)
    weights = complete(4).metropolis()
    ratios, rows = [], np.zeros((4, length))
    rows[0] = secret
    for seed in range(200):
        _, exchange, _ = run(lambda _w, _i: rows, weights, length, steps, noise, step_size=0.5, seed=seed)
        ratios.append(log_ratio(exchange, noise, secret, -secret))
    epsilon = noise.epsilon(steps)
    assert max(ratios) <= epsilon * (1 + 1e-6)
    assert max(ratios) > 0.5 * epsilon
    l2 = float(np.linalg.norm(secret))
    growth = steps**2 + steps if kind == "homomorphic" else 2 * steps
    assert epsilon == pytest.approx(0.5 * math.sqrt(length) * l2 * growth / 40.0, rel=1e-5)
    # (27) with the l2 norm, as printed, is exceeded.
    assert max(ratios) > epsilon / math.sqrt(length)


def test_a_published_model_costs_what_it_says_beside_the_messages() -> None:
    length, steps, bound, publish = 6, 5, 3.0, 0.7
    secret = np.full(length, bound / length)
    noise = DiffusionNoise.of_scale("homomorphic", 40.0, 0.5, bound, length)
    scale = noise.publication(steps, publish)
    weights = complete(4).metropolis()
    ratios, alone, rows = [], [], np.zeros((4, length))
    rows[0] = secret
    for seed in range(200):
        models, exchange, _ = run(
            lambda _w, _i: rows, weights, length, steps, noise, step_size=0.5, seed=seed
        )
        shown = publish_models(models, noise, steps, publish, source(seed + 1_000))
        ratios.append(log_ratio(exchange, noise, secret, -secret, shown[0], float(scale)))
        alone.append(log_ratio(exchange, noise, secret, -secret))
    claim = noise.guarantee(steps, publish=publish)
    assert claim.epsilon == pytest.approx(noise.epsilon(steps) + publish)
    assert max(ratios) <= claim.epsilon * (1 + 1e-6)
    assert max(ratios) > 0.5 * claim.epsilon
    # Beside the messages the model costs nearly all of its own part.
    assert 0.9 * publish < max(np.subtract(ratios, alone)) <= publish * (1 + 1e-6)
    assert "all published models" in claim.assumption
    # Each agent draws its own.
    apart = np.rint((shown - models) * 2.0**noise.bits)
    assert len(np.unique(apart)) == apart.size
    assert abs(np.abs(apart).mean() / float(scale) - 1) < 1.0
    with pytest.raises(ConfigError, match="noise covers models"):
        DiffusionNoise.of_scale("iid", 40.0, 0.5, bound, length).publication(steps, publish)


def test_updates_are_clipped_in_the_l1_norm_run_by_run() -> None:
    noise = DiffusionNoise.of_scale("iid", 1.0, 0.5, 2.0, 3)
    slopes = np.random.default_rng(6).normal(size=(50, 6)) * np.geomspace(1e-3, 1e6, 50)[:, None]
    result = update(slopes, noise).reshape(100, 3)
    norms, real = np.abs(result).sum(axis=1), slopes.reshape(100, 3)
    assert norms.max() <= noise.update
    short = np.abs(real).sum(axis=1) <= 2
    np.testing.assert_allclose(result[short] * 2.0**-noise.bits, 0.5 * real[short], atol=2.0**-noise.bits)
    assert norms[~short].min() >= noise.update * (1 - 1e-5)
    far = update(np.array([[1e308, -1e308, 5e307, 1e305, 1.0, 0.0]]), noise).reshape(2, 3)
    assert np.all((np.abs(far).sum(axis=1) <= noise.update) & (far[:, 0] > 0.39 * noise.update))
    unit = result[~short] / norms[~short, None]
    np.testing.assert_allclose(unit, real[~short] / np.abs(real[~short]).sum(axis=1)[:, None], atol=1e-5)


def test_several_links_give_the_sum_of_gradients_away_under_a_single_noise() -> None:
    """Who sees what agent 0 receives and sends adds up m - psi: noise telescopes, the secret does not.

    Error of v_i / (mu i) alone; 60 b away from 0 a Laplace variable is with chance 1e-26.
    """
    steps, length = 2_000, 3
    secret = np.array([0.8, -0.3, 0.5])
    rows = np.zeros((5, length))
    rows[0] = secret
    weights = ring(5).metropolis()
    noise = DiffusionNoise.of_scale("homomorphic", 1.0, 1.0, 2.0, length)
    models, exchange, _ = run(lambda _w, _i: rows, weights, length, steps, noise)
    before = [np.zeros(length)] + [mixed[0] for mixed in exchange.mixed[:-1]]
    total = sum(was - sent[0] for was, sent in zip(before, exchange.sent, strict=True))
    assert np.abs(total / steps - secret).max() < 60 / steps
    # One link less, and there is nothing to subtract from.
    assert np.abs(-exchange.sent[-1][0] / steps - secret).max() > 0.1
    # And with the model of agent 0, published, nothing is left of the noise.
    last = exchange.mixed[-1][0] - models[0]
    assert np.abs((total + last) / steps - secret).max() < 1e-5
    # i.i.d. noise does not telescope: the same sum is left with one noise for each step.
    free = DiffusionNoise.of_scale("iid", 1.0, 1.0, 2.0, length)
    _, exchange, _ = run(lambda _w, _i: rows, weights, length, steps, free)
    before = [np.zeros(length)] + [mixed[0] for mixed in exchange.mixed[:-1]]
    total = sum(was - sent[0] for was, sent in zip(before, exchange.sent, strict=True))
    assert np.abs(total - steps * secret).max() > 20


def test_the_claim_says_what_is_outside() -> None:
    noise = DiffusionNoise.of_scale("homomorphic", 1.0, 0.1, 2.0, 4)
    claim = noise.guarantee(10)
    assert "average of all models, which has no noise" in claim.assumption
    assert claim.epsilon == pytest.approx(0.1 * 2.0 * 110)
    assert claim.delta == 0
    assert "square" in claim.warnings[0]
    with pytest.raises(PrivacyError, match=r"10 steps cost epsilon = 22, the budget is 3: enough for 3"):
        noise.guarantee(10, budget=3.0)
    for kind in ("homomorphic", "iid"):
        planned = DiffusionNoise.plan("iid" if kind == "iid" else "homomorphic", 0.7, 30, 0.1, 2.0, 4)
        assert 0.7 * (1 - 1e-3) < planned.epsilon(30) <= 0.7


def test_disagreement_bound_needs_the_dimension() -> None:
    """No gradients, own weights 1/2: noise alone. The printed (28) fails for M = 30, ours holds."""
    parties, length, runs = 20, 30, 20
    dense = np.full((parties, parties), 0.5 / (parties - 1))
    np.fill_diagonal(dense, 0.5)
    weights = sparse.csr_array(dense)
    noise = DiffusionNoise.of_scale("homomorphic", 1.0, 1.0, 1.0, length)
    _, _, models = run(lambda w, _i: np.zeros_like(w), weights, length * runs, 30, noise)
    away = models[-1] - models[-1].mean(axis=0)
    measured = float((away**2).sum() / (parties * runs))
    gap = mixing_gap(weights)
    printed = 2 * spread(weights) / gap
    assert printed < measured <= disagreement_bound(weights, gap, 1.0, 0.0, 1.0, length)
    values = np.linalg.eigvalsh(dense)[:-1]
    exact = 2 * length * float(((1 - values) / (1 + values)).sum()) / parties
    assert measured == pytest.approx(exact, rel=0.05)  # 12,000 squares


def test_disagreement_and_descent_hold_on_quadratics() -> None:
    """Gradients of norm at most G, mean over 400 runs; the bounds are left by far more than their error."""
    parties, length, runs, mu = 6, 2, 400, 0.05
    weights = ring(parties).metropolis()
    gap = mixing_gap(weights)
    targets = np.random.default_rng(5).normal(size=(parties, 1, length))
    noise = DiffusionNoise.of_scale("homomorphic", 0.05, mu, 100.0, length)
    largest = [0.0]

    def gradient(models: Floats, _step: int) -> Floats:
        slope = models.reshape(parties, runs, length) - targets
        largest[0] = max(largest[0], float(np.linalg.norm(slope, axis=2).max()))
        return slope.reshape(models.shape)

    _, _, models = run(gradient, weights, length * runs, 60, noise, step_size=mu)
    centroids = [now.reshape(parties, runs, length).mean(axis=0) for now in models]
    away = [
        float(((now.reshape(parties, runs, length) - c) ** 2).sum(axis=2).mean())
        for now, c in zip(models, centroids, strict=True)
    ]
    bound = disagreement_bound(weights, gap, mu, largest[0], noise.real_scale, length)
    assert max(away) <= bound
    context = [float((0.5 * ((c - targets) ** 2).sum(axis=2)).mean()) for c in centroids]
    slopes = [float(((c - targets.mean(axis=0)) ** 2).sum(axis=1).mean()) for c in centroids]
    for i in range(1, 61):
        fall = context[i] - context[i - 1]
        assert fall <= descent_bound(mu, 1.0, largest[0], slopes[i - 1], away[i - 1])
        assert fall <= descent_bound(mu, 1.0, largest[0], slopes[i - 1], bound)
    assert context[60] < context[0]
    # (31) for any number of steps; without its noise it would be wrong.
    gap = context[0] - float((0.5 * ((targets - targets.mean(axis=0)) ** 2).sum(axis=2)).mean())
    for i in range(1, 61):
        assert np.mean(slopes[:i]) <= stationarity_bound(mu, 1.0, largest[0], gap, bound, i)
    assert stationarity_bound(0.1, 2.0, 3.0, 1.0, 5.0, 4) == pytest.approx(2 / 0.4 + 4 * 5 + 0.1 * 2 * 9)


def test_bad_requests_are_named() -> None:
    weights, start = ring(5).metropolis(), np.zeros((5, 2))
    exchange, noise = PlainExchange(5), DiffusionNoise.of_scale("iid", 1.0, 1.0, 1.0, 2)

    def make(named: str, *, error: type[Exception] = ConfigError, **change: object) -> None:
        request: dict[str, object] = {
            "weights": weights,
            "gradient": lambda w, _i: np.zeros_like(w),
            "start": start,
            "steps": 5,
            "step_size": 1.0,
        }
        with pytest.raises(error, match=named):
            asyncio.run(diffuse(exchange, **(request | change)))  # type: ignore[arg-type]

    two = sparse.block_diag([complete(3).metropolis(), complete(2).metropolis()], format="csr")
    make("disconnected", weights=sparse.csr_array(two))
    swap = np.eye(4)[[1, 0, 3, 2]]
    with pytest.raises(ConfigError, match="bipartite"):
        asyncio.run(
            diffuse(PlainExchange(4), sparse.csr_array(swap), lambda w, _i: w, np.zeros((4, 1)), 1, 0.1)
        )
    make("symmetric", weights=sparse.csr_array(np.triu(np.ones((5, 5)))))
    make("shape must be", weights=ring(6).metropolis())
    make("at most 1/rho", ridge=2.0)
    make("steps: must be at least 1", steps=0)
    make("source", noise=noise)
    make("no multiple of M = 2", noise=noise, source=source(), start=np.zeros((5, 3)))
    make("is for steps of 1", noise=noise, source=source(), step_size=0.5)
    called = []

    def count(models: Floats, step: int) -> Floats:
        called.append(step)
        return models

    make(
        "enough for 2",
        error=PrivacyError,
        noise=noise,
        source=source(),
        budget=4.0,
        gradient=count,
    )
    assert not called, "refused before the first step"
    make(
        "step_size: the descent diverges: at step 15 party 0 has a coordinate",
        steps=100,
        gradient=lambda w, _i: -9 * w + 1,
    )
    make("step 1 has no finite gradient", gradient=lambda w, _i: w + np.nan)
    for bad in ({"scale": 0.0}, {"l1_bound": math.inf}, {"dimension": 0}):
        named = {"scale": 1.0, "step_size": 1.0, "l1_bound": 1.0, "dimension": 1} | bad
        with pytest.raises(ConfigError, match=next(iter(bad))):
            DiffusionNoise.of_scale("iid", **named)
