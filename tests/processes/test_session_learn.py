"""`Session.learn` over real sockets: a caller's own model, its steps, metric and charges; and who differs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp import simulate
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import Learned, Step
from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.command import smpc_dp as command
from tests.threads import in_thread

NAMES = ("ann", "bob", "cas", "dan")
OWN: dict[str, Any] = {"learner": "sgd", "model": "own", "length": 3, "steps": 3, "rate": 1.0, "clip": 9.0}
TIMEOUTS = Timeouts(connect=20.0, gather=20.0, step=10.0)
START = {"a": np.zeros(2), "b": 0.0}


def towards(model: dict[str, Any], target: float) -> dict[str, Any]:
    """Half a step from a model to this party's own."""
    return {"a": model["a"] + (target - model["a"]) / 2, "b": model["b"] + (target - model["b"]) / 2}


def distance(model: dict[str, Any], target: float) -> float:
    return abs(float(model["b"]) - target)


def create(folder: Path, **change: object) -> Path:
    return create_local_session(folder, NAMES, OWN | change, protocol="learn", timeouts=TIMEOUTS)


async def everybody(path: Path, one: Callable[[int], Any], count: int = 4) -> list[Any]:
    serving = asyncio.create_task(serve_learning(path, begin_with=count))
    results = await asyncio.gather(*(one(index) for index in range(count)), return_exceptions=True)
    await serving
    return results


def test_parties_learn_exactly_what_a_simulation_in_the_clear_learns(tmp_path: Path) -> None:
    path = create(tmp_path, metric_every=2, metric_upper=3.0, averager={"total": "unchecked"})
    steps: list[Step] = []

    async def one(index: int) -> Learned:
        async with smpc_dp.connect(path, NAMES[index]) as session:
            learned = await session.learn(
                float(index), model=START, update=towards, metric=distance, on_step=steps.append
            )
            for call in (
                session.learn(0.0),
                session.sum([0.0]),
                session.average([0.0]),
                session.pairwise("gini", 1, 1),
            ):
                with pytest.raises(ConfigError, match=r"learns once|has no sums"):
                    await call
            return learned

    results = asyncio.run(everybody(path, one))
    plain = simulate.learn(
        OWN | {"metric_every": 2, "metric_upper": 3.0},
        [0.0, 1.0, 2.0, 3.0],
        model=START,
        update=towards,
        metric=distance,
        fidelity="plain",
    )
    for learned in results:
        np.testing.assert_allclose(learned.values, plain.values[:1], atol=1e-9)
        assert learned.model["b"] == pytest.approx(1.5 * (1 - 0.5**3), abs=1e-9)
        assert learned.guarantee is None
        assert learned.evidence is not None
        assert learned.evidence.averages > learned.evidence.checked == 0
        assert "totals checked" not in str(learned)
        assert learned.claim.startswith(
            "NOT DIFFERENTIALLY PRIVATE: each step's average is exact. It reveals"
        )
        np.testing.assert_allclose(learned.metrics, plain.metrics, atol=1e-3)
    assert sorted(step.number for step in steps) == [1] * 4 + [2] * 4 + [3] * 4
    assert [step.metric is not None for step in steps if step.number == 2] == [True] * 4


def test_blocking_calls_are_charged_for_steps_and_metrics(tmp_path: Path) -> None:
    path = create(tmp_path, epsilon=4.0, delta=1e-5, metric_every=3)
    for name, epsilon in zip(NAMES, (4.0, 4.0, 4.0, 3.0), strict=True):
        ledger = {
            "party": name,
            "dataset": "d",
            "relation": "substitution",
            "epsilon": epsilon,
            "delta": 1e-5,
        }
        Ledger.create(tmp_path / f"{name}.ledger", **ledger)  # type: ignore[arg-type]
    serving = in_thread(lambda: asyncio.run(serve_learning(path)))

    def one(name: str) -> Learned:
        with smpc_dp.sync.connect(path, name, ledger=tmp_path / f"{name}.ledger") as session:
            return session.learn(1.0, model=START, update=towards, metric=distance)

    with pytest.raises(PrivacyError, match="dan"):
        one("dan")
    # Nothing was sent or charged: the others wait for dan, who has no ledger now.
    others = [in_thread(one, name) for name in NAMES[:3]]
    with smpc_dp.sync.connect(path, "dan") as dan:
        learned = dan.learn(1.0, model=START, update=towards, metric=distance)
    assert Ledger.open(tmp_path / "dan.ledger").entries() == ()
    for other in others:
        result = other.result()
        assert result.guarantee is not None
        assert (result.guarantee.epsilon, result.guarantee.delta) == (4.0, 1e-5)
        np.testing.assert_array_equal(result.values, learned.values)
    serving.result()
    for name in NAMES[:3]:
        ledger_of = Ledger.open(tmp_path / f"{name}.ledger")
        # Three steps and one metric.
        assert len(ledger_of.entries()) == 4
        spent = ledger_of.spent().epsilon
        assert spent is not None
        assert 0.0 < spent <= 4.0


