"""Sessions with saved states go on after any crashes of their members, to the totals of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import saved_call_schedules
from tests.faults.saved_session_schedules import KINDS, play, without_syncs

RUNS = 4


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [1, pytest.param(1001, marks=[pytest.mark.long, pytest.mark.slow])])
def test_members_that_crash_go_on(
    kind: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    crashed, runs = 0, RUNS if kind == "exact" else RUNS // 2
    for seed in range(first, first + (runs if first == 1 else 100 * runs)):
        crashed += play(seed, tmp_path / str(seed), kind).crashed.total()
    assert crashed > runs


@pytest.mark.parametrize("kind", [*saved_call_schedules.PLAYED])
@pytest.mark.parametrize(
    ("first", "runs"), [(1, 4), pytest.param(1001, 200, marks=[pytest.mark.long, pytest.mark.slow])]
)
def test_calls_of_several_requests_go_on(
    kind: str, first: int, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the answers, and bit for bit to the models, of sessions without crashes."""
    without_syncs(monkeypatch)
    played, crashed = saved_call_schedules.PLAYED[kind], 0
    kinds = len(saved_call_schedules.LEARNERS)
    whole: dict[int, object] = {}
    for seed in range(first, first + runs):
        # One seed of each learner is one of its members and their inputs.
        same = seed % kinds
        if same not in whole:
            whole[same] = played(same, tmp_path / f"whole {same}", crashing=False).results
        run = played(seed, tmp_path / str(seed))
        crashed += run.crashed.total()
        assert run.results == whole[same], f"seed {seed}: {run.crashed}"
    assert crashed >= runs / 2
