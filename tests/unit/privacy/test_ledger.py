"""The privacy ledger: what it permits, what it refuses, and what it says of a damaged file."""

from __future__ import annotations

import dataclasses
import datetime
import fcntl
import json
import math
import os
import random
import re
import stat
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.engine.result import Claim
from smpc_dp.errors import ConfigError, LocalError, PrivacyError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.accountant.decimals import split, summed
from smpc_dp.privacy.accountant.events import (
    Event,
    Gaussian,
    Line,
    Pure,
    RandomisedResponse,
    Shift,
    Shifts,
    exact_release,
)
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.accountant.theorems import (
    advanced_composition,
    kairouz_oh_viswanath,
    optimal_composition,
)
from smpc_dp.privacy.distributions import BinomialDistribution
from smpc_dp.privacy.mechanisms import DiscreteGaussian, KaryRandomisedResponse, Sensitivity, Skellam
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.records.plan import plan_request
from smpc_dp.records.schema import read_schema
from smpc_dp.records.table import read_table
from smpc_dp.report.texts import result_text

NEGATIVE: Any = np.float32(-1)


def run(number: int) -> bytes:
    return number.to_bytes(16, "big")


def pure(epsilon: float, delta: float = 0.0) -> Event:
    return Event("pure", "substitution", (Pure(epsilon, delta),))


def ledger(path: Path, **changes: Any) -> Ledger:
    terms: dict[str, Any] = {
        "party": "alice",
        "dataset": "loans 2026",
        "relation": "substitution",
        "epsilon": 1.0,
        "delta": 1e-6,
    }
    return Ledger.create(path / "alice.ledger", **{**terms, **changes})


def test_charges_add_up_until_the_budget_is_spent(tmp_path: Path) -> None:
    book = ledger(tmp_path, delta=0.0)
    for number in range(10):
        receipt = book.charge(run(number), pure(0.1), "average")
        assert receipt.number == number + 1
        assert receipt.spent.epsilon == pytest.approx(0.1 * (number + 1))
    with pytest.raises(PrivacyError) as refused:
        book.charge(run(10), pure(0.1))
    text = str(refused.value)
    for part in ("alice", "loans 2026", "epsilon = 1 ", "1 is spent", "0.1 by itself", "1.1"):
        assert part in text
    # nothing was charged for what was refused, and the file can be opened again
    again = Ledger.open(book.path, party="alice", dataset="loans 2026")
    assert len(again.entries()) == 10
    assert again.spent().epsilon == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "releases", "taken"),
    [
        (0.3, 0.0, [(0.1, 0.0)] * 4, 3),
        (3.0, 3e-6, [(1.0, 1e-6)] * 3, 3),
        (3.0, 3e-6, [(1.0, 1e-6)] * 2 + [(1.0, 1.0000000000000002e-6)], 2),
        (1.0, 0.0, [(1.0, 0.0), (1e-17, 0.0)], 1),
        (1.0, 0.0, [(1.0, 0.0), (5e-324, 0.0)], 1),
        (0.7, 0.0, [(0.6, 0.0), (0.1, 0.0), (5e-324, 0.0)], 2),
    ],
)
def test_budgets_add_up_as_the_decimals_that_were_written(
    epsilon: float, delta: float, releases: list[tuple[float, float]], taken: int, tmp_path: Path
) -> None:
    book = ledger(tmp_path, epsilon=epsilon, delta=delta)
    for number, release in enumerate(releases[:taken]):
        book.charge(run(number), pure(*release))
    book.check([])
    if taken < len(releases):
        with pytest.raises(PrivacyError, match=r"is short: .* is refused") as refused:
            book.charge(run(taken), pure(*releases[taken]))
        # the digits that differ are shown
        total = re.search(r"would make it (\S+?);?( |$)", str(refused.value))
        assert total is not None
        assert float(total[1].rstrip(";")) > epsilon
    assert len(book.entries()) == taken


