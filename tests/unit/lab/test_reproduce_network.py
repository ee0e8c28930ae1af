"""`smpc-dp reproduce homomorphic` and `network-sgd`: the order of the figures, the data, bad requests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench.homomorphic import homomorphic_deviation
from smpc_dp_lab.bench.houses import COLUMNS, ROWS, load_houses, synthetic_houses
from smpc_dp_lab.bench.network_sgd import network_sgd


@pytest.mark.long
def test_homomorphic_noise_costs_less_than_iid_and_more_privacy() -> None:
    """Factors of 4 and more between the three, with 100 runs: the order does not hang on the draws."""
    result = homomorphic_deviation()
    assert result.ranks == list(result.paper) == ["none", "homomorphic", "iid"]
    none, homomorphic, iid = (result.of(noise) for noise in result.paper)
    assert 3 * none.final < homomorphic.final < iid.final / 3
    # Exact averages of groups, a quarter as many a step: no worse than those of neighbourhoods.
    assert result.in_groups.final < 1.05 * none.final
    assert result.averages_a_step == 5
    assert none.epsilon == {}
    # mu G (i^2 + i) / b with b = 1, and 2 mu G i / b.
    assert homomorphic.epsilon[10] == pytest.approx(8 * 110, rel=1e-6)
    assert iid.epsilon[10] == pytest.approx(2 * 8 * 10, rel=1e-6)
    assert (
        homomorphic_deviation(steps=10, repetitions=2, seed=3).curves
        == homomorphic_deviation(steps=10, repetitions=2, seed=3).curves
    )


@pytest.mark.long
def test_methods_are_ordered_and_the_fair_plans_are_better() -> None:
    """200 parties, 2,000 steps, epsilon = 10, 5 runs; central, fair is above local, published by 0.1."""
    result = network_sgd(epsilons=(10.0,), parties=200, steps=2_000, runs=5)
    assert result.data.startswith("synthetic")
    assert [(p.sigmas, p.method) for p in result.points] == [
        (sigmas, method) for sigmas in ("published", "fair") for method in ("central", "network", "local")
    ]
    # The script's three sigmas have no order of their own at this size.
    central, network, local = (point.sigma for point in result.of("fair", 10.0))
    assert central < network < local
    best, worst = result.of("fair", 10.0)[0], result.of("published", 10.0)[2]
    assert result.accuracy > best.accuracy > worst.accuracy + 0.1
    assert len(best.trace) == len(result.checkpoints) == 40
    assert best.trace[-1] == pytest.approx(best.accuracy)


def test_houses_are_read_and_checked(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(ROWS, COLUMNS))
    text = "\n".join(",".join(f"{value:.6f}" for value in row) for row in rows)
    for name in ("houses.csv", "houses.csv.gz"):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode(), 1) if name.endswith("gz") else text.encode())
        result = load_houses(path)
        assert result.features.shape == (ROWS, 8)
        assert ((result.labels == 1) == (rows[:, 8] < rows[:, 8].mean())).mean() > 0.9999
    for bad, named in (
        ("1,2,x", "line 1: is not numbers"),
        ("1,2", "must be 9"),
        ("1," * 8 + "nan", "finite"),
    ):
        path.with_suffix("").write_text(bad, "utf-8")
        with pytest.raises(ConfigError, match=named):
            load_houses(path.with_suffix(""))
    path.with_suffix("").write_text(text.partition("\n")[0], "utf-8")
    with pytest.raises(ConfigError, match="has 1 rows, not 20640"):
        load_houses(path.with_suffix(""))
    made = synthetic_houses(1)
    assert made.features.shape == (ROWS, 8)
    assert 0.4 < (made.labels == 1).mean() < 0.7


@pytest.mark.long
def test_commands_print_numbers_and_draw(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path, few = tmp_path / "plot.png", ["--steps", "20", "--repetitions", "3"]
    reported = CliRunner().invoke(app, ["reproduce", "homomorphic", *few, "--json", "--plot", str(path)])
    assert reported.exit_code == 0, reported.output
    assert json.loads(reported.stdout)["plot"] == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    drawn = ["--plot", str(tmp_path / "plot.svg")]
    assert "seed 1" in CliRunner().invoke(app, ["reproduce", "homomorphic", *few, *drawn]).output
    few = ["--parties", "200", "--steps", "1000", "--runs", "2", "--epsilon", "10"]
    reported = CliRunner().invoke(app, ["reproduce", "network-sgd", *few, *drawn])
    assert reported.exit_code == 0, reported.output
    assert "synthetic" in reported.output
    assert "reference" not in reported.output
    assert "<svg" in (tmp_path / "plot.svg").read_text("utf-8")


def test_bad_requests_are_named() -> None:
    with pytest.raises(ConfigError, match=r"steps: .*repetitions"):
        homomorphic_deviation(steps=1, repetitions=1)
    with pytest.raises(ConfigError, match=r"parties: .*steps: .*runs: .*epsilon"):
        network_sgd(parties=5, steps=10, runs=1, epsilons=())
    with pytest.raises(ConfigError, match="delta"):
        network_sgd(parties=50, steps=1_000, runs=2, delta=2.0)
