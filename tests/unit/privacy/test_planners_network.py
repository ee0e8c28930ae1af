"""Plans for walking tokens: computed privacy against linear algebra, enumeration, quadrature and walks.

Seeds are fixed. Where a mean over simulated walks must not exceed a bound, 5 standard errors are granted:
over the choice of the seed a right bound fails with chance below 3e-7.
"""

from __future__ import annotations

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from numpy.typing import NDArray
from scipy.stats import binom, norm

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.gaussian import gaussian_delta, gaussian_mu
from smpc_dp.privacy.network import complete, curves, histogram, mixture, published, ring

Floats = NDArray[np.float64]


def test_array_curve_is_the_scalar_one() -> None:
    for epsilon in (0.0, 0.01, 1.0, 7.0, 50.0):
        for mu in (0.0, 1e-6, 0.1, 1.0, 5.0, 30.0):
            ours, exact = float(curves.hockey_stick(epsilon, mu)), gaussian_delta(epsilon, mu)
            assert ours == pytest.approx(exact, rel=1e-6, abs=1e-250)


def test_sampled_curve_bounds_every_pair() -> None:
    """The party takes part with chance q and moves the mean by a or, substituted, by a'.

    |a|, |a'|, |a - a'| <= 1.
    """
    grid = np.linspace(-30, 30, 60_001)
    step = grid[1] - grid[0]
    for q, sigma in ((0.01, 0.5), (0.2, 1.0), (0.9, 2.0)):
        curve = curves.sampled_gaussian(q, 1 / sigma)
        none = norm.pdf(grid, 0, sigma)
        for a, other in ((1.0, 0.0), (0.5, -0.5), (0.3, 1.0), (0.0, 1.0), (-1.0, 0.0)):
            p = (1 - q) * none + q * norm.pdf(grid, a, sigma)
            p_other = (1 - q) * none + q * norm.pdf(grid, other, sigma)
            for epsilon in (0.0, 0.05, 0.5, 1.5):
                bound = float(curve(np.array([epsilon]))[0])
                for one, two in ((p, p_other), (p_other, p)):
                    delta = float(np.maximum(one - math.exp(epsilon) * two, 0).sum() * step)
                    assert delta <= bound + 1e-6
        # It is attained: present against absent.
        p = (1 - q) * none + q * norm.pdf(grid, 1.0, sigma)
        exact = float(np.maximum(p - math.exp(0.05) * none, 0).sum() * step)
        assert float(curve(np.array([0.05]))[0]) == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(
    ("times", "mu", "epsilon"), [(1, 0.3, 1.0), (40, 0.1, 0.7), (500, 0.02, 1.0), (30, 2e-5, 1e-3)]
)
def test_composition_of_gaussians_is_gaussian(times: int, mu: float, epsilon: float) -> None:
    exact = gaussian_delta(epsilon, mu * math.sqrt(times))
    computed = curves.composed_delta(epsilon, [(curves.sampled_gaussian(1.0, mu), times)])
    assert exact <= computed <= exact * 1.02 + 3e-12


def test_mixed_parts_compose() -> None:
    parts = [(curves.sampled_gaussian(1.0, 0.1), 30), (curves.seen_gaussians(1, 1.0, 0.4), 2)]
    exact = gaussian_delta(1.0, math.sqrt(30 * 0.01 + 2 * 0.16))
    assert exact <= curves.composed_delta(1.0, parts) <= exact * 1.02


def test_spotted_curve_is_a_binomial_mean() -> None:
    curve = curves.seen_gaussians(5, 0.3, 0.8)
    exact = sum(
        math.comb(5, s) * 0.3**s * 0.7 ** (5 - s) * gaussian_delta(0.5, 0.8 * math.sqrt(s)) for s in range(6)
    )
    assert float(curve(np.array([0.5]))[0]) == pytest.approx(exact, rel=1e-6)
    many = curves.seen_gaussians(4_000, 0.5, 0.01)
    exact = sum(
        float(binom.pmf(s, 4_000, 0.5)) * gaussian_delta(0.5, 0.01 * math.sqrt(s)) for s in range(4_001)
    )
    assert exact <= float(many(np.array([0.5]))[0]) <= 1.2 * exact


