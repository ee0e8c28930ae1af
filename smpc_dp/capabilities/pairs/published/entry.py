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
    """Return no examples."""
    return ()


@dataclass(frozen=True)
class Value:
    """One input or output: its name, its width, and the meaning of its bits, least significant first."""

    name: str
    width: int
    meaning: str


@dataclass(frozen=True)
class Published:
    """Entry of a published circuit.

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
        """The name of the circuit's file."""
        return f"{self.name}.txt"

    def build(self) -> Circuit:
        """Build the circuit; the same bytes every time."""
        return _build(self)


@cache
def _build(entry: Published) -> Circuit:
    """Build the circuit of an entry, cached."""
    builder = Builder()
    inputs = [builder.input(value.width) for value in entry.inputs]
    for output in entry.gadget(builder, *inputs):
        builder.output(output)
    return builder.build()
