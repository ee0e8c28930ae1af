"""Statistics of records by GOPA over real sockets: answers, one party lost, ledgers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np

import smpc_dp
from smpc_dp.net.local import create_local_session
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.protocols.record_result import RecordResult
from tests.processes.test_records import FAST, PARTIES, REAL, result_of, rows, values


async def test_answers_ledgers_and_a_party_that_leaves(tmp_path: Path) -> None:
    """The first request is over five, the second over four; 6 deviations: a false alarm in 1e8 runs."""
    path = create_local_session(tmp_path, PARTIES, REAL, protocol="gopa", timeouts=FAST)
    tables = {name: rows(name) for name in PARTIES}
    for name in PARTIES:
        book = tmp_path / f"{name}.ledger"
        Ledger.create(
            book,
            party=name,
            dataset="rows",
            relation="add-remove",
            epsilon=9.0,
            delta=1e-5,
            unit="record",
        )

    async def party(name: str) -> list[RecordResult]:
        book = tmp_path / f"{name}.ledger"
        async with smpc_dp.connect(path, party=name, ledger=book) as session:
            return [await session.statistics(tables[name]) for _ in range(1 if name == "erin" else 2)]

    serving = asyncio.create_task(smpc_dp.serve(path, requests=2))
    ended = dict(zip(PARTIES, await asyncio.gather(*map(party, PARTIES)), strict=True))
    served = await serving
    for number, present in enumerate((PARTIES, PARTIES[:-1])):
        results = [ended[name][number] for name in present] + [result_of(served[number])]  # type: ignore[arg-type]
        assert len({json.dumps(values(one)) for one in results}) == 1
        result = results[0]
        assert result.survivors == present
        assert (result.answers.present, result.answers.counted) == (len(present), 3)
        assert (result.privacy.unit, result.privacy.epsilon) == ("record", 4.0)
        assert "a party's totals are hidden" in result.privacy.claim
        ages = np.concatenate([tables[name]["age"] for name in present])
        sexes = np.concatenate([tables[name]["sex"] for name in present])
        truth = [len(ages), ages.mean(), (sexes == "f").sum(), (sexes == "m").sum()]
        for one, true in zip(result.answers.estimates, truth, strict=True):
            assert one.low is not None
            assert one.high is not None
            assert abs(true - (one.low + one.high) / 2) < 3.1 * (one.high - one.low) / 2, one
    assert [len(Ledger.open(tmp_path / f"{name}.ledger").entries()) for name in PARTIES] == [2, 2, 2, 2, 1]
