"""Private similarities over real sockets: both of a pair have one noisy score, charged before the first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.statistics.similarity import Similarities
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.processes.learn_supply import create_ledgers
from tests.processes.test_pairs_evaluate import FAST, PARAMETERS, PARTIES

NAMES = (*PARTIES, "dave", "eve", "frank")
VECTORS = {"alice": [3.0, 4.0], "bob": [6.0, 8.0], "carol": [-3.0, -4.0]}


async def compare(
    path: Path, epsilons: dict[str, float], *, ledgers: bool
) -> dict[str, Similarities | BaseException]:
    serving = asyncio.create_task(smpc_dp.serve(path))

    async def one(name: str) -> Similarities:
        ledger = path.parent / f"{name}.ledger" if ledgers else None
        async with smpc_dp.connect(path, party=name, ledger=ledger) as session:
            return await session.similarities(VECTORS.get(name, [1.0, 2.0]), epsilons[name])

    results = await asyncio.gather(*(one(name) for name in epsilons), return_exceptions=True)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return dict(zip(epsilons, results, strict=True))


async def test_pairs_learn_one_noisy_score_and_ledgers_are_charged(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=True, timeouts=FAST)
    create_ledgers(tmp_path, PARTIES, 40.0, 1e-6)
    results = await compare(path, dict.fromkeys(PARTIES, 24.0), ledgers=True)
    scores = {}
    for name, other in (("alice", "bob"), ("alice", "carol"), ("bob", "carol")):
        first, second = results[name], results[other]
        assert isinstance(first, Similarities), first
        assert isinstance(second, Similarities), second
        assert first.scores[other] == second.scores[name]
        scores[name, other] = first.scores[other]
        assert (first.guarantee.epsilon, first.failed) == (24.0, {})
    # Cosines of 0.84 and twice -0.84 on the grid; noise of a deviation of 0.24: one false alarm in 20,000.
    assert scores.pop(("alice", "bob")) - np.mean([*scores.values()]) > 0
    spent = [Ledger.open(tmp_path / f"{name}.ledger").spent().epsilon for name in PARTIES]
    assert spent == pytest.approx([24.0] * 3, rel=1e-6)
    # A second time is beyond the budgets: refused before anything is sent.
    again = await compare(path, dict.fromkeys(PARTIES, 24.0), ledgers=True)
    assert all(isinstance(result, PrivacyError) for result in again.values())
    assert [Ledger.open(tmp_path / f"{name}.ledger").spent().epsilon for name in PARTIES] == spent


async def test_absent_parties_cost_no_pair_of_the_others_its_score(tmp_path: Path) -> None:
    """Two are away: nobody else waits for them first, so all pairs of the four others are in time."""
    path = create_local_session(
        tmp_path, NAMES, PARAMETERS, addresses=True, timeouts=Timeouts(connect=60.0, step=6.0, gather=6.0)
    )
    present = [name for name in NAMES if name not in ("alice", "dave")]
    results = await compare(path, dict.fromkeys(present, 40.0), ledgers=False)
    for name in present:
        result = results[name]
        assert isinstance(result, Similarities), result
        assert sorted(result.scores) == [other for other in present if other != name]
        assert sorted(result.failed) == ["alice", "dave"]


async def test_copies_out_of_range_are_refused_before_the_charge(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=True, timeouts=FAST)
    create_ledgers(tmp_path, ["alice"], 30.0, 1e-6)
    book = tmp_path / "alice.ledger"
    serving = asyncio.create_task(smpc_dp.serve(path))
    async with smpc_dp.connect(path, party="alice", ledger=book) as session:
        with pytest.raises(ConfigError, match="covert"):
            await session.similarities([1.0, 2.0], 20.0, covert=1)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert Ledger.open(book).spent().epsilon == 0


async def test_budgets_that_differ_are_named(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=True, timeouts=FAST)
    results = await compare(path, {"alice": 20.0, "bob": 20.0, "carol": 10.0}, ledgers=False)
    assert isinstance(results["carol"], ConfigError)
    assert "circuit" in str(results["carol"])
    # The others have the score that they agreed on.
    for name, other in (("alice", "bob"), ("bob", "alice")):
        result = results[name]
        assert isinstance(result, Similarities), result
        assert list(result.scores) == [other]
        assert "circuit" in result.failed["carol"]
