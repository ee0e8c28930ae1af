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
from smpc_dp.records.schema import Number, Schema, read_schema
from smpc_dp.records.table import read_table

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
