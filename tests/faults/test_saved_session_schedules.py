"""Sessions with saved states go on after any crashes of their members, to the totals of all."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from smpc_dp.errors import Code, TimeoutFault
from smpc_dp.session.session_state import SessionState
from tests.faults.saved_session_schedules import (
    KINDS,
    Crashing,
    check_no_blame,
    play,
    play_all,
    play_kind,
    without_syncs,
)

# Of the kinds that cost little or much; of others 2.
RUNS = {"exact": 4, "liar": 1}


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.long) if kind == "verifiable-records" else kind for kind in KINDS],
)
@pytest.mark.parametrize("first", [1, pytest.param(1001, marks=[pytest.mark.long, pytest.mark.slow])])
def test_members_that_crash_go_on(
    kind: str, first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    runs = RUNS.get(kind, 2) * (1 if first == 1 else 100)
    play_all(partial(play, name=kind), tmp_path, first, runs)


WITHOUT = "party-00002"


class Mixed(Crashing):
    """Members of which one has no folder for its state."""

    def state(self, name: str) -> SessionState:
        """See `Crashing.state`."""
        return SessionState() if name == WITHOUT else super().state(name)

    def check(self) -> None:
        """Raise AssertionError if anybody is blamed."""
        check_no_blame(self)


def test_a_process_without_a_state_blames_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says another hello; the aggregator sends it nothing of the run that its last process was in.

    To the others it is lost from that run, and has broken nothing.
    """
    without_syncs(monkeypatch)
    run = play_kind(8001, tmp_path / "session", KINDS["gopa"], Mixed)
    assert run.crashed[WITHOUT]
    assert "the run has begun without it" in str(run.results[WITHOUT][0])
    others = [got[0] for name, got in run.results.items() if name != WITHOUT]
    assert all(isinstance(one, TimeoutFault) and one.why[WITHOUT] == Code.BEGUN for one in others), others
