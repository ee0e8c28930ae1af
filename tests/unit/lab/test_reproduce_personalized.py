"""The figure of personalised models, on a small problem."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smpc_dp.errors import ConfigError
from smpc_dp_lab.bench import moons, personalized


@pytest.mark.long
def test_collaboration_beats_local_models_and_noise_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One fixed problem of 10,000 test points: the order is that of the paper."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(personalized, "CONVERGED", 20)
    result = personalized.personalized_synthetic([20], [1.0, 30.0], problems=1, seed=3)
    accuracy = {(point.rows, point.method, point.epsilon): point.accuracy for point in result.points}
    assert accuracy["unit", "CD", None] > accuracy["unit", "local", None] + 0.05
    assert accuracy["cube", "paper's scale", 0.15] > accuracy["cube", "local", None] + 0.02
    assert accuracy["unit", "private CD", 30.0] > accuracy["unit", "private CD", 1.0] + 0.1
    assert {point.method for point in result.points if not point.protected} == {"CD", "paper's scale"}
    personalized.plot(result, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_rows_of_norm_one_have_gradients_of_norm_one() -> None:
    """The noise of the private models is planned for that."""
    tasks = personalized.problem(1, 20, "unit")
    rows = np.arange(personalized.PARTIES)
    assert np.linalg.norm(tasks.features, axis=2).max() <= 1 + 1e-12
    assert np.abs(tasks._slopes(np.ones((personalized.PARTIES, 20)), rows)).max() <= 1


@pytest.mark.parametrize(("arguments", "problems"), [([1], 1), ([20], 0)])
def test_arguments_out_of_range_are_named(arguments: list[int], problems: int) -> None:
    with pytest.raises(ConfigError, match=r"dimension|problems"):
        personalized.personalized_synthetic(arguments, problems=problems)


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
    moons.plot(result, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    with pytest.raises(ConfigError, match="problems"):
        moons.moons(problems=0)
