"""Boolean circuits: gates as arrays, a digest, and evaluation in the clear.

Wires are numbered from 0. The first are the inputs, value after value, and the last are the outputs;
within a value the least significant bit comes first. Gates are in an order in which they can be
evaluated. These are the conventions of Bristol Fashion.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import ConfigCheck, ConfigError

# A circuit at a limit takes 208 MiB in arrays.
MAX_GATES = 1 << 24
MAX_WIRES = 1 << 25
MAX_VALUES = 1 << 16

WORD_BITS = 64

T = TypeVar("T")


class Op(IntEnum):
    """Kinds of gates of a circuit in Bristol Fashion; its MAND counts as many AND gates."""

    XOR = 0
    AND = 1
    INV = 2
    EQ = 3
    EQW = 4


@dataclass(frozen=True, eq=False, repr=False)
class Circuit:
    """A checked, immutable Boolean circuit: widths of inputs and outputs, and gates in evaluation order.

    `inputs` and `outputs` are the widths of the values in bits. Gate i computes `op[i]` (see `Op`) of the
    wires `a[i]` and `b[i]` into the wire `out[i]`. INV and EQW read `a` alone; EQ reads no wire, its `a`
    is the constant 0 or 1. `b` is 0 where it is not read. The arrays are read-only, `op` of uint8 and the
    others of uint32, one element per gate.

    Raises ConfigError, naming the gate, for anything else and for a circuit over the limits
    (MAX_GATES gates, MAX_WIRES wires, MAX_VALUES inputs or outputs).
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    n_wires: int
    op: NDArray[np.uint8]
    a: NDArray[np.uint32]
    b: NDArray[np.uint32]
    out: NDArray[np.uint32]

    def __post_init__(self) -> None:
        for name, dtype in (("op", np.uint8), ("a", np.uint32), ("b", np.uint32), ("out", np.uint32)):
            array = getattr(self, name)
            if array.dtype != dtype or array.ndim != 1 or array.size != self.op.size:
                raise ConfigError.at(
                    name, f"not {self.op.size} elements of {dtype.__name__}", ConfigCheck.TYPE
                )
            own = np.array(array)
            own.flags.writeable = False
            object.__setattr__(self, name, own)
        check_shape(self.inputs, self.outputs, self.op.size, self.n_wires, "circuit")
        self._check_gates()

    def _check_gates(self) -> None:
        """Raise ConfigError that names the gate unless every gate reads and sets valid wires."""
        unary = (self.op == Op.INV) | (self.op == Op.EQW)
        binary = (self.op == Op.XOR) | (self.op == Op.AND)
        constant = self.op == Op.EQ
        _refuse(~(unary | binary | constant), "op", "not one of the five kinds")
        _refuse(constant & (self.a > 1), "a", "a constant that is not 0 or 1")
        _refuse(~binary & (self.b != 0), "b", "not 0 in a gate of one operand")
        _refuse(self.out >= self.n_wires, "out", f"not one of {self.n_wires} wires")
        _refuse(self.out < self.n_inputs, "out", "an input")
        _refuse(~constant & (self.a >= self.n_wires), "a", f"not one of {self.n_wires} wires")
        _refuse(binary & (self.b >= self.n_wires), "b", f"not one of {self.n_wires} wires")
        index = np.full(self.n_wires, -1, dtype=np.int32)
        order = np.arange(self.op.size, dtype=np.int32)
        # Of several gates that give a wire one keeps its place, so the others are seen.
        index[self.out] = order
        _refuse(index[self.out] != order, "out", "a wire that another gate gives")
        _refuse(~constant & (index[np.where(constant, 0, self.a)] >= order), "a", "used before it is given")
        _refuse(binary & (index[np.where(binary, self.b, 0)] >= order), "b", "used before it is given")

    @property
    def n_inputs(self) -> int:
        """The number of input wires, over all input values together."""
        return sum(self.inputs)

    @property
    def n_outputs(self) -> int:
        """The number of output wires, over all output values together."""
        return sum(self.outputs)

    @property
    def n_gates(self) -> int:
        """The number of gates of every kind."""
        return int(self.op.size)

    def count(self, op: Op) -> int:
        """Return how many gates of the circuit are of the kind `op`."""
        return int(np.count_nonzero(self.op == op))

    @property
    def and_count(self) -> int:
        """The number of AND gates, the only gates that cost tables when the circuit is garbled."""
        return self.count(Op.AND)

    @property
    def xor_count(self) -> int:
        """The number of XOR gates, which need no tables when the circuit is garbled."""
        return self.count(Op.XOR)

    @cached_property
    def and_depth(self) -> int:
        """The greatest number of AND gates on any path through the circuit."""
        depth = [0] * self.n_wires
        for op, a, b, out in self.gates():
            if op == Op.AND:
                depth[out] = max(depth[a], depth[b]) + 1
            elif op == Op.XOR:
                depth[out] = max(depth[a], depth[b])
            elif op != Op.EQ:
                depth[out] = depth[a]
        return max(depth, default=0)

    @cached_property
    def digest(self) -> bytes:
        """Hash of 32 bytes that identifies the circuit: widths, wires, and all gates in order."""
        return digest(
            Label.CIRCUIT,
            _encode(self.inputs),
            _encode(self.outputs),
            encode_uint(self.n_wires),
            self.op.tobytes(),
            *(array.astype("<u4").tobytes() for array in (self.a, self.b, self.out)),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Circuit) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return (
            f"Circuit(inputs={self.inputs}, outputs={self.outputs}, n_wires={self.n_wires}, "
            f"and_count={self.and_count}, xor_count={self.xor_count}, digest={self.digest.hex()[:16]})"
        )

    def evaluate(self, inputs: Sequence[int]) -> list[int]:
        """Evaluate the circuit on plain integers, one for each input value; return the outputs.

        Raises ConfigError, naming the value and its width, for a wrong number of values or one that is
        negative or too wide.
        """
        self._check_number(len(inputs))
        wires: list[int] = []
        for index, (value, width) in enumerate(zip(inputs, self.inputs, strict=True)):
            check_value(value, width, f"inputs[{index}]")
            wires.extend(value >> bit & 1 for bit in range(width))
        wires.extend([0] * (self.n_wires - len(wires)))
        for op, a, b, out in self.gates():
            if op == Op.XOR:
                wires[out] = wires[a] ^ wires[b]
            elif op == Op.AND:
                wires[out] = wires[a] & wires[b]
            elif op == Op.INV:
                wires[out] = wires[a] ^ 1
            else:
                wires[out] = a if op == Op.EQ else wires[a]
        return [sum(bit << i for i, bit in enumerate(value)) for value in self.output_values(wires)]

    def evaluate_many(self, inputs: Sequence[NDArray[np.uint64]]) -> list[NDArray[np.uint64]]:
        """Evaluate the circuit on many instances, packed 64 to a word; return the outputs, packed alike.

        `inputs` has one array for each input value, of shape (width, words): bit j of word w of row i is
        bit i of the value in instance 64 w + j. The results are laid out in the same way; see `pack` and
        `unpack`. Bits beyond the last instance are computed like any other. Memory is one row for each
        wire that is still needed.

        Raises ConfigError for a wrong number of arrays, a wrong shape, or another dtype.
        """
        self._check_number(len(inputs))
        words = inputs[0].shape[-1] if inputs else 1
        rows: list[NDArray[np.uint64] | None] = []
        for index, (array, width) in enumerate(zip(inputs, self.inputs, strict=True)):
            if array.shape != (width, words) or array.dtype != np.uint64:
                raise ConfigError.at(
                    f"inputs[{index}]",
                    f"not an array of uint64 of shape ({width}, {words})",
                    ConfigCheck.TYPE,
                )
            rows.extend(array)
        rows.extend([None] * (self.n_wires - len(rows)))
        last_use = self._last_use.tolist()
        for gate, (op, a, b, out) in enumerate(self.gates()):
            if op == Op.EQ:
                rows[out] = np.full(words, ~np.uint64(0) if a else np.uint64(0))
                continue
            left, right = _row(rows, a), _row(rows, b)
            if op == Op.XOR:
                rows[out] = left ^ right
            elif op == Op.AND:
                rows[out] = left & right
            else:
                rows[out] = ~left if op == Op.INV else left
            if last_use[a] == gate:
                rows[a] = None
            if last_use[b] == gate:
                rows[b] = None
        return [
            np.stack([_row(rows, wire) for wire in value])
            for value in self.output_values(range(self.n_wires))
        ]

    @cached_property
    def _last_use(self) -> NDArray[np.int64]:
        """Return, for each wire, the last gate that reads it, or -1 for outputs, which stay stored."""
        last = np.full(self.n_wires, -1, dtype=np.int64)
        order = np.arange(self.n_gates, dtype=np.int64)
        reads = self.op != Op.EQ
        np.maximum.at(last, self.a[reads], order[reads])
        # Gates of one operand name wire 0 as the second: harmless, it only lives a little longer.
        np.maximum.at(last, self.b[reads], order[reads])
        last[self.n_wires - self.n_outputs :] = -1
        return last

    def gates(self) -> Iterable[tuple[int, int, int, int]]:
        """Return (op, a, b, out) of every gate, in order."""
        return zip(self.op.tolist(), self.a.tolist(), self.b.tolist(), self.out.tolist(), strict=True)

    def output_values(self, wires: Sequence[T]) -> list[Sequence[T]]:
        """Return the items of the output wires, out of one item per wire, grouped by output value."""
        ends = [*itertools.accumulate(self.outputs, initial=self.n_wires - self.n_outputs)]
        return [wires[start:end] for start, end in itertools.pairwise(ends)]

    def _check_number(self, given: int) -> None:
        """Raise ConfigError unless `given`, a number of input values, is the circuit's own."""
        if given != len(self.inputs):
            raise ConfigError.at("inputs", f"{given} values, not {len(self.inputs)}", ConfigCheck.SHAPE)


