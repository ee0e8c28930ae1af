"""Loaders of data sets: what is kept, what is left out and said so, what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.capabilities.learn import data
from smpc_dp.errors import ConfigError, LocalError

ROOT = Path(__file__).resolve().parents[3]
WISCONSIN = ROOT / "examples" / "data" / "breast_cancer_wisconsin_original.csv"
LENDING = ROOT / "smpc_dp" / "demo" / "data" / "lending_club.csv"


def test_wisconsin_leaves_out_missing_values() -> None:
    result = data.wisconsin(WISCONSIN)
    assert (result.table.shape, result.left_out, result.features) == ((683, 10), 16, 9)
    assert (result.table[:, :-1].min(), result.table[:, :-1].max()) == (-1, 1)
    assert result.table[:, -1].sum() == 239
    assert result.names[-1] == "malignant"


def test_lending_club_has_the_rate_as_label() -> None:
    result = data.lending_club(LENDING)
    assert result.names[-1] == "int_rate"
    assert "annual_inc" in result.names
    assert 5 < result.table[:, -1].mean() < 20
    assert np.isfinite(result.table).all()
    scaled = result.scaled().table
    assert (scaled[:, :-1].min(), scaled[:, :-1].max()) == (-1, 1)
    np.testing.assert_array_equal(scaled[:, -1], result.table[:, -1])


def test_houses_and_ratings_come_from_a_path(tmp_path: Path) -> None:
    houses = tmp_path / "houses.csv.gz"
    houses.write_bytes(gzip.compress(b"-122.2,37.8,41,880,129,322,126,8.3,452600\n" * 3))
    result = data.california_houses(houses)
    assert result.table.shape == (3, 9)
    assert result.table[0, -1] == pytest.approx(4.526)
    ratings = tmp_path / "ratings.csv"
    ratings.write_text("userId,movieId,rating,timestamp\n1,31,2.5,1260759144\n")
    np.testing.assert_array_equal(data.movielens(ratings).table, [[1, 31, 1260759144, 2.5]])


def test_bundled_sets_need_the_extra() -> None:
    pytest.importorskip("sklearn")
    result = data.bundled("iris")
    assert result.table.shape == (150, 5)
    with pytest.raises(ConfigError, match="known: breast_cancer"):
        data.bundled("mnist")


def test_a_split_gives_every_point_once() -> None:
    result = data.wisconsin(WISCONSIN)
    tables, test = result.split(12, 0.3, 1)
    together = np.concatenate([*tables, test])
    assert len(together) == 683
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(result.table, axis=0))
    assert {len(table) for table in tables} == {39, 40}
    again, _ = result.split(12, 0.3, 1)
    np.testing.assert_array_equal(again[0], tables[0])
    with pytest.raises(ConfigError, match="cannot be given to 700 parties"):
        result.split(700, 0.0, 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("1,2,3\n1,2\n", ":2: 2 columns, the first point has 3"),
        ("1,2\n1,x\n", ":2: column 2 is not a number"),
        ("", "holds no points"),
        ("a,b\n", "holds no points"),
        ("1,2\n1_0,2\n", ":2: column 1 is not a number"),
        ('1,2\n1,"2\n3,4\n', ":2: a quote does not close on its line"),
        ("x,y,\n1,2,\n1,2,3\n", ":3: 3 columns, the header has 2"),
    ],
)
def test_tables_that_are_none_are_refused_by_line(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        data.read_table(path)
    assert str(caught.value).endswith(reason)


def test_tables_have_headers_and_missing_values(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("x,y\n1,\n2,3\n")
    np.testing.assert_array_equal(data.read_table(path), [[1, np.nan], [2, 3]])
    path.write_text("x,y,,\n1,2,,\nTrue,<NA>,,\n")
    np.testing.assert_array_equal(data.read_table(path), [[1, 2], [1, np.nan]])
    path.write_bytes(b"\xef\xbb\xbf1,2\n")
    np.testing.assert_array_equal(data.read_table(path), [[1, 2]])
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(ConfigError, match="must hold a table"):
        data.read_table(tmp_path / "one.npy")


HIDDEN = np.ma.masked_equal(np.array([[0.1, -999.0, 1.0]]), -999.0)


@pytest.mark.parametrize(
    "source",
    [
        HIDDEN,
        list(HIDDEN),
        [[0.1, None, 1]],
        [["0.1", "", True]],
        np.array([[0.1, None, "1.0"]], dtype=object),
        np.array([[0.1, np.nan, 1]], dtype=np.float64),
    ],
    ids=repr,
)
def test_missing_values_of_arrays_are_missing_however_they_are_marked(source: object) -> None:
    np.testing.assert_array_equal(data.read_source(source, (), "ann"), [[0.1, np.nan, 1.0]])


def test_named_columns_are_numbers_by_the_same_rules(tmp_path: Path) -> None:
    columns = {
        "x": [1, None, "2.0"],
        "y": np.ma.masked_equal([1, 2, 3], 2),
        "z": [True, False, np.bool_(True)],
    }
    expected = [[1, 1, 1], [np.nan, np.nan, 0], [2, 3, 1]]
    np.testing.assert_array_equal(data.read_source(columns, list("xyz"), "ann"), expected)
    path = tmp_path / "ann.csv"
    path.write_text("z,y, x,,\nTRUE,1,1,,\nfalse,nan,,,\n1,3,2.0,,\n", "utf-8-sig")
    np.testing.assert_array_equal(data.read_source(path, list("xyz"), "ann"), expected)
    for wrong in ("1_0", "text", [1]):
        with pytest.raises(ConfigError, match="x: ann: must be a column of numbers, row 1 has none"):
            data.read_source({"x": [1, wrong]}, ["x"], "ann")
    for table in ([[1.0, "text"]], np.array([["1_0", "2"]], dtype=object)):
        with pytest.raises(
            ConfigError, match=r"ann: must be a table of numbers, row 0, column [01] has none"
        ):
            data.read_source(table, (), "ann")
    with pytest.raises(ConfigError, match="must be a table of numbers"):
        data.read_source([[1.0], [1.0, 2.0]], (), "ann")
    path.write_text("x,x\n1,2\n")
    with pytest.raises(ConfigError, match="x: ann: has 2 columns 'x'"):
        data.read_source(path, ["x"], "ann")


def test_missing_values_of_a_set_are_refused_by_line(tmp_path: Path) -> None:
    path = tmp_path / "set.csv"
    header = "Id,a,b,c,d,e,f,g,h,i,Class\n"
    for content, load, reason in (
        (header + "1,1,1,1,1,1,1,1,1,nan,benign\n", data.wisconsin, ":2: a feature is outside 1 to 10"),
        (header + "1,1,1,1,1,1,1,1,1,,benign\n", data.wisconsin, "holds no points without a missing value"),
        ("a,int_rate\n1,2\n2,\n", data.lending_club, ":3: a value is missing"),
        ("a,int_rate\n1,2\n2,inf\n", data.lending_club, ":3: a value is missing"),
        ("userId,movieId,rating,timestamp\n1,2,,4\n", data.movielens, ":2: a rating is missing"),
    ):
        path.write_text(content)
        with pytest.raises(ConfigError, match=reason):
            load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    for content, load, reason in (
        ("Id,a,Class\n1,2,benign\n", data.wisconsin, "needs 11 columns"),
        ("a,b\n1,2\n", data.lending_club, "int_rate"),
        ("1,2\n", data.california_houses, "has 2 columns, needs 9"),
        ("a,b\n1,2\n", data.movielens, "needs the columns userId"),
    ):
        path.write_text(content)
        with pytest.raises(ConfigError, match=reason):
            load(path)
    with pytest.raises(LocalError, match="there is no such file; needed is MovieLens"):
        data.movielens(tmp_path / "none.csv")
    broken = tmp_path / "broken.csv.gz"
    broken.write_bytes(gzip.compress(b"1,2\n")[:-6])
    with pytest.raises(ConfigError, match="cannot be read as text"):
        data.california_houses(broken)