# Distributions of the squared shift


def walk_shift(path: list[int], limit: int, colluders: int, cap: int | None) -> float:
    """The sum of 1/g for party 0 on a path, parties 1..colluders colluding, the end seen by all."""
    total, given, direct = 0.0, 0, 0
    for t, party in enumerate(path):
        if party != 0 or given == limit:
            continue
        given += 1
        after = next((s for s in range(t + 1, len(path)) if path[s] <= colluders), len(path))
        if cap is not None and after == t + 1 < len(path) and path[after] != 0:
            direct += 1
            if direct > cap * colluders:
                continue
        total += 1 / (after - t)
    return total


@pytest.mark.parametrize("colluders", [1, 3])
def test_gap_law_covers_simulated_walks(colluders: int) -> None:
    """The end of the walk, which everybody sees, and the limit on contributions included."""
    n, steps, limit, mu, epsilon = 12, 60, 6, 0.9, 0.8
    rng = np.random.default_rng(7)
    paths = rng.integers(0, n, (4_000, steps)).tolist()
    shifts = np.array([walk_shift(path, limit, colluders, None) for path in paths])
    deltas = curves.hockey_stick(epsilon, mu * np.sqrt(shifts))
    distribution = complete.gaps_distribution(n, colluders, limit, None, 1e-9)
    error = float(deltas.std()) / math.sqrt(len(deltas))
    assert float(deltas.mean()) - 5 * error <= distribution.delta(epsilon, mu) <= float(deltas.mean()) * 1.6
    assert float(distribution.mass.sum()) + distribution.beyond == pytest.approx(1, abs=1e-6)
    capped = complete.gaps_distribution(n, colluders, limit, 1, 1e-9)
    fewer = np.array([walk_shift(path, limit, colluders, 1) for path in paths])
    less = curves.hockey_stick(epsilon, mu * np.sqrt(fewer))
    error = float(less.std()) / math.sqrt(len(less))
    assert (
        float(less.mean()) - 5 * error
        <= capped.delta(epsilon, mu)
        <= distribution.delta(epsilon, mu) * (1 + 1e-3)
    )


