"""Builder of circuits: gates are added one by one, and a small circuit results.

To keep circuits small: NOT is a mark on a bit, and a gate only where its wire is needed; constants are
folded; a gate that was made before is used again; XOR cancels against a XOR that it undoes; gates that no
output needs are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType

import numpy as np

from smpc_dp.capabilities.pairs.circuits.circuit import MAX_GATES, Circuit, Op, check_value
from smpc_dp.errors import ConfigCheck, ConfigError

# A bit of a builder: twice the number of a node, plus 1 where it is the node's negation. Node 0 is 0.
Bit = NewType("Bit", int)
# A value: its bits, the least significant first.
Bits = tuple[Bit, ...]

ZERO = Bit(0)
ONE = Bit(1)

# An input's node has this in place of operands.
_INPUT = (-1, 0, 0)


class Builder:
    """Builder of a Boolean circuit: collects inputs, gates and outputs; its bits fit no other builder."""

    def __init__(self, most: int = MAX_GATES) -> None:
        """Start an empty circuit of at most `most` gates, those included that no output needs."""
        self._most = most
        self._nodes: list[tuple[int, int, int]] = [_INPUT]
        self._known: dict[tuple[int, int, int], Bit] = {}
        self._inputs: list[int] = []
        self._outputs: list[Bits] = []

    def input(self, width: int) -> Bits:
        """Add an input of `width` bits, and return its bits; raise ConfigError after the first gate.

        Raises ConfigError for a width under 1 or after the first gate.
        """
        if width < 1:
            raise ConfigError.at("width", f"{width}, not 1 or more", ConfigCheck.RANGE)
        if self._known:
            raise ConfigError.at("input", "comes before the first gate", ConfigCheck.CONFLICT)
        first = len(self._nodes)
        self._nodes.extend([_INPUT] * width)
        self._inputs.append(width)
        return tuple(Bit(2 * node) for node in range(first, first + width))

    def constant(self, value: int, width: int) -> Bits:
        """Return the bits of a public constant, 0 <= value < 2**width. Raises ConfigError otherwise."""
        check_value(value, width, "constant")
        return tuple(Bit(value >> bit & 1) for bit in range(width))

    def output(self, value: Sequence[Bit]) -> None:
        """Declare these bits as the circuit's next output value; raise ConfigError for an empty sequence."""
        if not value:
            raise ConfigError.at("output", "no bits", ConfigCheck.MISSING)
        self._outputs.append(tuple(value))

    def not_(self, x: Bit) -> Bit:
        """Return NOT x; adds no gate, since negation is stored as a flag of the bit."""
        return Bit(x ^ 1)

    def xor(self, x: Bit, y: Bit) -> Bit:
        """Return x XOR y, adding at most one gate, which costs nothing when the circuit is garbled."""
        colour = (x ^ y) & 1
        low, high = sorted((x & ~1, y & ~1))
        if low == high:
            return Bit(colour)
        if low == ZERO:
            return Bit(high | colour)
        for whole, part in ((high, low), (low, high)):
            op, a, b = self._nodes[whole >> 1]
            if op == Op.XOR and part in (a, b):
                return Bit(a ^ b ^ part ^ colour)
        return Bit(self._gate(Op.XOR, low, high) ^ colour)

    def and_(self, x: Bit, y: Bit) -> Bit:
        """Return x AND y, adding at most one gate, of the only kind that costs ciphertexts when garbled."""
        low, high = sorted((x, y))
        if low == ZERO:
            return ZERO
        if low == ONE:
            return Bit(high)
        if low == high:
            return Bit(low)
        if low ^ high == 1:
            return ZERO
        for whole, part in ((high, low), (low, high)):
            op, a, b = self._nodes[whole >> 1]
            if op == Op.AND and whole & 1 == 0:
                if part in (a, b):
                    return Bit(whole)
                if part ^ 1 in (a, b):
                    return ZERO
        return self._gate(Op.AND, low, high)

    def or_(self, x: Bit, y: Bit) -> Bit:
        """Return x OR y, at the price of one AND gate."""
        return self.not_(self.and_(self.not_(x), self.not_(y)))

    def insert(self, circuit: Circuit, inputs: Sequence[Sequence[Bit]]) -> list[Bits]:
        """Copy a circuit's gates, fed with these input bits; return the output bits; or raise ConfigError.

        Raises ConfigError for a wrong number of inputs, or of other widths.
        """
        widths = tuple(len(value) for value in inputs)
        if widths != circuit.inputs:
            raise ConfigError.at(
                "inputs", f"of {widths} bits, the circuit has {circuit.inputs}", ConfigCheck.SHAPE
            )
        wires: list[Bit] = [bit for value in inputs for bit in value]
        wires.extend([ZERO] * (circuit.n_wires - len(wires)))
        for op, a, b, out in circuit.gates():
            if op == Op.XOR:
                wires[out] = self.xor(wires[a], wires[b])
            elif op == Op.AND:
                wires[out] = self.and_(wires[a], wires[b])
            elif op == Op.EQ:
                wires[out] = ONE if a else ZERO
            else:
                wires[out] = self.not_(wires[a]) if op == Op.INV else wires[a]
        return [tuple(value) for value in circuit.output_values(wires)]

    def _gate(self, op: Op, low: int, high: int) -> Bit:
        """Return the bit of a gate, added unless an equal one exists; ConfigError beyond the limit."""
        key = (int(op), low, high)
        known = self._known.get(key)
        if known is None:
            if len(self._nodes) > self._most:
                reason = f"more than {self._most} gates: take coarser grids"
                raise ConfigError.at("circuit", reason, ConfigCheck.TOO_LARGE)
            known = self._known[key] = Bit(2 * len(self._nodes))
            self._nodes.append(key)
        return known

    def build(self) -> Circuit:
        """Return the circuit of the declared outputs, without gates that no output needs; or ConfigError.

        Raises ConfigError when there is no output or a limit of `Circuit` is passed.
        """
        gates = self._symbolic_gates()
        results = [bit for value in self._outputs for bit in value]
        n_inputs = sum(self._inputs)
        n_wires = n_inputs + len(gates) + len(results)
        wires: dict[int, int] = {2 * (wire + 1): wire for wire in range(n_inputs)}
        # The last wires are the outputs. One that no other output is can be its gate's own wire.
        made = {gate[3] for gate in gates}
        claimed: dict[int, int] = {}
        for index, bit in enumerate(results):
            if bit in made and bit not in claimed:
                claimed[bit] = index
                n_wires -= 1
        first_output = n_wires - len(results)
        free = iter(range(n_inputs, first_output))
        for _, _, _, out in gates:
            wires[out] = first_output + claimed[out] if out in claimed else next(free)
        rows = [
            (op, wires[a], wires[b] if op in (Op.XOR, Op.AND) else 0, wires[out]) for op, a, b, out in gates
        ]
        for index, bit in enumerate(results):
            if bit in (ZERO, ONE):
                rows.append((Op.EQ, bit, 0, first_output + index))
            elif claimed.get(bit) != index:
                rows.append((Op.EQW, wires[bit], 0, first_output + index))
        table = np.array(rows, dtype=np.uint32).reshape(len(rows), 4)
        return Circuit(
            tuple(self._inputs),
            tuple(len(value) for value in self._outputs),
            n_wires,
            table[:, 0].astype(np.uint8),
            *(table[:, column] for column in (1, 2, 3)),
        )

    def _symbolic_gates(self) -> list[tuple[Op, int, int, int]]:
        """Return the gates that the outputs need, in evaluation order, with bits in place of wires."""
        results = [bit for value in self._outputs for bit in value]
        needed = {bit >> 1 for bit in results}
        for node in range(len(self._nodes) - 1, 0, -1):
            op, a, b = self._nodes[node]
            if node in needed and op >= 0:
                needed.update((a >> 1, b >> 1))
        gates: list[tuple[Op, int, int, int]] = []
        inverted: set[int] = set()

        def invert(bit: int) -> None:
            """Add a NOT gate for this bit if it is a negation, unless there is one."""
            if bit & 1 and bit != ONE and bit not in inverted:
                inverted.add(bit)
                gates.append((Op.INV, bit ^ 1, 0, bit))

        for node in sorted(needed):
            op, a, b = self._nodes[node]
            if op >= 0:
                invert(a)
                invert(b)
                gates.append((Op(op), a, b, 2 * node))
        for bit in results:
            invert(bit)
        return gates
