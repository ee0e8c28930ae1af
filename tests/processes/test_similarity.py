"""Private similarities over real sockets: both of a pair have one noisy score, charged before the first."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

import smpc_dp
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.net.local import create_local_session
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.statistics.similarity import Similarities
from tests.processes.test_evaluate import FAST, PARAMETERS, PARTIES

VECTORS = {"alice": [3.0, 4.0], "bob": [6.0, 8.5], "carol": [-4.0, 1.0]}


async def compare(
    path: Path, epsilons: dict[str, float], ledgers: bool
) -> dict[str, Similarities | BaseException]:
    serving = asyncio.create_task(smpc_dp.serve(path))

    async def one(name: str) -> Similarities:
        ledger = path.parent / f"{name}.ledger" if ledgers else None
        async with smpc_dp.connect(path, party=name, ledger=ledger) as session:
            return await session.similarities(VECTORS[name], epsilons[name])

    results = await asyncio.gather(*(one(name) for name in PARTIES), return_exceptions=True)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    return dict(zip(PARTIES, results, strict=True))


async def test_pairs_learn_one_noisy_score_and_ledgers_are_charged(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=True, timeouts=FAST)
    for name in PARTIES:
        Ledger.create(
            tmp_path / f"{name}.ledger",
            party=name,
            dataset="d",
            relation="substitution",
            epsilon=30.0,
            delta=1e-6,
        )
    results = await compare(path, dict.fromkeys(PARTIES, 20.0), ledgers=True)
    for name, other in (("alice", "bob"), ("alice", "carol"), ("bob", "carol")):
        first, second = results[name], results[other]
        assert isinstance(first, Similarities), first
        assert isinstance(second, Similarities), second
        assert first.scores[other] == second.scores[name]
        a, b = np.array(VECTORS[name]), np.array(VECTORS[other])
        cosine = float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        # Laplace: beyond 25 deviations with a chance below 1e-14; and the grid of a seventh.
        assert abs(first.scores[other] - cosine) < 25 * first.deviation + 0.4
        assert (first.guarantee.epsilon, first.failed) == (20.0, {})
    spent = [Ledger.open(tmp_path / f"{name}.ledger").spent().epsilon for name in PARTIES]
    assert spent == pytest.approx([20.0] * 3, rel=1e-6)
    # A second time is beyond the budgets: refused before anything is sent.
    again = await compare(path, dict.fromkeys(PARTIES, 20.0), ledgers=True)
    assert all(isinstance(result, PrivacyError) for result in again.values())
    assert [Ledger.open(tmp_path / f"{name}.ledger").spent().epsilon for name in PARTIES] == spent


async def test_copies_out_of_range_are_refused_before_the_charge(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=True, timeouts=FAST)
    book = tmp_path / "alice.ledger"
    Ledger.create(book, party="alice", dataset="d", relation="substitution", epsilon=30.0, delta=1e-6)
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
