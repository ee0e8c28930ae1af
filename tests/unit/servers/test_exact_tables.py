"""Exact tables on shares: what is opened against a plain computation, margins, what is refused by name."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.servers.requests.programs import compile_operation
from smpc_dp.capabilities.servers.secret_sharing.tables import TableParameters
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.simulation.shared import run_alone
from smpc_dp.capabilities.servers.statistics.plan import table_program
from smpc_dp.capabilities.servers.statistics.tables import read_tables
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.events import exact_release
from smpc_dp.records.exact import LEAST_PARTIES, NOT_SHOWN, plan_tables
from smpc_dp.records.result import Estimate
from smpc_dp.records.schema import read_schema
from smpc_dp.records.table import read_table
from smpc_dp.report.sections import statistics_section

COLUMNS: dict[str, Any] = {
    "sex": {"values": ["f", "m"]},
    "region": {"values": ["north", "south", "east"]},
    "age": {"lower": 0.0, "upper": 100.0, "bins": [30.0, 60.0]},
}
GIVEN: dict[str, Any] = {
    "records": {"max_rows": 100, "columns": COLUMNS},
    "ask": ["sex x region", "sex", "region", "count"],
    "smallest_count": 5,
    "dataset": "patients of 2026",
}
PUBLIC = {**GIVEN["records"], "rows": "public"}


def checked(parties: int = 5, **more: Any) -> TableParameters:
    result, issues = checker_of("mpyc", 1)({**GIVEN, **more}, parties)
    assert isinstance(result, TableParameters), issues
    return result


@pytest.mark.parametrize(("parties", "most", "smallest"), [(3, 9, 4), (5, 20, 10), (7, 1000, 3), (4, 5, 100)])
def test_cells_of_enough_records_from_enough_parties_are_opened_and_no_others(
    parties: int, most: int, smallest: int
) -> None:
    source = np.random.default_rng(parties)
    counts = source.integers(0, min(most, 6), (parties, 12)) * source.integers(0, 2, (parties, 12))
    # At the edges of the rule: exactly enough, one fewer, from one party too few.
    counts[:, 0] = [smallest - parties + 1, *[1] * (parties - 1)] if smallest <= most else 1
    counts[:, 1] = counts[:, 0] - (np.arange(parties) == 0)
    counts[:, 2] = [most, most, *[0] * (parties - 2)]
    counts = np.clip(counts, 0, most)
    program = table_program(parties, 12, most, smallest, LEAST_PARTIES)
    opened = run_alone(program, counts.tolist())
    totals = counts.sum(axis=0)
    shown = (totals >= smallest) & ((counts > 0).sum(axis=0) >= LEAST_PARTIES)
    assert opened == [*shown.astype(int), *(shown * totals)]
    assert read_tables(program.terms, opened) == np.where(shown, totals, NOT_SHOWN).tolist()
    assert not shown[2]


def test_a_count_out_of_bounds_is_named_and_counts_as_none() -> None:
    program = table_program(4, 2, 10, 3, LEAST_PARTIES)
    opened = run_alone(program, [[5, 5], [5, 5], [5, 5], [11, 5]])
    assert opened == [1, 1, 15, 15, 3]


def test_values_that_the_rule_does_not_allow_are_not_taken() -> None:
    terms = table_program(4, 1, 10, 3, LEAST_PARTIES).terms
    assert read_tables(terms, [1, 7]) == [7]
    for opened in ([1, 2], [0, 7], [2, 7], [1, 41], [1]):
        assert read_tables(terms, opened) is None


LEVELS: dict[str, Any] = {"sex": ["f", "m"], "region": ["north", "south", "east"], "age": [10.0, 40.0, 90.0]}
LABELS = {"age": dict(zip(LEVELS["age"], ["[0, 30)", "[30, 60)", "[60, 100]"], strict=True))}


def test_each_margin_is_of_the_rows_that_have_its_columns() -> None:
    """Against a count of rows, one by one, of which each set that is told apart obeys the rule."""
    source = np.random.default_rng(1)
    for ask, always, absent in itertools.product(
        (
            ["sex x region", "sex", "region", "count"],
            ["age x sex x region", "age x sex", "region", "count"],
            ["age x sex x region", "age", "sex"],
        ),
        ((), ("age",)),
        (0.0, 0.1, 0.3),
    ):
        columns = {**COLUMNS, "age": {**COLUMNS["age"], "missing": not always}}
        plan = plan_tables(read_schema({"max_rows": 500, "columns": columns}), ask, 5)
        rows = []
        for _, name in itertools.product(range(4), LEVELS):
            values = source.choice(np.array([*LEVELS[name]], dtype=object), 120)
            values[source.random(120) < (0.0 if name in always else absent)] = None
            rows.append(values)
        tables = [dict(zip(LEVELS, rows[3 * party : 3 * party + 3], strict=True)) for party in range(4)]
        vectors = np.array([plan.vector(read_table(table, plan.schema)) for table in tables])
        assert vectors.sum(axis=0).max() <= 480
        cells = vectors.sum(axis=0)
        cells[(cells < 5) | ((vectors > 0).sum(axis=0) < LEAST_PARTIES)] = NOT_SHOWN
        check_tables(plan.answers(cells, 0.95).estimates, ask, tables, always)


def check_tables(
    estimates: tuple[Estimate, ...], ask: list[str], tables: list[dict[str, Any]], always: tuple[str, ...]
) -> None:
    asked = [tuple(text.split(" x ")) if text != "count" else () for text in ask]
    used = [name for name in LEVELS if any(name in names for names in asked)]
    levels = [[*LEVELS[name], *([] if name in always else [None])] for name in used]

    def signature(row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the cell in which each table counts a row, None for none."""
        values = dict(zip(used, row, strict=True))
        cells = [tuple(values[name] for name in names) for names in asked]
        return tuple(None if None in cell else cell for cell in cells)

    groups: dict[tuple[Any, ...], list[int]] = {signature(row): [] for row in itertools.product(*levels)}
    for party, table in enumerate(tables):
        for row in zip(*(table[name] for name in used), strict=True):
            groups[signature(row)].append(party)
    sizes = [math.prod(len(LEVELS[name]) for name in names) for names in asked]
    assert [one.statistic for one in estimates] == [
        text for text, cells in zip(ask, sizes, strict=True) for _ in range(cells)
    ]
    shown = {one: len(held) >= 5 and len(set(held)) >= LEAST_PARTIES for one, held in groups.items()}
    for one in estimates:
        number = ask.index(one.statistic)
        wanted = tuple(
            next(v for v in LEVELS[name] if LABELS.get(name, {}).get(v, v) == one.cell[name])
            for name in asked[number]
        )
        beneath = [each for each in groups if each[number] == wanted]
        complete = [each for each in beneath if None not in each]
        if not all(shown[each] for each in complete):
            assert (one.value, one.low, one.high) == (None, None, None)
            continue
        counted = [each for each in beneath if shown[each]]
        partial = len(counted) < len(beneath)
        assert one.value == sum(len(groups[each]) for each in counted)
        assert (one.low, one.high) == (one.value, None if partial else one.value)
        assert one.note.startswith("at least: rows that lack") == partial


