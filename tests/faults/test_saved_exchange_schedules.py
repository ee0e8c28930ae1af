"""Exchanges go on after any crashes of their members, with one message for each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.saved_exchange_schedules import play
from tests.faults.saved_session_schedules import play_all, without_syncs


@pytest.mark.parametrize(
    ("first", "runs"), [(1, 6), pytest.param(1001, 400, marks=[pytest.mark.long, pytest.mark.slow])]
)
def test_exchanges_of_members_that_crash_go_on(
    first: int, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    play_all(play, tmp_path, first, runs)
