"""Files of an earlier version keep digest and plan; those of the newest have the defaults of this release."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smpc_dp.engine.registry import built_in_protocols, checker_of, session_protocol
from smpc_dp.errors import ConfigError
from smpc_dp.identity.keys import Identity
from smpc_dp.session import session_file
from smpc_dp.session.local import create_local_session
from smpc_dp.session.planned import session_plan, version_notes
from smpc_dp.session.session_file import load_session, parse_session, roster_entry
from smpc_dp.session.tolerance import tolerances

# By the number of parties D, c, q, t and the honest parties in any sum, as versions 2 of secagg and 4 of gopa
# have planned them since they were first released. They never change.
BEFORE = {
    3: (0, 0, 2, 2, 3),
    4: (0, 0, 3, 3, 4),
    5: (1, 0, 3, 3, 4),
    6: (1, 0, 4, 4, 5),
    7: (1, 0, 4, 5, 6),
    8: (1, 0, 5, 6, 7),
    9: (1, 0, 5, 7, 8),
    10: (1, 1, 6, 8, 8),
    11: (1, 1, 7, 9, 9),
    12: (1, 1, 7, 10, 10),
    13: (1, 1, 8, 11, 11),
    14: (1, 1, 8, 12, 12),
    15: (1, 1, 9, 13, 13),
    16: (1, 1, 9, 14, 14),
    17: (1, 1, 10, 15, 15),
    18: (1, 1, 10, 16, 16),
    19: (1, 1, 11, 17, 17),
    20: (2, 2, 12, 17, 16),
}
# c = 1 below ten.
TODAY = BEFORE | {
    3: (0, 1, 3, 2, 2),
    4: (0, 1, 3, 3, 3),
    5: (1, 1, 4, 3, 3),
    6: (1, 1, 4, 4, 4),
    7: (1, 1, 5, 5, 5),
    8: (1, 1, 5, 6, 6),
    9: (1, 1, 6, 7, 7),
}
SUM: dict[str, Any] = {"length": 2, "lower": -1.0, "upper": 1.0, "precision": 0.25}
NOISY = SUM | {"epsilon": 1.0, "delta": 1e-6}
RECORDS: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "records": {"max_rows": 100, "columns": {"age": {"lower": 0, "upper": 100}}},
    "ask": ["mean(age)"],
}
# By protocol the earlier version that is run, and the newest.
VERSIONS = {"secagg": (2, 3), "gopa": (4, 5)}
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("secagg", SUM),
    ("secagg", NOISY),
    ("secagg", RECORDS),
    ("gopa", NOISY),
    ("gopa", NOISY | {"on_dropout": "roll-back"}),
    ("gopa", NOISY | {"verifiable": True}),
    ("gopa", RECORDS),
]


def numbers(parameters: Any) -> tuple[int, ...]:
    plan = parameters.plan
    return plan.max_dropouts, plan.max_corrupt, plan.quorum, plan.threshold, plan.min_honest_in_sum


def text(protocol: str, version: int | None, parties: int, parameters: dict[str, Any]) -> str:
    """Return a session file, always the same; `version` None: without it."""
    lines = [
        f'protocol = "{protocol}"',
        *([] if version is None else [f"version = {version}"]),
        "",
        "[parameters]",
    ]
    lines += [f"{key} = {value}" for key, value in parameters.items()]
    members = [Identity.from_seed("relay", bytes(32)).entry("aggregator", "192.0.2.7:7100")]
    members += [Identity.from_seed(f"p{n}", bytes([n]) * 32).entry() for n in range(1, parties + 1)]
    return "\n".join([*lines, *map(roster_entry, members)]) + "\n"


@given(st.sampled_from(FORMS), st.integers(3, 20))
def test_plans_of_both_versions(form: tuple[str, dict[str, Any]], parties: int) -> None:
    protocol, parameters = form
    for version, table in zip(VERSIONS[protocol], (BEFORE, TODAY), strict=True):
        checked, issues = checker_of(protocol, version)(parameters, parties)
        assert not issues
        assert numbers(checked) == table[parties]


@given(
    st.sampled_from(FORMS),
    st.integers(3, 20),
    st.floats(0, 0.5, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
)
def test_the_version_matters_where_corrupt_is_not_written_alone(
    form: tuple[str, dict[str, Any]], parties: int, dropout: float, corrupt: float
) -> None:
    protocol, parameters = form
    old, new = (checker_of(protocol, version) for version in VERSIONS[protocol])
    written = parameters | {"dropout": dropout, "corrupt": corrupt}
    assert repr(old(written, parties)) == repr(new(written, parties))
    said = parameters | {"corrupt": 0.1}
    assert repr(old(parameters, parties)) == repr(new(said, parties)) == repr(old(said, parties))


def test_the_newest_version_is_written(tmp_path: Any) -> None:
    assert {one.name: one.version for one in built_in_protocols() if one.versions} == {
        "secagg": 3,
        "gopa": 5,
        "learn": 4,
        "mpyc": 1,
        "pairwise": 1,
        "reports": 1,
    }
    made = load_session(create_local_session(tmp_path, ["a", "b", "c"], SUM))
    assert (made.version, numbers(made.checked_parameters)) == (3, TODAY[3])


def test_groups_of_learners_have_the_version_of_their_session() -> None:
    """Their averages have c and D from other keys: no default of a group has changed."""
    learner: dict[str, Any] = {"learner": "block-gossip", "features": 2, "steps": 4, "group": 3}
    learner |= {"epsilon": 8.0, "delta": 1e-5, "averager": {"method": "gopa", "verifiable": True}}
    version, names = session_protocol("learn").version, tuple("abcde")
    checked, issues = checker_of("learn", version)(learner, names)  # type: ignore[arg-type]
    assert not issues
    versions = {(one.protocol, one.group_version) for one in checked.requests}
    assert versions == {("gopa", version), ("secagg", 2)}
    assert {(one.plan.max_corrupt, one.quorum) for one in checked.requests} == {(1, 3)}


@pytest.mark.parametrize(
    ("protocol", "version", "digest"),
    [
        ("secagg", 2, "e75ae42badbc49474811d8d388008be84df769520e8171cec9df8f318a814144"),
        ("secagg", 3, "231550e01372fdb2bb3ccfa2ec868ec96e5519d2877ef6315794c9d0f1e248fe"),
        ("gopa", 4, "9504b6046a6ec7bd47f64db87d08424a2d0b436ec06c4c8f689462c0bec5651d"),
        ("gopa", 5, "1c91169a6d09d2c444a92991b3d10a1ef7218820147633eef7a4dcc6bfc658ae"),
    ],
)
def test_digests_and_plans_of_files(protocol: str, version: int, digest: str) -> None:
    session = parse_session(text(protocol, version, 5, NOISY))
    assert session.digest.hex() == digest
    newest = version == VERSIONS[protocol][1]
    assert numbers(session.checked_parameters) == (TODAY if newest else BEFORE)[5]
    # A default is never written into what members compare.
    assert "corrupt" not in session.parameters
    [tolerated], plan = tolerances(session), session_plan(session)
    corrupt, quorum = (1, 4) if newest else (0, 3)
    assert str(tolerated) == f"tolerates 1 lost, {corrupt} corrupt of 5 parties, quorum {quorum}"
    assert plan is not None
    assert (plan.lost, plan.later, plan.corrupt, plan.quorum) == (1, 1, corrupt, quorum)
    said = f"Version {version} of '{protocol}' has the defaults of an earlier release;"
    assert [said in note for note in version_notes(session)] == ([] if newest else [True])


def test_of_exact_sums_the_plan_has_the_losses_of_later_requests() -> None:
    session = parse_session(text("secagg", 3, 5, SUM))
    [tolerated], plan = tolerances(session), session_plan(session)
    assert str(tolerated).endswith("1 corrupt of 5 parties, quorum 4; after the first request 0 lost")
    assert plan is not None
    assert (plan.lost, plan.later) == (1, 0)


def refused(session: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_session(session)
    return str(caught.value)


def test_other_versions_are_refused_by_name() -> None:
    assert "version: missing" in refused(text("secagg", None, 5, SUM))
    assert "version: 4 is unknown; this release reads version 2 or 3 of 'secagg'" in refused(
        text("secagg", 4, 5, SUM)
    )
    assert "write version = 3 of 'secagg'" in refused(text("secagg", 1, 5, SUM))
    assert "version: 5 is unknown; this release reads version 4 of 'learn'" in refused(
        text("learn", 5, 5, {"learner": "'sgd'"})
    )


def test_a_release_without_the_new_version_refuses_its_files_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the release before this one, which has version 2 alone."""
    described = session_protocol("secagg")
    before = replace(described, versions={2: described.versions[2]})
    monkeypatch.setattr(session_file, "find_protocol", lambda _: before)
    reason = "version: 3 is unknown; this release reads version 2 of 'secagg'"
    assert reason in refused(text("secagg", 3, 5, SUM))
