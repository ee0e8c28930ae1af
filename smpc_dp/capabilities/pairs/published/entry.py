"""Entries of published circuits: the gadget, the meaning in plain Python, inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits.builder import Bits, Builder
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit

Values = tuple[int, ...]
ManyBytes = Sequence[NDArray[np.uint8]]


def _no_examples() -> Iterable[tuple[Values, Values]]:
    """Return an empty tuple of test examples, for circuits that random inputs suffice to check."""
    return ()


@dataclass(frozen=True)
class Value:
    """Description of a published circuit's input or output: its name, width, and the meaning of its bits."""

    name: str
    width: int
    meaning: str


@dataclass(frozen=True)
class Published:
    """Description of a circuit that the project publishes as a file: name, builder, meaning, examples.

    `gadget` makes the output values from a builder and the input values. `meaning` computes the outputs
    from unsigned integers in plain Python; `meaning_many`, if present, the same on arrays of little-endian
    bytes, one row per instance. `known` yields inputs and outputs from another source.
    """

    name: str
    summary: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    gadget: Callable[..., Sequence[Bits]]
    meaning: Callable[..., Values]
    meaning_many: Callable[[ManyBytes], ManyBytes] | None = None
    known: Callable[[], Iterable[tuple[Values, Values]]] = _no_examples

    @property
    def file(self) -> str:
        """The name of the file to which the circuit is published."""
        return f"{self.name}.txt"

    def build(self) -> Circuit:
        """Return the circuit, built at the first call and then cached."""
        return _build(self)


@cache
def _build(entry: Published) -> Circuit:
    """Return the circuit of a published entry, built once and then cached."""
    builder = Builder()
    inputs = [builder.input(value.width) for value in entry.inputs]
    for output in entry.gadget(builder, *inputs):
        builder.output(output)
    return builder.build()
