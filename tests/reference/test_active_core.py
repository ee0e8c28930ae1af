"""The core's side of authenticated garbling, against the twin, message by message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp.crypto.active import SharedBits
from smpc_dp.crypto.active_opening import SharedOutputs, coefficients, sum_of
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp_verify.encodings import tuple_hash, uint
from tests.reference.active_twin import NAMES, SIDES, Dealer, E, Evaluation, G, Shared, octets, seeded
from tests.reference.test_active_twin import COIN, EVALUATOR_INPUTS, GARBLER_INPUTS, drawn_circuit


def packed(shared: list[Shared], side: int) -> Any:
    """A side's arrays of shared bits."""
    flat = [
        b"".join(octets(pair[side]) for pair in column)
        for column in zip(*((s.mac, s.key) for s in shared), strict=True)
    ]
    macs, keys = (np.frombuffer(part, np.uint8) for part in flat)
    return np.array([s.share[side] for s in shared], np.uint8), macs, keys


class Recorded(Dealer):
    """Keeps what it dealt."""

    def bits(self, choices: Any) -> list[Shared]:
        self.dealt = super().bits(choices)
        return self.dealt


def core_circuit(circuit: Any) -> _core.GarblingCircuit:
    columns = zip(*((g.op, g.a, g.b if g.op < 2 else 0, g.out) for g in circuit.gates), strict=True)
    op, a, b, out = (np.array(column, np.uint32) for column in columns)
    outputs = np.array(circuit.outputs, np.uint32)
    return _core.GarblingCircuit(op.astype(np.uint8), a, b, out, circuit.n_wires, circuit.n_inputs, outputs)


# More instances than go through the circuit together, by the fastest kernel alone: the twin is slow.
CASES = [*((kernel, 3) for kernel in _core.garbling_kernels()), (None, 65)]


@pytest.mark.parametrize(("kernel", "instances"), CASES)
def test_every_message_is_the_twins(kernel: str | None, instances: int) -> None:
    random, circuit = seeded("core"), drawn_circuit("circuit 2")
    source = Recorded(random)
    inputs = [
        {wire: [random.getrandbits(1) for _ in range(instances)] for wire in wires}
        for wires in (GARBLER_INPUTS, EVALUATOR_INPUTS)
    ]
    twin = Evaluation(
        circuit, (inputs[G], inputs[E]), [COIN], source, random, start=random.getrandbits(128),
        instances=instances, bucket=3,
    )  # fmt: skip
    twin.run()
    n_gates = len(twin.gates) * instances
    start, deltas = octets(twin.start), [octets(delta) for delta in source.deltas]

    def key(label: str, *parts: bytes) -> bytes:
        return tuple_hash(label, *twin.bound, *parts)

    total = twin.l * twin.B
    thirds = source.dealt[: 3 * total]
    leaky = [_core.ActiveLeaky(u == G, deltas[u], start, kernel=kernel) for u in SIDES]
    sent = [leaky[u].begin(0, packed(thirds, u)) for u in SIDES]
    for u in SIDES:
        assert sent[u].tobytes() == b"".join(map(octets, twin.sent["U", u]))
    d = [leaky[u].answer(sent[1 - u]) for u in SIDES]
    assert [part.tolist() for part in d] == [twin.sent["d", u] for u in SIDES]
    values = [leaky[u].finish(d[G] ^ d[E], key("active-equality", uint(0))) for u in SIDES]
    assert values == [twin.sent["equal", u][0] for u in SIDES]
    coin = key("active-buckets", uint(0), *(twin.sent["coin", u] for u in SIDES))
    order = _core.active_order(total, coin)
    assert order.tolist() == twin.order

    def opened(step: str, openings: list[_core.ActiveOpenings], *parts: bytes) -> NDArray[np.uint8]:
        for u in SIDES:
            names = key(f"active-{step}", *parts, NAMES[u], NAMES[1 - u])
            bits, digest = twin.sent[step, u]
            assert openings[u].bits().tolist() == bits
            assert openings[u].digest(names) == digest == openings[1 - u].expected(openings[u].bits(), names)
        both: NDArray[np.uint8] = openings[G].bits() ^ openings[E].bits()
        return both

    openings = [side.differences(order, 3) for side in leaky]
    differences = opened("differences", openings, uint(0))
    triples = [leaky[u].combine(openings[u], differences) for u in SIDES]
    for step in (openings[G].bits, lambda: openings[G].expected(differences, key("other"))):
        with pytest.raises(RuntimeError, match="used already"):
            step()
    assert [len(part) for part in triples] == [twin.l, twin.l]
    input_masks = [twin.masks[wire, n] for wire in range(6) for n in range(instances)]
    gate_masks = [twin.masks[gate.out, n] for gate in twin.gates for n in range(instances)]
    masks = [
        _core.ActiveMasks(
            u == G, deltas[u], core_circuit(circuit), instances, packed(input_masks, u), packed(gate_masks, u)
        )
        for u in SIDES
    ]
    sums = opened("openings", [masks[u].open(triples[u]) for u in SIDES], uint(0))
    for u in SIDES:
        masks[u].multiply(triples[u], sums)
    output_bits = [side.outputs().bits() for side in masks]
    labels_of = [[part.reshape(-1, 16) for part in side.output_macs()] for side in masks]
    masked = np.array([twin.masked[wire, n] for wire in range(6) for n in range(instances)], np.uint8)
    garbler = _core.ActiveGarbler(masks[G], start, 0, masked, kernel=kernel)
    evaluator = _core.ActiveEvaluator(masks[E], start, 0, masked, kernel=kernel)
    with pytest.raises(RuntimeError, match="used already"):
        masks[G].outputs()
    seed = key("active-open", uint(0))[:16]
    tables, table_bits = garbler.tables(seed)
    rows = [twin.sent["tables", G][j, n] for j in range(len(twin.gates)) for n in range(instances)]
    assert table_bits.tolist() == [row[2] for row in rows]
    for j in range(len(twin.gates)):
        part = rows[j * instances : (j + 1) * instances]
        expected = b"".join(octets(row[half]) for half in range(2) for row in part)
        assert tables[32 * instances * j :][: len(expected)].tobytes() == expected
    keys = (key("active-labels", uint(0)), key("active-macs", uint(0)))
    said, labels, macs, outputs = evaluator.evaluate(seed, tables, table_bits, keys)
    assert (said.tolist(), labels) == twin.sent["masked", E]
    assert garbler.expected(said, keys[0]) == labels
    answer, of_garbler = garbler.answer(said, keys[1])
    assert answer == macs == twin.sent["macs", G]
    assert outputs.tolist() == of_garbler.tolist()
    assert (outputs ^ output_bits[G] ^ output_bits[E]).tolist() == twin.output_to(E)
    assert len(said) == n_gates
    # The output to the aggregator.
    chi = bytes(range(32))
    twin.output_to_aggregator(chi)
    sides = []
    for u in SIDES:
        bits, macs, keys = packed(twin.hiding, u)
        hiding = SharedBits(bits, macs.reshape(-1, 16), keys.reshape(-1, 16))
        shared = SharedBits(output_bits[u], *labels_of[u])
        sides.append(SharedOutputs(shared, hiding, outputs, deltas[u], adds=u == E))
    weights = coefficients(chi, len(outputs))
    for u in SIDES:
        value, digest = twin.sent["opening", u]
        made, own = sides[u].opening(chi)
        assert (sides[u].shares.tolist(), sides[u].hiding.bits.tolist()) == twin.sent["shares", u]
        assert int.from_bytes(made, "little") == value == twin.sent["opened", 1 - u]
        assert sum_of(sides[u].shares, sides[u].hiding.bits, weights) == made
        for content in (own, sides[1 - u].expected(chi, made)):
            hashed = StreamHash(key("active-chi", NAMES[u], NAMES[1 - u], chi))
            hashed.update(content)
            assert hashed.digest() == digest
        # Another opening has other MACs, in each bit.
        for bit in range(64):
            other = (value ^ 1 << bit).to_bytes(8, "little")
            assert sides[1 - u].expected(chi, other) != own


