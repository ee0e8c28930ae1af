"""Circuit files that are wrong, one fault each: the reader names the line."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from smpc_dp.capabilities.pairs.circuits.bristol import (
    MAX_LINE_BYTES,
    format_bristol,
    parse_bristol,
    read_bristol,
)
from smpc_dp.capabilities.pairs.circuits.circuit import MAX_GATES, MAX_VALUES, MAX_WIRES
from smpc_dp.errors import ConfigError, LocalError

GOOD = """2 5
2 1 2
1 1

2 1 0 1 3 AND
2 1 3 2 4 XOR
"""
ADDS_NOTHING = "0 1\n1 1\n1 1\n"


def changed(line: int, text: str) -> str:
    lines = GOOD.splitlines()
    lines[line - 1] = text
    return "\n".join(lines) + "\n"


CASES: list[tuple[str, str, int, str]] = [
    ("empty", "", 1, "ends before its header"),
    ("blank", "\n \n", 3, "ends before its header"),
    ("header of one number", changed(1, "2"), 1, "1 words, not the 2"),
    ("comment first", "# adds\n2 5\n", 1, "a comment; Bristol Fashion has none"),
    ("comment beside a gate", changed(5, "// carry"), 5, "a comment; Bristol Fashion has none"),
    ("header of three numbers", changed(1, "2 5 1"), 1, "3 words, not the 2"),
    ("negative count", changed(1, "-2 5"), 1, "'-2' is not a decimal number"),
    ("hexadecimal", changed(1, "0x2 5"), 1, "'0x2' is not a decimal number"),
    ("leading zero", changed(1, "02 5"), 1, "'02' is not a decimal number"),
    ("underscore", changed(5, "2 1 0 1 1_0 AND"), 5, "'1_0' is not a decimal number"),
    ("digits of another script", changed(5, "2 1 0 1 ٣ AND"), 5, "is not a decimal number"),
    ("too many digits", changed(1, "2 99999999999"), 1, "is not a decimal number"),
    ("too many gates", changed(1, f"{MAX_GATES + 1} {MAX_WIRES}"), 1, f"more than {MAX_GATES}"),
    ("too many wires", changed(1, f"2 {MAX_WIRES + 1}"), 1, f"more than {MAX_WIRES}"),
    ("too many values", changed(2, f"{MAX_VALUES + 1} 1 2"), 2, f"more than {MAX_VALUES}"),
    ("too few widths", changed(2, "3 1 2"), 2, "2 widths for 3 input values"),
    ("too many widths", changed(3, "1 1 1"), 3, "2 widths for 1 output values"),
    ("older format", "2 5\n1 2 1\n\n2 1 0 1 3 AND\n2 1 3 2 4 XOR\n", 2, "older Bristol Format"),
    ("input of no bits", changed(2, "2 0 3"), 2, "input value 0: 0 bits"),
    ("output of no bits", changed(3, "2 1 0"), 3, "output value 1: 0 bits"),
    ("no output", changed(3, "0"), 3, "no output value"),
    ("more inputs than wires", changed(2, "2 3 3"), 3, "6 input wires of 5"),
    ("more outputs than wires", changed(3, "1 6"), 3, "6 output wires of 5"),
    ("more gates than wires", changed(1, "3 5"), 1, "3 inputs and 3 gates give more than 5"),
    ("no widths", "2 5\n", 2, "ends before the widths of the inputs"),
    ("no output widths", "2 5\n2 1 2\n", 3, "ends before the widths of the outputs"),
    ("truncated between gates", GOOD[: GOOD.index("2 1 3 2")], 6, "ends before gate 2 of 2"),
    ("truncated in a gate", GOOD[:-5], 6, "'4' is not a gate"),
    ("trailing gate", GOOD + "1 1 0 4 INV\n", 7, "text after the last of 2 gates"),
    ("trailing garbage", GOOD + "\n\nend", 9, "text after the last of 2 gates"),
    ("comment", changed(4, "# a circuit"), 4, "a comment; Bristol Fashion has none"),
    ("unknown gate", changed(5, "2 1 0 1 3 NAND"), 5, "'NAND' is not a gate"),
    ("small letters", changed(5, "2 1 0 1 3 and"), 5, "'and' is not a gate"),
    ("gate without counts", changed(5, "AND"), 5, "AND takes 2 and gives 1"),
    ("AND of one", changed(5, "1 1 0 3 AND"), 5, "AND takes 2 and gives 1"),
    ("INV of two", changed(5, "2 1 0 1 3 INV"), 5, "INV takes 1 and gives 1"),
    ("two outputs", changed(5, "2 2 0 1 3 4 AND"), 5, "AND takes 2 and gives 1"),
    ("word missing", changed(5, "2 1 0 3 AND"), 5, "5 words, not the 6"),
    ("word too many", changed(5, "2 1 0 1 2 3 AND"), 5, "7 words, not the 6"),
    ("operand out of range", changed(5, "2 1 0 5 3 AND"), 5, "wire 5, but there are 5"),
    ("result out of range", changed(5, "2 1 0 1 5 AND"), 5, "wire 5, but there are 5"),
    ("cycle of one gate", changed(5, "2 1 0 3 3 AND"), 5, "wire 3 is used before it is given"),
    ("cycle of two gates", changed(5, "2 1 0 4 3 AND"), 5, "wire 4 is used before it is given"),
    ("given twice", changed(6, "2 1 0 2 3 XOR"), 6, "wire 3 is given twice"),
    ("input given", changed(5, "2 1 0 1 2 AND"), 5, "wire 2 is given twice"),
    ("constant of two", changed(5, "1 1 2 3 EQ"), 5, "constant 2, not 0 or 1"),
    ("wire never given", "2 6\n2 1 2\n1 1\n2 1 0 1 3 AND\n2 1 3 2 5 XOR\n", 1, "wire 4 of 6 wires is never"),
    ("output never given", "2 6\n2 1 2\n1 1\n2 1 0 1 3 AND\n2 1 3 2 4 XOR\n", 1, "output 5 of 6 wires"),
    ("odd MAND", changed(5, "3 1 0 1 2 3 MAND"), 5, "MAND takes 2 and gives 1"),
    ("MAND of nothing", changed(5, "0 0 MAND"), 5, "at least one wire"),
    ("MAND of itself", "1 6\n2 2 2\n1 2\n4 2 0 1 2 4 4 5 MAND\n", 4, "wire 4 is used before"),
    ("MAND cut short", "1 6\n2 2 2\n1 2\n4 2 0 1 2 3 4 MAND\n", 4, "8 words, not the 9"),
    ("MAND that claims much", changed(5, "4294967294 2147483647 0 1 3 MAND"), 5, "6 words, not the"),
    ("long line", changed(5, "2 1 0 1 3 AND" + " " * MAX_LINE_BYTES), 5, f"longer than {MAX_LINE_BYTES}"),
]


@pytest.mark.parametrize(("text", "line", "reason"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_each_fault_names_its_line(text: str, line: int, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_bristol(text.encode(), "it.txt")
    (fault,) = caught.value.issues
    assert fault.where == f"it.txt:{line}"
    assert reason in fault.reason


def test_a_header_at_the_limits_costs_a_byte_a_wire() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="ends before gate 2"):
            parse_bristol(f"{MAX_GATES} {MAX_WIRES}\n1 1\n1 1\n1 1 0 1 INV\n".encode())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_WIRES + (4 << 20)


def test_the_unchanged_file_is_read() -> None:
    assert parse_bristol(GOOD.encode()).evaluate([1, 0b11]) == [0]
    assert parse_bristol(GOOD.encode()).evaluate([1, 0b01]) == [1]
    assert parse_bristol(ADDS_NOTHING.encode()).evaluate([1]) == [1]


def test_spaces_blank_lines_and_line_ends_mean_nothing() -> None:
    spaced = "\n" + GOOD.replace(" ", " \t").replace("\n", " \r\n\r\n") + "\n\n"
    assert parse_bristol(spaced.encode()) == parse_bristol(GOOD.encode())
    assert parse_bristol(GOOD.rstrip().encode()) == parse_bristol(GOOD.encode())


def test_every_kind_of_gate_is_read() -> None:
    text = "6 11\n2 2 2\n2 1 6\n1 1 1 4 EQ\n4 2 0 1 2 3 5 6 MAND\n1 1 5 7 INV\n1 1 6 8 EQW\n2 1 7 8 9 XOR\n"
    text += "2 1 9 4 10 AND\n"
    circuit = parse_bristol(text.encode())
    assert circuit.and_count == 3
    for x in range(4):
        for y in range(4):
            low, high = x & y & 1, (x & y) >> 1
            mixed = (1 - low) ^ high
            assert circuit.evaluate([x, y]) == [
                1,
                low | high << 1 | (1 - low) << 2 | high << 3 | mixed << 4 | mixed << 5,
            ]


def test_what_is_written_has_one_form() -> None:
    mand = b"1 6\n2 2 2\n1 2\n4 2 0 1 2 3 4 5 MAND\n"
    text = format_bristol(parse_bristol(mand))
    assert text == b"2 6\n2 2 2\n1 2\n\n2 1 0 2 4 AND\n2 1 1 3 5 AND\n"
    assert format_bristol(parse_bristol(text)) == text


def test_the_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.txt"
    path.write_text(changed(5, "2 1 0 1 3 NAND"))
    with pytest.raises(ConfigError, match=r"broken\.txt:5: 'NAND'"):
        read_bristol(path)
    with pytest.raises(LocalError, match=r"absent\.txt"):
        read_bristol(tmp_path / "absent.txt")
