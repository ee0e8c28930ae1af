"""One line of a file is one record: changing it changes the rows that are read by one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.records.schema import read_schema
from smpc_dp.records.table import read_table

SCHEMA = read_schema(
    {
        "columns": {"age": {"lower": 0.0, "upper": 9.0, "step": 1.0}, "sex": {"values": ["f", "1"]}},
        "max_rows": 100,
    }
)
# Whatever a line of text may hold: quotes, separators, blanks, other marks of ends of lines, letters.
CELLS = st.sampled_from(
    ["", "3", "7.0", "f", "1", "1.0", '"f"', '"', '""', "6 ft", '"a', 'b"', " ", "\x0b", "\u2028", "\x00"]
)
LINES = st.one_of(
    st.lists(CELLS, max_size=5).map(",".join),
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12),
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "rows.csv"


def rows(file: Path, lines: list[bytes], end: bytes) -> Counter[tuple[object, ...]]:
    """The rows of a file of lines, as they are counted."""
    file.write_bytes(end.join([b"age,note,sex", *lines]))
    table = read_table(file, SCHEMA)
    columns = [table.codes["age"], table.present["age"], table.codes["sex"], table.counted]
    return Counter(zip(*(column.tolist() for column in columns), strict=True))


@given(st.lists(LINES, min_size=1, max_size=8), LINES, st.data(), st.sampled_from([b"\n", b"\r\n", b"\r"]))
@settings(max_examples=60)
def test_one_line_is_one_row(
    file: Path, lines: list[str], other: str, data: st.DataObject, end: bytes
) -> None:
    place = data.draw(st.integers(0, len(lines) - 1))
    encoded = [line.encode() for line in lines]
    before = rows(file, encoded, end)
    without = rows(file, [*encoded[:place], *encoded[place + 1 :]], end)
    # bytes that are no UTF-8 are in one line, too
    changed = rows(
        file,
        [
            *encoded[:place],
            other.encode() + data.draw(st.binary(max_size=1)).strip(b"\r\n"),
            *encoded[place + 1 :],
        ],
        end,
    )
    assert (before - without).total() <= 1
    assert not without - before
    assert (before - changed).total() <= 1
    assert (changed - before).total() <= 1
