"""The GOPA planner: the thesis's table, plans that beat it, refusals, and the command line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.errors import ConfigError, LocalError, SmpcError
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.gopa import GopaPlan, GopaRequest, plan_gopa, theorem
from smpc_dp.privacy.gopa.graphs import honest_graph, k_out, random_regular, randomness_of, read_edges

N = 10_000


def planned(seed: int | None = 1, **numbers: Any) -> GopaPlan:
    return plan_gopa(GopaRequest(**numbers), randomness=randomness_of(seed))


# Bellet 2021, Table 4.1


def test_theorem_gives_the_table_for_all_honest() -> None:
    plan = planned(parties=N, epsilon=0.1, method="theorem")
    assert plan.k == 105
    assert plan.sigma_delta == pytest.approx(44.7, abs=0.05)
    assert plan.sigma_eta == pytest.approx(0.6106, abs=5e-5)
    assert plan.delta_asked == pytest.approx(1e-7)
    assert plan.delta == plan.delta_process
    assert plan.delta <= 1e-7
    assert plan.sufficient


def test_theorem_for_half_follows_the_caption() -> None:
    plan = planned(parties=N, epsilon=0.1, honest_fraction=0.5, method="theorem")
    assert plan.k == 192
    assert plan.sigma_delta == pytest.approx(46.0, abs=0.05)


def test_printed_row_for_half_takes_n_for_the_honest_users() -> None:
    """And is not what Theorem 4.1 grants: condition (4.3) fails."""
    k = theorem.smallest_k(5_000, 0.5, 1e-7)
    sigma_eta = theorem.corollary_sigma_eta(N, 0.1, 1e-8)
    kappa = theorem.corollary_kappa(1e-8, 1e-7)
    sigma_delta = theorem.corollary_sigma_delta(5_000, 0.5, k, sigma_eta, kappa)
    assert k == 203
    assert sigma_delta == pytest.approx(34.4, abs=0.05)
    with pytest.raises(ConfigError, match=r"condition \(4\.3\)"):
        planned(
            parties=N,
            epsilon=0.1,
            honest_fraction=0.5,
            delta=1e-7,
            method="theorem",
            k=k,
            sigma_eta=sigma_eta,
            sigma_delta=sigma_delta,
        )


@pytest.mark.long
@pytest.mark.parametrize(
    ("rho", "k", "sigma_delta", "sigma_eta", "claim"),
    [(1.0, 20, 34.7, 0.6106, 1e-7), (0.5, 40, 28.4, 0.8308, 4e-7)],
)
def test_simulated_rows_have_far_smaller_delta(
    rho: float, k: int, sigma_delta: float, sigma_eta: float, claim: float
) -> None:
    checked = planned(
        parties=N, epsilon=0.1, honest_fraction=rho, k=k, sigma_delta=sigma_delta, sigma_eta=sigma_eta
    )
    assert checked.delta_asked == pytest.approx(claim)
    assert checked.delta_process is not None
    assert checked.delta < claim / 1_000
    assert checked.delta_process < claim / 400
    assert checked.delta_lower is not None
    assert checked.delta_lower <= checked.delta <= checked.delta_lower * 1.01
    assert checked.planned == ()

    better = planned(parties=N, epsilon=0.1, honest_fraction=rho, k=k)
    assert better.delta <= claim
    assert better.delta_process is not None
    assert better.delta_process <= claim
    assert better.sigma_delta < 0.8 * sigma_delta
    assert 1 - (better.error_std / checked.error_std) ** 2 >= 0.4
    assert better.planned == ("sigma_delta", "sigma_eta")


def test_everything_left_out_is_planned() -> None:
    plan = planned(parties=2_000, epsilon=1.0, max_dropouts=3, curious=True)
    assert plan.planned == ("k", "sigma_delta", "sigma_eta")
    assert plan.sufficient
    assert plan.delta_process is not None
    assert max(plan.delta, plan.delta_process) <= plan.delta_asked
    assert plan.delta_all_stay is not None
    assert plan.delta_all_stay < plan.delta
    assert plan.theta_lower is not None
    assert plan.theta_lower <= plan.theta_upper
    assert "3 of them left out" in plan.assumption
    assert "curious" in plan.assumption
    # calibrated to the parties who are left: n - 4 of them have the curator's noise together
    assert plan.sigma_eta * math.sqrt(1_996) == pytest.approx(1 / gaussian_mu(1.0, plan.curator_delta))


def test_k_is_the_smallest_for_a_given_noise() -> None:
    plan = planned(parties=500, epsilon=1.0, sigma_delta=2.0)
    assert plan.k is not None
    assert plan.delta_process is not None
    assert plan.delta_process <= plan.delta_asked
    fewer = planned(parties=500, epsilon=1.0, sigma_delta=2.0, k=plan.k - 1)
    assert fewer.delta_process is None or fewer.delta_process > 0.5 * fewer.delta_asked


@pytest.mark.parametrize("graph", ["complete", "ring", "random-regular"])
def test_other_families(graph: str) -> None:
    k = 12 if graph == "random-regular" else None
    plan = planned(parties=100, epsilon=1.0, graph=graph, k=k)
    assert plan.sufficient
    assert plan.edges == {"complete": 4_950, "ring": 100, "random-regular": 600}[graph]
    if graph == "random-regular":
        assert plan.delta_process is None
        assert "random-regular" in plan.delta_process_reason
        assert any("drawn here" in line for line in plan.warnings)
    else:
        assert plan.delta_process == plan.delta


def test_complete_graph_of_many_users_and_worst_case() -> None:
    plan = planned(parties=100_000, epsilon=0.5, honest_fraction=0.7, graph="complete", max_dropouts=5_000)
    assert plan.sufficient
    assert plan.theta_upper == pytest.approx(
        1 / (65_000 * plan.sigma_eta**2)
        + (1 - 1 / 65_000) / (plan.sigma_eta**2 + 65_000 * plan.sigma_delta**2),
        rel=1e-6,
    )


def test_domain_enters_as_its_diameter() -> None:
    base: dict[str, Any] = {"parties": 60, "epsilon": 1.0, "k": 20, "precision": 0.0}
    unit = planned(**base)
    wide = planned(**base, lower=-30.0, upper=50.0)
    assert wide.sigma_eta == pytest.approx(80 * unit.sigma_eta, rel=1e-6)
    assert wide.sigma_delta == pytest.approx(80 * unit.sigma_delta, rel=1e-3)
    assert planned(**base, length=16).diameter == pytest.approx(4.0)
    assert planned(**base, radius=1.5, length=7).diameter == pytest.approx(3.0)
    # on a grid: bounds are rounded, and a ball's vectors move by half a step in each coordinate
    assert planned(**{**base, "precision": 0.25}, lower=0.1, upper=9.9).diameter == 10.0
    rounded = planned(**{**base, "precision": 0.125}, radius=8.0, length=4)
    assert rounded.diameter == pytest.approx(16.25)


def test_discrete_noise_costs_next_to_nothing() -> None:
    numbers: dict[str, Any] = {"parties": 60, "epsilon": 1.0, "k": 20, "sigma_delta": 2.0, "sigma_eta": 0.3}
    grid, ideal = planned(**numbers), planned(**numbers, precision=0.0)
    assert grid.smoothing is not None
    assert 0 < grid.smoothing.s < 3 * grid.step
    assert ideal.delta <= grid.delta * (1 + 1e-9)
    assert grid.delta <= ideal.delta * 1.001
    assert grid.delta_zcdp is not None
    assert grid.delta <= grid.delta_zcdp
    with pytest.raises(ConfigError, match=r"precision: a grid of step 0\.25 is too coarse"):
        planned(**numbers, precision=0.25)


def test_seed_draws_the_same_graph_and_none_another() -> None:
    numbers: dict[str, Any] = {"parties": 300, "epsilon": 1.0, "k": 12, "sigma_delta": 2.0, "sigma_eta": 0.1}
    assert planned(4, **numbers) == planned(4, **numbers)
    assert planned(4, **numbers).theta_upper != planned(5, **numbers).theta_upper
    assert planned(None, **numbers).theta_upper != planned(None, **numbers).theta_upper


def test_the_whole_process_is_no_better_for_a_lucky_draw() -> None:
    """Some of these graphs happen to be complete; the mean over all eight draws is 0.00702."""
    result = [
        planned(
            seed,
            parties=3,
            k=1,
            sigma_eta=1.5,
            sigma_delta=1.5,
            epsilon=1.0,
            delta=0.01,
            curator_delta=0.001,
            precision=0.0,
        )
        for seed in range(1, 9)
    ]
    assert {plan.edges for plan in result} == {2, 3}
    assert len({plan.delta_process for plan in result}) == 1
    assert result[0].delta_process is not None
    assert result[0].delta_process >= 0.00702


def test_k_out_graphs_are_drawn_uniformly() -> None:
    """Each of the 10 pairs of 5 parties is an edge with chance 1 - (1 - 2/4)^2; alarm 1e-6, fixed seed."""
    draw, runs = randomness_of(3), 8_000
    counts = np.zeros((5, 5))
    for _ in range(runs):
        edges = k_out(5, 2, 5, draw)
        counts[edges[:, 0], edges[:, 1]] += 1
    result = counts[np.triu_indices(5, 1)]
    assert np.abs(result - 0.75 * runs).max() < 5.4 * math.sqrt(0.75 * 0.25 * runs)
    assert (np.bincount(random_regular(50, 7, draw).ravel()) == 7).all()


# Bad input


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"^delta: is needed: its default with 3 honest parties, 10/n_H\^2, is 1.11, and not below 1"),
        ({"curator_delta": 0.2}, "^curator_delta: must be below 0.1 without a delta, which is ten times it"),
        ({"delta": 1e-3, "curator_delta": 1e-2}, "^curator_delta: must be below delta = 0.001, is 0.01"),
    ],
)
def test_deltas_that_do_not_fit_are_named_as_they_were_given(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GopaRequest(parties=3, epsilon=1.0, **given)


@pytest.mark.parametrize(
    ("numbers", "where"),
    [
        ({"parties": 2}, "parties"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1e3}, "epsilon"),
        ({"honest_fraction": 0.0}, "honest_fraction"),
        ({"honest_fraction": 1.5}, "honest_fraction"),
        ({"honest_fraction": 0.01}, "honest_fraction"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 1e-6, "curator_delta": 1e-5}, "curator_delta"),
        ({"k": 0}, "k"),
        ({"k": 100}, "k"),
        ({"k": 3, "graph": "ring"}, "k"),
        ({"k": 3, "parties": 101, "graph": "random-regular"}, "k"),
        ({"sigma_delta": -1.0}, "sigma_delta"),
        ({"sigma_eta": math.inf}, "sigma_eta"),
        ({"sigma_eta": 1e-3}, "sigma_eta"),
        ({"lower": 1.0, "upper": 1.0}, "lower"),
        ({"radius": 0.0}, "radius"),
        ({"length": 0}, "length"),
        ({"precision": -1.0}, "precision"),
        ({"max_dropouts": -1}, "max_dropouts"),
        ({"max_dropouts": 99}, "max_dropouts"),
        ({"k": 4, "max_dropouts": 30}, "sigma_delta"),
        ({"graph": "star"}, "graph"),
        ({"k": 1, "parties": 400}, "graph"),
        ({"graph": "ring", "honest_fraction": 0.5}, "graph"),
    ],
)
def test_bad_numbers_are_named(numbers: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(**{"parties": 100, "epsilon": 1.0} | numbers)
    assert where in {fault.where for fault in caught.value.issues}


def test_all_bad_numbers_are_named_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        planned(parties=10, epsilon=-1.0, k=10, lower=2.0, precision=-1.0, max_dropouts=10, method="no")
    named = {fault.where for fault in caught.value.issues}
    assert named == {"epsilon", "k", "lower", "precision", "max_dropouts", "method"}


def test_numbers_of_numpy_are_numbers() -> None:
    plan = planned(parties=60, epsilon=np.float64(1.0), k=np.int64(20))
    assert plan == planned(parties=60, epsilon=1.0, k=20)


@pytest.mark.parametrize(
    ("numbers", "condition"),
    [
        ({"epsilon": 2.0}, "0 < epsilon < 1"),
        ({"epsilon": 0.99}, r"condition \(4\.3\)"),
        ({"parties": 80}, "rho n >= 81"),
        ({"k": 30}, "rho k >= 4 ln"),
        ({"sigma_delta": 0.1}, r"condition \(4\.3\)"),
        ({"max_dropouts": 1}, "nobody chooses"),
        ({"graph": "ring"}, "random k-out graphs"),
        ({"length": 2}, "one value"),
    ],
)
def test_theorem_refuses_and_names_its_condition(numbers: dict[str, Any], condition: str) -> None:
    request: dict[str, Any] = {"parties": 1_000, "epsilon": 0.5, "method": "theorem"} | numbers
    with pytest.raises(ConfigError, match=condition):
        planned(**request)


def test_exact_works_where_the_theorem_does_not() -> None:
    for epsilon in (0.99, 2.0, 8.0):
        assert planned(parties=500, epsilon=epsilon).sufficient


def test_disconnected_graph_names_a_component(tmp_path: Path) -> None:
    file = tmp_path / "edges"
    file.write_text("# two parts\n0 1\n1 2\n\n3 4\n")
    with pytest.raises(ConfigError, match=r"2 components, of 3, 2 parties; one of them has 2: 3, 4"):
        plan_gopa(GopaRequest(parties=5, epsilon=1.0, graph="edges"), edges=read_edges(file, 5))


def test_large_delta_is_warned_about() -> None:
    plan = planned(parties=20, epsilon=1.0, delta=0.1)
    assert any("larger than 1/n" in line for line in plan.warnings)
    assert not planned(parties=20, epsilon=1.0, delta=0.01).warnings


def test_insufficient_numbers_are_told_not_hidden() -> None:
    plan = planned(parties=50, epsilon=0.1, delta=1e-9, k=20, sigma_delta=1.0, sigma_eta=1.0)
    assert not plan.sufficient
    assert any("not sufficient" in line for line in plan.warnings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1\n", "edges:2: not an edge"),
        ("0 1 2\n", "edges:1: not an edge"),
        ("0 -1\n", "edges:1: not an edge"),
        ("0 ²\n", "edges:1: not an edge"),
        ("0 1\n1 5\n", r"edges:2: party 5 is not in 0\.\.4"),
        ("3 3\n", "edges:1: party 3 joined with itself"),
        ("0 1\n2 1\n1 0\n", "edges:3: the edge of line 1 again"),
        ("", "edges: has no edges"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "edges").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message):
        read_edges(tmp_path / "edges", 5)


@pytest.mark.parametrize(
    ("parties", "edges", "where"),
    [
        (3, "x", "edges"),
        (3, None, "edges"),
        (3, [[0, 1, 2]], "edges"),
        (3, [[0.5, 1.0]], "edges"),
        ("3", [[0, 1]], "parties"),
        (0, [], "parties"),
    ],
)
def test_a_graph_of_other_kinds_is_refused(parties: Any, edges: Any, where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        honest_graph(parties, edges)
    with pytest.raises(ConfigError, match=where):
        honest_graph(parties, edges, honest=np.ones(3, dtype=bool))


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="cannot read the graph"):
        read_edges(tmp_path / "nowhere", 5)


# The command


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["plan", "gopa", *arguments])


def test_command_prints_json(tmp_path: Path) -> None:
    result = run("--parties", "80", "--epsilon", "1", "--graph-seed", "3", "--json")
    assert result.exit_code == 0
    reported = json.loads(result.stdout)
    assert tuple(reported) == ("schema", "schema_version", *GopaPlan.__struct_fields__)
    assert msgspec.convert(reported, GopaPlan).sufficient
    wanted = ("epsilon", "delta", "delta_process", "k", "sigma_delta", "sigma_eta")
    assert set(wanted) | {"error_std", "curator_error_std", "assumption"} <= set(reported)

    (tmp_path / "edges").write_text("\n".join(f"{u} {v}" for u in range(9) for v in range(u)))
    result = run("--parties", "9", "--epsilon", "2", "--graph", str(tmp_path / "edges"), "--json")
    reported = json.loads(result.stdout)
    assert reported["k"] is None
    assert reported["edges"] == 36


def test_command_prints_a_table_for_people() -> None:
    result = run("--parties", "80", "--epsilon", "1", "--delta", "0.5", "--max-dropouts", "2")
    assert result.exit_code == 0
    for word in ("delta of the process", "sigma_delta", "sigma_eta", "assumption:", "warning: delta = 0.5"):
        assert word in result.stdout


def test_command_raises_what_the_program_prints() -> None:
    result = run("--parties", "80", "--epsilon", "-1")
    assert isinstance(result.exception, SmpcError)
