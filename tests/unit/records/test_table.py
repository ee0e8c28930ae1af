"""Tables: what is on the grid, what is dropped and told to the party, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.records.features import Block, equal_bins, product, selector
from smpc_dp.records.odd_values import odd_values
from smpc_dp.records.requests.records_task import check_columns, dropped_lines
from smpc_dp.records.schema import Number, Schema, read_schema
from smpc_dp.records.table import Table, read_table

COLUMNS = {
    "age": {"lower": 0.0, "upper": 120.0, "step": 1.0, "bins": [18.0, 65.0]},
    "bmi": {"lower": 10.0, "upper": 60.0, "missing": False},
    "sex": {"values": ["f", "m", "x"], "other": "x"},
    "ward": {"values": ["a", "b"]},
}


def schema(**more: object) -> Schema:
    return read_schema({"columns": COLUMNS, "max_rows": 100, **more})


ROWS = {
    "age": [30.4, math.nan, 130.0, -1.0],
    "bmi": [35.0, 10.0, math.nan, math.inf],
    "sex": np.array(["f", "?", None, "m"], dtype=object),
    "ward": np.array(["a", "c", "b", ""], dtype=object),
}


def test_values_are_clipped_and_put_on_the_grid_and_the_party_is_told() -> None:
    table = read_table(ROWS, schema())
    assert table.codes["age"].tolist() == [2 * 30 - 120, 0, 120, -120]
    assert table.present["age"].tolist() == [True, False, True, True]
    assert table.codes["bmi"].tolist() == [0, -(1 << 24), 0, 1 << 24]
    assert table.present["bmi"].all()
    assert table.codes["sex"].tolist() == [0, 2, -1, 1]
    assert table.codes["ward"].tolist() == [0, -1, 1, -1]
    assert table.dropped.to_json() == {
        "rows": 4,
        "missing": {"age": 1, "bmi": 1, "sex": 1, "ward": 1},
        "clipped": {"age": 2, "bmi": 1},
        "undeclared": {"sex": 1, "ward": 1},
        "beyond_person": 0,
        "beyond_rows": 0,
        "shortened": 0,
        "ragged": 0,
        "unclosed": 0,
    }


def test_the_owner_is_told_undeclared_values_and_codes_for_missing_ones() -> None:
    """The most frequent ten, escaped; numbers that repeat out of bounds alone; nothing in a result."""
    sex = ["?"] * 3 + ["\x1b[2J"] + [f"value {index:02}" for index in range(12)] + ["f"] * 14
    given = {"age": [-9.0] * 20 + [999.0] * 2 + [130.0] * 3 + [30.0] * 5, "bmi": [35.0] * 30, "sex": sex}
    given["ward"] = ["a"] * 29 + [""]
    table = read_table(given, schema())
    undeclared, codes = odd_values(given, schema())
    assert undeclared.startswith("sex: undeclared values, with their rows: ? (3), ")
    assert undeclared.endswith(", and 4 more")
    assert "\x1b" not in undeclared
    assert codes.startswith(
        "age: numbers out of bounds that repeat, with their rows: -9 (20), 130 (3): of a code"
    )
    assert table.dropped.clipped == {"age": 25}
    assert "-9" not in str(table.dropped.to_json()) + "".join(dropped_lines(table))
    assert list(odd_values({**given, "age": [30.0] * 30, "sex": ["f"] * 30}, schema())) == []


def test_the_owner_is_told_a_bound_that_one_row_alone_has() -> None:
    """It may be from that row; many rows at a bound, or values beyond it, say that it is not."""
    others = {"bmi": [20.0] * 4, "sex": ["f"] * 4, "ward": ["a"] * 4}

    def lines(*ages: float) -> list[str]:
        return list(odd_values({"age": [*ages], **others}, schema()))

    assert lines(5, 120, 30, 30) == [
        "age: upper = 120 is the extreme value of these rows, in one row: take bounds from what is public, "
        "since all members read them"
    ]
    assert [line.split(" is ")[0] for line in lines(0, 120, 30, 30)] == ["age: lower = 0", "age: upper = 120"]
    assert lines(5, 120, 120, 30) == lines(5, 120, 121, 30) == lines(5, math.nan, math.nan, math.nan) == []
    assert lines(math.nan, math.nan, math.nan, math.nan) == []


def test_a_missing_value_adds_nothing_to_the_sum_and_to_its_count() -> None:
    known = schema()
    table = read_table(ROWS, known)
    assert product(known, over=["age"]).sums(table) == [3]
    assert product(known, "age").sums(table) == [-60 + 120 - 120]
    assert product(known, "bmi", over=["age"]).present == ("age",)
    assert Block().sums(table) == [4]
    assert product(known, by=[selector(known, "ward")]).sums(table) == [1, 1]
    assert product(known, by=[selector(known, "age"), selector(known, "sex")]).sums(table) == [
        0,
        1,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize("edge", [40.0, 0.1, 1 / 3, 17.7, 100 / 7, 119.9])
def test_a_value_on_a_declared_edge_is_in_the_bin_that_begins_there(edge: float) -> None:
    known = read_schema({"columns": {"age": {"lower": 0.0, "upper": 120.0, "bins": [edge]}}, "max_rows": 9})
    table = read_table({"age": [edge, edge - 0.01, edge + 0.01]}, known)
    assert product(known, by=[selector(known, "age")]).sums(table) == [1, 2]


@pytest.mark.parametrize("step", [None, 0.1, 1.0])
@pytest.mark.parametrize("bins", [2, 3, 7, 12, 50, 120])
def test_bins_of_equal_width_begin_at_their_labels(step: float | None, bins: int) -> None:
    column = Number(lower=0.0, upper=120.0, step=step)
    cells = equal_bins("age", column, bins)
    known = Schema(columns={"age": column}, max_rows=2000)
    table = read_table({"age": list(cells.edges)}, known)
    assert cells.index(table).tolist() == list(range(bins))
    if step is not None:
        values = [column.edge(point) for point in range(column.steps + 1)]
        expected = [sum(edge <= value + 1e-9 for edge in cells.edges) - 1 for value in values]
        assert cells.index(read_table({"age": values}, known)).tolist() == expected


def test_each_grid_point_can_have_a_bin() -> None:
    column = Number(lower=0.0, upper=3.0, step=1.0)
    assert equal_bins("a", column, 4).edges == (0.0, 1.0, 2.0, 3.0)


def test_csv_is_as_arrays(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sex,age,extra,bmi,ward\nf,30.4,,35,a\n?,,1,10,c\n,130,2,high,b\nm,-1,3,inf\n", "utf-8")
    from_file, from_arrays = read_table(path, schema()), read_table(ROWS, schema())
    assert msgspec.structs.replace(from_file.dropped, ragged=0) == from_arrays.dropped
    assert from_file.dropped.ragged == 1
    for name in COLUMNS:
        assert from_file.codes[name].tolist() == from_arrays.codes[name].tolist()


def test_pandas_and_parquet_are_as_arrays(tmp_path: Path) -> None:
    """The extra `tables` is not needed by the tests, so this one runs where it is installed."""
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"extra": [1, 2, 3, 4], **ROWS})
    frame["ward"] = frame["ward"].astype("category")
    expected = read_table(ROWS, schema())
    parquet.write_table(pyarrow.Table.from_pandas(frame), tmp_path / "rows.parquet")
    for source in (frame, frame.convert_dtypes(), tmp_path / "rows.parquet"):
        table = read_table(source, schema())
        assert table.dropped == expected.dropped
        for name in COLUMNS:
            assert table.codes[name].tolist() == expected.codes[name].tolist()
    codes = pandas.DataFrame({"site": pandas.array([1, None, 3], dtype="Int64")})
    sites = read_schema({"columns": {"site": {"values": ["1", "2"]}}, "max_rows": 9})
    assert read_table(codes, sites).codes["site"].tolist() == [0, -1, -1]
    with pytest.raises(ConfigError, match="has no column 'age'"):
        read_table(frame.drop(columns="age"), schema())
    assert read_table(frame.assign(age=["a", "b", "3", "d"]), schema()).dropped.missing["age"] == 3


def one_value_more(values: list[Any]) -> list[list[Any]]:
    """Return columns that differ from this one in their last row: what one record could be."""
    strange: list[Any] = [None, math.nan, "text", "", True, 10**400, "1e999", [1], {}, b"\xff", 1j, "1"]
    return [[*values, value] for value in strange]


def test_no_single_value_changes_what_others_count_as() -> None:
    """The type that numpy would take for a list is that of its strangest value."""
    known = schema()
    for ages in one_value_more([30, 31.5, "40"]):
        wards = np.array(["a", "b", "a", "b"], dtype=object)
        rows = {"age": ages, "bmi": [20.0] * 4, "sex": [*"fmf", ages[-1]], "ward": wards}
        table = read_table(rows, known)
        assert table.codes["age"].tolist()[:3] == [-60, 2 * 32 - 120, -40]
        assert table.codes["sex"].tolist()[:3] == [0, 1, 0]
        assert table.dropped.rows == 4


def test_no_single_value_of_pandas_and_parquet_changes_what_others_count_as(tmp_path: Path) -> None:
    """As above, where a package takes the type of its strangest value, or the file has the type of one."""
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    known = read_schema({"columns": {"v": COLUMNS["age"], "c": {"values": ["1", "2"]}}, "max_rows": 9})
    days = pandas.date_range("2020-01-01", periods=3)
    columns = [*one_value_more([1, 2]), [True, False, None], [1, 2, days[0]], [1, 2, 3.5]]
    for values in columns:
        frame = pandas.DataFrame({"v": values, "c": values})
        sources = [frame] if values[-1] == 10**400 else [frame, frame.convert_dtypes()]
        for table in (read_table(source, known) for source in sources):
            expected = [-118, -120] if values[0] is True else [-118, -116]
            assert table.codes["v"].tolist()[:2] == expected
            assert table.codes["c"].tolist()[:2] == ([-1, -1] if values[0] is True else [0, 1])
    zoned = days.tz_localize("UTC")
    binary = pyarrow.array([b"1", b"\xff", None]).cast(pyarrow.binary())
    text = pyarrow.StringArray.from_buffers(3, *binary.buffers()[1:], binary.buffers()[0])
    stored = [[1, 2, None], [True, False, None], ["1", "x", None], days, zoned, [[1.0], [2.0], []]]
    stored += [[None] * 3, pandas.Categorical(["1", "2", None]), text, [1.0, None, 3.0]]
    present = [2, 2, 1, 0, 0, 0, 0, 2, 1, 2]
    for values, number in zip(stored, present, strict=True):
        array = values if isinstance(values, pyarrow.Array) else pyarrow.array(values)
        parquet.write_table(pyarrow.table({"v": array, "c": array}), tmp_path / "rows.parquet")
        table = read_table(tmp_path / "rows.parquet", known)
        assert int(table.present["v"].sum()) == number, values


def test_a_csv_file_that_is_no_utf_8_and_has_a_long_field_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'age,bmi,sex,ward\n30,35,f\xe9,a\n40,35,"' + b"x" * 200_000 + b'",b\n\xff,35,m,\x00\n')
    table = read_table(path, schema())
    assert table.codes["age"].tolist() == [-60, -40, 0]
    assert table.codes["sex"].tolist() == [2, 2, 1]
    assert table.dropped.missing == {"age": 1}


def test_columns_without_a_value_that_counts_are_named() -> None:
    rows = {**ROWS, "age": [*"abcd"], "ward": np.array(["x", "y", None, "z"], dtype=object)}
    assert read_table(rows, schema()).dropped.without_values() == ["age", "ward"]
    assert read_table(ROWS, schema()).dropped.without_values() == []
    assert read_table({name: [] for name in COLUMNS}, schema()).dropped.without_values() == []


def test_times_are_no_numbers() -> None:
    times = np.array(["2020-01-01", "NaT"], dtype="datetime64[ns]")
    known = read_schema({"columns": {"v": COLUMNS["age"], "c": {"values": ["?"]}}, "max_rows": 9})
    dropped = read_table({"v": times, "c": times}, known).dropped
    assert (dropped.missing, dropped.undeclared) == ({"v": 2, "c": 1}, {"c": 1})


def test_whole_numbers_are_categories_also_beside_missing_values() -> None:
    known = read_schema({"columns": {"site": {"values": ["1", "2"]}}, "max_rows": 9})
    for values in ([1, 2, 3], [1.0, 2.0, 1.5], [1.0, 2.0, math.nan], np.array([1, "2", None], dtype=object)):
        assert read_table({"site": values}, known).codes["site"].tolist() == [0, 1, -1]


def test_masked_values_are_missing() -> None:
    known = read_schema({"columns": {name: COLUMNS[name] for name in ("age", "ward")}, "max_rows": 9})
    hidden = [False, True, False]
    table = read_table(
        {
            "age": np.ma.array([10, 20, 30], mask=hidden),
            "ward": np.ma.array(["a", "b", "b"], mask=hidden),
        },
        known,
    )
    assert table.codes["age"].tolist() == [-100, 0, -60]
    assert table.codes["ward"].tolist() == [0, -1, 1]
    assert table.dropped.missing == {"age": 1, "ward": 1}


def test_a_structured_array_has_named_columns() -> None:
    known = read_schema({"columns": {"age": COLUMNS["age"]}, "max_rows": 9})
    rows = np.array([(1.0,), (2.0,)], dtype=[("age", "f8")])
    assert read_table(rows, known).codes["age"].tolist() == [-118, -116]
    with pytest.raises(ConfigError, match="an array needs named columns"):
        read_table(np.zeros((2, 1)), known)


def test_a_column_that_is_missing_or_has_another_length_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        read_table({"age": [1.0], "sex": ["f"]}, schema(), party="alice")
    assert "alice: the table has no column 'bmi' (columns: age, sex)" in str(raised.value)
    assert "'ward'" in str(raised.value)
    with pytest.raises(ConfigError, match="columns must be of one length"):
        read_table({**ROWS, "age": [1.0]}, schema())


def test_a_table_without_rows_has_sums_of_zero() -> None:
    known = schema()
    table = read_table({name: [] for name in COLUMNS}, known)
    assert product(known, "age", by=[selector(known, "sex")]).sums(table) == [0, 0, 0]


def test_rows_beyond_the_bound_are_refused_where_their_number_is_public() -> None:
    rows = {"age": [1.0] * 3}
    column = {"age": COLUMNS["age"]}
    private = read_schema({"columns": column, "max_rows": 2})
    assert read_table(rows, private).dropped.beyond_rows == 1
    with pytest.raises(ConfigError, match="3 public rows, max_rows is 2"):
        read_table(rows, read_schema({"columns": column, "max_rows": 2, "rows": "public"}))


def test_only_rows_that_count_are_held_against_a_private_bound() -> None:
    """Of a person a row is in no sum beyond `rows_per_person`: nothing is clamped, so nothing is refused."""
    unit = {"unit": "person", "id": "who", "rows_per_person": 1, "parties_per_person": 1}
    known = read_schema({"columns": {"age": COLUMNS["age"]}, "max_rows": 2, **unit})
    read_table({"age": [1.0] * 4, "who": ["a", "a", None, "b"]}, known).check_rows("carol")
    table = read_table({"age": [1.0] * 4, "who": ["a", "a", "c", "b"]}, known)
    with pytest.raises(ConfigError, match=r"^max_rows: carol: 3 private rows, max_rows is 2$"):
        table.check_rows("carol")


def test_of_a_person_the_first_rows_count() -> None:
    known = read_schema(
        {
            "columns": {"age": COLUMNS["age"]},
            "max_rows": 9,
            "unit": "person",
            "id": "who",
            "rows_per_person": 2,
            "parties_per_person": 1,
        }
    )
    rows = {"age": [1.0, 2.0, 3.0, 4.0, 5.0], "who": np.array(["a", "b", "a", "a", None], dtype=object)}
    table = read_table(rows, known)
    assert table.counted.tolist() == [True, True, True, False, False]
    assert table.dropped.beyond_person == 2
    assert product(known, "age").sums(table) == [-118 - 116 - 114]
    assert Block().sums(table) == [3]


@pytest.mark.parametrize(("kind", "bits"), [("f8", 53), ("f4", 24), ("f2", 11)])
def test_floats_that_may_be_several_ids_are_no_ids(kind: str, bits: int) -> None:
    """From 2^53 on two whole numbers have one float, and two persons would count as one."""
    person = {"unit": "person", "id": "who", "rows_per_person": 1, "parties_per_person": 1}
    known = read_schema({"columns": {"age": COLUMNS["age"]}, "max_rows": 9, **person})
    ids = np.array([2.0**bits - 1, 2.0**bits, 2.0**bits, -(2.0**bits)], dtype=kind)
    table = read_table({"age": [1.0] * 4, "who": ids}, known)
    assert table.counted.tolist() == [True, False, False, False]
    assert table.dropped.beyond_person == 3
    whole = [2**bits, 2**bits + 1, str(2**bits), None]
    assert read_table({"age": [1.0] * 4, "who": whole}, known).counted.tolist() == [True, True, False, False]


def test_large_sums_are_exact() -> None:
    known = read_schema({"columns": {"v": {"lower": 0.0, "upper": 1.0}}, "max_rows": 1 << 20})
    table = read_table({"v": np.ones(50_000)}, known)
    assert product(known, "v", "v").sums(table) == [50_000 << 48]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="cannot be read as CSV"):
        read_table(tmp_path / "none.csv", schema())
    (tmp_path / "twice.csv").write_text("age,age\n1,2\n", "utf-8")
    with pytest.raises(ConfigError, match="header of different column names"):
        read_table(tmp_path / "twice.csv", schema())


def one_column(name: str, **column: object) -> Schema:
    return read_schema({"columns": {name: column}, "max_rows": 1000})


def read_lines(folder: Path, text: str, known: Schema) -> Table:
    path = folder / "rows.csv"
    path.write_bytes(text.encode())
    return read_table(path, known)


def test_a_quote_that_does_not_close_is_one_row_of_missing_values(tmp_path: Path) -> None:
    known = one_column("age", lower=0.0, upper=100.0, step=1.0)
    lines = ['41,"6 ft', *(f"{age},plain" for age in range(20, 90)), '50,"a ""quoted"", note"', '51,6" tall']
    table = read_lines(tmp_path, "age,note\n" + "\n".join(lines) + "\n", known)
    assert (table.rows, table.dropped.unclosed, table.dropped.ragged) == (73, 1, 0)
    assert table.dropped.missing == {"age": 1}
    assert table.grid("age")[1:].tolist() == [*range(20, 90), 50, 51]


def test_lines_that_are_longer_than_the_header_have_no_values(tmp_path: Path) -> None:
    known = read_schema({"columns": {"age": COLUMNS["age"], "bmi": COLUMNS["bmi"]}, "max_rows": 9})
    table = read_lines(tmp_path, "age,bmi\n34,22,5\n35,23\n36,24,, \n37\n\n", known)
    assert table.present["age"].tolist() == [False, True, True, True]
    assert table.dropped.missing == {"age": 1, "bmi": 2}
    assert (table.rows, table.dropped.ragged) == (4, 2)
    assert any("2 lines have other cells" in line for line in dropped_lines(table))


def test_the_owner_is_told_which_values_of_a_column_count(tmp_path: Path) -> None:
    derived = {"age": {"unit": "years", "start": "born", "end": "2026-07-01", "lower": 0, "upper": 99}}
    columns: dict[str, Any] = {
        "ill": {"lower": 0, "upper": 1, "step": 1},
        "bmi": COLUMNS["bmi"],
        "sex": {"values": ["f"]},
    }
    known = read_schema({"columns": columns, "derived": derived, "max_rows": 9})
    table = read_lines(tmp_path, "born,bmi,sex,ill\n01/07/1950,22,f,2\n1.7.1950,x,,0.5\n", known)
    told = dropped_lines(table)
    for line in (
        "ill: 2 values are missing, or no value 0 or 1",
        "bmi: 1 values are missing, or no number",
        "sex: 1 values are missing",
        "age: 2 values are missing, or no date as 2026-01-31 (born)",
    ):
        assert line in told
    with pytest.raises(ConfigError, match=r"no row has a date as 2026-01-31 \(born\) in column 'age'"):
        check_columns(table)
    empty = read_lines(tmp_path, "born,bmi,sex,ill\n", known)
    assert dropped_lines(empty) == ["0 rows"]
    with pytest.raises(ConfigError, match="table: has no rows"):
        check_columns(empty)


def test_headers_have_blanks_marks_and_unnamed_columns(tmp_path: Path) -> None:
    known = read_schema({"columns": {"age": COLUMNS["age"], "bmi": COLUMNS["bmi"]}, "max_rows": 9})
    for text in ("\ufeff,age, bmi ,,\r\n0,34,22,,\r\n", ',age,"bmi",x,x\r0,34,22,a,b'):
        table = read_lines(tmp_path, text, known)
        assert table.grid("age").tolist() == [34]
        assert table.dropped.rows == 1
        assert not table.dropped.ragged
    with pytest.raises(ConfigError, match="age: table: has 2 columns 'age', needs a header of different"):
        read_lines(tmp_path, "age,bmi,age\n1,2,3\n", known)
    with pytest.raises(ConfigError, match="a quote in the header does not close on its line"):
        read_lines(tmp_path, 'age,bmi,"note\n1,2,3\n', known)
    (tmp_path / "wide.csv").write_bytes("age,bmi\n1,2\n".encode("utf-16"))
    with pytest.raises(ConfigError, match="begins with a byte order mark of UTF-16: save it as UTF-8"):
        read_table(tmp_path / "wide.csv", known)


CATEGORIES: list[tuple[list[str], list[Any], str]] = [
    (["0", "1"], [1.0, None, 0.0], '1.0\n""\n0.0\n'),
    (["0", "1"], [1, "1.00", " 0"], "1\n1.00\n 0\n"),
    (["True", "False"], [True, False, None], "TRUE\nfalse\n<NA>\n"),
    (["01", "1"], ["01", "1", 1.0], "01\n1\n1.0\n"),
]


@pytest.mark.parametrize(("declared", "values", "text"), CATEGORIES)
def test_categories_are_compared_by_value(
    tmp_path: Path, declared: list[str], values: list[Any], text: str
) -> None:
    known = one_column("c", values=declared)
    expected = read_table({"c": values}, known).codes["c"].tolist()
    assert read_lines(tmp_path, f"c\n{text}", known).codes["c"].tolist() == expected
    assert expected.count(-1) == sum(value is None for value in values)


def test_a_tenth_is_the_category_of_any_float_type(tmp_path: Path) -> None:
    known = one_column("c", values=["0.1", "2"])
    for kind in ("f2", "f4", "f8"):
        values = np.array([0.1, 2.0, math.nan], dtype=kind)
        assert read_table({"c": values}, known).codes["c"].tolist() == [0, 1, -1]
    assert read_lines(tmp_path, "c\n.1\n0.10\n2.0\n", known).codes["c"].tolist() == [0, 0, 1]


def test_frames_and_files_of_frames_have_the_same_rows(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    known = read_schema(
        {"columns": {"n": COLUMNS["age"], "c": {"values": ["0", "1"]}, "b": {"values": ["true", "false"]}}}
        | {"max_rows": 9}
    )
    frame = pandas.DataFrame({"n": [True, None, False], "c": [1, None, 0], "b": [True, False, None]})
    frame.to_csv(tmp_path / "rows.csv")
    frame.to_parquet(tmp_path / "rows.parquet")
    tables = [
        read_table(source, known) for source in (frame, tmp_path / "rows.csv", tmp_path / "rows.parquet")
    ]
    for table in tables:
        assert {name: codes.tolist() for name, codes in table.codes.items()} == {
            "n": [2 - 120, 0, -120],
            "c": [1, -1, 0],
            "b": [0, 1, -1],
        }
    both = pandas.DataFrame([[30, 31]], columns=["age", "age"])
    with pytest.raises(ConfigError, match="has 2 columns 'age'"):
        read_table(both, one_column("age", lower=0.0, upper=100.0))


def test_an_underscore_is_no_part_of_a_number(tmp_path: Path) -> None:
    known = one_column("age", lower=0.0, upper=100.0)
    assert read_lines(tmp_path, "age\n1_0\n", known).dropped.missing == {"age": 1}
    assert read_table({"age": ["1_0"]}, known).dropped.missing == {"age": 1}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([""], "'' stands for a missing value in a table"),
        (["a", "NaT"], "'NaT' stands for a missing value"),
        (["<NA>"], "'<NA>' stands for a missing value"),
        (["1", "1.0"], "has a category twice: '1' and '1.0'"),
        (["True", "true "], "has a category twice: 'True' and 'true '"),
    ],
)
def test_categories_that_no_value_or_two_would_have_are_refused(values: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        one_column("c", values=values)


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1e155), (-1e76, 0.0), (0.0, 1e-76), (0.0, np.inf)])
def test_bounds_whose_powers_are_no_numbers_are_refused(lower: float, upper: float) -> None:
    for given in ({"lower": lower, "upper": upper}, Number(lower=lower, upper=upper)):
        with pytest.raises(ConfigError, match=r"columns\.v\.(lower|upper)"):
            read_schema({"columns": {"v": given}, "max_rows": 9})


def test_a_schema_has_numbers_of_numpy() -> None:
    given = {
        "lower": np.float64(0),
        "upper": np.float32(3),
        "bins": np.array([1.0, 2.0]),
        "missing": np.bool_(0),
    }
    known = read_schema({"columns": {"v": given}, "max_rows": np.int64(9)})
    assert known.columns["v"] == Number(lower=0.0, upper=3.0, bins=(1.0, 2.0), missing=False)
    assert read_schema(known.to_json()) == known
    with pytest.raises(ConfigError, match="bins: must be an array, is masked_array"):
        read_schema({"columns": {"v": given | {"bins": np.ma.masked_equal([1.0, 2.0], 2.0)}}, "max_rows": 9})


def test_a_text_of_a_float_that_may_be_several_ids_is_none(tmp_path: Path) -> None:
    person = {"unit": "person", "id": "who", "rows_per_person": 1, "parties_per_person": 1}
    known = read_schema({"columns": {"age": COLUMNS["age"]}, "max_rows": 9, **person})
    table = read_lines(
        tmp_path, f"who,age\n{2**53 + 1}.0,1\n1e+16,2\n{2**53 + 1},3\n1E20,4\n7.0,5\n7,6\n", known
    )
    assert table.counted.tolist() == [False, False, True, True, True, False]
