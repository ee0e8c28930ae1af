"""What is said of a published circuit: how it is built, what it means in plain Python, what its bits are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from smpc_dp.circuits.builder import Bits, Builder
from smpc_dp.circuits.circuit import Circuit

Values = tuple[int, ...]
ManyBytes = Sequence[NDArray[np.uint8]]


def _no_examples() -> Iterable[tuple[Values, Values]]:
    return ()


@dataclass(frozen=True)
class Value:
    """One input or output: its name, its width in bits, and what its bits are, least significant first."""

    name: str
    width: int
    meaning: str


@dataclass(frozen=True)
class Published:
    """A published circuit.

    `gadget` makes the output values from a builder and the input values. `meaning` computes the outputs
    from unsigned integers in plain Python; `meaning_many`, if it is there, the same on arrays of
    little-endian bytes, one row an instance. `known` yields inputs and outputs from another source.
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
        """The name of its file."""
        return f"{self.name}.txt"

    def build(self) -> Circuit:
        """Build the circuit; the same bytes every time."""
        return _build(self)


@cache
def _build(entry: Published) -> Circuit:
    builder = Builder()
    inputs = [builder.input(value.width) for value in entry.inputs]
    for output in entry.gadget(builder, *inputs):
        builder.output(output)
    return builder.build()
