"""Statistics of records by GOPA over real sockets: answers, one party lost, ledgers, a liar, audits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import smpc_dp
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.follow import VerifiableMember
from smpc_dp.capabilities.gopa.verifiable.joining import AwaitNeighbours, on_neighbours
from smpc_dp.capabilities.gopa.verifiable.states import PARTY
from smpc_dp.capabilities.gopa.verifiable.states import party as verifiable_party
from smpc_dp.crypto import commit
from smpc_dp.engine.run import Run
from smpc_dp.engine.state import Transition
from smpc_dp.logs.audits.second import audit_twice
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.records.record_result import RecordResult
from smpc_dp.session.local import create_local_session
from smpc_dp.wire.signing import decode
from tests.processes.test_records import FAST, PARTIES, REAL, changed, result_of, rows, values


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
        assert_near(result, truth)
    assert [len(Ledger.open(tmp_path / f"{name}.ledger").entries()) for name in PARTIES] == [2, 2, 2, 2, 1]


def assert_near(result: RecordResult, truth: list[float]) -> None:
    """Assert that each true number is within three intervals of its answer: 6 deviations."""
    for one, true in zip(result.answers.estimates, truth, strict=True):
        assert one.low is not None
        assert one.high is not None
        assert abs(true - (one.low + one.high) / 2) < 3.1 * (one.high - one.low) / 2, one


def beyond(member: VerifiableMember, state: AwaitNeighbours, body: bytes) -> Transition:
    """Commit to one row more than `max_rows`, with a proof for the true number."""
    after, [sent] = on_neighbours(member, state, body)
    most = member.parameters.highest + 1
    vector = np.full(len(after.secrets.vector), most, dtype=np.uint64)
    message = decode(sent.body, v.Commit, member.name)
    false = replace(message, value=commit.commit([most] * len(vector), after.secrets.value_blinding))
    entry = member.write(sent.run_id, sent.step, false)
    return Transition(replace(after, secrets=replace(after.secrets, vector=vector), entry=entry), (entry,))


def lying(*args: Any, **more: Any) -> Run[Any]:
    honest = verifiable_party(*args, **more)
    return Run(PARTY.with_row(AwaitNeighbours, beyond), honest.member, honest.state)


@pytest.mark.long
async def test_a_verifiable_total_beyond_the_bound_is_convicted_and_the_answers_are_audited_twice(
    tmp_path: Path,
) -> None:
    """Erin's total is out of bounds in the first request, and she is lost in the second."""
    given = changed(ask=["count"], verifiable=True, corrupt=0.2)
    path = create_local_session(tmp_path, PARTIES, given, protocol="gopa", timeouts=FAST)
    tables = {name: rows(name) for name in PARTIES}
    book = tmp_path / "alice.ledger"
    terms: Any = {
        "dataset": "rows",
        "relation": "add-remove",
        "epsilon": 9.0,
        "delta": 1e-5,
        "unit": "record",
    }
    Ledger.create(book, party="alice", **terms)

    async def party(name: str) -> list[RecordResult | smpc_dp.SmpcError]:
        options: Any = {"role": lying} if name == "erin" else {}
        options |= {"ledger": book} if name == "alice" else {}
        ended: list[RecordResult | smpc_dp.SmpcError] = []
        async with smpc_dp.connect(path, party=name, **options) as session:
            for _ in range(1 if name == "erin" else 2):
                try:
                    ended.append(await session.statistics(tables[name]))
                except smpc_dp.SmpcError as error:
                    ended.append(error)
        return ended

    serving = asyncio.create_task(smpc_dp.serve(path, requests=2))
    ended = dict(zip(PARTIES, await asyncio.gather(*map(party, PARTIES)), strict=True))
    served = await serving
    assert isinstance(ended["erin"][0], smpc_dp.SmpcError)
    honest = PARTIES[:-1]
    for number in range(2):
        results = [result_of(ended[name][number]) for name in honest] + [result_of(served[number])]  # type: ignore[arg-type]
        assert len({json.dumps(values(one)) for one in results}) == 1
        result = results[0]
        assert result.survivors == honest
        assert result.residual_pairs == 0
        convicted = any("erin" in fault and "range proof" in fault for fault in results[-1].faults)
        assert convicted == (number == 0), results[-1].faults
        assert (result.privacy.unit, result.privacy.epsilon) == ("record", 4.0)
        assert_near(result, [800.0 * len(honest)])
        said = " ".join(result.privacy.not_protected)
        assert "not that a sum is one of clipped rows" in said
        assert "moves each total by max_rows times the range of a row" in said
        assert "or no noise" not in said
        log = result.evidence.log
        assert log is not None
        [path_of_log] = (tmp_path / "board").glob(f"request-{number + 1}-*.jsonl")
        report = await asyncio.to_thread(audit_twice, path_of_log, session=path, head=log.head.hex())
        assert report.ok, report.conclusion
        assert report.verdict is not None
        assert report.verdict.answers is not None
        estimates = report.verdict.answers["estimates"]
        assert [(one["value"], one["low"], one["high"]) for one in estimates] == values(result)
        assert [item.party for item in report.verdict.excluded] == (["erin"] if number == 0 else [])
    assert [entry.event.unit for entry in Ledger.open(book).entries()] == ["record", "record"]


async def test_without_an_aggregator_all_agree_on_the_answers(tmp_path: Path) -> None:
    given = changed(topology="direct")
    path = create_local_session(tmp_path, PARTIES, given, protocol="gopa", timeouts=FAST)
    tables = {name: rows(name) for name in PARTIES}

    async def party(name: str) -> RecordResult:
        async with smpc_dp.connect(path, party=name) as session:
            return await session.statistics(tables[name])

    results = await asyncio.gather(*map(party, PARTIES))
    assert len({json.dumps(values(one)) for one in results}) == 1
    result = results[0]
    assert result.survivors == PARTIES
    assert "the coordinator among them or not" in result.privacy.claim
    assert "a party's totals are hidden" in result.privacy.claim
    ages = np.concatenate([table["age"] for table in tables.values()])
    sexes = np.concatenate([table["sex"] for table in tables.values()])
    assert_near(result, [len(ages), ages.mean(), (sexes == "f").sum(), (sexes == "m").sum()])
