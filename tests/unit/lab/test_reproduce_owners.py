"""The figures of a central learner with data owners, of batches without replacement, and of boosting."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp.capabilities.learn.data import lending_club
from smpc_dp.cli import app
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.collaboration import laplace_scale
from smpc_dp.privacy.gaussian import gaussian_epsilon, gaussian_mu
from smpc_dp.privacy.record_gradients import SMOOTHING
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp_lab.bench import cost_of_privacy as bench
from smpc_dp_lab.bench import owner_runs, two_classes, with_replacement
from smpc_dp_lab.bench import private_boosting as boosting
from smpc_dp_lab.bench import without_replacement as batches
from smpc_dp_lab.bench.cost_plot import plot as cost_plot
from smpc_dp_lab.bench.deep_q import DeepQ, Network
from smpc_dp_lab.bench.public_loss import LOSS_STEPS, PublicLoss
from smpc_dp_lab.bench.sgd_methods import methods
from smpc_dp_lab.cli import figure

LENDING = Path("smpc_dp/demo/data/lending_club.csv")


@pytest.mark.long
def test_noise_costs_less_for_more_records_and_the_gaussian_less_than_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three fixed runs of 300 ticks: the order of medians, and a forecast above the Gaussian points."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(bench, "SIZES", (300, 1_500))
    monkeypatch.setattr(bench, "OWNERS", ())
    monkeypatch.setattr(bench, "RATES", (0.1, 1.0))
    result = bench.cost_of_privacy(lending_club(LENDING), epsilons=[1.0, 10.0], steps=300, runs=3)
    psi = {(p.size, p.mechanism, p.epsilon): p for p in result.points}
    for size in (300, 1_500):
        none, loud = psi[size, "none", 1.0].median, psi[size, "gaussian", 1.0].median
        # With many records and a large epsilon the noise hardly counts.
        assert none * 0.9 < psi[size, "gaussian", 10.0].median < loud < psi[size, "laplace", 1.0].median
    assert psi[1_500, "gaussian", 1.0].median < psi[300, "gaussian", 1.0].median
    assert psi[1_500, "gaussian", 1.0].alone < psi[300, "gaussian", 1.0].alone
    gaussian = [point for point in result.points if point.mechanism == "gaussian"]
    assert all(point.forecast >= point.median * (1 - 1e-9) for point in gaussian)
    # The least constant: one of the medians is on the forecast, and noise that counts less is far below it.
    assert min(point.forecast / point.median for point in gaussian) == pytest.approx(1)
    assert psi[300, "gaussian", 1.0].forecast > psi[1_500, "gaussian", 1.0].forecast
    cost_plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


def test_the_papers_laplace_noise_is_for_a_smaller_norm_than_records_have() -> None:
    """A record along the diagonal moves an answer by L1_RATIO times what the scale of the noise is for."""
    data = owner_runs.owners_of(lending_club(LENDING), 2_000, [40, 90])
    length = data.features.shape[2]
    features, answers = data.features.copy(), []
    features[0, 0] = length**-0.5
    for label in (-1.0, 1.0):
        labels = data.labels.copy()
        labels[0, 0] = label
        changed = owner_runs.Owners(features, labels, data.sizes)
        answers.append(changed.answers(np.array([0]), np.zeros((1, length)))[0])
    epsilon = np.abs(answers[0] - answers[1]).sum() / laplace_scale(2 * owner_runs.CLIP, 1, 40, 1.0)
    assert epsilon == pytest.approx(owner_runs.L1_RATIO)


@pytest.mark.parametrize(
    ("name", "delta"),
    [
        ("cost-of-privacy", "1e-06, of laplace 0"),
        ("without-replacement", "1/n^2 for n records of all nodes"),
        ("movielens", "1e-06"),
        ("private-boosting", "1e-06"),
        ("personalized-synthetic", "1e-05, of local DP 0"),
    ],
)
def test_a_figure_says_what_its_epsilons_are_for(
    name: str, delta: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured."""
    fields = ("parties", "movies", "ratings", "problems", "runs", "each", "ridge", "steps", "seed", "seconds")
    empty = SimpleNamespace(points=(), data="", sources=(), **dict.fromkeys(fields, 1))
    monkeypatch.setattr(figure, "measured", lambda *_: (empty, None))
    shown = CliRunner().invoke(app, ["reproduce", name, "--quick"])
    assert shown.exit_code == 0, shown.output
    line = f"epsilon: one record substituted, delta = {delta}; numbers of records are public"
    assert line in " ".join(shown.output.split())


