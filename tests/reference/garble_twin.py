"""Half-gates garbling, gate by gate and instance by instance, as the definitions read.

Labels are integers, little-endian in bytes. Nothing is shared with the core but the definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

XOR, AND, INV, EQ, EQW = range(5)
HALF = 1 << 64
OUTPUT_HASH = 1 << 63

Hash = Callable[[int, int], int]


class Gate(NamedTuple):
    """`op` of the wires `a` and `b` into `out`; `a` is the constant itself for EQ."""

    op: int
    a: int
    b: int
    out: int


@dataclass(frozen=True)
class Circuit:
    """Wires 0 to `n_inputs - 1` are inputs."""

    n_wires: int
    n_inputs: int
    gates: Sequence[Gate]
    outputs: Sequence[int]

    def plain(self, bits: Sequence[int]) -> list[int]:
        """The outputs' bits for the inputs `bits`."""
        values = dict(enumerate(bits))
        for gate in self.gates:
            if gate.op == XOR:
                values[gate.out] = values[gate.a] ^ values[gate.b]
            elif gate.op == AND:
                values[gate.out] = values[gate.a] & values[gate.b]
            elif gate.op == INV:
                values[gate.out] = 1 - values[gate.a]
            else:
                values[gate.out] = gate.a if gate.op == EQ else values[gate.a]
        return [values[wire] for wire in self.outputs]

    def and_gates(self) -> list[Gate]:
        return [gate for gate in self.gates if gate.op == AND]

    def by_level(self) -> list[int]:
        """The numbers of the AND gates (among the AND gates) by level, then by place."""
        level = dict.fromkeys(range(self.n_inputs), 0)
        result = []
        for gate in self.gates:
            before = [] if gate.op == EQ else [gate.a] if gate.op in (INV, EQW) else [gate.a, gate.b]
            level[gate.out] = max([level[wire] for wire in before], default=0) + (gate.op == AND)
            if gate.op == AND:
                result.append(level[gate.out])
        return sorted(range(len(result)), key=lambda number: (result[number], number))


@dataclass(frozen=True)
class Setting:
    """The parameters of a run; `mode` is "unique" or "tile"."""

    start: bytes
    mode: str
    tile: int
    n_instances: int
    first_instance: int = 0

    def key(self, instance: int, half_gate: int) -> int:
        """The AES key of a half-gate of an instance (numbered from 0 in the run)."""
        group = instance if self.mode == "unique" else instance // self.tile
        return int.from_bytes(self.start, "little") ^ (group * HALF + half_gate)

    def instances(self) -> range:
        return range(self.first_instance, self.first_instance + self.n_instances)


def aes(key: int, block: int, decrypt: bool = False) -> int:
    # One block at a time is what a block cipher is defined on; nothing is encrypted in this mode.
    cipher = Cipher(algorithms.AES(key.to_bytes(16, "little")), modes.ECB())  # noqa: S305
    context = cipher.decryptor() if decrypt else cipher.encryptor()
    return int.from_bytes(context.update(block.to_bytes(16, "little")), "little")


def sigma(label: int) -> int:
    """L || R to (L ^ R) || L, with L the upper half."""
    left, right = divmod(label, HALF)
    return (left ^ right) * HALF + left


def hash_label(label: int, key: int) -> int:
    return aes(key, sigma(label)) ^ sigma(label)


def zero_label(seed: bytes, instance: int, wire: int) -> int:
    return aes(int.from_bytes(seed[:16], "little"), instance * HALF + wire)


def open_label(seed: bytes, instance: int, wire: int) -> int:
    """The active label of an input of the garbler, which both sides draw from a public seed of 16 bytes."""
    return aes(int.from_bytes(seed, "little"), instance * HALF + wire)


def delta(seed: bytes, instance: int) -> int:
    return aes(int.from_bytes(seed[16:], "little"), instance * HALF) | 1


@dataclass
class Garbled:
    """One instance garbled: the label that means 0 of every wire, and T_G, T_E of every AND gate."""

    delta: int
    zeros: dict[int, int]
    rows: list[tuple[int, int]] = field(default_factory=list)


