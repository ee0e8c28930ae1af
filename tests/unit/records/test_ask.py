"""What can be asked for, and what is refused before anything is sent."""

from __future__ import annotations

import msgspec
import pytest

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.ask import read_ask
from smpc_dp.records.schema import Schema, read_schema

SCHEMA = {
    "columns": {
        "age": {"lower": 0.0, "upper": 120.0, "step": 1.0, "bins": [18.0, 65.0]},
        "bmi": {"lower": 10.0, "upper": 60.0},
        "sex": {"values": ["f", "m"], "other": "m"},
        "died": {"lower": 0.0, "upper": 1.0, "step": 1.0},
    },
    "max_rows": 100,
}


@pytest.fixture
def schema() -> Schema:
    return read_schema(SCHEMA)


@pytest.mark.parametrize(
    ("text", "kind", "columns", "by"),
    [
        ("count", "count", (), ()),
        ("count by sex", "count", (), ("sex",)),
        ("mean(age)", "mean", ("age",), ()),
        ("mean(bmi) by sex x age", "mean", ("bmi",), ("sex", "age")),
        ("age x sex", "table", ("age", "sex"), ()),
        ("sex", "histogram", ("sex",), ()),
        ("covariance(age,bmi)", "covariance", ("age", "bmi"), ()),
        ("median(age)", "quantile", ("age",), ()),
        ("median(age) by sex", "quantile", ("age",), ("sex",)),
        ("regression(bmi ~ age)", "regression", ("bmi", "age"), ()),
        ("survival(age, died) by sex", "survival", ("age", "died"), ("sex",)),
        ("logrank(age, died) by sex", "logrank", ("age", "died"), ("sex",)),
    ],
)
def test_statistics_are_read(
    schema: Schema, text: str, kind: str, columns: tuple[str, ...], by: tuple[str, ...]
) -> None:
    (one,) = read_ask(text, schema)
    assert (one.text, one.kind, one.columns, one.by) == (text, kind, columns, by)


def test_levels_bins_and_edges_are_read(schema: Schema) -> None:
    quantile, bins, edges = read_ask(
        "quantile(age, .25, 0.75); histogram(bmi, 10); histogram(bmi, [20, 30.5])", schema
    )
    assert quantile.levels == (0.25, 0.75)
    assert (bins.bins, edges.edges) == (10, (20.0, 30.5))


def test_a_table_of_groups_stands_for_answers_that_there_are() -> None:
    columns = {
        **SCHEMA["columns"],  # type: ignore[dict-item]
        "dose": {"lower": 0.0, "upper": 1.0, "missing": False},
        "arm": {"values": ["new drug", "old"]},
    }
    schema = read_schema({"columns": columns, "max_rows": 100})
    text = "table1(age, dose, sex) by arm where arm = 'new drug'"
    parts = read_ask([text, "table1(sex)"], schema)
    alone = [
        *(
            f"{part} where arm = 'new drug'"
            for part in (
                "count by arm",
                "mean(age) by arm",
                "variance(age) by arm",
                "missing(age) by arm",
                "mean(dose) by arm",
                "variance(dose) by arm",
                "arm x sex",
                "missing(sex) by arm",
            )
        ),
        *("count", "histogram(sex)", "missing(sex)"),
    ]
    assert [one.text for one in parts] == alone
    assert [one.part_of for one in parts] == [text] * 8 + ["table1(sex)"] * 3
    assert [msgspec.structs.replace(one, part_of="") for one in parts] == list(read_ask(alone, schema))