@pytest.mark.thin(3)
@pytest.mark.parametrize("mechanism", ["gaussian", "none", "laplace"])
def test_rates_that_are_tried_at_once_have_the_runs_of_each(mechanism: owner_runs.Mechanism) -> None:
    """The same clocks and noise for each rate."""
    data = owner_runs.owners_of(lending_club(LENDING), 2_000, [40, 90])
    [*_, (_, several)] = owner_runs.descend(data, 1.0, mechanism, (0.1, 1.0), 20, 3, 7)
    for index, rate in enumerate((0.1, 1.0)):
        [*_, (_, single)] = owner_runs.descend(data, 1.0, mechanism, [rate], 20, 3, 7)
        assert several[index] == pytest.approx(single[0], rel=1e-9)
    assert several.shape == (2, 3)
    assert several[0] != pytest.approx(several[1])


def test_more_rows_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="records of all owners"):
        owner_runs.owners_of(lending_club(LENDING), 2_000, [3_000] * 3)


def test_owners_of_unequal_sizes_have_their_own_means_and_minimisers() -> None:
    """Padding counts for nothing: answers and fits are those of each owner's rows alone."""
    data = owner_runs.owners_of(lending_club(LENDING), 2_000, [40, 90])
    query = np.random.default_rng(1).normal(size=(2, data.features.shape[2]))
    for owner, size in enumerate((40, 90)):
        x, y = data.features[owner, :size], data.labels[owner, :size]
        slopes = (x @ query[owner] - y)[:, None] * x
        slopes /= np.maximum(1, np.linalg.norm(slopes, axis=1, keepdims=True) / owner_runs.CLIP)
        answer = data.answers(np.array([0, 1]), query)[owner]
        assert answer == pytest.approx(slopes.mean(axis=0))
        best = data.best()[owner]
        assert (x.T @ (x @ best - y)) / size + owner_runs.RIDGE * best == pytest.approx(np.zeros(len(best)))


@pytest.mark.long
def test_the_papers_order_and_the_honest_one(tmp_path: Path) -> None:
    """One fixed draw, 10 nodes of 1,500: as published, replacement loses; properly composed it need not."""
    pytest.importorskip("matplotlib")
    result = batches.without_replacement(epsilons=[1.0, 8.0], nodes=[1, 10], each=1_500, runs=1)
    accuracy = {(p.method, p.nodes, p.epsilon): p.accuracy for p in result.points}
    for epsilon in (1.0, 8.0):
        published = accuracy["with replacement, as published", 10, epsilon]
        assert accuracy["with replacement", 10, epsilon] > published
    assert accuracy["global", 10, 1.0] > accuracy["with replacement, as published", 10, 1.0]
    never = ("noiseless", "deep-Q, as published")
    assert all(p.protected == (p.method not in never) for p in result.points if p.epsilon != 8.0)
    assert all(not p.protected for p in result.points if p.method in never)
    assert "synthetic" in result.data
    batches.plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ridge": -1.0}, "ridge"),
        ({"epsilons": [0.0]}, "epsilon"),
        ({"each": 10}, "each"),
        ({"runs": 0}, "runs"),
    ],
)
def test_settings_out_of_range_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        batches.without_replacement(**settings)


def test_the_noise_of_five_visits_is_12_8_and_the_paper_has_34_5_times_the_sensitivity() -> None:
    delta = 60_000**-2.0
    assert with_replacement.naive_deviation(1.0, delta) == pytest.approx(34.5, abs=0.05)
    assert with_replacement.composed_deviation(1.0, delta) == pytest.approx(12.8, abs=0.05)


def test_theorems_3_and_4_as_corrected() -> None:
    """The squared norm of the noise is d sigma^2: 0.178 at d = 50, not 0.0036.

    Steps 1/(a gamma t) of Theorem 4 are at most 1/(2 mu) from t = 40,004 on, beyond every run.
    """
    delta = 60_000**-2.0
    assert with_replacement.noise_term(0.1, 1.0, 50, 1.0, delta, 1) == pytest.approx(0.0036, abs=1e-4)
    assert with_replacement.noise_term(0.1, 1.0, 50, 1.0, delta, 50) == pytest.approx(0.178, abs=1e-3)
    ridge, share = 1e-4, 0.5
    from_step = next(t for t in range(1, 10**5) if 1 / (share * ridge * t) <= 1 / (2 * (1 + ridge)))
    assert from_step == 40_004


def test_with_a_ridge_steps_are_the_largest_that_are_permitted_and_published_noise_is_doubled() -> None:
    convex, ridged = (methods(54, 120, 1.0, 60_000**-2.0, ridge) for ridge in (0.0, 1e-4))
    largest = ridged["global"].learner
    assert largest is not None
    assert largest.issues(10) == []
    [issue] = msgspec.structs.replace(largest, rate=largest.rate + 1e-6).issues(10)
    assert issue.where == "rate"
    name = "with replacement, as published"
    assert ridged[name].deviation == 2 * convex[name].deviation
    assert ridged["with replacement"].deviation == convex["with replacement"].deviation
    published = [of["global, as published"].learner for of in (convex, ridged)]
    mu = [gaussian_mu(one.epsilon, one.delta) for one in published if one and one.epsilon and one.delta]
    assert mu[0] == pytest.approx(2 * mu[1], rel=1e-6)


