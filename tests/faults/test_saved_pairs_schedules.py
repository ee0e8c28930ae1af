"""Sessions with statistics of pairs go on after any crashes, and no pair is evaluated a second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from smpc_dp.errors import OtherRequestError
from smpc_dp.session.session_state import SessionState
from tests.faults.saved_session_schedules import check_no_blame, play_all, play_kind, without_syncs
from tests.faults.saved_statistic_schedules import KIND, CrashingStatistics, play

WITHOUT = "party-00004"


@pytest.mark.parametrize(
    ("first", "runs"), [(1, 2), pytest.param(1001, 200, marks=[pytest.mark.long, pytest.mark.slow])]
)
def test_statistics_of_members_that_crash_go_on(
    first: int, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    play_all(play, tmp_path, first, runs)


class Mixed(CrashingStatistics):
    """Members of which one has no folder for its state: its new process asks for a sum as request 1."""

    def state(self, name: str) -> SessionState:
        """See `Crashing.state`."""
        return SessionState() if name == WITHOUT else super().state(name)

    def check(self) -> None:
        """Raise AssertionError if anybody is blamed."""
        check_no_blame(self)


def test_a_process_without_a_state_is_not_sent_the_result_of_another_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could not read it, and would take the aggregator for a liar."""
    without_syncs(monkeypatch)
    run = play_kind(9, tmp_path / "session", KIND, Mixed)
    assert run.crashed[WITHOUT]
    assert isinstance(run.results[WITHOUT][1], OtherRequestError)
