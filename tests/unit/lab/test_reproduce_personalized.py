"""The figure of personalised models, on a small problem."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.theorems import kairouz_oh_viswanath
from smpc_dp_lab.bench import (
    linear_tasks,
    moons,
    movie_models,
    party_tables,
    personalized,
    personalized_iterations,
    personalized_plot,
    published_ratings,
)
from smpc_dp_lab.bench.party_rows import read_parties, synthetic_parties
from smpc_dp_lab.bench.published_ratings import published_tasks, split_epsilon
from smpc_dp_lab.bench.rating_tasks import PUBLIC, public_tasks
from smpc_dp_lab.bench.ratings import Ratings, read_ratings, synthetic_ratings


@pytest.mark.long
def test_collaboration_beats_local_models_and_noise_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fixed problem of 10,000 test points: the order is that of the paper."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(personalized, "CONVERGED", 20)
    monkeypatch.setattr(personalized, "ADMM_TICKS", 30)
    result = personalized.personalized_synthetic([20], [1.0, 30.0], problems=1, seed=3)
    of_all = [point for point in result.points if point.least is None]
    accuracy = {(point.rows, point.method, point.epsilon): point.accuracy for point in of_all}
    assert accuracy["unit", "CD", None] > accuracy["unit", "local", None] + 0.05
    # On its way to the models of CD; one model for tasks in all directions is worse than local ones.
    assert accuracy["unit", "gossip ADMM", None] > accuracy["unit", "local", None] + 0.05
    assert accuracy["unit", "pooled", None] < accuracy["unit", "local", None] - 0.1
    assert accuracy["cube", "paper's scale", 0.15] > accuracy["cube", "local", None] + 0.02
    assert accuracy["unit", "private CD", 30.0] > accuracy["unit", "private CD", 1.0] + 0.1
    assert accuracy["unit", "private CD", 30.0] > accuracy["unit", "local DP", 30.0] + 0.1
    open_methods = {"CD", "pooled", "gossip ADMM", "paper's scale"}
    assert {point.method for point in result.points if not point.protected} == open_methods
    few, many = (
        next(p for p in result.points if p.rows == "unit" and p.method == "local" and p.least == least)
        for least in (10, 79)
    )
    assert few.accuracy < many.accuracy - 0.05
    personalized_plot.plot(result, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_rows_of_norm_one_have_gradients_of_norm_one() -> None:
    """The noise of the private models is planned for that."""
    tasks = linear_tasks.problem(1, 20, "unit")
    rows = np.arange(linear_tasks.PARTIES)
    assert np.linalg.norm(tasks.features, axis=2).max() <= 1 + 1e-12
    assert np.abs(tasks._slopes(np.ones((linear_tasks.PARTIES, 20)), rows)).max() <= 1


def test_models_along_the_iterations() -> None:
    """One fixed problem: coordinate descent leads gossip ADMM, as in Fig. 1."""
    result = personalized_iterations.personalized_iterations(
        20, updates=3, published=[], private=[], problems=1
    )
    traces: dict[tuple[str, str, str], personalized_iterations.Trace] = {
        (one.figure, one.rows, one.method): one for one in result.points
    }
    descent, admm = traces["1", "cube", "CD"], traces["1", "cube", "gossip ADMM"]
    assert descent.iterations == admm.iterations == (0, 100, 200, 300)
    assert descent.objective[0] == admm.objective[0]
    assert list(descent.objective) == sorted(descent.objective, reverse=True)
    assert descent.objective[-1] < admm.objective[-1]
    assert descent.accuracy[-1] > admm.accuracy[-1]
    # A model to each neighbour at an update; eight vectors at a tick of gossip ADMM.
    edges = linear_tasks.problem(1_000, 20, "cube").weights.nnz
    assert descent.vectors == pytest.approx((0, edges, 2 * edges, 3 * edges), abs=0.2 * edges)
    assert descent.vectors[-1] == 3 * edges
    assert admm.vectors == (0, 800, 1_600, 2_400)


@pytest.mark.long
def test_noise_raises_the_objective_along_the_iterations(tmp_path: Path) -> None:
    """One fixed problem, the paper's noise and the product's, from zero and from private starts."""
    pytest.importorskip("matplotlib")
    result = personalized_iterations.personalized_iterations(
        20, updates=1, published=[(0.15, 2)], private=[(1.0, 2)], problems=1
    )
    traces: dict[tuple[str, str, str], personalized_iterations.Trace] = {
        (one.figure, one.rows, one.method): one for one in result.points
    }
    for figure in ("2a", "2b"):
        for rows, method in (("cube", "paper's noise"), ("unit", "private CD")):
            # Without noise none starts from our private start, which has noise.
            noisy = traces[figure, rows, method]
            exact = traces["2a" if rows == "unit" else figure, rows, "CD"]
            assert noisy.objective[-1] > exact.objective[-1]
            assert noisy.protected == (method == "private CD")
            assert len(noisy.iterations) == 3
    assert ("2b", "unit", "CD") not in traces
    assert traces["2b", "cube", "CD"].accuracy[0] > traces["2a", "cube", "CD"].accuracy[0] == 0.5
    personalized_iterations.plot(result, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_runs_of_a_panel_begin_where_its_title_says() -> None:
    """No run without noise starts from zero in a panel of private starts."""
    runs = list(personalized_iterations._runs(3, [(1.0, 2)], [(1.0, 2)]))
    exact = {(run.figure, run.rows) for run in runs if run.method == "CD"}
    assert exact == {("1", "cube"), ("2a", "cube"), ("2b", "cube"), ("2a", "unit")}
    assert {run.figure for run in runs if run.method == "private CD"} == {"2a", "2b"}


def test_the_objective_along_the_iterations_is_that_of_the_paper() -> None:
    """Loops over parties, records and pairs; steps of 1/L_i lower it, and L_i bounds a mean Hessian."""
    tasks = linear_tasks.problem(1, 3, "cube")
    objective = replace(personalized.objective_of(tasks, "cube", 0.5), smoothness=tasks.smoothness())
    models = np.random.default_rng(1).normal(size=(linear_tasks.PARTIES, 3))
    weights, total, largest = tasks.weights.toarray(), 0.0, 0.0
    for u in range(linear_tasks.PARTIES):
        m = int(tasks.sizes[u])
        losses = [
            np.log1p(np.exp(-tasks.labels[u, j] * (tasks.features[u, j] @ models[u]))) for j in range(m)
        ]
        own = sum(losses) / m + (models[u] @ models[u]) / m
        total += weights[u].sum() * m / max(tasks.sizes) * own
        total += 0.25 * sum(weights[u, v] * ((models[u] - models[v]) ** 2).sum() for v in range(u))
        largest = max(largest, float(np.linalg.eigvalsh(tasks.derivatives(u, np.zeros(3))[1]).max()))
    assert personalized_iterations.objective_value(objective, tasks, models) == pytest.approx(total)
    # At the model 0 a logistic loss has its greatest curvature.
    assert tasks.smoothness() == pytest.approx(largest)


@pytest.mark.parametrize(("arguments", "problems"), [([1], 1), ([20], 0)])
def test_arguments_out_of_range_are_named(arguments: list[int], problems: int) -> None:
    with pytest.raises(ConfigError, match=r"dimension|problems"):
        personalized.personalized_synthetic(arguments, problems=problems)


@pytest.mark.long
def test_a_learned_graph_finds_clusters_and_beats_local_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fixed problem of fewer updates; weights at random would have 29 % within clusters."""
    pytest.importorskip("matplotlib")
    for name, value in (("UPDATES", 30), ("ALONE", 10), ("EVERY", 500)):
        monkeypatch.setattr(moons, name, value)
    result = moons.moons(problems=1, seed=3)
    accuracy = {point.method: point.accuracy for point in result.points}
    assert accuracy["oracle"] > accuracy["learned"] > max(accuracy["local"], accuracy["global"])
    assert result.within > 0.6
    # Who has much to lose by its neighbours has few of them.
    assert result.rank < 0
    moons.plot(result, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    with pytest.raises(ConfigError, match="problems"):
        moons.moons(problems=0)


def test_local_dp_of_records_has_noise_of_the_right_size() -> None:
    """E|b|^2 of the l2 K-norm noise at epsilon/2 and distance 2, and the flips of the labels.

    10,000 rows: 1 % is above four standard deviations of each mean.
    """
    tasks, epsilon = linear_tasks.problem(1, 20, "unit"), 4.0
    perturbed = tasks.perturbed(epsilon, 1)
    squares = ((perturbed.features - tasks.features) ** 2).sum(axis=2).mean()
    assert squares == pytest.approx(20 * 21 * (2 / (epsilon / 2)) ** 2, rel=0.02)
    flipped = (perturbed.labels != tasks.labels)[tasks.labels != 0].mean()
    assert flipped == pytest.approx(1 / (1 + np.exp(epsilon / 2)), abs=0.02)


@pytest.mark.long
def test_ratings_in_order_and_no_published_epsilon_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fixed split of synthetic ratings: local models are worse than collaborative ones."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(movie_models, "ADMM_TICKS", 5)
    given = synthetic_ratings(60, 100, 3)
    result = movie_models.movielens(given, published=[1.0], epsilons=[30.0, 0.1], problems=1)
    rmse = {(point.features, point.method, point.epsilon): point.rmse for point in result.points}
    assert rmse["as published", "CD", None] < rmse["as published", "local", None]
    assert rmse["public", "CD", None] < rmse["public", "local", None]
    assert rmse["public", "gossip ADMM", None] < rmse["public", "local", None]
    assert rmse["public", "private CD", 30.0] < rmse["public", "private CD", 0.1]
    assert not any(p.protected for p in result.points if p.features == "as published")
    open_methods = {"CD", "pooled", "gossip ADMM"}
    assert {p.method for p in result.points if not p.protected and p.features == "public"} == open_methods
    assert "synthetic" in result.data
    movie_models.plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_public_features_depend_on_no_ratings_of_the_parties() -> None:
    """Another rating of a party changes its own record alone; published features and graph change for all."""
    given = synthetic_ratings(40, 60, 2)
    before = public_tasks(given, 1)
    of_parties = [party for party in range(40) if party in _parties_of(given, 1)]
    changed = replace(given, table=given.table.copy())
    row = np.flatnonzero(given.table[:, 0] == of_parties[0])[3]
    changed.table[row, 2] = 1.0 if given.table[row, 2] > 2 else 5.0
    after = public_tasks(changed, 1)
    assert (before.weights != after.weights).nnz == 0
    for old, new in zip(before.features, after.features, strict=True):
        assert (old == new).all()
    differ = [not np.array_equal(old, new) for old, new in zip(before.ratings, after.ratings, strict=True)]
    differ_tests = [
        not np.array_equal(old[1], new[1]) for old, new in zip(before.test, after.test, strict=True)
    ]
    assert sum(differ) + sum(differ_tests) == 1
    published = published_tasks(given, 1), published_tasks(changed, 1)
    assert not np.array_equal(published[0].features[-1], published[1].features[-1])


def test_steps_of_public_tasks_do_not_depend_on_which_movies_the_parties_rate() -> None:
    """All of them rate a movie without features: what is planned with is still of the longest features."""
    given = synthetic_ratings(40, 60, 2)
    private = np.isin(given.table[:, 0], list(_parties_of(given, 1)))
    given.table[np.flatnonzero(private)[0], 1] = 60
    changed = replace(given, table=given.table.copy())
    changed.table[private, 1] = 60
    before, after = (public_tasks(one, 1) for one in (given, changed))
    assert all((np.linalg.norm(one, axis=1) == 1).all() for one in after.features)
    assert max(np.linalg.norm(one, axis=1).max() for one in before.features) > 1.1
    assert before.objective(0.1).smoothness == after.objective(0.1).smoothness


def _parties_of(given: Ratings, seed: int) -> set[int]:
    """The users that are no public ones, as drawn for a seed."""
    order = np.random.default_rng([seed, 5]).permutation(given.shape[0])
    return set(order[round(PUBLIC * given.shape[0]) :].tolist())


def test_centring_moves_a_mean_gradient_by_8_b_phi_over_m() -> None:
    """Brute force, ratings 1 to 5, all features alike: (m - 1)/m of the bound is reached."""
    m, phi = 50, np.array([0.3, -0.5, 0.2])
    bound = 8 * np.abs(phi).sum() / m
    ratings = np.full(m, 3.0)
    moved = []
    for first in (1.0, 5.0):
        ratings[0] = first
        others = (ratings - ratings.mean())[1:]
        moved.append(-2 * others.sum() * phi / m)
    difference = np.abs(moved[0] - moved[1]).sum()
    assert difference == pytest.approx(bound * (m - 1) / m)


def test_a_split_of_epsilon_composes_to_it() -> None:
    each = split_epsilon(0.5, 5, published_ratings.DELTA)
    assert 0.1 <= each < 0.5
    assert kairouz_oh_viswanath([(each, 0.0)] * 5, published_ratings.DELTA)[0] == pytest.approx(0.5)


def test_ratings_files_of_both_forms(tmp_path: Path) -> None:
    path = tmp_path / "u.data"
    path.write_text("7\t30\t5\t881250949\n9\t10\t3\t891717742\n")
    assert read_ratings(path).table.tolist() == [[0.0, 1.0, 5.0], [1.0, 0.0, 3.0]]
    path.write_text("7,30,5\n")
    with pytest.raises(ConfigError, match="with tabs"):
        read_ratings(path)
    path = tmp_path / "ratings.csv"
    path.write_text("userId,movieId,rating,timestamp\n7,30,5,1\n9,10,3,1\n")
    assert read_ratings(path).shape == (2, 2)


@pytest.mark.long
def test_personalised_models_of_users_lead(tmp_path: Path) -> None:
    """One fixed split of the stand-in: the order of Table 2.1 for linear models, in a file as of a user."""
    pytest.importorskip("matplotlib")
    path = tmp_path / "parties.csv"
    np.savetxt(path, synthetic_parties(1), delimiter=",")
    result = party_tables.party_tables(read_parties(path), data=path.name, problems=1)
    accuracy = {point.method: point.accuracy for point in result.points}
    best = accuracy["PERSO-LINEAR-LEARNED"]
    assert best > max(accuracy["GLOBAL-LINEAR"], accuracy["LOCAL-LINEAR"])
    assert len(accuracy) == 6
    party_tables.plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 5_000


@pytest.mark.parametrize("text", ["1,2\n", "1,2,3\n", "1,2,0\n1,3,1\n"])
def test_tables_that_are_not_users_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "parties.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"must be columns|needs 3 parties"):
        read_parties(path)