@pytest.mark.parametrize("seed", range(20))
def test_margins_say_nothing_that_shown_cells_do_not(seed: int) -> None:
    """Two sets of cells that are alike where they are shown have alike tables."""
    source = np.random.default_rng(seed)
    columns = {name: COLUMNS[name] for name in ("sex", "region")}
    plan = plan_tables(read_schema({**GIVEN["records"], "columns": columns}), GIVEN["ask"], 5)
    cells = source.integers(5, 50, plan.length)
    cells[source.random(plan.length) < 0.1] = NOT_SHOWN
    # sex and region, then those of one sex or one region alone, and those of neither
    table = np.block([[cells[:6].reshape(2, 3), cells[6:8, None]], [cells[8:11], cells[11:]]])
    answers = plan.answers(cells, 0.95)
    for axis, text in ((1, "sex"), (0, "region"), (None, "count")):
        hidden = (table[:2, :3] == NOT_SHOWN).any(axis=axis)
        counted = {1: table[:2], 0: table[:, :3], None: table}[axis]
        partial = (counted == NOT_SHOWN).any(axis=axis)
        expected = np.where(counted == NOT_SHOWN, 0, counted).sum(axis=axis)
        shown = [one.value if one.value is not None else np.nan for one in answers.of(text)]
        assert [one.high is None for one in answers.of(text)] == np.atleast_1d(hidden | partial).tolist()
        assert np.array_equal(np.atleast_1d(np.where(hidden, np.nan, expected)), shown, equal_nan=True)
    assert [one.value is None for one in answers.of("sex x region")] == (cells[:6] == NOT_SHOWN).tolist()
    assert answers.guarantee is None
    assert "no differential privacy" in str(answers)
    assert "[" not in str(answers).split("]: ")[1].split("\n")[0]
    printed = {**answers.to_json(), "privacy": {"epsilon": None}}
    page = str(statistics_section(printed, exact=True))
    assert "Exact counts: no differential privacy." in page
    assert "interval" not in page.lower()


