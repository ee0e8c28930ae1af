"""Sessions with saved states go on after any crashes of their members, to the totals of all."""

from __future__ import annotations

from pathlib import Path

import pytest

from smpc_dp.errors import PeerFault
from smpc_dp.session.session_state import SessionState
from tests.faults.saved_session_schedules import KINDS, Crashing, play, play_kind, without_syncs

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
    crashed, runs = 0, RUNS.get(kind, 2) * (1 if first == 1 else 100)
    for seed in range(first, first + runs):
        crashed += play(seed, tmp_path / str(seed), kind).crashed.total()
    assert crashed > runs


WITHOUT = "party-00002"


class Mixed(Crashing):
    """Members of which one has no folder for its state."""

    def state(self, name: str) -> SessionState:
        """See `Crashing.state`."""
        return SessionState() if name == WITHOUT else super().state(name)

    def check(self) -> None:
        """Raise AssertionError if anybody is blamed."""
        errors = [one for got in self.results.values() for one in got if isinstance(one, PeerFault)]
        assert not errors, f"{self.crashed}: {errors}"


def test_a_process_without_a_state_blames_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says another hello; the aggregator sends it nothing of the run that its last process was in."""
    without_syncs(monkeypatch)
    run = play_kind(8001, tmp_path / "session", KINDS["gopa"], Mixed)
    assert run.crashed[WITHOUT]
    assert "the run has begun without it" in str(run.results[WITHOUT][0])
