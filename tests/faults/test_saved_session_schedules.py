"""Sessions with saved states go on after any crashes of their members, to the totals of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.saved_session_schedules import KINDS, play, without_syncs

# Of the kinds that cost little or much; of others 2.
RUNS = {"exact": 4, "liar": 1}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [1, pytest.param(1001, marks=[pytest.mark.long, pytest.mark.slow])])
def test_members_that_crash_go_on(
    kind: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    crashed, runs = 0, RUNS.get(kind, 2) * (1 if first == 1 else 100)
    for seed in range(first, first + runs):
        crashed += play(seed, tmp_path / str(seed), kind).crashed.total()
    assert crashed > runs
