"""The plan of a study of a session: changed plans, budgets, and refused inputs."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import msgspec
import pytest

from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.accountant.events import Gaussian
from smpc_dp.privacy.accountant.ledger import CompositionKind, Ledger
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.session.local import create_local_session
from smpc_dp.session.planned import StudiedAnswer
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp.session.study import (
    read_expected,
    record_parameters,
    remaining,
    study_of,
    with_rows,
)
from tests.baselines.claims import SUM
from tests.command import smpc_dp

NAMES = ("north", "east", "south", "west", "centre", "coast")
COLUMNS: dict[str, Any] = {
    "stay": {"lower": 0, "upper": 30},
    "dead": {"lower": 0, "upper": 1, "step": 1},
    "sex": {"values": ["f", "m"]},
}
RECORDS: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "ask": ["count", "mean(stay)", "difference(stay) by sex", "risk(dead) by sex"],
    "records": {"columns": COLUMNS, "max_rows": 1000, "rows_expected": 3000},
}


def session_file(folder: Path, parties: int = 5, **changed: Any) -> Path:
    return create_local_session(folder, NAMES[:parties], RECORDS | changed, protocol="secagg")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return session_file(tmp_path_factory.mktemp("study") / "session")


@pytest.fixture(scope="module")
def session(path: Path) -> SessionFile:
    return load_session(path)


def answers(session: SessionFile) -> tuple[StudiedAnswer, ...]:
    study = study_of(session, {})
    assert study is not None
    return study.answers


def test_a_changed_plan_is_that_of_the_changed_session(session: SessionFile, tmp_path: Path) -> None:
    larger = load_session(
        session_file(tmp_path / "larger", 6, records=RECORDS["records"] | {"rows_expected": 3600})
    )
    twice = load_session(session_file(tmp_path / "twice", epsilon=2.0))
    for one, more, exact in zip(answers(session), answers(larger), answers(twice), strict=True):
        for changed, planned in ((one.one_more_party, more), (one.twice_epsilon, exact)):
            assert changed is not None
            assert (changed.noise, changed.both, changed.detected) == (
                planned.noise,
                planned.both,
                planned.detected,
            )


def test_a_party_more_has_the_public_rows_of_the_others_on_average(tmp_path: Path) -> None:
    rows = [500, 700, 300, 400, 600]
    records = {"columns": COLUMNS, "max_rows": 1000, "rows": "public"}
    made = [
        load_session(session_file(tmp_path / name, parties, records=records, public_rows=public))
        for name, parties, public in (("five", 5, rows), ("six", 6, [*rows, 500]))
    ]
    five, six = map(answers, made)
    for one, more in zip(five, six, strict=True):
        assert one.one_more_party is not None
        assert one.one_more_party.both == more.both
    with pytest.raises(ConfigError, match="--rows: rows are public"):
        with_rows(made[0], 100)


def test_parties_without_rows_have_no_study(tmp_path: Path) -> None:
    records = {"columns": COLUMNS, "max_rows": 1000, "rows": "public"}
    made = load_session(
        session_file(tmp_path / "empty", ask=["mean(stay)"], records=records, public_rows=[0] * 5)
    )
    assert study_of(made, {}) is None
    (planned,) = record_parameters(made).errors(5)  # type: ignore[union-attr]
    assert planned.relative is None


def test_twice_the_epsilon_of_a_budget_is_that_of_each_request(tmp_path: Path) -> None:
    given = {key: value for key, value in RECORDS.items() if key not in ("epsilon", "delta")}
    pair = []
    for name, epsilon in (("once", 2.0), ("twice", 4.0)):
        budget = {"epsilon": epsilon, "delta": 1e-6, "requests": 3}
        pair.append(
            load_session(create_local_session(tmp_path / name, NAMES[:5], given | {"budget": budget}))
        )
    once, twice = map(answers, pair)
    for one, other in zip(once, twice, strict=True):
        assert one.twice_epsilon is not None
        assert one.twice_epsilon.noise == other.noise


def test_an_epsilon_that_cannot_be_doubled_has_no_change(tmp_path: Path) -> None:
    made = answers(load_session(session_file(tmp_path / "large", epsilon=60.0)))
    assert {one.twice_epsilon for one in made} == {None}
    assert None not in {one.one_more_party for one in made}


def test_other_rows_take_the_place_of_those_expected(session: SessionFile, tmp_path: Path) -> None:
    records = RECORDS["records"] | {"rows_expected": 1500}
    fewer = load_session(session_file(tmp_path / "fewer", records=records))
    assert study_of(with_rows(session, 1500), {}) == study_of(fewer, {})


@pytest.mark.parametrize("composition", ["fixed", "adaptive"])
def test_a_ledger_affords_what_is_said_to_remain_and_no_more(
    session: SessionFile, tmp_path: Path, composition: CompositionKind
) -> None:
    asked = record_parameters(session)
    assert asked is not None
    event = asked.event()

    def ledger(name: str) -> Ledger:
        made = Ledger.create(
            tmp_path / name,
            party="north",
            dataset="patients",
            relation="add-remove",
            epsilon=3.0,
            delta=1e-5,
            composition=composition,
            unit="record",
        )
        made.charge(secrets.token_bytes(16), event)
        return made

    book = ledger("repeated")
    left = remaining(session, ledger=book)
    assert left.composition == composition
    assert 0 < left.spent < left.after <= left.epsilon == 3.0
    assert left.repeated > 0
    for _ in range(1 + left.repeated):
        book.charge(secrets.token_bytes(16), event)
    with pytest.raises(PrivacyError, match="is refused"):
        book.charge(secrets.token_bytes(16), event)
    with pytest.raises(PrivacyError, match="too small for 1 planned release"):
        remaining(session, ledger=book)

    other = ledger("later")
    other.charge(secrets.token_bytes(16), event)
    for factor, fits in ((1.01, False), (1.0, True)):
        noise = Gaussian(gaussian_mu(factor * left.later_epsilon, 1e-6))
        later = msgspec.structs.replace(event, descriptions=(noise,))
        spent = other.would_spend(later).epsilon
        assert (spent is not None and spent <= 3.0) is fits


def test_a_budget_is_composed_as_a_ledger_with_nothing_charged(session: SessionFile, tmp_path: Path) -> None:
    book = Ledger.create(
        tmp_path / "ledger",
        party="north",
        dataset="patients",
        relation="add-remove",
        epsilon=2.0,
        delta=1e-6,
        unit="record",
    )
    assert remaining(session, epsilon=2.0) == remaining(session, ledger=book)
    exact = remaining(session, epsilon=1.0)
    assert (exact.repeated, exact.later_epsilon) == (0, 0.0)


def test_a_ledger_without_a_budget_is_refused(session: SessionFile, tmp_path: Path) -> None:
    book = Ledger.create(
        tmp_path / "ledger",
        party="north",
        dataset="patients",
        relation="add-remove",
        epsilon=None,
        delta=1e-6,
    )
    with pytest.raises(ConfigError, match="--ledger: the ledger has no budget"):
        remaining(session, ledger=book)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--rows", "0"], "--rows: must be from 1 to 5000, max_rows of each party, is 0"),
        (["--rows", "5001"], "--rows: must be from 1 to 5000, max_rows of each party, is 5001"),
        (["--expect", "stay"], "--expect: 'stay' is not NAME=MEAN:DEVIATION, nor NAME=MEAN"),
        (["--expect", "stay=8:"], "--expect: 'stay=8:' is not NAME=MEAN:DEVIATION, nor NAME=MEAN"),
        (["--expect", "stay=8:6", "--expect", "stay=8:5"], "--expect stay: is there twice"),
        (["--expect", "sex=1"], "--expect sex: column 'sex' has categories, no numbers"),
        (["--expect", "stay=31"], "--expect stay: the mean must be in [0, 30], is 31"),
        (["--budget", "-1"], "--budget: must be above 0 and below 1000, is -1"),
        (["--budget", "nan"], "--budget: must be above 0 and below 1000, is nan"),
        (
            ["--budget", "0.5"],
            "--budget: must be at least 1, which this request costs at delta = 1e-06, is 0.5",
        ),
        (["--budget", "2", "--ledger", "none"], "--budget: is not for a ledger, which has one"),
    ],
)
def test_a_wrong_option_is_refused_by_name_and_bound(path: Path, options: list[str], reason: str) -> None:
    refused = smpc_dp("plan", "session", str(path), *options)
    assert refused.returncode != 0
    assert reason in refused.stderr


def test_an_epsilon_below_0_is_refused_by_name_and_bound(path: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "session.toml"
    wrong.write_text(path.read_text("utf-8").replace("epsilon = 1.0", "epsilon = -1.0"), "utf-8")
    refused = smpc_dp("plan", "session", str(wrong))
    assert "parameters.epsilon: must be a number from 1e-09 to 100, is -1.0" in refused.stderr


@pytest.mark.parametrize("options", [["--rows", "10"], ["--expect", "x=1"], ["--budget", "1"]])
def test_sums_of_vectors_have_no_study(tmp_path: Path, options: list[str]) -> None:
    made = create_local_session(tmp_path / "sum", NAMES[:3], SUM, protocol="secagg")
    refused = smpc_dp("plan", "session", str(made), *options)
    assert f"{options[0]}: is for statistics of records with noise" in refused.stderr


def test_without_a_number_of_rows_there_is_no_study(session: SessionFile, tmp_path: Path) -> None:
    records = {key: value for key, value in RECORDS["records"].items() if key != "rows_expected"}
    made = session_file(tmp_path / "unknown", records=records)
    assert study_of(load_session(made), {}) is None
    shown = smpc_dp("plan", "session", str(made)).stdout
    assert "power: not known without rows_expected, or --rows" in shown
    assert study_of(with_rows(load_session(made), 3000), {}) == study_of(session, {})


def test_a_plan_prints_widths_power_bounds_and_what_remains(path: Path, session: SessionFile) -> None:
    options = ("--expect", "stay=8:6", "--expect", "dead=0.1", "--budget", "3")
    shown = smpc_dp("plan", "session", str(path), *options).stdout
    printed = json.loads(smpc_dp("plan", "session", str(path), *options, "--json").stdout)
    answers = printed["study"]["answers"]
    assert printed["study"] == json.loads(
        msgspec.json.encode(study_of(session, read_expected(["stay=8:6", "dead=0.1"], session)))
    )
    for one in answers:
        for number in (one["noise"], one["sampling"], one["both"]):
            assert number is None or f"± {number:.3g}" in shown
        assert one["detected"] is None or f"{one['detected']:.3g}" in shown
    assert "mean 8 and standard deviation 6 of stay" in shown
    (mean,) = (one for one in answers if one["text"] == "mean(stay)")
    assert f"with bounds half as far apart ± {mean['at_bound'] / 2:.3g}" in shown
    left = printed["remaining"]
    assert f"later questions: {left['repeated']} more requests like this one fit" in shown
