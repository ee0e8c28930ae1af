"""What a session with saved states has does not grow with its requests and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.saved_long_session import play
from tests.faults.saved_session_schedules import without_syncs


@pytest.mark.parametrize(
    ("requests", "every"), [(12, 3), pytest.param(150, 25, marks=pytest.mark.long)], ids=["few", "many"]
)
def test_files_and_descriptors_stay_as_they_are_after_the_first_requests(
    requests: int, every: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_syncs(monkeypatch)
    early, late = play(tmp_path / "session", requests, (requests // 3, requests), every).held
    assert late.crashes > early.crashes > 0
    assert (late.descriptors, late.files) == (early.descriptors, early.files)
    assert late.stored < 1.2 * early.stored