@pytest.mark.long
def test_a_law_with_a_cap_on_edges_is_grouped_upwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of contributions take as many transforms as groups, and cost next to no noise."""
    sums: list[int] = []
    summed = mixture.summed

    def counted(
        distribution: mixture.ShiftDistribution, times: int, tail: float
    ) -> mixture.ShiftDistribution:
        sums.append(times)
        return summed(distribution, times, tail)

    monkeypatch.setattr(mixture, "summed", counted)
    grouped = complete.gaps_distribution(4, 1, 500, 20, 1e-9)
    assert len(sums) <= 34
    monkeypatch.setattr(mixture, "_GROUPS", 10_000)
    exact = complete.gaps_distribution(4, 1, 500, 20, 1e-9)
    for mu in (0.1, 0.2):
        assert exact.delta(1.0, mu) <= grouped.delta(1.0, mu) <= 1.01 * exact.delta(1.0, mu)


@pytest.mark.long
@pytest.mark.parametrize(("n", "times"), [(3, 36_000), (10, 60_000), (200, 20_000)])
def test_a_law_of_many_contributions_is_not_below_its_mean(n: int, times: int) -> None:
    """Rounded up, and nothing comes round the end of the grid as a small sum."""
    gaps = np.arange(1, 100_000)
    stop = 2 / n
    mean = times * float(((1 - stop) ** (gaps - 1) * stop / gaps).sum())
    distribution = complete.gaps_distribution(n, 1, times, None, 1e-9)
    assert mean <= distribution.mean() <= 1.02 * mean
    assert distribution.beyond < 1e-6


def test_a_coarser_law_is_rounded_up() -> None:
    distribution = mixture.ShiftDistribution(
        np.array([0.1, 0.2, 0.3, 0.1, 0.2, 0.05, 0.03, 0.02]), 0.5, 0.0
    ).coarser(4)
    np.testing.assert_allclose(distribution.mass, [0.1, 0.5, 0.3, 0.08])
    assert distribution.step == 1.0
    assert distribution.beyond == pytest.approx(0.02)


def test_contributions_beyond_the_grid_are_refused() -> None:
    with pytest.raises(ConfigError, match="limit contributions"):
        complete.gaps_distribution(3, 1, 3_000_000, None, 1e-9)
    with pytest.raises(ConfigError, match="limit contributions"):
        complete.gaps_distribution(3, 1, 200_000, 1, 1e-9)


def test_law_of_a_sum_is_that_of_direct_convolution() -> None:
    values, weights = np.array([0.0, 0.11, 0.5]), np.array([0.5, 0.3, 0.2])
    distribution = mixture.tabulate(values, weights, 0.01, 400)
    direct = np.array([1.0])
    for _ in range(5):
        direct = np.convolve(direct, distribution.mass[:60])
    several = mixture.summed(distribution, 5, 0.0)
    assert np.abs(several.mass[: len(direct)] - direct).max() < 1e-15
    assert several.mean() == pytest.approx(5 * distribution.mean())
    assert distribution.mean() >= float(values @ weights)
    end = mixture.grid_end(values, weights, 5, 1e-3)
    assert float(several.mass[math.ceil(end / 0.01) :].sum()) <= 1e-3


def test_blocks_of_contractive_noisy_steps_are_bounded_and_visits_alone_do_not_bound_them() -> None:
    """x <- c x + shift + noise with |c| <= 1: the exact shift of what is seen, against the sum of 1/g."""
    rng = np.random.default_rng(8)
    broken = 0
    for _ in range(2_000):
        length = int(rng.integers(1, 9))
        contracts = rng.choice([0.0, 0.3, 1.0], length)
        mine = rng.random(length) < 0.4
        shift, variance = 0.0, 0.0
        for factor, own in zip(contracts, mine, strict=True):
            shift, variance = factor * shift + (1.0 if own else 0.0), factor**2 * variance + 1.0
        exact = shift**2 / variance
        indices = [*np.flatnonzero(mine).tolist(), length]
        ours = sum(1 / (b - a) for a, b in itertools.pairwise(indices))
        papers = sum(1 / (length - a) for a in indices[:-1])
        assert exact <= ours + 1e-12
        broken += exact > papers + 1e-12
    assert broken > 0


# The ring


def ring_mu(n: int, rounds: int, variances: Floats, last: float, observers: tuple[int, ...]) -> float:
    """The largest mean shift of a party's K unit contributions in what observers see, by linear algebra."""
    indices = n * rounds
    rows = [t for t in range(indices) if t % n in observers]  # seen on receipt, before one's own hop
    basis = np.tril(np.ones((indices + 1, indices)), -1)
    views = np.vstack([basis[rows], basis[indices]])
    own = np.array([t % n in observers for t in range(indices)])
    noise = (views * np.where(own, 0.0, variances)) @ views.T
    noise[-1, -1] += last if n - 1 not in observers else 0.0
    worst = 0.0
    for party in set(range(n)) - set(observers):
        for signs in itertools.product((-1.0, 1.0), repeat=rounds):
            shift = views[:, party::n] @ np.array(signs)
            inverse = np.linalg.pinv(noise, rcond=1e-10)
            if np.abs(noise @ inverse @ shift - shift).max() > 1e-6:
                return math.inf  # seen without noise
            worst = max(worst, float(shift @ inverse @ shift))
    return math.sqrt(worst)


