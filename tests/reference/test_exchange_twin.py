"""The published vectors of exchanges agree with the twin, which shares no code with the library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.reference import exchange_twin as twin
from tests.reference.published import messages_of, sources_of

PUBLISHED = Path(__file__).parents[2] / "protocols" / "exchange" / "vectors"
RUNS = sorted(PUBLISHED.glob("run-*.json"))


def test_twin_imports_nothing_of_the_library() -> None:
    assert "smpc_dp" not in sources_of(twin)
    assert len(RUNS) == 6


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_run(path: Path) -> None:
    vector = json.loads(path.read_bytes())
    messages, ends = twin.execute(vector)
    assert messages == messages_of(vector)
    assert ends["intermediate"] == vector["intermediate"]
    assert ends["result"] == vector["result"]


@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_draw_of_a_user_that_went_on_was_needed(path: Path) -> None:
    """A draw more or less would shift all that follow: the twin must have used them up."""
    vector = json.loads(path.read_bytes())
    exchange = twin.Exchange(vector)
    exchange.execute()
    for party in exchange.everyone:
        if party.name not in vector["kill"]:
            assert not party._draws
