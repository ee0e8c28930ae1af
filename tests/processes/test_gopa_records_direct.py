"""Statistics of records by GOPA without an aggregator: who is killed, before or after it has published."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.events import Event
from smpc_dp.session.local import create_local_session
from tests.processes.test_records import FAST, PARTIES, changed, rows

ROOT = Path(__file__).parents[2]
# Party 1, alice, coordinates the first request.
BEFORE, AFTER = "carol", "erin"


async def take_part(path: Path, name: str, dies_at: str) -> None:
    """Be one party, which dies when it begins to wait in the step `dies_at`; print how it ended."""

    def watch(event: Event) -> None:
        if (event.kind, event.step) == ("step", dies_at):
            os._exit(7)

    book = path.parent / f"{name}.ledger"
    terms: Any = {"relation": "add-remove", "unit": "record", "epsilon": 9.0, "delta": 1e-5}
    Ledger.create(book, party=name, dataset="rows", **terms)
    try:
        async with smpc_dp.connect(path, party=name, ledger=book, on_event=watch) as session:
            print(json.dumps((await session.statistics(rows(name))).to_json()))
    except smpc_dp.TimeoutFault as fault:
        print(json.dumps({"missing": sorted(fault.missing)}))


async def execute(path: Path, lost: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Run every party as a process; return what those printed that were not killed."""
    processes = {
        name: await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__, str(path), name, lost.get(name, "-")),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        for name in PARTIES
    }
    ended = await asyncio.gather(*(process.communicate() for process in processes.values()))
    codes = {name: process.returncode for name, process in processes.items()}
    assert codes == {name: 7 if name in lost else 0 for name in PARTIES}
    return {name: json.loads(out) for name, (out, _) in zip(PARTIES, ended, strict=True) if name not in lost}


def spent(path: Path, name: str) -> int:
    """Count what the party's ledger was charged."""
    return len(Ledger.open(path.parent / f"{name}.ledger").entries())


def check(results: list[dict[str, Any]], present: tuple[str, ...]) -> None:
    """All have the same answers, within six deviations (3.1 intervals): a false alarm in 1e8 runs.

    Noise of pairs that is left hides the rows of all parties: then the count alone is shown.
    """
    assert len({json.dumps(one["estimates"]) for one in results}) == 1
    tables = [rows(name) for name in present]
    ages, sexes = (np.concatenate([table[column] for table in tables]) for column in ("age", "sex"))
    truth = [len(ages), ages.mean(), (sexes == "f").sum(), (sexes == "m").sum()]
    left = results[0]["residual_pairs"] > 0
    assert (results[0]["estimates"][0]["standard_error"] > 2000) == left
    for one, true in zip(results[0]["estimates"][: 1 if left else None], truth, strict=not left):
        assert abs(true - (one["low"] + one["high"]) / 2) < 3.1 * (one["high"] - one["low"]) / 2, one


@pytest.fixture
def session(tmp_path: Path) -> Path:
    given = changed(topology="direct")
    return create_local_session(tmp_path, PARTIES, given, protocol="gopa", timeouts=FAST)


@pytest.mark.long
@pytest.mark.parametrize(("victim", "step"), [(BEFORE, "roll"), (AFTER, "publish"), (AFTER, "published")])
def test_one_that_is_killed_is_survived(session: Path, victim: str, step: str) -> None:
    """Before the certificate it is out and not charged; after all have published its rows are in the answers.

    Whether what it sends reaches the others before it dies in the step "publish" depends on time: its
    rows are in the answers, or the noise that it shares with the four is.
    """
    results = list(asyncio.run(execute(session, {victim: step})).values())
    [absent] = {tuple(one["absent"]) for one in results}
    if step != "publish":
        assert absent == ((victim,) if step == "roll" else ())
    check(results, tuple(name for name in PARTIES if name not in absent))
    for one in results:
        assert one["residual_pairs"] == (4 if step == "publish" and absent else 0)
        assert "a party's totals are hidden" in one["privacy"]["claim"]
    charged = {name: spent(session, name) for name in PARTIES}
    assert charged == {name: 0 if (name, step) == (BEFORE, "roll") else 1 for name in PARTIES}


@pytest.mark.long
def test_where_too_many_are_killed_the_run_stops_and_names_who_was_lost_last(session: Path) -> None:
    """One of five may be lost: with the second no quorum signs a total, and there are no answers.

    The four that may have published are charged.
    """
    ended = asyncio.run(execute(session, {BEFORE: "roll", AFTER: "publish"}))
    assert ended == {name: {"missing": [AFTER]} for name in ("alice", "bob", "dave")}
    assert {name: spent(session, name) for name in PARTIES} == {
        name: 0 if name == BEFORE else 1 for name in PARTIES
    }


if __name__ == "__main__":
    asyncio.run(take_part(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
