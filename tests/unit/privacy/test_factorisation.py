"""Matrix factorisation of decentralised learning: known answers, dense references, where it fails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, sparse
from scipy.linalg import sqrtm
from scipy.stats import norm

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.events import Event, Gaussian
from smpc_dp.privacy.factorisation import (
    CorrelatedNoise,
    Factorisation,
    check_accountable,
    factorise,
    fine_bits,
    gossip_gram,
    independent,
    optimise,
    plan_correlated_noise,
    sensitivity,
)
from smpc_dp.privacy.gaussian import gaussian_delta
from smpc_dp.privacy.gossip_plan import plan_gossip
from smpc_dp.privacy.network_views import View, gossip_view, least_squares_above_zero, walk_view
from smpc_dp.privacy.sampling import NoiseSource

Floats = NDArray[np.float64]
RNG = np.random.default_rng(3)


def ring(parties: int) -> sparse.csr_array:
    """Return the weights of a ring: a third for each neighbour."""
    eye = np.eye(parties)
    return sparse.csr_array((eye + np.roll(eye, 1, 0) + np.roll(eye, -1, 0)) / 3)


def dense_workload(weights: Floats, steps: int, retained: float = 1.0) -> Floats:
    """Return the models after each step as a function of all contributions, shape (nT, nT)."""
    n = len(weights)
    result = np.zeros((steps * n, steps * n))
    for after in range(steps):
        for before in range(after + 1):
            power = np.linalg.matrix_power(weights, after - before + 1) * retained ** (after - before)
            result[after * n : after * n + n, before * n : before * n + n] = power
    return result


def of_record(steps: int, batches: int, length: int, first: int) -> Floats:
    """Return a D of one record with rows of norm 1."""
    moved = np.zeros((steps, length))
    rows = RNG.normal(size=(len(moved[first::batches]), length))
    moved[first::batches] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return moved


@pytest.mark.parametrize("retained", [1.0, 0.9])
def test_the_gram_matrix_is_that_of_the_dense_workload(retained: float) -> None:
    workload, steps, n = dense_workload(ring(5).toarray(), 6, retained), 6, 5
    gram = (workload.T @ workload).reshape(steps, n, steps, n)
    expected = np.einsum("sirj,ij->sr", gram, np.eye(n)) / n
    assert np.allclose(gossip_gram(ring(5), steps, retained), expected)


def test_independent_noise_is_gaussian_composition() -> None:
    """C = I, and any T: mu of all messages is sqrt(T) times that of one."""
    steps, one = 7, 0.3
    assert sensitivity(np.eye(steps), 1) == pytest.approx(math.sqrt(steps))
    planned = plan_correlated_noise(1.0, 1e-6, independent(steps, 1), 1.0, fine_bits(np.ones(1)), 3)
    assert len(set(planned.variances)) == 1
    each = 2 * planned.bound / math.sqrt(float(planned.variances[0]))
    assert planned.mu == pytest.approx(each * math.sqrt(steps), rel=1e-4)
    composed = Composition([Event("one", "substitution", (Gaussian(one),))] * steps).epsilon(1e-6)
    together = Composition([Event("all", "substitution", (Gaussian(one * math.sqrt(steps)),))]).epsilon(1e-6)
    assert composed == pytest.approx(together, rel=1e-6)


def test_one_party_is_a_centralised_factorisation() -> None:
    """n = 1, each record once: the optimum of the fixed point of Denisov and others 2022, by dense roots."""
    steps = 12
    prefix = np.tri(steps)
    gram = gossip_gram(sparse.csr_array(np.ones((1, 1))), steps)
    assert np.allclose(gram, prefix.T @ prefix)
    dual = np.ones(steps)
    for _ in range(500):
        root = np.diag(np.sqrt(dual))
        dual = np.diag(sqrtm(root @ gram @ root)).real.copy()
    least = float(dual.sum())
    solution = optimise(gram, steps)
    assert solution.mean_square(gram) * steps == pytest.approx(least, rel=2e-3)
    assert solution.mean_square(gram) * steps == pytest.approx(
        float(((prefix @ solution.inverse) ** 2).sum()), rel=1e-9
    )


def test_a_record_in_every_step_gains_nothing_from_correlation() -> None:
    """The best C is diagonal: the directions diag(Q)^-1/2 Q diag(Q)^-1/2 allow no other one less noise."""
    gram = gossip_gram(ring(6), 9)
    best = optimise(gram, 1)
    assert np.count_nonzero(best.matrix - np.diag(np.diag(best.matrix))) == 0
    scale = np.diag(1 / np.sqrt(np.diag(gram)))
    root = sqrtm(gram).real
    directions = scale @ gram @ scale
    # min over X of tr(Q X^-1) tr(X G) = tr((Q^1/2 G Q^1/2)^1/2)^2
    bound = np.trace(sqrtm(root @ directions @ root).real) ** 2
    assert best.mean_square(gram) * 9 == pytest.approx(bound, rel=1e-6)
    assert best.mean_square(gram) < independent(9, 1).mean_square(gram)


@pytest.mark.parametrize("batches", [2, 4, 12])
def test_batches_gain_from_correlation_at_sensitivity_1(batches: int) -> None:
    gram = gossip_gram(ring(6), 12)
    solution = factorise(ring(6), 12, batches)
    assert solution.mean_square(gram) < 0.7 * independent(12, batches).mean_square(gram)
    assert np.all(np.triu(solution.matrix, 1) == 0)
    assert (np.diag(solution.matrix) > 0).all()
    assert solution.bands <= batches
    assert sensitivity(solution.matrix, batches) == pytest.approx(1.0)
    for first in range(batches):
        for _ in range(20):
            assert np.linalg.norm(solution.matrix @ of_record(12, batches, 3, first)) <= 1.0


def test_sensitivity_bounds_all_records_and_is_attained_without_negative_entries() -> None:
    for _ in range(20):
        matrix = np.tril(RNG.normal(size=(6, 6)))
        bound = sensitivity(matrix, 2)
        assert all(np.linalg.norm(matrix @ of_record(6, 2, 2, first)) <= bound for first in (0, 1))
    matrix = np.tril(RNG.uniform(size=(6, 6)))
    attained = [np.linalg.norm(matrix @ (np.arange(6) % 2 == first)) for first in (0, 1)]
    assert sensitivity(matrix, 2) == pytest.approx(float(max(attained)))


def draws(batches: int) -> tuple[list[NDArray[np.int64]], CorrelatedNoise]:
    """Return the noise of all steps, and its plan."""
    plan = plan_correlated_noise(
        2.0, 1e-6, factorise(ring(6), 12, batches), 1.0, fine_bits(np.ones(1)), 20_000
    )
    drawn: list[NDArray[np.int64]] = []
    source = NoiseSource.keyed(bytes(32), b"factorisation")
    for _ in range(12):
        drawn.append(plan.draw(drawn, 20_000, source))
    return drawn, plan


@pytest.mark.parametrize("batches", [1, 4])
def test_discrete_noise_moves_within_mu_on_every_path(batches: int) -> None:
    """The proof's statement: the same messages under other data need fresh noise that is little further.

    Also the variances of 20,000 coordinates: five deviations, false alarm 1e-5.
    """
    drawn, plan = draws(batches)
    matrix, variances = plan.factorisation.matrix, np.array([float(one) for one in plan.variances])

    def fresh(noise: Floats) -> Floats:
        shared = np.array([np.rint(matrix[t, :t] / matrix[t, t] @ noise[:t]) for t in range(12)])
        return np.asarray(noise + shared)

    noise = np.array(drawn, np.float64)
    largest = 0.0
    for first in range(batches):
        moved = np.zeros(noise.shape)
        moved[first::batches, 7] = 2 * plan.bound
        change = fresh(noise + moved) - fresh(noise)
        largest = max(largest, math.sqrt(float(((change**2).sum(axis=1) / (variances - 4)).sum())))
    assert 0.99 * plan.mu < largest <= plan.mu
    scale = math.sqrt(variances[0]) * matrix[0, 0]
    expected = scale**2 * (np.linalg.inv(matrix) ** 2).sum(axis=1)
    assert np.allclose(noise.var(axis=1) / expected, 1, atol=5 * math.sqrt(2 / 20_000))


def dense_gram(view: View, party: int, inverse: Floats) -> Floats:
    """Return H by pseudoinverses of the dense view, the colluders' own messages included."""
    steps, n = view.active.shape
    response, state = [], np.zeros((n, steps * n))
    for step in range(steps):
        if step:
            state = view.retained * view.mixing[step - 1].toarray() @ state
        for one in np.flatnonzero(view.active[step]):
            state[one, step * n + one] += 1
        response.append(state[view.observed[step] | view.colluding])
    full = np.concatenate(response)
    noise = (full @ np.kron(inverse, np.eye(n))).reshape(len(full), steps, n)[:, :, ~view.colluding]
    noise = noise.reshape(len(full), -1)
    own = full.reshape(len(full), steps, n)[:, :, party]
    return np.asarray(own.T @ np.linalg.pinv(noise @ noise.T, rcond=1e-10) @ own)