def garble_one(
    circuit: Circuit, keys: Callable[[int], int], delta: int, inputs: Sequence[int], h: Hash = hash_label
) -> Garbled:
    """Garble one instance [Zahur, Rosulek, Evans 2015, figure 2]; `keys` gives the key of a half-gate."""
    result = Garbled(delta, dict(enumerate(inputs)))
    zeros = result.zeros
    for gate in circuit.gates:
        if gate.op == XOR:
            zeros[gate.out] = zeros[gate.a] ^ zeros[gate.b]
        elif gate.op == INV:
            zeros[gate.out] = zeros[gate.a] ^ delta
        elif gate.op == EQ:
            # The active label is 0 for both constants.
            zeros[gate.out] = delta if gate.a else 0
        elif gate.op == EQW:
            zeros[gate.out] = zeros[gate.a]
        else:
            j = 2 * len(result.rows)
            a, b = zeros[gate.a], zeros[gate.b]
            p_a, p_b = a & 1, b & 1
            t_g = h(a, keys(j)) ^ h(a ^ delta, keys(j)) ^ (p_b * delta)
            w_g = h(a, keys(j)) ^ (p_a * t_g)
            t_e = h(b, keys(j + 1)) ^ h(b ^ delta, keys(j + 1)) ^ a
            w_e = h(b, keys(j + 1)) ^ (p_b * (t_e ^ a))
            zeros[gate.out] = w_g ^ w_e
            result.rows.append((t_g, t_e))
    return result


def evaluate_one(
    circuit: Circuit,
    keys: Callable[[int], int],
    rows: Sequence[tuple[int, int]],
    inputs: Sequence[int],
    h: Hash = hash_label,
) -> dict[int, int]:
    """The active label of every wire."""
    active = dict(enumerate(inputs))
    gates_done = 0
    for gate in circuit.gates:
        if gate.op == XOR:
            active[gate.out] = active[gate.a] ^ active[gate.b]
        elif gate.op in (INV, EQW):
            active[gate.out] = active[gate.a]
        elif gate.op == EQ:
            active[gate.out] = 0
        else:
            a, b = active[gate.a], active[gate.b]
            t_g, t_e = rows[gates_done]
            left = h(a, keys(2 * gates_done)) ^ ((a & 1) * t_g)
            right = h(b, keys(2 * gates_done + 1)) ^ ((b & 1) * (t_e ^ a))
            active[gate.out] = left ^ right
            gates_done += 1
    return active


def keys_of(setting: Setting, instance: int) -> Callable[[int], int]:
    return lambda half_gate: setting.key(instance, half_gate)


def garble(
    circuit: Circuit, setting: Setting, seed: bytes, given: Mapping[tuple[int, int], int] | None = None
) -> list[Garbled]:
    """Garble every instance; `given` are zero labels by (instance, input) that do not come from the seed."""
    given = given or {}
    return [
        garble_one(
            circuit,
            keys_of(setting, instance),
            delta(seed, instance),
            [
                given.get((instance, wire), zero_label(seed, instance, wire))
                for wire in range(circuit.n_inputs)
            ],
        )
        for instance in setting.instances()
    ]


def tables(circuit: Circuit, setting: Setting, garbled: Sequence[Garbled]) -> bytes:
    """The stream of tables in the order of the specification."""
    order = circuit.by_level() if setting.tile == 1 else list(range(len(circuit.and_gates())))
    stream = []
    for start in range(0, len(garbled), setting.tile):
        for number in order:
            for half in (0, 1):
                stream += [one.rows[number][half] for one in garbled[start : start + setting.tile]]
    return b"".join(row.to_bytes(16, "little") for row in stream)


def rows_of(circuit: Circuit, setting: Setting, stream: bytes) -> list[list[tuple[int, int]]]:
    """The rows of every instance, out of the stream: the inverse of `tables`."""
    order = circuit.by_level() if setting.tile == 1 else list(range(len(circuit.and_gates())))
    blocks = [int.from_bytes(stream[i : i + 16], "little") for i in range(0, len(stream), 16)]
    rows = [[(0, 0)] * len(order) for _ in range(setting.n_instances)]
    taken = 0
    for start in range(0, setting.n_instances, setting.tile):
        ring_vector = min(setting.tile, setting.n_instances - start)
        for number in order:
            for element in range(ring_vector):
                rows[start + element][number] = (
                    blocks[taken + element],
                    blocks[taken + ring_vector + element],
                )
            taken += 2 * ring_vector
    return rows


def output_hashes(circuit: Circuit, setting: Setting, garbled: Sequence[Garbled]) -> list[list[list[int]]]:
    """By output and instance, the hashes of the labels of colour 0 and of colour 1."""
    result = []
    for index, wire in enumerate(circuit.outputs):
        row = []
        for instance, one in zip(setting.instances(), garbled, strict=True):
            labels = sorted((one.zeros[wire], one.zeros[wire] ^ one.delta), key=lambda label: label & 1)
            row.append([hash_label(label, setting.key(instance, OUTPUT_HASH + index)) for label in labels])
        result.append(row)
    return result