@pytest.mark.parametrize(("n", "rounds"), [(4, 1), (5, 2), (4, 3), (3, 3), (4, 4)])
def test_ring_sum_against_linear_algebra(n: int, rounds: int) -> None:
    indices = n * rounds
    single = np.array([1.0 if t % (n - 1) == 0 else 0.0 for t in range(indices)])
    last = ring.single_noises(n, rounds) - float(single.sum())
    assert last in (0.0, 1.0)
    mus = [ring_mu(n, rounds, single, last, (v,)) for v in range(n)]
    assert max(mus) == pytest.approx(math.sqrt(rounds))
    bare = max(ring_mu(n, rounds, single, 0.0, (v,)) for v in range(n))
    assert (bare == math.inf) is ((rounds - 1) % (n - 1) != 0)  # Algorithm 4.2 as printed
    spread = np.full(indices, 1 / (n - 1))
    spread[[0, -1]] = 1.0
    assert float(spread.sum()) == pytest.approx(ring.distributed_variance(n, rounds))
    assert max(ring_mu(n, rounds, spread, 0.0, (v,)) for v in range(n)) <= math.sqrt(rounds) + 1e-9
    printed = np.full(indices, 1 / n)
    printed[0] = 1.0
    # Remark 4.2 as printed: the last party's last contribution has its own small noise alone.
    assert max(ring_mu(n, rounds, printed, 0.0, (v,)) for v in range(n)) > math.sqrt(rounds) * 1.1


def test_two_colluders_on_the_ring_need_local_noise() -> None:
    each = np.ones(10)
    assert ring_mu(5, 2, each, 0.0, (0, 2)) == pytest.approx(math.sqrt(2))
    plan = ring.plan_ring_sum(
        5, 2, 1.0, 0.01, sensitivity=3.0, noise="distributed", colluding=2, method="exact"
    )
    assert plan.sigma == plan.local == pytest.approx(3 * math.sqrt(2) / gaussian_mu(1.0, 0.01))
    assert plan.error_std == plan.local_error_std
    with pytest.raises(ConfigError, match="two colluding neighbours"):
        ring.plan_ring_sum(5, 2, 1.0, 0.01, sensitivity=3.0, colluding=2)


def test_ring_theorem_is_valid_and_refuses_beyond_its_range() -> None:
    exact = ring.plan_ring_sum(1000, 10, 1.0, 1e-6, sensitivity=1.0)
    theorem = ring.plan_ring_sum(1000, 10, 1.0, 1e-6, sensitivity=1.0, method="theorem")
    assert exact.sigma is not None
    assert theorem.sigma is not None
    assert theorem.sigma > exact.sigma
    with pytest.raises(ConfigError, match=r"Theorem A.5 .* epsilon < 1"):
        ring.plan_ring_sum(1000, 1, 9.0, 1e-6, sensitivity=1.0, method="theorem")
    assert ring.plan_ring_sum(1000, 1, 9.0, 1e-6, sensitivity=1.0).sigma


# Histograms


def shuffled_delta(epsilon: float, beta: float, d: int, others: list[int]) -> float:
    """The exact delta of a histogram of randomised responses, one value 0 against 1, by enumeration."""

    def distribution(values: list[int]) -> dict[tuple[int, ...], float]:
        counts: dict[tuple[int, ...], float] = {(0,) * d: 1.0}
        for value in values:
            more: dict[tuple[int, ...], float] = {}
            for seen, chance in counts.items():
                for answer in range(d):
                    key = tuple(c + (i == answer) for i, c in enumerate(seen))
                    more[key] = more.get(key, 0.0) + chance * (beta / d + (1 - beta) * (answer == value))
            counts = more
        return counts

    one, two = distribution([0, *others]), distribution([1, *others])
    return sum(max(0.0, chance - math.exp(epsilon) * two[key]) for key, chance in one.items())