def check_shape(inputs: Sequence[int], outputs: Sequence[int], gates: int, wires: int, where: str) -> None:
    """Raise ConfigError, which names `where`, unless a circuit's sizes fit each other and the limits."""
    for name, widths in (("input", inputs), ("output", outputs)):
        if len(widths) > MAX_VALUES:
            raise ConfigError.at(
                where, f"{len(widths)} {name} values, more than {MAX_VALUES}", ConfigCheck.TOO_LARGE
            )
        for index, width in enumerate(widths):
            if not 1 <= width <= MAX_WIRES:
                raise ConfigError.at(
                    where, f"{name} value {index}: {width} bits, not 1 to {MAX_WIRES}", ConfigCheck.RANGE
                )
    if not outputs:
        raise ConfigError.at(where, "no output value", ConfigCheck.MISSING)
    if gates > MAX_GATES:
        raise ConfigError.at(where, f"{gates} gates, more than {MAX_GATES}", ConfigCheck.TOO_LARGE)
    if wires > MAX_WIRES:
        raise ConfigError.at(where, f"{wires} wires, more than {MAX_WIRES}", ConfigCheck.TOO_LARGE)
    if wires != sum(inputs) + gates:
        reason = f"{wires} wires, but {sum(inputs)} inputs and {gates} gates give {sum(inputs) + gates}"
        raise ConfigError.at(where, reason, ConfigCheck.CONFLICT)
    if sum(outputs) > wires:
        raise ConfigError.at(where, f"{sum(outputs)} output wires of {wires} wires", ConfigCheck.CONFLICT)


