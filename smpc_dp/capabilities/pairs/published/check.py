"""Check that a circuit agrees with its plain meaning in Python on very many inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, pack, pack_bytes, unpack, unpack_bytes
from smpc_dp.capabilities.pairs.published.entry import Published
from smpc_dp.errors import Check, VerificationError

# Circuits with at most so many input bits are tried on every input.
EXHAUSTIVE_BITS = 16
RANDOM_INPUTS = 100_000
BATCH = 1 << 14


def check_meaning(
    entry: Published,
    circuit: Circuit,
    count: int = RANDOM_INPUTS,
    progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Test a circuit against its plain Python meaning; return how many inputs agree, or VerificationError.

    Every input where there are at most 2**EXHAUSTIVE_BITS, otherwise `count` of them: half uniform, the
    rest edges (0, 1, all ones, ...) and values that are equal, one bit apart, or apart below some bit; and
    what `entry.known` gives. They are the same in every run. `progress` is told how many are done.

    Raises VerificationError with the first inputs that disagree, or when the widths are not those of `entry`.
    """
    widths = tuple(value.width for value in entry.inputs)
    if circuit.inputs != widths or circuit.outputs != tuple(value.width for value in entry.outputs):
        raise VerificationError(
            f"{entry.name}: takes {circuit.inputs} and gives {circuit.outputs} bits, not as published",
            Check.WRONG_LENGTH,
        )
    known = list(entry.known())
    if known:
        inputs, wanted = _transposed(i for i, _ in known), _transposed(o for _, o in known)
        rows = [pack(column, width) for column, width in zip(inputs, widths, strict=True)]
        result = [unpack(array, len(known)) for array in circuit.evaluate_many(rows)]
        _compare(entry, inputs, result, wanted)
    columns = _every_input(widths) if sum(widths) <= EXHAUSTIVE_BITS else _sample(widths, count)
    total = len(columns[0])
    for start in range(0, total, BATCH):
        batch = [column[start : start + BATCH] for column in columns]
        _check_batch(entry, circuit, batch)
        progress(min(start + BATCH, total))
    return total + len(known)


def _check_batch(entry: Published, circuit: Circuit, batch: Sequence[NDArray[np.uint8]]) -> None:
    """Raise VerificationError if circuit and plain meaning differ on a batch of inputs."""
    size = len(batch[0])
    packed = [pack_bytes(column, width) for column, width in zip(batch, circuit.inputs, strict=True)]
    result = circuit.evaluate_many(packed)
    if entry.meaning_many is not None:
        expected = entry.meaning_many(batch)
        octets = (unpack_bytes(array, size) for array in result)
        if all(np.array_equal(a, b) for a, b in zip(octets, expected, strict=True)):
            return
    inputs = [_integers(column) for column in batch]
    wanted = _transposed(entry.meaning(*values) for values in zip(*inputs, strict=True))
    _compare(entry, inputs, [unpack(array, size) for array in result], wanted)


def _compare(
    entry: Published,
    inputs: Sequence[Sequence[int]],
    result: Sequence[Sequence[int]],
    wanted: Sequence[Sequence[int]],
) -> None:
    """Raise VerificationError that shows the first inputs whose outputs differ from the wanted ones."""
    for index, (got, want) in enumerate(
        zip(zip(*result, strict=True), zip(*wanted, strict=True), strict=True)
    ):
        if got != want:
            given = [column[index] for column in inputs]
            raise VerificationError(
                f"{entry.name}: {_hex(given)} gives {_hex(got)}, not {_hex(want)}", Check.WRONG_RESULT
            )


def _every_input(widths: Sequence[int]) -> list[NDArray[np.uint8]]:
    """Return all possible combinations of inputs with these widths, as little-endian bytes."""
    joined = np.arange(1 << sum(widths), dtype="<u4")
    columns = []
    for width in widths:
        low = joined & np.uint32((1 << width) - 1)
        columns.append(low.astype("<u4").view(np.uint8).reshape(-1, 4)[:, : -(-width // 8)])
        joined = joined >> np.uint32(width)
    return columns


def _sample(widths: Sequence[int], count: int) -> list[NDArray[np.uint8]]:
    """Return pseudorandom test inputs and edge cases as little-endian bytes, equal in every run."""
    generator = np.random.default_rng(2023)
    columns: list[NDArray[np.uint8]] = []
    for width in widths:
        size = -(-width // 8)
        values = generator.integers(0, 256, (count, size), dtype=np.uint8)
        edges = [0, 1, 2, (1 << width) - 1, (1 << width) - 2, 1 << (width - 1), (1 << (width - 1)) - 1]
        table = np.array(
            [list((edge % (1 << width)).to_bytes(size, "little")) for edge in edges], dtype=np.uint8
        )
        half, most = count // 2, 3 * count // 4
        values[half:most] = table[generator.integers(0, len(edges), most - half)]
        if columns and columns[0].shape[1] == size:
            values[most:] = columns[0][most:] ^ _differences(generator, width, count - most)
        values[:, -1] &= 0xFF >> (8 * size - width)
        columns.append(values)
    return columns


def _differences(generator: np.random.Generator, width: int, count: int) -> NDArray[np.uint8]:
    """Return random differences of two test values: zero, a single bit, or random low bits."""
    size = -(-width // 8)
    kind = generator.integers(0, 4, (count, 1))
    index = generator.integers(0, width, (count, 1))
    single = np.arange(8 * size) == index
    below = (np.arange(8 * size) <= index) & (generator.integers(0, 2, (count, 8 * size)) == 1)
    bits = np.where(kind == 0, False, np.where(kind == 1, single, below))
    return np.packbits(bits, axis=1, bitorder="little")


def _integers(column: NDArray[np.uint8]) -> list[int]:
    """Return rows of little-endian bytes as a list of Python integers."""
    size = column.shape[1]
    joined = np.ascontiguousarray(column).tobytes()
    return [int.from_bytes(joined[at : at + size], "little") for at in range(0, len(joined), size)]


def _transposed(rows: Iterable[tuple[int, ...]]) -> list[list[int]]:
    """Return rows of integers as lists of columns."""
    return [list(column) for column in zip(*rows, strict=True)]


def _hex(values: Sequence[int]) -> str:
    """Return input or output values as hexadecimal text for error messages."""
    return ",".join(f"{value:x}" for value in values)
