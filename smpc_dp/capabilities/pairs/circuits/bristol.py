"""Bristol Fashion, the published format of circuits: a strict reader and one canonical writer.

[https://nigelsmart.github.io/MPC-Circuits] A file is lines of decimal numbers and one word, separated by
spaces or tabs; blank lines mean nothing.

    gates wires
    inputs width ... width
    outputs width ... width
    2 1 a b out XOR | AND          1 1 a out INV | EQW          1 1 constant out EQ
    2n n a1 ... an b1 ... bn out1 ... outn MAND                 (n AND gates, and one of the header's gates)

Every wire is an input or given once, before it is used; the last wires are the outputs.
"""

from __future__ import annotations

import io
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from smpc_dp.capabilities.pairs.circuits.circuit import (
    MAX_GATES,
    MAX_VALUES,
    MAX_WIRES,
    Circuit,
    Op,
    check_shape,
)
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError

# A line of a MAND with 60,000 gates still fits.
MAX_LINE_BYTES = 1 << 21

_NUMBER = re.compile(rb"0|[1-9][0-9]{0,9}")
_BINARY = {b"XOR": Op.XOR, b"AND": Op.AND}
_UNARY = {b"INV": Op.INV, b"EQW": Op.EQW, b"EQ": Op.EQ}


def read_bristol(path: Path) -> Circuit:
    """Read a circuit from a file in Bristol Fashion; raise ConfigError if malformed, or LocalError.

    Raises ConfigError that names file and line for anything but a valid circuit within the limits of
    `Circuit` and MAX_LINE_BYTES bytes a line; LocalError when the file cannot be read.
    """
    try:
        with path.open("rb") as stream:
            return _Reader(stream, str(path)).circuit()
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}") from error


def parse_bristol(text: bytes, name: str = "circuit") -> Circuit:
    """Read a circuit from bytes, like `read_bristol`; `name` stands for the file in errors."""
    return _Reader(io.BytesIO(text), name).circuit()


def format_bristol(circuit: Circuit) -> bytes:
    """Return a circuit as the canonical bytes of its Bristol file, which `parse_bristol` reads back."""
    lines = [
        f"{circuit.n_gates} {circuit.n_wires}",
        " ".join(map(str, (len(circuit.inputs), *circuit.inputs))),
        " ".join(map(str, (len(circuit.outputs), *circuit.outputs))),
        "",
    ]
    for op, a, b, out in circuit.gates():
        operands = f"2 1 {a} {b}" if op in (Op.XOR, Op.AND) else f"1 1 {a}"
        lines.append(f"{operands} {out} {Op(op).name}")
    return "\n".join([*lines, ""]).encode()


