"""Evaluation of a circuit over a prime field: layers of products of shared bits, vectorised.

Bits are the integers 0 and 1 of a prime field, where a XOR costs a product as an AND does: x + y - 2 x y.
Gates on the same two wires share one product, and a choice between two wires, u XOR (s AND (u XOR v)), which
comparisons, adders and multiplexers are made of, is u + s (v - u): one product where gate by gate it is
three. Additions and public factors are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, Op

Rows = NDArray[np.int64]
Factors = NDArray[np.object_]
"""Public factors, one a row: shape (k, 1)."""


class Product(NamedTuple):
    """Product left * (offset + scale * plus - minus) of nodes left, plus, minus and constants; -1: none."""

    left: int
    offset: int
    scale: int
    plus: int
    minus: int = -1


class Combination(NamedTuple):
    """A gate as integer arithmetic: a constant, plus factors times nodes, plus factor times a product."""

    product: Product
    factor: int
    constant: int
    first: tuple[int, int]
    second: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Layer:
    """Arrays that describe one parallel multiplication of a circuit, and the linear sums after it.

    `left` * (`offset` + `scale` * `plus` - `minus`) are the products, `minus` being of the last ones; rows
    afterwards are `retained`, and then `constant` + `by_first` * `first` + `by_second` * `second` +
    `factor` * products[`product`].
    """

    left: Rows
    plus: Rows
    minus: Rows
    offset: Factors
    scale: Factors
    retained: Rows
    product: Rows
    factor: Factors
    constant: Factors
    first: Rows
    by_first: Factors
    second: Rows
    by_second: Factors


@dataclass(frozen=True, eq=False)
class Layers:
    """A Boolean circuit as rounds of parallel multiplications and sums, to evaluate on secret shares."""

    inputs: int
    layers: tuple[Layer, ...]
    rows: Rows
    signs: Factors
    constants: Factors

    @cached_property
    def products(self) -> int:
        """The number of multiplications that one evaluation makes."""
        return sum(len(layer.left) for layer in self.layers)

    @property
    def depth(self) -> int:
        """The number of rounds of multiplication, each of which depends on the one before."""
        return len(self.layers)

    @property
    def widest(self) -> int:
        """The most rows (bits of the circuit) of any layer: those retained, and three for each product."""
        return max((len(each.retained) + 3 * len(each.left) for each in self.layers), default=self.inputs)

    def evaluate(self, bits: Any) -> Any:
        """Evaluate the circuit on bits or shares, shape (inputs, n); return the outputs, shape (outputs, n).

        Both are arrays of numpy's kind that hold 0 and 1: integers, or shares of them.
        """
        for layer in self.layers:
            right = _plus(_times(bits[layer.plus], layer.scale), layer.offset)
            if count := len(layer.minus):
                split = len(layer.left) - count
                right = np.concatenate((right[:split], right[split:] - bits[layer.minus]))
            products = bits[layer.left] * right
            made = _plus(_times(products[layer.product], layer.factor), layer.constant)
            for rows, factors in ((layer.first, layer.by_first), (layer.second, layer.by_second)):
                if factors.any():
                    made = made + _times(bits[rows], factors)
            bits = np.concatenate((bits[layer.retained], made)) if len(layer.retained) else made
        return _plus(_times(bits[self.rows], self.signs), self.constants)


def layers_of(circuit: Circuit) -> Layers:
    """Return a circuit as rounds of multiplications, each gate in the first round that can compute it."""
    return _Compiler(circuit).layers()


# A wire is a node or its negation; this node is the constant 0.
_ZERO = -1


@dataclass
class _Compiler:
    """Converter of a Boolean circuit to rounds of parallel multiplications and linear sums."""

    circuit: Circuit
    wires: list[tuple[int, bool]] = field(default_factory=list)
    gates: dict[int, tuple[Op, tuple[int, bool], tuple[int, bool]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        circuit = self.circuit
        self.wires = [(node, False) for node in range(circuit.n_wires)]
        for op, a, b, out in circuit.gates():
            if op == Op.EQ:
                self.wires[out] = (_ZERO, bool(a))
            elif op in (Op.INV, Op.EQW):
                node, negated = self.wires[a]
                self.wires[out] = (node, negated ^ (op == Op.INV))
            else:
                self._binary(Op(op), self.wires[a], self.wires[b], out)

    def _binary(self, op: Op, x: tuple[int, bool], y: tuple[int, bool], out: int) -> None:
        """Record an XOR or AND gate, simplified where an operand is constant or both are equal."""
        if y[0] == _ZERO or (x[0] != _ZERO and y[0] < x[0]):
            x, y = y, x
        if x[0] == _ZERO:
            if op == Op.XOR:
                self.wires[out] = (y[0], y[1] ^ x[1])
            else:
                self.wires[out] = y if x[1] else (_ZERO, False)
        elif x[0] == y[0]:
            differ = x[1] ^ y[1]
            if op == Op.XOR:
                self.wires[out] = (_ZERO, differ)
            else:
                self.wires[out] = (_ZERO, False) if differ else x
        elif op == Op.XOR:
            # Negations go to the result.
            self.gates[out] = (op, (x[0], False), (y[0], False))
            self.wires[out] = (out, x[1] ^ y[1])
        else:
            self.gates[out] = (op, x, y)

    def layers(self) -> Layers:
        """Convert the circuit, and return it as rounds of multiplications and sums."""
        first_output = self.circuit.n_wires - self.circuit.n_outputs
        outputs = self.wires[first_output:]
        made = self._needed([node for node, _ in outputs if node != _ZERO])
        level = dict.fromkeys(range(self.circuit.n_inputs), 0)
        last: dict[int, int] = {}
        by_level: list[list[int]] = []
        for node in reversed(made):
            reads = _reads(made[node])
            level[node] = 1 + max(level[read] for read in reads)
            if level[node] > len(by_level):
                by_level.append([])
            by_level[level[node] - 1].append(node)
            for read in reads:
                last[read] = max(last.get(read, 0), level[node])
        for node, _ in outputs:
            last[node] = len(by_level) + 1
        rows = list(range(self.circuit.n_inputs))
        result = []
        for number, nodes in enumerate(by_level, 1):
            index = {node: row for row, node in enumerate(rows)}
            retained = [node for node in rows if last.get(node, 0) > number]
            result.append(_layer([made[node] for node in nodes], index, [index[node] for node in retained]))
            rows = retained + nodes
        index = {node: row for row, node in enumerate(rows)}
        at = [index.get(node, 0) for node, _ in outputs]
        signs = [0 if node == _ZERO else -1 if negated else 1 for node, negated in outputs]
        return Layers(
            self.circuit.n_inputs,
            tuple(result),
            np.array(at, np.int64),
            _factors(signs),
            _factors([int(negated) for _, negated in outputs]),
        )

    def _needed(self, wanted: Sequence[int]) -> dict[int, Combination]:
        """Return by node, the last one first, the arithmetic form of each gate that `wanted` needs."""
        needed, made = set(wanted), {}
        for node in reversed(self.gates):
            if node in needed:
                made[node] = self._combine(node)
                needed.update(_reads(made[node]))
        return made

    def _combine(self, node: int) -> Combination:
        """Return a gate as a linear combination with one product; a selection counts as one gate."""
        op, (x, x_not), (y, y_not) = self.gates[node]
        if op == Op.XOR:
            for u, t in ((x, y), (y, x)):
                if choice := self._choice(u, t):
                    return choice
            return Combination(Product(x, 0, 1, y), -2, 0, (x, 1), (y, 1))
        # (c + d x)(e + f y)
        c, d, e, f = int(x_not), 1 - 2 * x_not, int(y_not), 1 - 2 * y_not
        return Combination(Product(x, 0, 1, y), d * f, c * e, (x, d * e), (y, c * f))

    def _choice(self, u: int, t: int) -> Combination | None:
        """Return u XOR t as one selection if t is s AND (u XOR v), else None."""
        op, *operands = self.gates.get(t, (Op.XOR, (0, False), (0, False)))
        if op != Op.AND:
            return None
        for (s, s_not), (z, z_not) in (operands, operands[::-1]):
            inner, (a, _), (b, _) = self.gates.get(z, (Op.AND, (0, False), (0, False)))
            if inner != Op.XOR or u not in (a, b):
                continue
            v = b if u == a else a
            # v or 1 - v, less u, by s or by 1 - s.
            offset, scale = int(z_not), 1 - 2 * z_not
            product = Product(s, offset, scale, v, u)
            if s_not:
                return Combination(product, -1, offset, (v, scale), (v, 0))
            return Combination(product, 1, 0, (u, 1), (u, 0))
        return None


def _reads(gate: Combination) -> tuple[int, ...]:
    """Return the numbers of the nodes whose values a gate's combination reads."""
    product = gate.product
    read = (product.left, product.plus, gate.first[0], gate.second[0])
    return read if product.minus < 0 else (*read, product.minus)


