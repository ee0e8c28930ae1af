"""Sessions with saved states go on after any crashes of their members, to the totals of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.saved_session_schedules import KINDS, play, without_syncs

RUNS = 4


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.long) if kind == "verifiable-records" else kind for kind in KINDS],
)
@pytest.mark.parametrize("first", [1, pytest.param(1001, marks=[pytest.mark.long, pytest.mark.slow])])
def test_members_that_crash_go_on(
    kind: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    crashed, runs = 0, RUNS if kind == "exact" else RUNS // 2
    for seed in range(first, first + (runs if first == 1 else 100 * runs)):
        crashed += play(seed, tmp_path / str(seed), kind).crashed.total()
    assert crashed > runs