def test_a_budget_that_is_overspent_by_little_is_shown_to_the_last_digit(tmp_path: Path) -> None:
    book = Ledger.create(
        tmp_path / "a.ledger", party="a", dataset="d", relation="substitution", epsilon=1.0, delta=0.0
    )
    for number, cost in enumerate((1.0, 1e-17)):
        book.charge(run(number), pure(cost), forced=True)
    with pytest.raises(PrivacyError, match=r", 1\.0000000000000002 is spent"):
        book.charge(run(2), pure(1e-17))


def test_a_budget_or_cost_that_no_file_can_hold_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="epsilon: must be an int or a float, is Fraction"):
        Ledger.create(
            tmp_path / "a.ledger",
            party="a",
            dataset="d",
            relation="substitution",
            epsilon=Fraction(1, 3),  # type: ignore[arg-type]
            delta=0.0,
        )
    with pytest.raises(ConfigError, match="epsilon: of Pure: must be 0 or more and below 1e"):
        Pure(1e10)
    assert Pure(1e9).epsilon == 1e9


def test_theorems_add_decimals() -> None:
    assert optimal_composition(0.07, 29, 2.03) == 0.0
    assert advanced_composition(0.1, 0.1, 3, 0.1)[1] == 0.4
    assert kairouz_oh_viswanath([(0.1, 0.0)] * 3, 0.0)[0] == 0.3


@given(st.floats(1e-300, 1e9), st.floats(0, 0.999))
def test_parts_of_a_budget_are_no_more_than_the_budget(budget: float, share: float) -> None:
    first, rest = split(budget, share)
    assert summed([(first, 1), (rest, 1)]) <= budget
    assert first + rest == pytest.approx(budget, rel=1e-15)
    assert first == pytest.approx(budget * share, rel=1e-12, abs=1e-310)


def test_what_is_spent_is_rounded_up_in_decimals() -> None:
    source = random.Random(5)
    for _ in range(200):
        costs = [float(f"{source.randrange(1, 1000)}e-{source.choice((2, 3, 9, 20))}") for _ in range(6)]
        exact = sum(Decimal(repr(cost)) for cost in costs)
        spent = Composition(map(pure, costs)).epsilon(0.0)
        assert Decimal(repr(spent)) >= exact > Decimal(repr(math.nextafter(spent, 0.0)))


