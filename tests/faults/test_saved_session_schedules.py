"""Sessions with saved states go on after any crashes of their members, to the sums of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.saved_session_schedules import play, without_syncs

RUNS = 4


@pytest.mark.parametrize("first", [1, pytest.param(1001, marks=[pytest.mark.long, pytest.mark.slow])])
def test_members_that_crash_go_on(first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)
    crashed = 0
    for seed in range(first, first + (RUNS if first == 1 else 100 * RUNS)):
        crashed += play(seed, tmp_path / str(seed)).crashed.total()
    assert crashed > RUNS
