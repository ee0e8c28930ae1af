"""Statistics of fifty columns from a hundred parties over real sockets: `-s` prints seconds and bytes."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.cli.reporting import add_event
from smpc_dp.records.record_result import RecordResult
from smpc_dp.report.trace import Trace
from smpc_dp.session.local import create_local_session
from smpc_dp.session.planned import session_plan
from smpc_dp.session.session_file import Timeouts, load_session

PARTIES = tuple(f"party-{number:03d}" for number in range(100))
COLUMNS = tuple(f"v{number:02d}" for number in range(50))
ROWS = 1_000


def rows(name: str) -> dict[str, Any]:
    source = np.random.default_rng(PARTIES.index(name))
    return {column: source.beta(1 + index % 5, 2, ROWS) for index, column in enumerate(COLUMNS)}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("ask", ["means and variances", "covariances"])
async def test_fifty_columns_of_a_hundred_parties_are_one_request(tmp_path: Path, ask: str) -> None:
    """All parties in one process. Answers are within seven deviations: a false alarm in 1e8 runs."""
    asked = [f"{kind}({name})" for kind in ("mean", "variance") for name in COLUMNS]
    given = {
        "epsilon": 1.0,
        "delta": 1e-6,
        "ask": asked if ask == "means and variances" else [f"covariance({', '.join(COLUMNS)})"],
        "dropout": 0.1,
        "corrupt": 0.1,
        "records": {
            "max_rows": 2_000,
            "rows_expected": ROWS * len(PARTIES),
            "columns": {name: {"lower": 0.0, "upper": 1.0, "missing": False} for name in COLUMNS},
        },
    }
    timeouts = Timeouts(connect=600.0, gather=600.0, step=600.0)
    path = create_local_session(tmp_path, PARTIES, given, timeouts=timeouts)
    tables, trace = {name: rows(name) for name in PARTIES}, Trace()

    async def party(name: str) -> RecordResult:
        async with smpc_dp.connect(
            path, party=name, on_event=lambda event: add_event(trace, event)
        ) as session:
            return await session.statistics(tables[name])

    planned = session_plan(load_session(path))
    assert planned is not None
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1, on_event=lambda one: add_event(trace, one)))
    results = await asyncio.gather(*map(party, PARTIES))
    await serving
    after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    estimates = results[0].answers.estimates
    clock = time.monotonic() - begun
    print(
        f"\n{ask}: {len(estimates)} answers, {clock:.1f} s on the clock, {spent:.1f} s of CPU; {trace.total}"
    )
    print(f"bytes in all; planned for a party {planned.sent} sent, {planned.received} received")
    assert len({json.dumps(one.answers.to_json()) for one in results}) == 1
    assert trace.total == pytest.approx(len(PARTIES) * (planned.sent + planned.received), rel=0.25)
    pooled = {name: np.concatenate([table[name] for table in tables.values()]) for name in COLUMNS}
    matrix = np.cov([pooled[name] for name in COLUMNS], bias=True)
    for one in estimates:
        kind, *names = one.name.rstrip(")").replace("(", ", ").split(", ")
        first, second = (COLUMNS.index(name) for name in (names[0], names[-1]))
        truth = pooled[names[0]].mean() if kind == "mean" else matrix[first, second]
        assert one.value is not None
        assert one.standard_error is not None
        assert abs(one.value - truth) < 7 * one.standard_error, one
        assert one.standard_error < 0.05 * (1.0 if kind == "mean" else 0.25)