def test_a_party_that_begins_with_another_model_is_named_and_not_added_up(tmp_path: Path) -> None:
    path = create(tmp_path, steps=1, averager={"missing": 1, "colluders": 0})

    async def one(index: int) -> Any:
        async with smpc_dp.connect(path, NAMES[index]) as session:
            start = START | {"b": 1.0 if index == 3 else 0.0}
            return await session.learn(float(index), model=start, update=towards)

    *others, other = asyncio.run(everybody(path, one))
    for learned in others:
        assert learned.done.tolist() == [1], learned
        assert learned.model["b"] == pytest.approx((0 + 1 + 2) / 3 / 2, abs=1e-9)
    assert other.done.tolist() == [0]
    assert all("dan: asks for something else than most others" in failure for failure in other.failures)
    assert len(other.failures) == 2


def test_an_error_of_a_function_ends_the_run_for_its_party_and_is_told_to_no_one(tmp_path: Path) -> None:
    path = create(tmp_path, averager={"missing": 1, "colluders": 0})
    absent: list[tuple[str, ...]] = []

    def fails(model: dict[str, Any], target: float) -> dict[str, Any]:
        if model["b"]:
            raise ZeroDivisionError("secret 4711")
        return towards(model, target)

    async def one(index: int) -> Any:
        watch = (lambda step: absent.append(step.absent)) if index == 0 else None
        async with smpc_dp.connect(path, NAMES[index]) as session:
            function = fails if index == 3 else towards
            return await session.learn(1.0, model=START, update=function, on_step=watch)

    *others, failed = asyncio.run(everybody(path, one))
    assert isinstance(failed, ZeroDivisionError)
    assert absent == [(), ("dan",), ("dan",)]
    for learned in others:
        assert learned.done.tolist() == [3], learned.failures
        assert "4711" not in repr(learned) + str(learned)


def test_arguments_that_are_refused_send_nothing(tmp_path: Path) -> None:
    path = create(tmp_path, steps=1)

    async def one(index: int) -> Any:
        async with smpc_dp.connect(path, NAMES[index]) as session:
            for options in ({}, {"model": START}, {"model": [0.0], "update": towards}):
                with pytest.raises(ConfigError):
                    await session.learn(1.0, **options)
            with pytest.raises(PrivacyError, match=r"\['b'\] must be finite"):
                await session.learn(1.0, model=START | {"b": np.inf}, update=towards)
            return await session.learn(1.0, model=START, update=towards)

    assert [learned.done.tolist() for learned in asyncio.run(everybody(path, one))] == [[1]] * 4
    with pytest.raises(ConfigError, match="its parties learn in Python") as refused:
        asyncio.run(learn(path, "ann", tmp_path / "ann.csv"))
    assert refused.value.issues[0].check is ConfigCheck.UNSUPPORTED


@pytest.mark.long
def test_run_reads_named_columns_and_writes_the_model(tmp_path: Path) -> None:
    given = {
        "learner": "sgd",
        "features": 2,
        "steps": 2,
        "metric_every": 2,
        "columns": ["age", "size", "label"],
    }
    path = create_local_session(tmp_path, NAMES[:3], given, protocol="learn", timeouts=TIMEOUTS)
    (tmp_path / "inputs").mkdir()
    tables = []
    for party, name in enumerate(NAMES[:3]):
        x = np.random.default_rng(party).normal(size=(20, 2)).round(4)
        table = np.column_stack([x, x[:, 0] > 0])
        tables.append(table)
        lines = [f"{row[2]:g},{row[1]!r},x,{row[0]!r}" for row in table.tolist()]
        (tmp_path / "inputs" / f"{name}.csv").write_text("\n".join(["label,size,id,age", *lines]))
    refused = command("run", str(path), "--out", str(tmp_path / "none" / "model.json"))
    assert "there is no folder" in refused.stderr
    done = command("run", str(path), "--out", str(tmp_path / "model.json"))
    assert done.returncode == 0, done.stderr
    assert "privacy: none; NOT DIFFERENTIALLY PRIVATE: each step's average is exact" in done.stdout
    assert "step 2 of 2" in done.stderr
    model = json.loads((tmp_path / "model.json").read_text())
    plain = simulate.learn(given, tables, fidelity="plain")
    assert (model["format"], model["version"], model["learner"]) == ("smpc-dp model", 1, "sgd")
    assert model["names"] == ["age", "size", "intercept"]
    np.testing.assert_allclose(model["values"], plain.values[0], atol=1e-9)
    assert max(model["spread"]) < 1e-9
    assert model["metrics"] == [{"step": 2, "value": pytest.approx(plain.metrics[0][1], abs=1e-3)}]
    assert set(model["parties"]) == set(NAMES[:3])
    evidence = {"averages": 5, "checked": 5}
    expected = {"values": [], "steps": 2, "done": 2, "failures": [], "evidence": evidence}
    assert model["parties"]["ann"] | {"values": []} == expected
    assert (model["guarantee"], model["confidential"]) == (None, False)
    assert model["claim"].startswith("NOT DIFFERENTIALLY PRIVATE")
