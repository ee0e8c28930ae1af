"""Statistics of records on shares, over real sockets: answers, ledgers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.servers.requests.computing_server import serve_shares
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.records.record_result import RecordResult
from smpc_dp.records.requests.records_task import records_text
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.planned import NoiseWarning
from smpc_dp.session.session_file import Timeouts
from tests.processes.test_records import PARTIES, REAL, rows, values

SHARED: dict[str, Any] = {key: value for key, value in REAL.items() if key != "corrupt"}
TIMEOUTS = Timeouts(connect=60.0, step=30.0, gather=30.0)
SERVERS = ("server1", "server2", "server3")


async def test_servers_answer_with_one_noise(tmp_path: Path) -> None:
    """From a budget of one request. 6 deviations: a false alarm in 1e8 runs."""
    budget = {"epsilon": SHARED["epsilon"], "delta": SHARED["delta"], "requests": 1}
    given = {key: value for key, value in SHARED.items() if key not in budget} | {"budget": budget}
    path = create_local_session(tmp_path, PARTIES, given, protocol="mpyc", timeouts=TIMEOUTS)
    tables = {name: rows(name) for name in PARTIES}
    book = tmp_path / "alice.ledger"
    Ledger.create(
        book,
        party="alice",
        dataset="rows",
        relation="add-remove",
        epsilon=4.5,
        delta=1e-6,
        unit="record",
    )

    async def party(name: str) -> RecordResult:
        ledger = book if name == "alice" else None
        async with smpc_dp.connect(path, party=name, ledger=ledger) as session:
            plan = session.plan()
            assert plan is not None
            assert "the servers draw one together" in str(plan)
            result = await session.statistics(tables[name])
            with pytest.raises(smpc_dp.PrivacyError, match="request 2 is refused"):
                await session.statistics(tables[name])
            return result

    serving = [asyncio.create_task(serve_shares(path, name, requests=1)) for name in SERVERS]
    results = await asyncio.gather(*map(party, PARTIES))
    await asyncio.gather(*serving)
    assert len({json.dumps(values(one)) for one in results}) == 1
    result = results[0]
    assert result.survivors == PARTIES
    assert (result.answers.present, result.answers.counted) == (1, 1)
    assert result.privacy.unit == "record"
    assert 3.99 < (result.privacy.epsilon or 0) <= 4.0
    assert result.privacy.budget is not None
    assert (result.privacy.budget.requests, result.privacy.budget.left) == (1, 0)
    assert 3.99 < (result.privacy.budget.spent or 0) <= result.privacy.budget.budget == 4.0
    assert result.privacy.receipt is not None
    assert 3.9 < (result.privacy.receipt.spent.epsilon or 0) <= 4.0
    ages = np.concatenate([tables[name]["age"] for name in PARTIES])
    sexes = np.concatenate([tables[name]["sex"] for name in PARTIES])
    truth = [len(ages), ages.mean(), (sexes == "f").sum(), (sexes == "m").sum()]
    for one, true in zip(result.answers.estimates, truth, strict=True):
        assert one.low is not None
        assert one.high is not None
        assert abs(true - (one.low + one.high) / 2) < 3.1 * (one.high - one.low) / 2, one


async def test_exact_tables_are_opened_once(tmp_path: Path) -> None:
    """Cells of few records stay shared; a second table of the rows is refused, in another session too."""
    given: dict[str, Any] = {
        "records": SHARED["records"],
        "ask": ["sex", "count"],
        "smallest_count": 10,
        "dataset": "patients of 2026",
    }
    path = create_local_session(tmp_path, PARTIES, given, protocol="mpyc", timeouts=TIMEOUTS)
    # Nine men, all of one clinic: too few of both.
    tables = {name: {"age": np.zeros(40), "sex": np.array(["f"] * 40)} for name in PARTIES}
    tables["bob"] = {"age": np.zeros(9), "sex": np.array(["m"] * 9)}

    async def party(name: str) -> list[RecordResult | smpc_dp.SmpcError]:
        ended: list[RecordResult | smpc_dp.SmpcError] = []
        async with smpc_dp.connect(path, party=name) as session:
            for _ in range(2):
                try:
                    ended.append(await session.statistics(tables[name]))
                except smpc_dp.SmpcError as error:
                    ended.append(error)
        return ended

    serving = [asyncio.create_task(serve_shares(path, name, requests=2)) for name in SERVERS]
    with pytest.warns(NoiseWarning, match="no differential privacy"):
        results = await asyncio.gather(*map(party, PARTIES))
    await asyncio.gather(*serving)
    for first, second in results:
        assert isinstance(first, RecordResult), first
        assert [one.value for one in first.answers.estimates] == [160, None, None]
        assert first.privacy.epsilon is None
        assert "not differential privacy" in first.privacy.claim
        shown = records_text(first.to_json())
        assert "count [sex = f]: 160 rows\n" in shown
        assert "count [sex = m]: - rows (not shown: too few records or parties)\n" in shown
        assert "exact: no differential privacy" in shown
        assert isinstance(second, smpc_dp.PrivacyError)
        assert "were opened before (sex; count)" in str(second)
    member = Membership.load(path, "alice")
    assert member.opened_tables is not None
    with pytest.raises(smpc_dp.PrivacyError, match="overlaps it"):
        member.opened_tables.add(bytes(32))
    assert (tmp_path / "keys" / "alice.tables").stat().st_mode & 0o777 == 0o600
