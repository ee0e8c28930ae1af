"""Sessions with statistics of pairs go on after any crashes, and no pair is evaluated a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.saved_session_schedules import without_syncs
from tests.faults.saved_statistic_schedules import play


@pytest.mark.parametrize(
    ("first", "runs"), [(1, 2), pytest.param(1001, 200, marks=[pytest.mark.long, pytest.mark.slow])]
)
def test_statistics_of_members_that_crash_go_on(
    first: int, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    crashed = 0
    for seed in range(first, first + runs):
        crashed += play(seed, tmp_path / str(seed)).crashed.total()
    assert crashed > runs