@pytest.mark.parametrize(("d", "beta"), [(2, 0.4), (3, 0.6)])
def test_blanket_bounds_enumerated_shuffling(d: int, beta: float) -> None:
    others = 8
    blankets, lost = histogram._blankets(others, beta)
    pmf = histogram._segment(blankets, beta, d, lost)
    for epsilon in (0.0, 0.3, 1.0):
        bound = pmf.get_delta_for_epsilon(epsilon)
        worst = max(
            shuffled_delta(epsilon, beta, d, [value] * k + [0] * (others - k))
            for value in range(d)
            for k in (0, others // 2, others)
        )
        assert worst <= bound + 1e-12
        assert bound <= 1.6 * worst + 0.02


def test_fixed_blanket_is_exact() -> None:
    """m uniform answers and one of randomised response, by enumeration of three cells."""
    m, beta, d = 5, 0.3, 3
    uniform = shuffled_delta
    pmf = histogram._segment([(m, 1.0)], beta, d, 0.0)

    def distribution(value: int) -> dict[tuple[int, int, int], float]:
        result: dict[tuple[int, int, int], float] = {}
        for cells in itertools.product(range(d), repeat=m):
            for answer in range(d):
                drawn = [*cells, answer]
                key = (drawn.count(0), drawn.count(1), drawn.count(2))
                chance = (1 / d) ** m * (beta / d + (1 - beta) * (answer == value))
                result[key] = result.get(key, 0.0) + chance
        return result

    one, two = distribution(0), distribution(1)
    for epsilon in (0.1, 0.5, 1.0):
        exact = sum(max(0.0, c - math.exp(epsilon) * two[key]) for key, c in one.items())
        assert exact <= pmf.get_delta_for_epsilon(epsilon) <= exact + 1e-3
    assert uniform(0.1, 1.0, 2, [0]) == 0.0


def test_closed_forms_are_above_the_numerical_bound() -> None:
    n, d, delta, local = 5_000, 5, 1e-5, 1.0
    beta = d / (math.exp(local) + d - 1)
    blankets, lost = histogram._blankets(n - 1, beta)
    epsilon = histogram._segment(blankets, beta, d, lost).get_epsilon_for_delta(delta)
    assert epsilon < published.clones_epsilon(local, delta, n) < local
    inverse = published.clones_local_epsilon(published.clones_epsilon(local, delta, n), delta, n)
    assert inverse == pytest.approx(local, rel=1e-9)
    erlingsson = 12 * 0.4 * math.sqrt(math.log(1 / delta) / n)
    assert published.shuffled_local_epsilon(erlingsson, delta, n) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        ((0.5, 1e-6, 10**6), "epsilon_0 < 1/2"),
        ((0.1, 1e-6, 900), "more than 1000 parties"),
        ((0.1, 0.02, 10**4), "delta < 1/100"),
    ],
)
def test_theorem_4_4_names_the_condition_that_fails(
    arguments: tuple[float, float, int], condition: str
) -> None:
    with pytest.raises(ConfigError, match=condition):
        published.shuffled_local_epsilon(*arguments)


def test_histogram_plan_suffices_barely_and_without_bias() -> None:
    plan = histogram.plan_ring_histogram(400, 2, 4, 1.0, 1e-4)
    assert plan.beta is not None
    assert histogram.histogram_delta(1.0, plan.beta, 400, 2, 4) <= 1e-4
    assert histogram.histogram_delta(1.0, plan.beta * 0.97, 400, 2, 4) > 1e-4
    assert plan.beta < plan.local
    ends, d = 2 * math.ceil(plan.beta * 400), 4
    rng = np.random.default_rng(9)
    token = rng.multinomial(ends, np.full(d, 1 / d), size=20_000) + rng.multinomial(
        800, np.eye(d)[0] * (1 - plan.beta) + plan.beta / d, size=20_000
    )
    counts = (token - ends / d - 800 * plan.beta / d) / (1 - plan.beta)
    error = counts.std(axis=0) / math.sqrt(20_000)
    assert (np.abs(counts.mean(axis=0) - np.array([800, 0, 0, 0])) < 5 * error).all()
    assert counts.std(axis=0).max() <= plan.error_std * (1 + 5 / math.sqrt(2 * 20_000))
    with pytest.raises(ConfigError, match="--method clones"):
        histogram.plan_ring_histogram(5_000_000, 1, 3, 1.0, 1e-8)


# The complete graph