def _layer(gates: Sequence[Combination], index: dict[int, int], retained: Sequence[int]) -> Layer:
    """Return one round of multiplications for these gates, each distinct product once, with linear sums.

    `index`: the row of each wire; `retained`: the wires that later layers read.
    """
    products = sorted({gate.product for gate in gates}, key=lambda product: product.minus >= 0)
    number = {product: row for row, product in enumerate(products)}

    def rows(nodes: Sequence[int]) -> Rows:
        """Return the rows of nodes."""
        return np.array([index[node] for node in nodes], np.int64)

    return Layer(
        left=rows([product.left for product in products]),
        plus=rows([product.plus for product in products]),
        minus=rows([product.minus for product in products if product.minus >= 0]),
        offset=_factors([product.offset for product in products]),
        scale=_factors([product.scale for product in products]),
        retained=np.array(retained, np.int64),
        product=np.array([number[gate.product] for gate in gates], np.int64),
        factor=_factors([gate.factor for gate in gates]),
        constant=_factors([gate.constant for gate in gates]),
        first=rows([gate.first[0] for gate in gates]),
        by_first=_factors([gate.first[1] for gate in gates]),
        second=rows([gate.second[0] for gate in gates]),
        by_second=_factors([gate.second[1] for gate in gates]),
    )


def _times(rows: Any, factors: Factors) -> Any:
    """Return rows multiplied by factors; without work where all are 1, since shares are large integers."""
    return rows if (factors == 1).all() else rows * factors


def _plus(rows: Any, constants: Factors) -> Any:
    """Return rows plus constants, or the rows themselves if all constants are 0."""
    return rows + constants if constants.any() else rows


def _factors(values: Sequence[int]) -> Factors:
    """Return integers as a column array of Python integers, which multiplies rows of shares."""
    return np.array(values, dtype=object).reshape(-1, 1)