def test_no_record_is_in_more_than_five_releases() -> None:
    visits = np.zeros((2, 200))
    for node, chosen in with_replacement.capped_batches(np.random.default_rng(1), 2, 200):
        visits[node, chosen] += 1
    assert visits.max() == 5
    assert visits.mean() > 4


@pytest.mark.parametrize(("kind", "columns", "classes"), [("covertype", 54, (2, 7)), ("mnist", 784, (3, 8))])
def test_tables_are_told_by_their_shape(
    tmp_path: Path, kind: two_classes.Kind, columns: int, classes: tuple[int, int]
) -> None:
    path = tmp_path / "table.csv"
    row = ",".join(["1"] * columns)
    path.write_text("".join(f"{row},{label}\n" for label in classes))
    assert two_classes.read(kind, path)[:, -1].tolist() == [1.0, 0.0]
    path.write_text(f"{row},11\n")
    with pytest.raises(ConfigError, match="a class from"):
        two_classes.read(kind, path)


def test_pixels_become_fifty_components_on_the_unit_sphere() -> None:
    rng = np.random.default_rng(1)
    table = np.column_stack([rng.uniform(0, 255, (200, 784)), rng.integers(0, 2, 200)])
    rows = two_classes.scaled(table, table[100:])
    assert rows.shape == (200, 51)
    assert np.linalg.norm(rows[:, :-1], axis=1) == pytest.approx(np.ones(200))


def test_the_network_fits_values_of_actions() -> None:
    """Adam on two linear layers: the error on a linear function falls by far, and its slopes are right."""
    rng = np.random.default_rng(2)
    network, states = Network(4, rng), rng.normal(size=(10, 4))
    actions, targets = rng.integers(0, 2, 10), states @ np.array([1.0, -1.0, 0.5, 0.0])
    errors = []
    for _ in range(300):
        errors.append(float(((network(states)[np.arange(10), actions] - targets) ** 2).mean()))
        network.fit(states, actions, targets)
    assert errors[-1] < 1e-3 * errors[0]


def test_public_states_leave_out_what_is_private() -> None:
    """A local model of NaN changes no decision: only the noisy loss of the global model counts."""
    table = np.column_stack([np.random.default_rng(3).normal(size=(50, 3)), np.ones(50), np.ones(50)])
    decisions = []
    for local in (np.zeros(4), np.full(4, np.nan)):
        source = NoiseSource.keyed(bytes(32), b"deep")
        policy = DeepQ(1, 40, 4, 1, PublicLoss(1.0, 1e-6), source)
        decisions.append([policy(0, table, local, np.zeros(4)) for _ in range(40)])
    assert decisions[0] == decisions[1]
    assert 0 < sum(decisions[0]) < 40


def test_a_released_loss_and_a_global_step_share_one_budget() -> None:
    """Brute force: another record moves the loss by LOSS_STEPS at most; both releases compose to epsilon."""
    release, delta = PublicLoss(1.0, 1e-6), 1e-6
    rng, sums = np.random.default_rng(4), []
    for size in (1, 7):
        rows = np.column_stack([rng.normal(size=(size, 2)), np.ones(size)])
        for label in (0, 1):
            for first in ([50.0, 50.0], [-50.0, 3.0], [0.0, 0.0]):
                changed = np.column_stack([np.r_[[[*first, 1.0]], rows[1:]], np.full(size, label)])
                changed[1:, -1] = 1
                sums.append((size, release.sum_steps(np.array([1.0, -0.5, 0.2]), changed)))
    for size in (1, 7):
        of = [value for count, value in sums if count == size]
        assert max(of) - min(of) <= LOSS_STEPS
    assert max(value for count, value in sums if count == 1) == LOSS_STEPS
    of_loss = LOSS_STEPS / (float(release.noise.variances[0]) - SMOOTHING) ** 0.5
    both = math.hypot(of_loss, gaussian_mu(release.left, delta))
    assert 0.999 < gaussian_epsilon(delta, both) <= 1.0 + 1e-6


@pytest.mark.long
def test_private_boosting_learns_from_many_records_and_is_useless_with_few(tmp_path: Path) -> None:
    """One fixed problem: where the needed lead is far above 2, choices are at random."""
    pytest.importorskip("matplotlib")
    result = boosting.private_boosting([30, 3_000], [0.5], [1.0], problems=1)
    few, many = (next(p for p in result.points if p.size == size and p.epsilon) for size in (30, 3_000))
    exact = [point.accuracy for point in result.points if point.epsilon is None]
    assert min(exact) > 0.85
    assert few.gap is not None
    assert many.gap is not None
    assert few.gap > 2 > 0.5 > many.gap
    assert few.accuracy < 0.8 < many.accuracy
    boosting.plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 10_000