def check_value(value: int, width: int, where: str) -> None:
    """Raise ConfigError unless `value` is an unsigned integer of at most `width` bits."""
    if value < 0:
        raise ConfigError.at(where, f"negative, but {width} bits unsigned are wanted", ConfigCheck.RANGE)
    if value.bit_length() > width:
        raise ConfigError.at(where, f"{value.bit_length()} bits, more than {width}", ConfigCheck.RANGE)


def pack(values: Sequence[int], width: int) -> NDArray[np.uint64]:
    """Pack unsigned integers of `width` bits, one per instance, into the layout of `evaluate_many`.

    The shape is (width, words) with 64 instances to a word, the last word filled up with zeros.
    Raises ConfigError for a value that is negative or too wide.
    """
    size = -(-width // 8)
    for index, value in enumerate(values):
        check_value(value, width, f"values[{index}]")
    joined = b"".join(value.to_bytes(size, "little") for value in values)
    return pack_bytes(np.frombuffer(joined, dtype=np.uint8).reshape(len(values), size), width)


def pack_bytes(values: NDArray[np.uint8], width: int) -> NDArray[np.uint64]:
    """Transpose values given as little-endian bytes into rows of bits, 64 instances to a word.

    Bits from `width` on are ignored.
    """
    bits = np.unpackbits(values, axis=1, bitorder="little", count=width)
    words = -(-len(values) // WORD_BITS)
    packed = np.zeros((width, words * 8), dtype=np.uint8)
    packed[:, : -(-len(values) // 8)] = np.packbits(bits.T, axis=1, bitorder="little")
    return packed.view("<u8").astype(np.uint64)


def unpack(rows: NDArray[np.uint64], count: int) -> list[int]:
    """Return, as integers, the values of the first `count` instances of bit-packed rows."""
    return [int.from_bytes(value.tobytes(), "little") for value in unpack_bytes(rows, count)]


def unpack_bytes(rows: NDArray[np.uint64], count: int) -> NDArray[np.uint8]:
    """Return the values of packed rows as little-endian bytes, shape (count, bytes), padded with zeros."""
    octets = np.ascontiguousarray(rows.astype("<u8")).view(np.uint8)
    bits = np.unpackbits(octets, axis=1, bitorder="little", count=count)
    return np.packbits(bits.T, axis=1, bitorder="little")


def _row(rows: list[NDArray[np.uint64] | None], wire: int) -> NDArray[np.uint64]:
    """Return the stored values of a wire; raise RuntimeError if they have been freed."""
    row = rows[wire]
    if row is None:
        raise RuntimeError(f"wire {wire} was let go before its last use")
    return row


def _encode(widths: Iterable[int]) -> bytes:
    """Return widths of inputs or outputs as bytes, for hashing."""
    return b"".join(encode_uint(width) for width in widths)


def _refuse(bad: NDArray[np.bool_], field: str, reason: str) -> None:
    """Raise ConfigError that names the first gate flagged in `bad`; do nothing if none is."""
    if bad.any():
        raise ConfigError.at(f"gate {int(bad.argmax())}", f"{field}: {reason}", ConfigCheck.RANGE)