@pytest.mark.parametrize(
    ("text", "check", "part"),
    [
        ("table1(weight) by sex", ConfigCheck.UNKNOWN_NAME, "no column 'weight'"),
        ("table1(age, age) by sex", ConfigCheck.DUPLICATE, "a column is there twice"),
        ("table1(age) by sex x sex", ConfigCheck.DUPLICATE, "a column is there twice"),
        ("table1(sex) by sex", ConfigCheck.DUPLICATE, "a column is there twice"),
        ("table1(sex) by bmi", ConfigCheck.MISSING, "column 'bmi' needs `bins`"),
        ("table1(age) by sex; count by sex", ConfigCheck.DUPLICATE, "asked for twice: 'count by sex'"),
        ("table1(age", ConfigCheck.FORMAT, ") is expected, not the end"),
        ("mean(weight)", ConfigCheck.UNKNOWN_NAME, "no column 'weight' (columns: age, bmi, sex, died)"),
        ("mean(sex)", ConfigCheck.TYPE, "has categories"),
        ("mode(age)", ConfigCheck.FORMAT, "'mode' is no statistic"),
        ("mean(age", ConfigCheck.FORMAT, ") is expected, not the end"),
        ("mean(age) or", ConfigCheck.FORMAT, "'or' is not expected"),
        ("mean(age; 1)", ConfigCheck.FORMAT, ") is expected"),
        ("mean(age) & 1", ConfigCheck.FORMAT, "cannot be read"),
        ("quantile(age, 1.0)", ConfigCheck.RANGE, "inside (0, 1), are 1"),
        ("quantile(age, 0)", ConfigCheck.RANGE, "inside (0, 1), are 0"),
        ("quantile(age)", ConfigCheck.RANGE, "are none"),
        ("quantile(age, 0.5, 0.25, .5)", ConfigCheck.DUPLICATE, "the level 0.5 is there twice"),
        ("age x bmi", ConfigCheck.MISSING, "column 'bmi' needs `bins`"),
        ("histogram(bmi)", ConfigCheck.MISSING, "needs a number of bins"),
        ("histogram(sex, 3)", ConfigCheck.UNSUPPORTED, "categories have no bins"),
        ("histogram(age, 500)", ConfigCheck.RANGE, "1 to 121 bins"),
        ("histogram(age, [22, 20, 30])", ConfigCheck.RANGE, "edges must increase: 20 comes after 22"),
        ("histogram(age, [20, 20])", ConfigCheck.RANGE, "edges must increase: 20 comes after 20"),
        ("histogram(age, [20, 120])", ConfigCheck.RANGE, "between the bounds 0 and 120: 120 is not"),
        ("histogram(age, [20.1, 22])", ConfigCheck.RANGE, "edges must be at grid points: 20 would count as"),
        ("histogram(age, [20, 20.4])", ConfigCheck.RANGE, "20 and 20.4 are closer than a grid step, 1"),
        ("histogram(bmi, [30, 20])", ConfigCheck.RANGE, "edges must increase"),
        ("covariance(age)", ConfigCheck.SHAPE, "two columns"),
        ("covariance(age, age)", ConfigCheck.DUPLICATE, "twice"),
        ("chi_square(sex, died) by sex", ConfigCheck.UNSUPPORTED, "has no groups"),
        (
            "survival(bmi, died)",
            ConfigCheck.MISSING,
            "column 'bmi' needs `bins` in the schema: the time grid",
        ),
        ("survival(age, bmi)", ConfigCheck.RANGE, "column 'bmi' must be 0 or 1"),
        ("logrank(age, died)", ConfigCheck.SHAPE, "needs two groups"),
        ("logrank(age, died) by age", ConfigCheck.SHAPE, "needs two groups"),
        ("count; count", ConfigCheck.DUPLICATE, "asked for twice"),
        ("", ConfigCheck.FORMAT, "the end"),
    ],
)
def test_what_cannot_be_asked_is_refused(schema: Schema, text: str, check: ConfigCheck, part: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_ask(text, schema)
    assert raised.value.issues[0].check == check
    assert part in str(raised.value)


def test_all_faults_are_told_at_once(schema: Schema) -> None:
    with pytest.raises(ConfigError) as raised:
        read_ask(["mean(weight)", "quantile(age, 2)", "count"], schema)
    assert [issue.where for issue in raised.value.issues] == [
        "ask: 'mean(weight)'",
        "ask: 'quantile(age, 2)'",
    ]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"columns": {}}, "columns: 1 to 1000 are needed"),
        ({"columns": {"a b": {"lower": 0.0, "upper": 1.0}}}, "columns: 'a b' must be a letter"),
        ({"columns": {"a": {"lower": 1.0, "upper": 1.0}}}, "columns.a.lower: 1 is not below upper 1"),
        (
            {"columns": {"a": {"lower": 0.0, "upper": 1.0, "step": 0.3}}},
            "columns.a.step: must divide the range 1",
        ),
        (
            {"columns": {"a": {"lower": 0.0, "upper": 1.0, "bins": [2.0]}}},
            "columns.a.bins: must be inner edges",
        ),
        (
            {"columns": {"a": {"lower": 0.0, "upper": 1e9, "bins": [1e8, 100000001.0]}}},
            "columns.a.bins: at 100000000 and 100000001 are closer than a grid step",
        ),
        (
            {"columns": {"a": {"lower": 0.0, "upper": 9.0, "step": 1.0, "bins": [3.2]}}},
            "columns.a.bins: must be at grid points: 3 would count as above 3.2",
        ),
        (
            {"columns": {"a": {"lower": 0.0, "upper": 1.0, "bins": [0.5, 0.2]}}},
            "columns.a.bins: must increase",
        ),
        ({"columns": {"a": {"values": ["x", "x"]}}}, "columns.a.values: has a category twice"),
        ({"columns": {"a": {"values": ["x"], "other": "y"}}}, "columns.a.other: 'y' is none of `values`"),
        ({"columns": {"a": {"lower": 0.0}}}, "columns.a.upper: is missing"),
        ({"columns": {"a": {"lower": "x", "upper": 1.0}}}, "columns.a.lower: must be a number, is 'x'"),
        ({"columns": {"a": {"lower": 0.0, "upper": 1.0, "low": 0.0}}}, "columns.a.low: unknown key"),
        ({"columns": {"a": {"values": ["x", 1]}}}, "columns.a.values: element 1 must be a string, is 1"),
        ({"columns": {"a": {"values": []}}}, "columns.a.values: must be an array of 1 to"),
        (
            {"columns": {"a": {"kind": "date"}}},
            "columns.a.kind: must be 'number' or 'category' or 'party', is 'date'",
        ),
        ({"columns": {"a": 5}}, "columns.a: must be a table, is 5"),
        ({"columns": 5}, "columns: must be a table, is 5"),
        ({"max_rows": 0}, "max_rows: must be"),
        ({"unit": "person"}, "id: is needed for unit 'person'"),
        ({"rows_per_person": 2}, "rows_per_person: is for unit 'person'"),
        (
            {"unit": "person", "id": "age", "rows_per_person": 1, "parties_per_person": 1},
            "id: is a column of its own",
        ),
        ({"rows": "secret"}, "rows: must be"),
        ({"colour": 1}, "colour: unknown key"),
    ],
)
def test_a_schema_is_refused_with_every_fault(change: dict[str, object], part: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_schema({**SCHEMA, **change}, "")
    assert part in str(raised.value)