@pytest.mark.parametrize("observers", [(0,), (0, 3)])
def test_views_of_gossip_equal_dense_pseudoinverses(observers: tuple[int, ...]) -> None:
    view = gossip_view(ring(7), 5, observers, 0.9)
    for chosen in (None, factorise(ring(7), 5, 3)):
        inverse = np.eye(5) if chosen is None else chosen.inverse
        for party in (1, 2, 5):
            assert np.allclose(view.fixed_gram(party, chosen)[0], dense_gram(view, party, inverse))


def test_views_of_walks_equal_dense_pseudoinverses_and_the_walks_planner() -> None:
    """A contribution g noisy steps before the observer's next token costs 1/g, in both accounts."""
    view = walk_view([0, 1, 2, 3, 4, 0, 1, 2], 5, [4])
    gram = view.fixed_gram(0)[0]
    assert np.allclose(gram, dense_gram(view, 0, np.eye(8))[np.ix_([0, 5], [0, 5])])
    assert np.allclose(gram, np.diag([1 / 4, 1 / 3]))
    assert view.fixed_sensitivity(0) ** 2 == pytest.approx(1 / 4 + 1 / 3)
    assert view.convex_sensitivity(0) ** 2 == pytest.approx(1 / 4 + 1 / 3, rel=1e-6)