class _Reader:
    """Parser of a circuit file in Bristol Fashion, which reads one file and reports faults by line.

    Memory is bounded by the file's content: a header that claims many wires costs at most one byte per wire.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self._name = name
        self._line = 0
        self._columns = (array("B"), array("I"), array("I"), array("I"))
        self._wires = 0
        self._given = bytearray()

    def circuit(self) -> Circuit:
        """Parse the whole file, and return its circuit."""
        lines = self._lines()
        gates, self._wires = self._sizes(lines)
        size_line = self._line
        inputs = self._widths(lines, "input")
        outputs = self._widths(lines, "output")
        if sum(inputs) > self._wires:
            self._fail(f"{sum(inputs)} input wires of {self._wires} wires")
        if sum(inputs) + gates > self._wires:
            self._fail(
                f"{sum(inputs)} inputs and {gates} gates give more than {self._wires} wires", size_line
            )
        if sum(outputs) > self._wires:
            self._fail(f"{sum(outputs)} output wires of {self._wires} wires")
        if not outputs:
            self._fail("no output value")
        self._given = bytearray(self._wires)
        self._given[: sum(inputs)] = b"\1" * sum(inputs)
        for count in range(gates):
            self._gate(self._next(lines, f"gate {count + 1} of {gates}"))
        for _ in lines:
            self._fail(f"text after the last of {gates} gates")
        missing = self._given.find(0)
        if missing >= 0:
            kind = "output" if missing >= self._wires - sum(outputs) else "wire"
            self._fail(f"{kind} {missing} of {self._wires} wires is never given", size_line)
        op, *columns = self._columns
        check_shape(inputs, outputs, len(op), self._wires, f"{self._name}:{size_line}")
        arrays = (np.array(column, dtype=np.uint32) for column in columns)
        return Circuit(inputs, outputs, self._wires, np.array(op, dtype=np.uint8), *arrays)

    def _lines(self) -> Iterator[list[bytes]]:
        """Yield the words of each line that is not blank; ConfigError for comments and long lines."""
        while line := self._stream.readline(MAX_LINE_BYTES + 1):
            self._line += 1
            if len(line) > MAX_LINE_BYTES:
                self._fail(f"longer than {MAX_LINE_BYTES} bytes")
            words = line.split()
            if words and words[0].startswith((b"#", b"//")):
                self._fail("a comment; Bristol Fashion has none")
            if words:
                yield words

    def _next(self, lines: Iterator[list[bytes]], wanted: str) -> list[bytes]:
        """Return the words of the next line; raise ConfigError if the file ends."""
        words = next(lines, None)
        if words is None:
            self._line += 1
            self._fail(f"the file ends before {wanted}")
        return words

    def _sizes(self, lines: Iterator[list[bytes]]) -> tuple[int, int]:
        """Parse the first line of the file: return the numbers of gates and of wires."""
        words = self._next(lines, "its header")
        if len(words) != 2:
            self._fail(f"{len(words)} words, not the 2 numbers of gates and wires")
        gates, wires = (self._number(word) for word in words)
        if gates > MAX_GATES:
            self._fail(f"{gates} gates, more than {MAX_GATES}")
        if wires > MAX_WIRES:
            self._fail(f"{wires} wires, more than {MAX_WIRES}")
        return gates, wires

    def _widths(self, lines: Iterator[list[bytes]], kind: str) -> tuple[int, ...]:
        """Parse and return the widths in bits of all inputs, or of all outputs; or raise ConfigError."""
        words = self._next(lines, f"the widths of the {kind}s")
        count, *widths = (self._number(word) for word in words)
        if count > MAX_VALUES:
            self._fail(f"{count} {kind} values, more than {MAX_VALUES}")
        if len(widths) != count:
            old = " (three numbers are the header of the older Bristol Format)" if len(words) == 3 else ""
            self._fail(f"{len(widths)} widths for {count} {kind} values{old}")
        for index, width in enumerate(widths):
            if width < 1:
                self._fail(f"{kind} value {index}: 0 bits")
        return tuple(widths)

    def _gate(self, words: list[bytes]) -> None:
        """Parse a line that describes a gate, and add the gate to the circuit."""
        kind = words[-1]
        if kind in _BINARY:
            self._expect(words, 2, 1)
            a, b, out = self._input_wire(words[2]), self._input_wire(words[3]), self._output_wire(words[4])
            self._append(_BINARY[kind], a, b, out)
        elif kind in _UNARY:
            self._expect(words, 1, 1)
            a = self._constant(words[2]) if kind == b"EQ" else self._input_wire(words[2])
            self._append(_UNARY[kind], a, 0, self._output_wire(words[3]))
        elif kind == b"MAND":
            count = self._number(words[1]) if len(words) > 2 else 0
            if count < 1:
                self._fail("a MAND gives at least one wire")
            self._expect(words, 2 * count, count)
            operands = [self._input_wire(word) for word in words[2 : 2 + 2 * count]]
            outs = [self._output_wire(word) for word in words[2 + 2 * count : -1]]
            left, right = operands[:count], operands[count:]
            for a, b, out in zip(left, right, outs, strict=True):
                self._append(Op.AND, a, b, out)
        else:
            self._fail(f"'{_shown(kind)}' is not a gate: XOR, AND, INV, EQ, EQW or MAND")

    def _append(self, *gate: int) -> None:
        """Append a gate (type, two input wires, output wire) to the circuit read so far."""
        for column, number in zip(self._columns, gate, strict=True):
            column.append(number)

    def _expect(self, words: list[bytes], operands: int, outs: int) -> None:
        """Raise ConfigError unless a gate's line states these operand counts and has the fitting length."""
        kind = _shown(words[-1])
        if len(words) < 3 or [self._number(word) for word in words[:2]] != [operands, outs]:
            self._fail(f"{kind} takes {operands} and gives {outs}, so its line begins '{operands} {outs}'")
        wanted = operands + outs + 3
        if len(words) != wanted:
            self._fail(f"{len(words)} words, not the {wanted} of this {kind}")

    def _number(self, word: bytes) -> int:
        """Parse a word as a decimal number; raise ConfigError for other words."""
        if not _NUMBER.fullmatch(word):
            self._fail(f"'{_shown(word)}' is not a decimal number of at most 10 digits")
        return int(word)

    def _wire(self, word: bytes) -> int:
        """Parse a word as the number of one of the circuit's wires; raise ConfigError for other words."""
        wire = self._number(word)
        if wire >= self._wires:
            self._fail(f"wire {wire}, but there are {self._wires}")
        return wire

    def _input_wire(self, word: bytes) -> int:
        """Parse the number of a wire that a gate reads; raise ConfigError if the wire has no value yet."""
        wire = self._wire(word)
        if not self._given[wire]:
            self._fail(f"wire {wire} is used before it is given")
        return wire

    def _output_wire(self, word: bytes) -> int:
        """Parse the number of a wire that a gate sets, and mark it as set; ConfigError if set before."""
        wire = self._wire(word)
        if self._given[wire]:
            self._fail(f"wire {wire} is given twice")
        self._given[wire] = 1
        return wire

    def _constant(self, word: bytes) -> int:
        """Parse a word as the constant 0 or 1; raise ConfigError for other words."""
        value = self._number(word)
        if value > 1:
            self._fail(f"constant {value}, not 0 or 1")
        return value

    def _fail(self, reason: str, line: int | None = None) -> NoReturn:
        """Raise ConfigError with this reason, naming the file and the line."""
        raise ConfigError.at(f"{self._name}:{line or self._line}", reason, ConfigCheck.FORMAT)


def _shown(word: bytes) -> str:
    """Return the beginning of a word of a file as text, short enough for error messages."""
    return word[:20].decode("ascii", "replace")
