"""A session over sockets whose aggregator deviates in one request: what each party is told, and charged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from examples.false_total import aggregator_with, one_more
from smpc_dp import generator_cache
from smpc_dp.crypto.vector_commitments import Generators
from smpc_dp.engine.state import Transition
from smpc_dp.errors import Code
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.secagg import states
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.session_file import Timeouts

PARTIES = ("alice", "bob", "carol", "dave", "eve")
GIVEN: dict[str, object] = {
    "length": 2,
    "lower": 0.0,
    "upper": 1.0,
    "precision": 2.0**-10,
    "epsilon": 50.0,
    "delta": 1e-6,
    "dropout": 0.2,
    "corrupt": 0.0,
    "total": "checked",
}


def one_step_beside(aggregator: states.Aggregator, state: states.CollectUnmask) -> Transition:
    """Finish honestly with a vector in the sum that is another one than was committed to."""
    state.added.total[0] += 1
    return states.finish_unmask(aggregator, state)


async def ask_twice(path: Path, name: str) -> list[object]:
    answers: list[object] = []
    async with smpc_dp.connect(path, party=name, ledger=path.parent / f"{name}.ledger") as session:
        for _ in range(2):
            try:
                answers.append(await session.sum([0.25, 0.5]))
            except smpc_dp.SmpcError as error:
                answers.append(error)
    return answers


@pytest.mark.parametrize("finish", [one_more, one_step_beside])
async def test_a_request_with_a_false_total_ends_and_stays_charged(
    tmp_path: Path, finish: Callable[[Any, Any], Transition]
) -> None:
    """The request is not repeated by itself; the next one is another release, with its own total."""
    path = create_local_session(tmp_path, PARTIES, GIVEN)
    ledgers = {name: tmp_path / f"{name}.ledger" for name in PARTIES}
    for name, ledger in ledgers.items():
        Ledger.create(
            ledger, party=name, dataset="patients", relation="substitution", epsilon=None, delta=1e-5
        )
    serving = asyncio.create_task(smpc_dp.serve(path, requests=2, role=aggregator_with(finish, {1})))
    answers = await asyncio.gather(*(ask_twice(path, name) for name in PARTIES))
    first, second = await serving
    for (error, result), name in zip(answers, PARTIES, strict=True):
        if finish is one_more:
            assert isinstance(error, smpc_dp.PeerFault)
            assert (error.culprit, error.accuser) == (AGGREGATOR, "")
            assert "the total is not that of the commitments" in str(error)
        else:
            assert isinstance(error, smpc_dp.VerificationError)
            assert error.code == Code.TOTAL
            assert "the aggregator or at least one party deviates" in str(error)
            assert not any(party in str(error) for party in PARTIES)
        assert isinstance(result, smpc_dp.Result)
        assert result.evidence.checked is True
        assert len(Ledger.open(ledgers[name]).entries()) == 2
        np.testing.assert_array_equal(result.value, answers[0][1].value)  # type: ignore[attr-defined]
    assert isinstance(second, smpc_dp.Result)
    assert isinstance(first, smpc_dp.Result if finish is one_more else smpc_dp.VerificationError)


@pytest.mark.parametrize("left", ["", "eve"])
async def test_a_request_without_a_total_fixes_the_survivors(tmp_path: Path, left: str) -> None:
    """The aggregator has seen a total of them: the next exact sum is over the same parties, or fails."""
    given = {key: value for key, value in GIVEN.items() if key not in ("epsilon", "delta")}
    timeouts = Timeouts(connect=20.0, step=20.0, gather=3.0 if left else 60.0)
    path = create_local_session(tmp_path, PARTIES, given, timeouts=timeouts)

    async def ask(name: str) -> None:
        async with smpc_dp.connect(path, party=name) as session:
            with pytest.raises(smpc_dp.VerificationError) as caught:
                await session.sum([0.25, 0.5])
            assert caught.value.code == Code.TOTAL
            if name == left:
                return
            if not left:
                assert (await session.sum([0.25, 0.5])).survivors == PARTIES
                return
            with pytest.raises(smpc_dp.TimeoutFault, match="earlier sums of the session") as missing:
                await session.sum([0.25, 0.5])
            assert missing.value.missing == {left}

    serving = asyncio.create_task(smpc_dp.serve(path, requests=2, role=aggregator_with(one_step_beside, {1})))
    await asyncio.gather(*map(ask, PARTIES))
    first, second = await serving
    assert isinstance(first, smpc_dp.VerificationError)
    assert isinstance(second, smpc_dp.TimeoutFault if left else smpc_dp.Result)


@pytest.mark.parametrize("asked", ["mean(age)", "logistic(ill ~ age)"])
async def test_statistics_of_a_false_total_are_refused(tmp_path: Path, asked: str) -> None:
    """Sums of records are checked as others are: no answer is made of a total that is one step too large."""
    given: dict[str, object] = {
        **{key: GIVEN[key] for key in ("epsilon", "delta", "dropout", "corrupt", "total")},
        "ask": asked,
        "records": {
            "max_rows": 100,
            "rows_expected": 500,
            "columns": {
                "age": {"lower": 0.0, "upper": 100.0},
                "ill": {"lower": 0.0, "upper": 1.0, "step": 1.0},
            },
        },
    }
    path = create_local_session(tmp_path, PARTIES, given)
    rows = {"age": [float(age) for age in range(100)], "ill": [0.0, 1.0] * 50}

    async def ask(name: str) -> None:
        async with smpc_dp.connect(path, party=name) as session:
            with pytest.raises(smpc_dp.PeerFault, match="the total is not that of the commitments") as caught:
                await session.statistics(rows)
        assert (caught.value.culprit, caught.value.accuser) == (AGGREGATOR, "")

    serving = asyncio.create_task(smpc_dp.serve(path, requests=1, role=aggregator_with(one_more, {1})))
    await asyncio.gather(*map(ask, PARTIES))
    await serving


@pytest.mark.parametrize("total", ["checked", "unchecked"])
async def test_every_member_takes_generators_from_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: str
) -> None:
    """Before the first request, and only where totals are checked: others wait for none, and store none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(generator_cache, "IN_PROCESS", Generators())
    load, asked = generator_cache.load_generators, list[int]()

    def count(length: int, threads: int) -> None:
        asked.append(length)
        load(length, threads)

    monkeypatch.setattr(generator_cache, "load_generators", count)
    path = create_local_session(tmp_path, PARTIES, GIVEN | {"total": total})

    async def ask(name: str) -> None:
        async with smpc_dp.connect(path, party=name) as session:
            await session.sum([0.25, 0.5])

    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    await asyncio.gather(*map(ask, PARTIES))
    await serving
    stored = [file.name for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    if total == "checked":
        # The parties and the aggregator.
        assert (asked, stored) == ([2] * (len(PARTIES) + 1), ["000"])
    else:
        assert (asked, stored) == ([], [])


@pytest.mark.parametrize("bounds", [None, {"['bias']": (-1.0, 1.0), "['weight']": (-10.0, 10.0)}])
async def test_averages_of_weighted_trees_are_checked(
    tmp_path: Path, bounds: dict[str, tuple[float, float]] | None
) -> None:
    """The weight is one more committed element, and bounds of leaves change no total's check."""
    given = {"length": 4, "lower": -10.0, "upper": 10.0, "precision": 1e-6, "max_weight": 10}
    path = create_local_session(tmp_path, PARTIES, {**given, "corrupt": 0.0, "total": "checked"})

    async def ask(number: int, name: str) -> list[smpc_dp.Result]:
        tree = {"weight": np.full((1, 3), float(number)), "bias": number / 4}
        async with smpc_dp.connect(path, party=name) as session:
            return [await session.average(tree, weight=number, bounds=bounds) for _ in range(2)]

    serving = asyncio.create_task(smpc_dp.serve(path, requests=2))
    answers = await asyncio.gather(*(ask(number, name) for number, name in enumerate(PARTIES)))
    expected = sum(number * number for number in range(5)) / 10
    assert all(isinstance(served, smpc_dp.Result) for served in await serving)
    for result in (one for answered in answers for one in answered):
        assert (result.evidence.checked, result.weight) == (True, 10)
        np.testing.assert_allclose(result.tree["weight"], np.full((1, 3), expected), atol=1e-5)
        assert result.tree["bias"] == pytest.approx(expected / 4, abs=1e-5)