def test_all_messages_are_the_view_of_a_party_whose_neighbours_are_all() -> None:
    complete = sparse.csr_array(np.full((5, 5), 0.2))
    view = gossip_view(complete, 6, [0])
    assert view.convex_sensitivity(3) == pytest.approx(math.sqrt(6))
    assert view.fixed_sensitivity(3) == pytest.approx(math.sqrt(6))


@pytest.mark.parametrize("batches", [1, 3])
def test_the_account_of_convex_losses_is_never_below_that_of_fixed_contributions(batches: int) -> None:
    view = gossip_view(ring(9), 12, [0])
    for party in (1, 2, 3, 4):
        gram, times = view.fixed_gram(party)
        least = max(
            gram[np.ix_(times % batches == first, times % batches == first)].sum() for first in range(batches)
        )
        convex = view.convex_sensitivity(party, batches) ** 2
        # A neighbour's messages are seen: the mixing of others' noise hides nothing there.
        most = 1.3 * least if party > 1 else math.inf
        assert least * (1 - 1e-6) <= convex <= most + 1e-9
        assert convex <= -(-12 // batches) * (1 + 1e-6)


def test_the_linear_account_fails_for_hidden_gradients_that_expand() -> None:
    """Route 0, 1, 2: party 1's step x - g(x) moves what it cannot tell apart further apart.

    The observer's message is x + L sign(x - 1/2) + N, x = 0 or 1 plus N: for a large L it learns the sign,
    which has distance .38, and A G + B Z with G taken as fixed allows .28 only. No convex loss does that.
    """
    claimed = walk_view([0, 1, 2], 3, [2]).fixed_sensitivity(0)
    assert claimed == pytest.approx(math.sqrt(1 / 2))
    grid = np.linspace(-12, 13, 200_001)
    step = grid[1] - grid[0]

    def above(shift: float) -> float:
        pushed = grid + 20 * np.sign(grid - 0.5)
        return float((norm.pdf(grid - shift) * norm.sf(0.5 - pushed)).sum() * step)

    reached = above(1.0) - above(0.0)
    assert reached == pytest.approx(0.383, abs=1e-3)
    assert gaussian_delta(0.0, claimed) == pytest.approx(0.276, abs=1e-3)


def test_laplace_noise_and_hidden_routes_are_refused_with_a_reason() -> None:
    check_accountable("gaussian", "known")
    with pytest.raises(ConfigError) as error:
        check_accountable("laplace", "hidden")
    assert [(issue.where, issue.check) for issue in error.value.issues] == [
        ("noise", ConfigCheck.UNSUPPORTED),
        ("routes", ConfigCheck.UNSUPPORTED),
    ]


@pytest.mark.parametrize(
    ("steps", "batches", "where"),
    [(0, 1, "steps"), (1_001, 1, "steps"), (5, 6, "batches"), (5, 0, "batches")],
)
def test_steps_and_batches_out_of_range_are_named(steps: int, batches: int, where: str) -> None:
    with pytest.raises(ConfigError) as error:
        factorise(ring(5), steps, batches)
    assert [issue.where for issue in error.value.issues] == [where]


def test_large_views_and_correlated_walks_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 5,000"):
        gossip_view(ring(51), 100, [0])
    with pytest.raises(ConfigError, match="active at every step"):
        walk_view([0, 1, 2], 3, [2]).fixed_gram(0, Factorisation(np.eye(3), 1))


def test_a_plan_has_both_noises_and_what_distances_hide() -> None:
    plan = plan_gossip(ring(9), 10, 5, 1.0, 1e-6, observers=(0,))
    assert plan.even == pytest.approx(math.sqrt(2) / plan.mu)
    assert plan.error < plan.even_error
    assert [one.distance for one in plan.seen] == [1, 2, 3, 4]
    assert plan.seen[0].epsilon == pytest.approx(1.0, rel=1e-6)
    epsilons = [one.epsilon for one in plan.seen]
    assert epsilons == sorted(epsilons, reverse=True)
    with pytest.raises(ConfigError, match="observer"):
        plan_gossip(ring(9), 10, 5, 1.0, 1e-6, observers=(9,))


@pytest.mark.parametrize("retained", [1.0, 0.9])
def test_the_errors_of_a_plan_are_those_of_a_simulation(retained: float) -> None:
    """4,000 runs of noise alone, each party's 10 models: six deviations, below 8 %, are rarer than 1e-8."""
    steps, parties, runs = 10, 9, 4_000
    plan, weights = plan_gossip(ring(9), steps, 5, 1.0, 1e-6, retained=retained), ring(9).toarray()
    chosen = factorise(ring(9), steps, 5, retained)
    rng = np.random.default_rng(7)
    for planned, correlated in ((plan.even_error, False), (plan.error, True)):
        noise = rng.normal(size=(steps, parties, runs))
        if correlated:
            noise = np.einsum("ts,snr->tnr", chosen.inverse, noise) / plan.mu
        else:
            noise *= plan.even
        model, squares = np.zeros((parties, runs)), np.zeros(runs)
        for each in noise:
            model = weights @ (retained * model + each)
            squares += (model**2).mean(axis=0) / steps
        error = squares.std() / math.sqrt(runs)
        assert 6 * error < 0.08 * planned
        assert abs(squares.mean() - planned) < 6 * error


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_least_squares_above_zero_are_those_of_scipy(seed: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    matrix, wanted = rng.normal(size=(length + 5, length)), rng.normal(size=length + 5)
    found = least_squares_above_zero(sparse.csr_array(matrix.T @ matrix), matrix.T @ wanted)
    best, residual = optimize.nnls(matrix, wanted)
    assert found.min(initial=0.0) >= 0
    assert np.linalg.norm(matrix @ found - wanted) <= residual * (1 + 1e-6) + 1e-9
    np.testing.assert_allclose(found, best, atol=1e-4)