@pytest.mark.parametrize("count", [0, 1, 300])
def test_sums_of_labels_are_those_of_each_bit(count: int) -> None:
    random = np.random.default_rng(46)
    labels = random.integers(0, 256, (count, 16), np.uint8)
    weights = random.integers(0, 1 << 64, count, np.uint64)
    sums = _core.active_sums(labels.reshape(-1), weights).reshape(64, 16)
    for bit in range(64):
        chosen = labels[(weights >> np.uint64(bit) & np.uint64(1)).astype(bool)]
        assert sums[bit].tolist() == np.bitwise_xor.reduce(chosen, axis=0).tolist()


def test_a_sum_of_many_bits_is_that_of_each_weight() -> None:
    # More than go through the cache together, and not a multiple of them.
    count = 40_001
    bits = np.random.default_rng(46).integers(0, 2, count, np.uint8)
    weights = coefficients(bytes(32), count)
    expected = int(np.bitwise_xor.reduce(weights[bits == 1]))
    assert int.from_bytes(sum_of(bits, np.zeros(64, np.uint8), weights), "little") == expected


def test_arguments_of_other_lengths_are_refused() -> None:
    zeros = [np.zeros(n, np.uint8) for n in (3, 48, 48)]

    leaky = _core.ActiveLeaky(True, bytes(16), bytes(16))

    def begin(*shares: NDArray[np.uint8]) -> None:
        bits, macs, keys = shares
        leaky.begin(0, (bits, macs, keys))

    for step in (lambda: leaky.answer(zeros[0][:0]), lambda: leaky.differences(np.array([0], np.uint32), 1)):
        with pytest.raises(RuntimeError, match="not due"):
            step()
    begin(*zeros)
    with pytest.raises(ValueError, match="4 bits from number 0"):
        begin(np.zeros(4, np.uint8), *zeros[1:])
    with pytest.raises(ValueError, match="labels: 48 bytes, not 16"):
        _core.active_sums(zeros[1], np.zeros(1, np.uint64))
    with pytest.raises(ValueError, match="leaky triples, MACs: 32 bytes, not 48"):
        begin(zeros[0], np.zeros(32, np.uint8), zeros[2])
    with pytest.raises(ValueError, match="not all 0 or 1"):
        begin(zeros[0] + 2, *zeros[1:])
    with pytest.raises(ValueError, match="U: 0 bytes, not 16"):
        leaky.answer(zeros[0][:0])
    with pytest.raises(ValueError, match="order: 1 of 1, or twice"):
        leaky.differences(np.array([1], np.uint32), 1)
    with pytest.raises(ValueError, match="key: 31 bytes, not 32"):
        leaky.finish(zeros[0][:1], bytes(31))
    leaky.differences(np.array([0], np.uint32), 1)
    with pytest.raises(RuntimeError, match="used already"):
        leaky.finish(zeros[0][:1], bytes(32))
    other = _core.ActiveLeaky(True, bytes(16), bytes(16))
    other.begin(0, (np.zeros(6, np.uint8), np.zeros(96, np.uint8), np.zeros(96, np.uint8)))
    others = other.differences(np.array([0, 1], np.uint32), 2)
    with pytest.raises(ValueError, match="opened: 1 bits, not 0"):
        leaky.combine(others, zeros[0][:0])
