"""Versions of sessions of GOPA and of learners: what each of the earlier ones may be."""

from __future__ import annotations

from typing import Any

import pytest

from smpc_dp.engine.registry import checker_of, session_protocol

SESSION: dict[str, Any] = {
    "kind": "integer",
    "length": 1,
    "lower": 0,
    "upper": 4,
    "epsilon": 8.0,
    "delta": 1e-3,
}
LEARNER: dict[str, Any] = {"learner": "block-gossip", "features": 2, "steps": 4, "group": 3, "epsilon": 8.0}


def where(protocol: str, version: int, parameters: dict[str, Any], verifiable: bool) -> list[str]:
    """Return what is wrong with a session of five parties."""
    if protocol == "learn":
        parameters = parameters | {"averager": {"method": "gopa", "verifiable": verifiable}}
        parties: Any = tuple("abcde")
    else:
        parameters, parties = parameters | {"verifiable": verifiable}, 5
    _, issues = checker_of(protocol, version)(parameters, parties)
    newest = session_protocol(protocol).version
    return [issue.where for issue in issues if f"write version = {newest}" in issue.reason]


@pytest.mark.parametrize(
    ("version", "verifiable", "fits"),
    [
        (1, False, True),
        (1, True, False),
        (2, False, False),
        (2, True, True),
        (3, False, False),
        (3, True, True),
        (4, False, True),
        (4, True, True),
        (5, False, True),
        (5, True, True),
    ],
)
def test_earlier_versions_were_with_verifiable_averages_or_without(
    version: int, verifiable: bool, fits: bool
) -> None:
    assert where("gopa", version, SESSION, verifiable) == ([] if fits else ["verifiable"])


def test_of_learners_only_logs_of_verifiable_averages_are_audited() -> None:
    assert {*session_protocol("learn").audited} == {2, 3}
    for version in (2, 3):
        assert where("learn", version, LEARNER, verifiable=False) == ["averager.verifiable"]
        assert where("learn", version, LEARNER, verifiable=True) == []
    assert where("learn", 4, LEARNER, verifiable=False) == []