def test_walk_plans_suffice_barely_and_order_as_they_should() -> None:
    n, steps, epsilon, delta = 200, 1_000, 1.0, 1e-5
    hidden, neighbours, known = (
        complete.plan_walk("sum", n, steps, epsilon, delta, sensitivity=1.0, paths=paths)
        for paths in ("hidden", "neighbours", "known")
    )
    assert hidden.sigma is not None
    assert neighbours.sigma is not None
    assert known.sigma is not None
    assert hidden.sigma < neighbours.sigma < neighbours.local
    assert known.sigma < known.local == neighbours.local
    assert complete.hidden_delta(epsilon, 1 / hidden.sigma, steps, n - 1) <= delta
    assert complete.hidden_delta(epsilon, 1.01 / hidden.sigma, steps, n - 1) > delta
    more = complete.plan_walk("sum", n, steps, epsilon, delta, sensitivity=1.0, colluding=5)
    assert more.sigma is not None
    assert neighbours.sigma < more.sigma <= more.local
    capped = complete.plan_walk(
        "sgd", n, steps, epsilon, delta, sensitivity=2.0, paths="known", max_contributions=6, edge_cap=1
    )
    assert capped.sigma is not None
    assert capped.sigma < 2 * known.sigma
    assert "2/s" in capped.assumption


def test_hidden_path_against_a_simulated_composition() -> None:
    """delta = E[(1 - e^(epsilon - loss))+] over losses of the worst pair, present against absent."""
    others, steps, mu, epsilon, runs = 5, 6, 1.0, 0.4, 400_000
    rng = np.random.default_rng(10)
    seen = rng.standard_normal((runs, steps)) + mu * (rng.random((runs, steps)) < 1 / others)
    losses = np.log1p(np.expm1(mu * seen - mu**2 / 2) / others).sum(axis=1)
    samples = np.maximum(0.0, -np.expm1(epsilon - losses))
    error = float(samples.std()) / math.sqrt(runs)
    bound = complete.hidden_delta(epsilon, mu, steps, others)
    assert float(samples.mean()) - 5 * error <= bound <= 1.3 * float(samples.mean())


def test_steps_whose_user_is_seen_are_counted() -> None:
    """On every path of 7 steps over 3 parties: who is next to an observer's visits, and who publishes."""
    worst: dict[int, int] = {}
    for path in itertools.product(range(3), repeat=7):
        held = [t for t in range(7) if path[t] == 2]
        near = {t + side for t in held for side in (-1, 1)} | {6}
        # Nothing of a party is in the first step.
        seen = {t for t in near if 0 < t < 7 and path[t] != 2}
        worst[len(held)] = max(worst.get(len(held), 0), len(seen))
    assert all(seen <= complete.seen_steps(visits) for visits, seen in worst.items())
    assert worst[0] == complete.seen_steps(0) == 1
    assert worst[1] == complete.seen_steps(1) == 3


def test_hidden_path_is_no_less_careful_than_another_accountant() -> None:
    """dp-accounting's Poisson-sampled Gaussian, a record added or removed: one of the pairs we cover."""
    event = dp_accounting.PoissonSampledDpEvent(1 / 50, dp_accounting.GaussianDpEvent(1.5))
    other = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event, 300)
    theirs = other.get_delta(1.0)
    assert theirs <= complete.hidden_delta(1.0, 1 / 1.5, 300, 50) <= 10 * theirs


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"task": "median"}, "task"),
        ({"parties": 2}, "3..10000000"),
        ({"steps": 0}, "steps"),
        ({"delta": 1e-12}, "1e-10"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"sensitivity": 0.0}, "sensitivity"),
        ({"colluding": 99}, "colluding"),
        ({"paths": "secret"}, "paths"),
        ({"edge_cap": 1}, "--paths known"),
        ({"max_contributions": 3}, "--paths known"),
        ({"method": "theorem"}, "asymptotic"),
        ({"task": "sgd", "method": "theorem", "epsilon": 90.0}, "epsilon < 1"),
    ],
)
def test_bad_walks_are_refused(change: dict[str, object], named: str) -> None:
    given: dict[str, object] = {
        "task": "sum",
        "parties": 100,
        "steps": 500,
        "epsilon": 1.0,
        "delta": 1e-5,
        "sensitivity": 1.0,
    }
    with pytest.raises(ConfigError, match=named):
        complete.plan_walk(**(given | change))


def test_large_delta_is_warned_about() -> None:
    assert ring.plan_ring_sum(1000, 1, 1.0, 0.01, sensitivity=1.0).warnings
    assert not ring.plan_ring_sum(1000, 1, 1.0, 0.0001, sensitivity=1.0).warnings
