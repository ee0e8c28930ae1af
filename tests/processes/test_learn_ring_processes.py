"""A token on a ring of processes: the sum, what neighbours are sent, the ledgers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import PlainExchange
from smpc_dp.capabilities.learn.exchange_tokens import PathTokens
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requests.exchanging import PartyExchange
from smpc_dp.capabilities.learn.requests.learning import learn_parameters
from smpc_dp.capabilities.learn.tokens import Token
from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.requests import Counter
from smpc_dp.session.session_file import Timeouts
from smpc_dp.session.session_state import SessionState
from tests.command import smpc_dp
from tests.processes.learn_supply import supply

PARTIES = ("ann", "ben", "cat")
PARAMETERS: dict[str, object] = {
    "learner": "ring-sum",
    "rounds": 2,
    "lower": 0.0,
    "upper": 1.0,
    "epsilon": 50.0,
    "delta": 1e-4,
}
TABLES = [np.array([[0.25], [1.0]]), np.array([[0.5], [0.5]]), np.array([[0.0], [0.75]])]


@pytest.mark.long
def test_three_processes_pass_a_token_and_all_get_one_sum(tmp_path: Path) -> None:
    """Noise of standard deviation 0.3: 10 of them off with chance 1e-23."""
    timeouts = Timeouts(connect=30.0, step=20.0, gather=20.0)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, protocol="learn", timeouts=timeouts)
    supply(tmp_path / "inputs", tmp_path, dict(zip(PARTIES, TABLES, strict=True)), 60.0, 1e-3)
    done = smpc_dp("run", str(path), "--ledgers", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)["parties"]
    sums = [result["values"][0][0] for result in shown.values()]
    assert sorted(shown) == sorted(PARTIES)
    assert len(set(sums)) == 1
    assert 0 < abs(sums[0] - 3.0) < 5
    assert shown["ann"]["guarantee"]["epsilon"] == pytest.approx(50.0)
    assert "everybody sees the final token" in shown["ann"]["guarantee"]["assumption"]
    for name in PARTIES:
        # What the ledger can say of (50, 1e-4) at its own delta.
        assert 40 < (Ledger.open(tmp_path / f"{name}.ledger").spent().epsilon or 0) < 51


def test_in_simulation_it_is_the_same_sum() -> None:
    result = simulate.learn(PARAMETERS, TABLES)
    assert np.ptp(result.values) == 0
    assert 0 < abs(result.values[0, 0] - 3.0) < 5
    assert result.guarantee is not None
    assert "order on the ring is public" in result.claim


def test_a_token_leaves_its_path_for_nobody() -> None:
    tokens = PathTokens(PlainExchange(3), np.array([0, 1, 1, 2]), 4)
    token = Token(1, np.array([5]))
    with pytest.raises(LocalError, match="from party 0 to 2 is not on the path at hop 0"):
        asyncio.run(tokens.pass_on(0, 2, token))
    asyncio.run(tokens.pass_on(0, 1, token))
    asyncio.run(tokens.pass_on(1, 2, token))  # party 1 kept it for a step
    asyncio.run(tokens.drain())
    with pytest.raises(LocalError, match="path of the token has ended"):
        asyncio.run(tokens.take())


def test_settings_and_data_are_checked() -> None:
    for change, named in (
        ({"upper": -1.0}, "upper"),
        ({"colluding": 2}, "colluding"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"lower": 1e9, "upper": 1e9 + 1}, "too large for its grid"),
    ):
        _, faults = check_learn(PARAMETERS | change, 4)
        assert any(named in str(fault) for fault in faults), (change, faults)
    with pytest.raises(ConfigError, match="party 1: must be 2 lines of one number"):
        simulate.learn(PARAMETERS, [TABLES[0], np.zeros((3, 1)), TABLES[2]])
    with pytest.raises(ConfigError, match="party 2: a contribution is outside"):
        simulate.learn(PARAMETERS, [*TABLES[:2], np.array([[0.5], [np.nan]])])


def test_who_takes_part_in_every_request_waits_for_one(tmp_path: Path) -> None:
    """And on a ring for the hops of others: no longer the more requests have been."""
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, protocol="learn")
    membership = Membership.load(path, "ben")
    assert isinstance(membership, Membership)
    planned = learn_parameters(membership).exchange
    assert planned is not None
    waits: list[tuple[int, int]] = []

    class Line:
        state = SessionState()
        ended = SimpleNamespace(state=SimpleNamespace(received={}))

        async def run(self, number: int, *more: Any) -> None:
            waits.append((number, more[-1]))

    exchange = PartyExchange(membership, planned, Counter(), cast("AggregatorConnection", Line()), None)

    async def run() -> None:
        for _ in range(3):
            await exchange.meet(np.zeros((3, 1)), None)
        for pair in ((0, 2), (2, 0), (0, 1)):
            await exchange.meet(np.zeros((1, 1)), {pair[0]: [pair[1]], pair[1]: [pair[0]]})

    asyncio.run(run())
    assert waits == [(1, 0), (2, 0), (3, 0), (6, 2)]
