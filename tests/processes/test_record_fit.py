"""Logistic and Poisson regression and random effects between processes: each step is a request."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.records.record_result import RecordResult
from smpc_dp.records.requests.record_requests import Shown, request_step
from smpc_dp.session.local import create_local_session
from smpc_dp.session.planned import session_plan
from smpc_dp.session.session_file import Timeouts, load_session
from tests import command
from tests.processes.learn_supply import create_ledgers
from tests.processes.test_records import write_tables
from tests.unit.records.test_effects import settings, sites, textbook
from tests.unit.records.test_fit import FITS, SCHEMA, hospital, pooled, reference

PARTIES = ("alice", "bob", "carol", "dave")
FAST = Timeouts(connect=20.0, step=20.0, gather=10.0)
TERMS: dict[str, Any] = {"records": {**SCHEMA, "rows_expected": 80_000}, "dropout": 0.0, "corrupt": 0.0}


@pytest.mark.long
def test_a_run_of_processes_gives_the_fit_of_the_pooled_rows(tmp_path: Path) -> None:
    response = "visits"
    path = create_local_session(
        tmp_path, PARTIES, {**TERMS, "ask": FITS[response], "steps": 7}, timeouts=FAST
    )
    tables = [hospital(seed, 300) for seed in range(4)]
    write_tables(tmp_path, dict(zip(PARTIES, tables, strict=True)))
    out = tmp_path / "results.json"
    ended = command.smpc_dp("run", str(path), "--out", str(out))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "exact: no differential privacy" in ended.stdout
    result = json.loads(out.read_text("utf-8"))
    found = result if "estimates" in result else next(iter(result.values()))
    values = [one["value"] for one in found["estimates"]]
    assert values == pytest.approx(reference(pooled(tables), response), rel=1e-4)


async def test_all_steps_are_charged_to_each_ledger_and_a_spent_one_refuses_the_first(tmp_path: Path) -> None:
    terms = {**TERMS, "ask": FITS["ill"], "epsilon": 4.0, "delta": 1e-6, "steps": 3}
    path = create_local_session(tmp_path, PARTIES, terms, timeouts=FAST)
    tables = dict(zip(PARTIES, [hospital(seed, 10_000) for seed in range(4)], strict=True))
    create_ledgers(tmp_path, PARTIES, 4.5, 1e-6, "record", "add-remove")

    async def party(name: str) -> RecordResult | smpc_dp.SmpcError:
        try:
            async with smpc_dp.connect(path, party=name, ledger=tmp_path / f"{name}.ledger") as session:
                return await session.statistics(tables[name])
        except smpc_dp.SmpcError as error:
            return error

    serving = asyncio.create_task(smpc_dp.serve(path, requests=3))
    ended = await asyncio.gather(*map(party, PARTIES))
    served = await serving
    truth = reference(pooled(list(tables.values())), "ill")
    for result in (*ended, served[-1]):
        assert isinstance(result, RecordResult), result
        assert result.answers.estimates == served[-1].answers.estimates  # type: ignore[union-attr]
        assert result.privacy.epsilon == 4.0
        assert "in all 3 steps together" in result.privacy.claim
        for one, value in zip(result.answers.estimates, truth, strict=True):
            assert one.value == pytest.approx(value, abs=8 * (one.standard_error or 0.0))
    book = Ledger.open(tmp_path / "alice.ledger")
    assert len(book.entries()) == 3
    receipt = ended[0].privacy.receipt  # type: ignore[union-attr]
    assert receipt is not None
    assert 3.8 < (receipt.spent.epsilon or 0) <= 4.0
    refused = await party("alice")
    assert isinstance(refused, smpc_dp.PrivacyError)
    assert len(book.entries()) == 3


def test_a_plan_states_what_all_steps_cost(tmp_path: Path) -> None:
    terms = {**TERMS, "ask": FITS["ill"], "epsilon": 4.0, "delta": 1e-6, "steps": 5}
    path = create_local_session(tmp_path, PARTIES, terms, timeouts=FAST)
    planned = command.smpc_dp("plan", "session", str(path))
    assert planned.returncode == 0, planned.stdout
    assert "all 5 requests together cost: epsilon = 4, delta = 1e-06 for one record" in planned.stdout
    assert "logistic(ill ~ age + dose): nothing is promised about sampling" in planned.stdout


async def test_the_aggregator_answers_for_the_step_that_parties_ask(tmp_path: Path) -> None:
    """Of parties that begin anew after one step it has the same estimates as they do."""
    terms = {**TERMS, "ask": FITS["ill"], "steps": 2}
    path = create_local_session(tmp_path, PARTIES, terms, timeouts=FAST)
    tables = dict(zip(PARTIES, [hospital(seed, 400) for seed in range(4)], strict=True))

    async def party(name: str) -> RecordResult:
        async with smpc_dp.connect(path, party=name) as session:
            first = session._requests.membership.parameters
            session._requests.take(None)
            await request_step(session._requests, tables[name], first, "", Shown(0.95, False, None))
            return await session.statistics(tables[name], label="again")

    serving = asyncio.create_task(smpc_dp.serve(path, requests=3))
    ended = await asyncio.gather(*map(party, PARTIES))
    served = await serving
    for found in ended:
        assert found.answers.estimates == served[-1].answers.estimates  # type: ignore[union-attr]
    assert served[0].answers.estimates == served[1].answers.estimates  # type: ignore[union-attr]


@pytest.mark.long
def test_random_effects_are_two_requests_with_one_budget(tmp_path: Path) -> None:
    tables = [{"v": table} for table in sites(0.05, (800, 1500, 3000, 900))]
    terms = {
        "records": {**settings(), "rows_expected": 6000},
        "ask": "random_effects(v, 500)",
        "epsilon": 4.0,
        "delta": 1e-6,
        "dropout": 0.0,
        "corrupt": 0.0,
    }
    path = create_local_session(tmp_path, PARTIES, terms, timeouts=FAST)
    write_tables(tmp_path, dict(zip(PARTIES, tables, strict=True)))
    create_ledgers(tmp_path, PARTIES, 4.5, 1e-6, "record", "add-remove")
    out = tmp_path / "results.json"
    ended = command.smpc_dp("run", str(path), "--ledgers", str(tmp_path), "--out", str(out))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "random-effects mean of v" in ended.stdout
    result = json.loads(out.read_text("utf-8"))
    found = result if "estimates" in result else next(iter(result.values()))
    truth = textbook([table["v"] for table in tables])
    for one in found["estimates"][3:]:
        assert one["value"] == pytest.approx(truth[one["name"]], abs=8 * one["standard_error"] + 0.002)
    assert len(Ledger.open(tmp_path / "alice.ledger").entries()) == 2
    planned = command.smpc_dp("plan", "session", str(path))
    assert "all 2 requests together cost: epsilon = 4, delta = 1e-06 for one record" in planned.stdout
    assert "random_effects(v, 500): nothing is promised about sampling" in planned.stdout
    assert "- tau^2 of v" in planned.stdout
    plan = session_plan(load_session(path))
    assert plan is not None
    each = 0.05 * plan.steps + 8 * (plan.sent + plan.received) / 10e6
    assert plan.seconds == pytest.approx(2 * each)
    assert f"in {plan.steps} steps of each request" in planned.stdout