def test_a_party_counts_its_rows_in_each_cell() -> None:
    plan = plan_tables(read_schema(GIVEN["records"]), ["age x sex", "age"], 5)
    each = itertools.product((10.0, 40.0, 90.0), ("f", "m"))
    rows = [*each, (40.0, "f"), (np.nan, "f"), (40.0, "x")]
    ages, sexes = zip(*rows, strict=True)
    data: dict[str, Any] = {"age": ages, "sex": sexes, "region": ["east"] * len(rows)}
    # the last cells are of rows with an age and without a sex; none lack age, which no table would count
    assert plan.vector(read_table(data, plan.schema)).tolist() == [1, 1, 2, 1, 1, 1, 0, 1, 0]
    alone = plan_tables(read_schema(GIVEN["records"]), ["count"], 5)
    empty = {name: values[:0] for name, values in data.items()}
    assert [alone.vector(read_table(one, alone.schema)).tolist() for one in (data, empty)] == [[9], [0]]


def test_cells_of_rows_that_lack_a_column_count_for_the_bound() -> None:
    values = {"values": [f"v{index}" for index in range(64)]}
    schema = read_schema({"max_rows": 5, "columns": {"a": values, "b": values}})
    assert plan_tables(schema, "a x b", 5).length == 4096
    reason = "^ask: 4097 cells or more, those of rows that lack a column included, at most 4096$"
    with pytest.raises(ConfigError, match=reason):
        plan_tables(schema, "a x b; count", 5)


def test_the_claim_is_no_differential_privacy() -> None:
    parameters = checked()
    privacy = parameters.privacy(3)
    assert (privacy.epsilon, privacy.unit) == (None, None)
    assert "not differential privacy" in privacy.claim
    assert any("a party can subtract its own counts" in line for line in privacy.not_protected)
    assert parameters.event() == exact_release("exact tables", "add-remove")
    assert (
        "smallest_count"
        not in ProgramTerms.canonical(compile_operation(checked_sum(), "sum", 5, (), b"").terms).decode()
    )
    assert (parameters.fewest, checked(20).fewest) == (5, 18)


@pytest.mark.parametrize(
    ("smallest", "rows", "parties", "persons"), [(5, 5, 3, 1), (20, 2, 1, 10), (3, 1, 2, 2), (4, 4, 1, 3)]
)
def test_how_few_persons_a_shown_cell_may_have_is_stated(
    smallest: int, rows: int, parties: int, persons: int
) -> None:
    unit = {"unit": "person", "id": "patient", "rows_per_person": rows, "parties_per_person": parties}
    parameters = checked(smallest_count=smallest, records={**GIVEN["records"], **unit})
    assert f"those of {persons} may do" in " ".join(parameters.privacy(3).not_protected)
    # Persons with as many rows as they may have, in as many parties, until there is enough of both.
    fewest = next(
        number
        for number in range(1, 100)
        if number * rows * parties >= smallest and number * parties >= LEAST_PARTIES
    )
    assert fewest == persons


def checked_sum() -> Any:
    return checker_of("mpyc", 1)({"length": 1, "lower": 0, "upper": 1, "kind": "integer"}, 5)[0]


@pytest.mark.parametrize(
    ("more", "parties", "where", "reason"),
    [
        ({"ask": ["sex x region", "age"]}, 5, "ask", "'age' overlaps 'sex x region' and is no margin of it"),
        ({"ask": ["sex x age", "histogram(age, 10)"]}, 5, "ask", "is no margin of it"),
        ({"ask": ["mean(age)"]}, 5, "ask", "is no table of counts"),
        ({"epsilon": 1.0}, 5, "epsilon", "have no noise"),
        ({"smallest_count": 2}, 5, "smallest_count", "must be"),
        ({"dataset": ""}, 5, "dataset", "must be"),
        ({}, 2, "roster", "3 to 100000 are needed"),
        (
            {"records": PUBLIC, "public_rows": [1] * 5},
            5,
            "records.rows",
            "single",
        ),
    ],
)
def test_what_is_wrong_is_named(more: dict[str, Any], parties: int, where: str, reason: str) -> None:
    result, issues = checker_of("mpyc", 1)({**GIVEN, **more}, parties)
    assert result is None
    assert any(issue.where == where and reason in issue.reason for issue in issues), issues


@pytest.mark.parametrize("protocol", ["secagg", "gopa"])
def test_sums_refuse_a_smallest_count_and_say_why(protocol: str) -> None:
    given = {**GIVEN, "epsilon": 1.0, "delta": 1e-6}
    result, issues = checker_of(protocol, session_protocol(protocol).version)(given, 5)
    assert result is None
    assert any(
        issue.where == "smallest_count" and "every cell that is added up is opened" in issue.reason
        for issue in issues
    )


def test_terms_of_tables_without_a_rule_are_refused() -> None:
    from msgspec.structs import replace

    program = table_program(4, 2, 10, 3, LEAST_PARTIES)
    for change in ({"smallest_count": 0}, {"least_parties": 0}, {"lower": (1, 1)}):
        changed = replace(program, terms=replace(program.terms, **change))
        with pytest.raises(ConfigError):
            run_alone(changed, [[5, 5]] * 4)