def test_slack_is_part_of_the_budget_in_decimals(tmp_path: Path) -> None:
    failing = Event("may fail", "substitution", (Pure(1.0, 1e-6),), slack=2e-6)
    assert Composition([failing]).epsilon(3e-6) == 1.0
    assert Composition([failing] * 2).epsilon(6e-6) == 2.0
    more = Event("may fail", "substitution", (Pure(1.0, 1e-6),), slack=1e-23)
    assert Composition([more]).epsilon(1e-6) > 1.0
    adaptive = ledger(tmp_path, epsilon=5.0, delta=6e-6, composition="adaptive")
    for number in range(3):
        adaptive.charge(run(number), pure(0.1, 1e-6))
    with pytest.raises(PrivacyError, match="is refused"):
        adaptive.charge(run(3), pure(0.0, 1e-22))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Pure(NEGATIVE), "epsilon: of Pure"),
        (lambda: Pure("1"), "epsilon: of Pure: must be a number, is '1'"),  # type: ignore[arg-type]
        (lambda: Pure(1.0, True), "delta: of Pure"),
        (lambda: Gaussian(math.nan), "mu: of Gaussian"),
        (lambda: Gaussian(NEGATIVE), "mu: of Gaussian"),
        (lambda: Line(0.0, -1.0), "slope: of Line"),
        (lambda: Shifts(BinomialDistribution(4), 1, ((1, -1),)), "moves: of Shifts"),
        (lambda: RandomisedResponse(2, 2.0), "ratio: of RandomisedResponse"),  # type: ignore[arg-type]
        (lambda: RandomisedResponse(2.5, Fraction(3)), "categories: of Rand"),  # type: ignore[arg-type]
        (lambda: Event("m", "substitution", (Pure(1.0),), slack=NEGATIVE), "slack: of m"),
        (lambda: Composition([]).epsilon("0"), "delta: must be a number"),  # type: ignore[arg-type]
        (lambda: Composition([]).delta(None), "epsilon: must be a number"),  # type: ignore[arg-type]
        (lambda: Sensitivity.on_reals("substitution", l1="1"), "l1: must be"),  # type: ignore[arg-type]
        (lambda: KaryRandomisedResponse.calibrate(1.0, 0.0, "2"), "categories"),  # type: ignore[arg-type]
        (lambda: advanced_composition(1.0, 0.0, "2", 0.1), "count must be"),  # type: ignore[arg-type]
        (lambda: advanced_composition(1.0, 0.0, 2, "x"), "slack must be"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_number_is_named(make: Callable[[], object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        make()


@pytest.mark.parametrize("wrong", ["5", True, [1.0], math.nan, NEGATIVE])
def test_a_wrong_budget_is_named(wrong: Any, tmp_path: Path) -> None:
    for name in ("epsilon", "delta"):
        with pytest.raises(ConfigError, match=f"^{name}: must be"):
            ledger(tmp_path, **{name: wrong})
    with pytest.raises(ConfigError, match=r"^delta: must be a number, is None"):
        ledger(tmp_path, delta=None)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    book = ledger(tmp_path, epsilon=np.float32(0.5), delta=np.float64(0))
    quarter: Any
    zero: Any
    quarter, zero = (np.array(number, kind)[()] for number, kind in ((0.25, "f4"), (0, "i8")))
    book.charge(run(1), pure(quarter))
    book.charge(run(2), Event("shift", "substitution", (Pure(zero, np.float64(0)),)))
    assert Ledger.open(book.path).spent().epsilon == 0.25


def test_composition_is_that_of_the_accountant(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    event = DiscreteGaussian.calibrate(0.3, 1e-7, Sensitivity.on_integers("substitution", l1=1)).event()
    for number in range(4):
        receipt = book.charge(run(number), event)
    assert receipt.spent.epsilon == Composition([event] * 4).epsilon(1e-6)
    assert receipt.spent.epsilon < 4 * 0.3 * 0.75
    assert book.would_spend(event).epsilon == Composition([event] * 5).epsilon(1e-6)
    assert len(book.entries()) == 4


def test_a_run_is_charged_once(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    first = book.charge(run(1), pure(0.4), "average")
    book.charge(run(2), pure(0.4), "average")
    with pytest.raises(PrivacyError, match="used once"):
        book.charge(run(1), pure(0.4), "average")
    again = book.charge(run(1), pure(0.4), "average", resume=True)
    assert again.repeated
    assert not first.repeated
    assert (again.number, again.digest, again.spent) == (first.number, first.digest, first.spent)
    assert len(book.entries()) == 2
    for event, label in ((pure(0.1), "average"), (pure(0.4), "sum")):
        with pytest.raises(PrivacyError, match="used once"):
            book.charge(run(1), event, label, resume=True)


def test_relations(tmp_path: Path) -> None:
    book = ledger(tmp_path, delta=0.0)
    added = Event("count", "add-remove", (Pure(0.3),))
    assert book.charge(run(1), added).spent.epsilon == 0.6
    # the same event again is the same charge, converted or not
    assert book.charge(run(1), added, resume=True).repeated
    other = Ledger.create(
        tmp_path / "b", party="b", dataset="d", relation="add-remove", epsilon=1.0, delta=0.0
    )
    with pytest.raises(PrivacyError, match="nothing about add-remove"):
        other.charge(run(1), pure(0.1))


def of(unit: str, relation: str = "substitution", mu: float = 0.1) -> Event:
    return Event("release", relation, (Gaussian(mu),), unit=unit)  # type: ignore[arg-type]


@pytest.mark.parametrize("relation", ["substitution", "add-remove"])
def test_a_ledger_of_records_charges_a_release_of_parties_at_its_own_epsilon(
    relation: str, tmp_path: Path
) -> None:
    book = ledger(tmp_path, unit="record", relation=relation)
    alone = Composition([of("party")]).epsilon(1e-6)
    assert book.charge(run(1), of("party")).spent.epsilon == alone
    # A second one composes with it: both are of the ledger's unit and relation.
    both = book.charge(run(2), of("record", relation)).spent.epsilon
    assert both == Composition([of("party")] * 2).epsilon(1e-6)
    assert {(entry.event.unit, entry.event.relation) for entry in book.entries()} == {("record", relation)}


@pytest.mark.parametrize(
    ("unit", "relation", "event"),
    [
        ("party", "substitution", of("record")),
        ("party", "substitution", of("person")),
        ("person", "substitution", of("record")),
        # A person may have records in several parties.
        ("person", "substitution", of("party")),
        # One record may change which others of its person count, or two persons.
        ("record", "substitution", of("person")),
        ("record", "add-remove", of("person", "add-remove")),
        # Never by doubling.
        ("record", "substitution", of("record", "add-remove")),
        ("record", "add-remove", of("record", "substitution")),
        ("person", "substitution", of("person", "add-remove")),
    ],
)
def test_what_protects_less_than_the_ledgers_unit_is_refused(
    unit: str, relation: str, event: Event, tmp_path: Path
) -> None:
    book = ledger(tmp_path, unit=unit, relation=relation, epsilon=100.0)
    for attempt in (lambda: book.charge(run(1), event), lambda: book.check([event])):
        with pytest.raises(
            PrivacyError, match="alice: on 'loans 2026' is refused: release: its guarantee is for"
        ):
            attempt()
    assert book.entries() == ()


def test_a_record_more_moves_a_release_of_persons_by_twice_the_sensitivity_of_a_person(
    tmp_path: Path,
) -> None:
    description = {
        "columns": {"x": {"lower": -1.0, "upper": 1.0, "step": 1.0, "missing": False}},
        "unit": "person",
        "id": "who",
        "rows_per_person": 1,
        "parties_per_person": 1,
        "max_rows": 10,
    }
    schema = read_schema(description)
    request = plan_request(schema, "sum(x)", epsilon=1.0, delta=1e-6, parties=3)
    tables = [{"who": ["A"] * len(x), "x": np.array(x)} for x in ([1.0], [-1.0, 1.0])]
    few, more = (request.vector(read_table(table, schema)) for table in tables)
    assert np.linalg.norm(more - few) > 1.99 * request.sensitivity.l2

    book = ledger(tmp_path, unit="record", relation="add-remove", epsilon=100.0)
    with pytest.raises(PrivacyError, match="one record more may put another one of its person out"):
        book.charge(run(1), of("person", "add-remove"))


def test_an_entry_says_what_it_cost_for_whom_and_when(tmp_path: Path) -> None:
    book = ledger(tmp_path, unit="record", relation="add-remove")
    before = datetime.datetime.now(datetime.UTC).date().isoformat()
    book.charge(run(1), of("record", "add-remove"), "request 1")
    after = datetime.datetime.now(datetime.UTC).date().isoformat()
    [entry] = Ledger.open(book.path).entries()
    alone = Composition([of("record", "add-remove")]).epsilon(1e-6)
    assert (entry.epsilon, entry.delta, entry.event.unit, entry.label) == (alone, 1e-6, "record", "request 1")
    assert entry.date is not None
    assert before <= entry.date <= after
    assert json.loads(book.path.read_bytes())["version"] == 2


def test_what_has_happened_is_recorded_beyond_the_budget(tmp_path: Path) -> None:
    retained = ledger(tmp_path)
    whole = retained.terms.epsilon or 0.0
    retained.charge(run(1), Event("planned", "substitution", (Pure(whole),)))
    raised = Event("raised", "substitution", (Pure(2 * whole),))
    with pytest.raises(PrivacyError, match="epsilon is short"):
        retained.charge(run(2), raised)
    spent = retained.charge(run(2), raised, forced=True).spent.epsilon
    assert spent == pytest.approx(3 * whole)
    with pytest.raises(PrivacyError, match="is refused"):
        retained.charge(run(3), Event("small", "substitution", (Pure(1e-9),)))
    lost = exact_release("too little noise", "substitution")
    assert retained.charge(run(4), lost, forced=True).spent.epsilon is None
    with pytest.raises(PrivacyError, match="is refused"):
        retained.charge(run(5), Event("small", "substitution", (Pure(1e-9),)))


def test_exact_releases(tmp_path: Path) -> None:
    plain = exact_release("secure sum", "substitution")
    with pytest.raises(PrivacyError, match="exact release"):
        ledger(tmp_path).charge(run(1), plain)
    (tmp_path / "outside").mkdir()
    outside = ledger(tmp_path / "outside", exact="outside")
    assert outside.charge(run(1), plain).spent.exact_releases == 1
    assert outside.charge(run(2), pure(0.5)).spent.epsilon == pytest.approx(0.5, rel=1e-4)
    (tmp_path / "record").mkdir()
    record = ledger(tmp_path / "record", epsilon=None)
    assert record.charge(run(1), pure(50.0)).spent.epsilon == pytest.approx(50.0, rel=1e-4)
    assert record.charge(run(2), plain).spent.epsilon is None


def test_adaptive_composition_costs_more_and_uses_one_order(tmp_path: Path) -> None:
    event = Event("gaussian", "substitution", (Gaussian(0.05),))
    counts = {}
    for kind in ("fixed", "adaptive"):
        (tmp_path / kind).mkdir()
        book = ledger(tmp_path / kind, composition=kind)
        number = 0
        while True:
            try:
                spent = book.charge(run(number), event).spent.epsilon
            except PrivacyError:
                break
            number += 1
            assert spent is not None
            assert spent <= 1.0
        counts[kind] = number
    assert counts["fixed"] > counts["adaptive"] > counts["fixed"] / 2
    nothing_known = Event("binomial", "substitution", (Shift(BinomialDistribution(400), 1, 1),))
    with pytest.raises(PrivacyError, match="no Rényi bound"):
        book.charge(run(99), nothing_known)
    # what may fail has half of delta
    for slack, permitted in ((4e-7, True), (6e-7, False)):
        (tmp_path / str(slack)).mkdir()
        shaky = ledger(tmp_path / str(slack), composition="adaptive")
        risky = Event("graph", "substitution", (Gaussian(0.05),), slack)
        if permitted:
            shaky.charge(run(1), risky)
        else:
            with pytest.raises(PrivacyError, match="refused"):
                shaky.charge(run(1), risky)


def test_skellam_is_charged_by_its_renyi_bound_in_an_adaptive_ledger(tmp_path: Path) -> None:
    book = ledger(tmp_path, composition="adaptive")
    noise = Skellam(Sensitivity.on_integers("substitution", dimension=50, l2=5), Fraction(20_000))
    spent = book.charge(run(1), noise.event()).spent.epsilon
    assert spent is not None
    assert 0 < spent < 1


def test_mode_lock_and_no_leftovers(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.charge(run(1), pure(0.1))
    assert stat.S_IMODE(book.path.stat().st_mode) == 0o600
    assert {item.name for item in tmp_path.iterdir()} == {"alice.ledger", "alice.ledger.lock"}
    book.path.chmod(0o640)
    with pytest.raises(LocalError, match="chmod 600"):
        book.charge(run(2), pure(0.1))


def test_a_ledger_is_never_overwritten(tmp_path: Path) -> None:
    ledger(tmp_path).charge(run(1), pure(0.5))
    with pytest.raises(LocalError, match="never overwritten"):
        ledger(tmp_path)
    assert len(Ledger.open(tmp_path / "alice.ledger").entries()) == 1
    assert {item.name for item in tmp_path.iterdir()} == {"alice.ledger", "alice.ledger.lock"}


def test_another_ledger_in_its_place_is_noticed(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.charge(run(1), pure(0.9))
    (tmp_path / "other").mkdir()
    other = ledger(tmp_path / "other")
    os.replace(other.path, book.path)
    with pytest.raises(LocalError, match="taken the place"):
        book.charge(run(2), pure(0.9))


def test_whose_ledger_it_is_is_checked(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    for expected in ({"party": "bob"}, {"dataset": "loans 2025"}):
        with pytest.raises(ConfigError, match="not of"):
            Ledger.open(book.path, **expected)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file"):
        Ledger.open(tmp_path / "none")
    (tmp_path / "folder").mkdir()
    with pytest.raises(LocalError):
        Ledger.open(tmp_path / "folder")
    book = ledger(tmp_path)
    (tmp_path / "link").symlink_to(book.path)
    with pytest.raises(LocalError, match="symbolic link"):
        Ledger.open(tmp_path / "link")
    with pytest.raises(LocalError, match="missing folder: no such folder"):
        ledger(tmp_path / "missing folder")


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _text: b"",
    "truncated": lambda text: text[: len(text) // 2],
    "last byte": lambda text: text[:-1],
    "more": lambda text: text + b" ",
    "cheaper": lambda text: text.replace(b'"epsilon": 0.25', b'"epsilon": 0.05'),
    "greater budget": lambda text: text.replace(b'"epsilon": 1.0', b'"epsilon": 9.0'),
    "other relation": lambda text: text.replace(
        b'"relation": "substitution"', b'"relation": "add-remove"', 1
    ),
    "other label": lambda text: text.replace(b'"label": "first"', b'"label": "fjrst"'),
    "unknown field": lambda text: text.replace(b'"version": 2,', b'"version": 2, "x": 0,'),
    "version of another kind": lambda text: text.replace(b'"version": 2,', b'"version": "2",'),
    "exact and not": lambda text: text.replace(
        b'"descriptions": [', b'"descriptions": [ {"kind": "exact"},', 1
    ),
    "binary": lambda text: text[:40] + b"\xff\x00" + text[42:],
    "deep": lambda _text: b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_ledger_is_refused_and_left_as_it_is(damage: str, tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.charge(run(1), pure(0.25), "first")
    book.charge(run(2), pure(0.25), "second")
    broken = DAMAGE[damage](book.path.read_bytes())
    assert broken != book.path.read_bytes()
    book.path.write_bytes(broken)
    for attempt in (book.entries, lambda: book.charge(run(3), pure(0.1)), lambda: Ledger.open(book.path)):
        with pytest.raises(LocalError, match="damaged"):
            attempt()
    assert book.path.read_bytes() == broken


def test_a_ledger_of_another_version_is_refused_by_name_and_left_as_it_is(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    book.charge(run(1), pure(0.25), "first")
    other = book.path.read_bytes().replace(b'"version": 2,', b'"version": 7,')
    book.path.write_bytes(other)
    for attempt in (book.entries, lambda: book.charge(run(3), pure(0.1)), lambda: Ledger.open(book.path)):
        with pytest.raises(LocalError) as refused:
            attempt()
        assert str(refused.value) == f"{book.path}: is a ledger of version 7; this release reads 1 or 2"
    assert book.path.read_bytes() == other


def test_an_entry_taken_out_is_noticed(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    for number in range(3):
        book.charge(run(number), pure(0.25))
    whole = json.loads(book.path.read_bytes())
    del whole["entries"][1]
    whole["entries"][1]["number"] = 2
    book.path.write_text(json.dumps(whole, indent=1))
    with pytest.raises(LocalError, match="entry 2"):
        book.spent()


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"delta": 1e-14}, "delta"),
        ({"party": ""}, "party"),
        ({"party": "a\nb"}, "party"),
        ({"dataset": "x" * 300}, "dataset"),
        ({"relation": "swap"}, "relation"),
        ({"composition": "free"}, "composition"),
        ({"composition": "adaptive", "delta": 0.0}, "composition"),
        ({"exact": "yes"}, "exact"),
        ({"unit": "patient"}, "unit"),
    ],
)
def test_terms_that_cannot_be_are_named(changes: dict[str, Any], where: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=where) as raised:
        ledger(tmp_path, **changes)
    assert "$" not in str(raised.value)
    assert not (tmp_path / "alice.ledger").exists()


@pytest.mark.parametrize(
    ("name", "label"), [(b"", ""), (b"1234567", ""), (b"x" * 65, ""), (run(1), "a\nb"), (run(1), "x" * 600)]
)
def test_a_charge_that_could_not_be_read_again_is_refused(name: bytes, label: str, tmp_path: Path) -> None:
    book = ledger(tmp_path)
    with pytest.raises(ConfigError, match="entry"):
        book.charge(name, pure(0.1), label)
    assert book.entries() == ()


@pytest.mark.parametrize(
    ("kind", "numbers", "field"),
    [
        (Pure, (-1.0,), "epsilon"),
        (Pure, (math.nan,), "epsilon"),
        (Pure, (math.inf,), "epsilon"),
        (Pure, (0.1, -0.5), "delta"),
        (Gaussian, (math.nan,), "mu"),
        (Gaussian, (1.0, -1.0), "closeness"),
    ],
)
def test_a_description_that_is_none_is_never_made(
    kind: Callable[..., object], numbers: tuple[float, ...], field: str
) -> None:
    with pytest.raises(ConfigError, match=field):
        kind(*numbers)


def test_a_lock_that_was_unlinked_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = ledger(tmp_path)
    lock = book.path.with_name(book.path.name + ".lock")
    flock, calls = fcntl.flock, list[int]()

    def lose_the_first(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if not calls:
            lock.unlink()
        calls.append(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(fcntl, "flock", lose_the_first)
    book.charge(run(1), pure(0.1))
    assert len(calls) == 2
    assert lock.stat().st_ino == calls[1]


def test_a_second_name_of_the_file_is_refused(tmp_path: Path) -> None:
    book = ledger(tmp_path)
    os.link(book.path, tmp_path / "other.ledger")
    with pytest.raises(LocalError, match="second name"):
        book.charge(run(1), pure(0.1))


def test_the_command_shows_what_the_ledger_holds(tmp_path: Path) -> None:
    path = tmp_path / "alice.ledger"
    terms = ["--party", "alice", "--dataset", "loans 2026", "--epsilon", "1"]
    made = CliRunner().invoke(app, ["ledger", "create", str(path), *terms])
    assert made.exit_code == 0
    assert "budget epsilon = 1 at delta = 0; spent epsilon = 0" in made.stdout
    Ledger.open(path).charge(run(7), pure(0.25), "average")
    shown = CliRunner().invoke(app, ["ledger", "show", str(path)])
    assert "spent epsilon = 0.25" in shown.stdout
    reported = json.loads(CliRunner().invoke(app, ["ledger", "show", str(path), "--json"]).stdout)
    assert reported["spent_epsilon"] == pytest.approx(0.25, rel=1e-6)
    record = ["--party", "alice", "--dataset", "d"]
    made = CliRunner().invoke(app, ["ledger", "create", str(tmp_path / "record.ledger"), *record])
    assert "no budget: a record only; spent epsilon = 0" in made.stdout
    (charge,) = reported["charges"]
    assert (charge["label"], charge["run"]) == ("average", run(7).hex())


def test_a_result_carries_guarantee_and_receipt(tmp_path: Path) -> None:
    noise = DiscreteGaussian.calibrate(0.5, 1e-6, Sensitivity.on_integers("substitution", l1=1))
    receipt = ledger(tmp_path).charge(run(1), noise.event())
    clauses = NamedSentences.of(count="a noisy count")
    claim = Claim(guarantee=noise.guarantee(1e-6, units=100), clauses=clauses)
    privacy = dataclasses.replace(claim.privacy(), receipt=receipt)
    reported = privacy.to_json()
    json.dumps(reported, allow_nan=False)
    assert reported["epsilon"] == privacy.guarantee.epsilon  # type: ignore[union-attr]
    assert reported["receipt"]["digest"] == receipt.digest  # type: ignore[index]
    assert reported["assumptions"] == [noise.assumption]
    result: dict[str, Any] = {"kind": "sum", "value": [1], "step": 1.0, "weight": 3, "survivors": ["a"]}
    result |= {"absent": [], "faults": []}
    shown = result_text({**result, "privacy": reported})
    assert "ledger of alice: epsilon = 0.49999" in shown
    assert "of 1 spent at delta = 1e-06" in shown
