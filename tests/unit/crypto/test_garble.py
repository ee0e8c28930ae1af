"""Garbling through its Python face: what it gives, what it refuses, and what a corrupted table does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp.crypto import garble
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.errors import VerificationError

Bytes = NDArray[np.uint8]
SEED, START = bytes(range(32)), bytes(range(100, 116))
XOR, AND, INV, EQ, EQW = range(5)


def circuit(
    gates: list[tuple[int, int, int, int]], n_inputs: int, outputs: list[int], n_wires: int | None = None
) -> garble.GarblingCircuit:
    op, a, b, out = np.array(gates, dtype=np.uint32).reshape(-1, 4).T.copy()
    return garble.compile_circuit(
        *(op.astype(np.uint8), a, b, out),
        n_wires=n_inputs + len(gates) if n_wires is None else n_wires,
        n_inputs=n_inputs,
        outputs=np.array(outputs, dtype=np.uint32),
    )


def adder(bits: int = 8) -> garble.GarblingCircuit:
    """Sum of two integers, lowest bits first: one AND gate a bit but the last."""
    gates: list[tuple[int, int, int, int]] = []
    outputs: list[int] = []

    def gate(op: int, a: int, b: int) -> int:
        gates.append((op, a, b, 2 * bits + len(gates)))
        return gates[-1][3]

    carry = None
    for x, y in zip(range(bits), range(bits, 2 * bits), strict=True):
        both = gate(XOR, x, y)
        if carry is None:
            outputs.append(both)
            carry = gate(AND, x, y)
            continue
        outputs.append(gate(XOR, both, carry))
        if x + 1 < bits:
            carry = gate(XOR, x, gate(AND, both, gate(XOR, x, carry)))
    return circuit(gates, 2 * bits, outputs)


ADDER = adder()


def a_run(mode: garble.Mode = garble.Mode.TILE, tile: int = 16, n: int = 50, **more: Any) -> garble.Run:
    return garble.Run(START, mode, tile, n, **more)


def drawn(n: int, n_inputs: int = 16) -> Bytes:
    return np.random.default_rng(n).integers(0, 2, (n_inputs, n), dtype=np.uint8)


def garbled(run: garble.Run, bits: Bytes) -> tuple[garble.Garbler, garble.Evaluator, bytes]:
    garbler, evaluator = garble.Garbler(ADDER, run, SEED), garble.Evaluator(ADDER, run)
    evaluator.set_input_labels(0, garbler.encode(0, bits))
    return garbler, evaluator, garbler.next_tables(ADDER.table_bytes(run.n_instances)) or b""


def integers(bits: Bytes) -> list[int]:
    return [int(sum(int(bit) << index for index, bit in enumerate(column))) for column in bits.T]


def decoded(garbler: garble.Garbler, evaluator: garble.Evaluator) -> list[int]:
    return integers(evaluator.output_colours() ^ garbler.output_colours())


@pytest.mark.parametrize("mode", garble.Mode)
@pytest.mark.parametrize(("tile", "n"), [(1, 5), (16, 16), (16, 50), (64, 50)])
def test_sums(mode: garble.Mode, tile: int, n: int) -> None:
    bits = drawn(n)
    garbler, evaluator, tables = garbled(a_run(mode, tile, n, threads=2), bits)
    assert garbler.done
    assert garbler.next_tables(1) is None
    assert evaluator.remaining == len(tables) == 32 * ADDER.n_and * n
    evaluator.feed(tables)
    expected = [(x + y) % 256 for x, y in zip(integers(bits[:8]), integers(bits[8:]), strict=True)]
    assert decoded(garbler, evaluator) == expected
    run = a_run(mode, tile, n)
    colours = garble.check_labels(evaluator.output_labels(), garbler.output_hashes(), run)
    assert np.array_equal(colours, evaluator.output_colours())


def test_tables_come_in_pieces_and_may_be_cut_anywhere() -> None:
    run = a_run(n=50)
    whole = garbled(run, drawn(50))[2]
    garbler, evaluator = garble.Garbler(ADDER, run, SEED), garble.Evaluator(ADDER, run)
    evaluator.set_input_labels(8, garbler.encode(8, drawn(50)[8:]))
    evaluator.set_input_labels(0, garbler.encode(0, drawn(50)[:8]))
    pieces = []
    while (piece := garbler.next_tables(1500)) is not None:
        assert len(piece) <= 1500
        pieces.append(piece)
    assert b"".join(pieces) == whole
    for start in range(0, len(whole), 77):
        evaluator.feed(memoryview(whole)[start : start + 77])
    assert decoded(garbler, evaluator) == decoded(*fed(garbled(run, drawn(50))))


def fed(made: tuple[garble.Garbler, garble.Evaluator, bytes]) -> tuple[garble.Garbler, garble.Evaluator]:
    made[1].feed(made[2])
    return made[0], made[1]


def test_offsets_are_fresh_and_labels_differ_by_them() -> None:
    run = a_run(n=50)
    garbler = garble.Garbler(ADDER, run, SEED)
    deltas, zeros = garbler.deltas(), garbler.zero_labels(3, 2)
    assert len({bytes(delta) for delta in deltas}) == 50
    assert (deltas[:, 0] & 1).all()
    assert zeros.shape == (2, 50, 16)
    assert len({bytes(label) for label in zeros.reshape(-1, 16)}) == 100
    ones = garbler.encode(3, np.ones((2, 50), dtype=np.uint8))
    assert np.array_equal(ones ^ zeros, np.broadcast_to(deltas, (2, 50, 16)))
    assert np.array_equal(garbler.encode(3, np.zeros((2, 50), dtype=np.uint8)), zeros)


def test_labels_of_oblivious_transfer() -> None:
    run, bits = a_run(n=20), drawn(20)
    garbler, evaluator = garble.Garbler(ADDER, run, SEED), garble.Evaluator(ADDER, run)
    messages = np.random.default_rng(5).integers(0, 256, (8, 20, 16), dtype=np.uint8)
    garbler.set_zero_labels(8, messages)
    assert np.array_equal(garbler.zero_labels(8, 8), messages)
    chosen = messages ^ (garbler.deltas() * bits[8:, :, np.newaxis])
    evaluator.set_input_labels(8, chosen)
    evaluator.set_input_labels(0, garbler.encode(0, bits[:8]))
    evaluator.feed(garbler.next_tables(1 << 20) or b"")
    expected = [(x + y) % 256 for x, y in zip(integers(bits[:8]), integers(bits[8:]), strict=True)]
    assert decoded(garbler, evaluator) == expected
    with pytest.raises(ValueError, match="tables have been made"):
        garbler.set_zero_labels(0, messages)


def test_windows_are_parts_of_the_run() -> None:
    whole = garbled(a_run(n=48), drawn(48))[2]
    parts = [garbled(a_run(n=n, first_instance=first), drawn(n))[2] for first, n in ((0, 16), (16, 32))]
    assert b"".join(parts) == whole


def test_start_and_seed_change_everything() -> None:
    base = garbled(a_run(n=2), drawn(2))[2]
    other = garble.Run(bytes(16), garble.Mode.TILE, 16, 2)
    assert garbled(other, drawn(2))[2] != base
    assert garble.Garbler(ADDER, a_run(n=2), bytes(32)).next_tables(1 << 16) != base


ONE_AND = circuit([(AND, 0, 1, 2)], 2, [2])


def flipped(row: int, bit: int, n: int = 400) -> tuple[Bytes, Bytes, Bytes, garble.Run, Bytes, Bytes]:
    """One AND gate, with `bit` of row 0 (T_G) or 1 (T_E) of every instance flipped.

    Returns the true output labels, the labels with the flip, the operands' colours, the run, the output
    hashes and the input bits.
    """
    run, bits = a_run(tile=1, n=n), drawn(n, 2)
    garbler = garble.Garbler(ONE_AND, run, SEED)
    tables = np.frombuffer(garbler.next_tables(32 * n) or b"", dtype=np.uint8).copy()
    labels = garbler.encode(0, bits)
    results = []
    for _ in range(2):
        evaluator = garble.Evaluator(ONE_AND, run)
        evaluator.set_input_labels(0, labels)
        evaluator.feed(tables)
        results.append(evaluator.output_labels())
        tables.reshape(n, 2, 16)[:, row, bit // 8] ^= 1 << bit % 8
    return (
        results[0],
        results[1],
        np.bitwise_and(labels[:, :, 0], np.uint8(1)),
        run,
        garbler.output_hashes(),
        bits,
    )


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("bit", [0, 1, 127])
def test_a_flipped_bit_reaches_the_label_where_the_colour_is_one(row: int, bit: int) -> None:
    right, wrong, colours, run, hashes, _ = flipped(row, bit)
    expected = np.zeros_like(right)
    expected[0, :, bit // 8] = colours[row] << (bit % 8)
    assert np.array_equal(right ^ wrong, expected)
    assert 100 < colours[row].sum() < 300
    garble.check_labels(right, hashes, run)
    first = int(np.argmax(colours[row]))
    with pytest.raises(VerificationError, match=rf"output 0 of instance {first} is neither"):
        garble.check_labels(wrong, hashes, run)


@pytest.mark.parametrize("mode", [garble.Mode.TILE, garble.Mode.UNIQUE])
@pytest.mark.parametrize("n", [1, 50, 700])
def test_a_label_list_is_hashed_label_by_label(mode: garble.Mode, n: int) -> None:
    run, key, start = a_run(mode, n=n), bytes(range(32)), bytes(range(16))
    garbler, rng = garble.Garbler(ADDER, run, SEED), np.random.default_rng(n)
    wires = np.array([5, 0, 9, 2], np.uint32)
    pads = rng.integers(0, 256, (2, n, 16), dtype=np.uint8)
    zeros = garbler.zero_labels(0, 16)[wires]
    zeros[2:] ^= pads
    firsts = zeros.copy()
    firsts[:2] ^= np.where(zeros[:2, :, :1] & 1, garbler.deltas(), 0)
    of_list = garble.Run(start, mode, run.tile, n)
    pairs = np.stack(
        [garble.label_hashes(each, of_list) for each in (firsts, firsts ^ garbler.deltas())], axis=2
    )
    hashed = StreamHash(key)
    hashed.update(pairs.tobytes())
    assert garbler.list_digest(wires, pads, start, key) == hashed.digest()

    bits = rng.integers(0, 2, (4, n), dtype=np.uint8)
    content = garbler.open_list(wires, pads, start, bits)
    opened = np.frombuffer(content, np.uint8).reshape(4, n, 32)
    made, labels = garble.opened_list(opened, bits[2:], of_list, key)
    assert made == hashed.digest()
    assert np.array_equal(labels, zeros ^ np.where(bits[:, :, None], garbler.deltas(), 0))
    assert np.array_equal(garble.label_hashes(labels ^ garbler.deltas(), of_list), opened[:, :, 16:])
    for position, instance, byte in ((0, 0, 3), (3, n - 1, 20), (1, n // 2, 31)):
        wrong = opened.copy()
        wrong[position, instance, byte] ^= 64
        assert garble.opened_list(wrong, bits[2:], of_list, key)[0] != made
    assert garble.opened_list(opened, 1 - bits[2:], of_list, key)[0] != made


def test_corrections_turn_second_pads_into_the_sibling_s_label() -> None:
    run = a_run(n=50)
    garbler = garble.Garbler(ADDER, run, SEED)
    pads = np.random.default_rng(2).integers(0, 256, (2, 150, 16), dtype=np.uint8)
    expected = pads[0] ^ pads[1] ^ np.tile(garbler.deltas(), (3, 1))
    garbler.correct(pads)
    assert np.array_equal(pads[1], expected)
    with pytest.raises(ValueError, match="whole wires"):
        garbler.correct(pads[:, :149].copy())


@pytest.mark.parametrize("wrong", ["pads", "wires", "start", "key", "bits", "opened"])
def test_a_label_list_of_another_shape_is_refused(wrong: str) -> None:
    run = a_run(n=50)
    garbler = garble.Garbler(ADDER, run, SEED)
    wires, pads = np.array([5, 99 if wrong == "wires" else 1], np.uint32), np.zeros((1, 50, 16), np.uint8)
    more = np.zeros((3, 50, 16), np.uint8) if wrong == "pads" else pads
    start, key = bytes(15 if wrong == "start" else 16), bytes(31 if wrong == "key" else 32)
    bits = np.zeros((3 if wrong == "bits" else 2, 50), np.uint8)
    opened = np.zeros((2, 50, 31 if wrong == "opened" else 32), np.uint8)
    calls: list[Callable[[], object]] = [
        lambda: garbler.list_digest(wires, more, start, key),
        lambda: garbler.open_list(wires, more, start, bits),
        lambda: garble.opened_list(opened, bits, garble.Run(start, run.mode, run.tile, 50), key),
    ]
    named = {
        "pads": [0, 1],
        "wires": [0, 1],
        "start": [0, 1, 2],
        "key": [0, 2],
        "bits": [1, 2],
        "opened": [2],
    }
    for index in named[wrong]:
        with pytest.raises(ValueError, match=wrong):
            calls[index]()


def test_the_colour_that_selects_says_nothing_about_the_bit() -> None:
    _, _, colours, _, _, bits = flipped(0, 5)
    agree = (colours[0] == bits[0]).mean()
    assert 0.4 < agree < 0.6


def test_a_label_of_another_output_or_instance_is_refused() -> None:
    run = a_run(n=20)
    garbler, evaluator = fed(garbled(run, drawn(20)))
    labels, hashes = evaluator.output_labels(), garbler.output_hashes()
    for swapped in (labels[::-1].copy(), labels[:, ::-1].copy()):
        with pytest.raises(VerificationError):
            garble.check_labels(swapped, hashes, run)
    other = garble.Run(bytes(16), run.mode, run.tile, 20)
    with pytest.raises(VerificationError):
        garble.check_labels(labels, hashes, other)


@pytest.mark.parametrize(
    ("gates", "n_inputs", "outputs", "n_wires", "says"),
    [
        ([(AND, 0, 2, 2)], 2, [2], None, "gate 0: wire 2 is used before it is given"),
        ([(AND, 0, 3, 2), (XOR, 2, 0, 3)], 2, [3], None, "gate 0: wire 3 is used before it is given"),
        ([(AND, 0, 9, 2)], 2, [2], None, "gate 0: wire 9 of 3"),
        ([(AND, 0, 1, 9)], 2, [2], None, "gate 0: wire 9 of 3"),
        ([(AND, 0, 1, 1)], 2, [1], None, "gate 0: wire 1 is given twice"),
        ([(XOR, 0, 1, 2), (XOR, 0, 1, 2)], 2, [2], None, "gate 1: wire 2 is given twice"),
        ([(5, 0, 1, 2)], 2, [2], None, "gate 0: kind 5"),
        ([(INV, 0, 1, 2)], 2, [2], None, "gate 0: second operand 1"),
        ([(EQ, 2, 0, 2)], 2, [2], None, "gate 0: constant 2, not 0 or 1"),
        ([(XOR, 0, 1, 2)], 2, [3], None, "output 0: wire 3 is not given"),
        ([(XOR, 0, 1, 2)], 2, [2], 1, "inputs: 2 of 1 wires"),
        ([(XOR, 0, 1, 2)], 2, [2], 1000, "wires: 1000, more than 2 inputs and 1 gates"),
        ([(XOR, 0, 1, 2)], 2, [2], 2**32, "wires: 4294967296, more than 4294967295"),
    ],
)
def test_circuits_that_are_refused(
    gates: list[tuple[int, int, int, int]], n_inputs: int, outputs: list[int], n_wires: int | None, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        circuit(gates, n_inputs, outputs, n_wires)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"start": bytes(15)}, "start: 15 bytes, not 16"),
        ({"tile": 0}, "tile: 0 instances, not between 1 and 4096"),
        ({"tile": 4097}, "tile: 4097 instances"),
        ({"n_instances": 0}, "n_instances: 0 from 0"),
        ({"n_instances": 2**48 + 1}, "n_instances: 281474976710657 from 0"),
        (
            {"n_instances": 2**28},
            "n_instances: 268435456 of 24 inputs and outputs, more than 2\\*\\*32 labels",
        ),
        ({"first_instance": 8}, "first_instance: 8, not a multiple of the tile, 16"),
        ({"threads": 0}, "threads: 0, not between 1 and 256"),
        ({"kernel": "none"}, "kernel"),
    ],
)
def test_runs_that_are_refused(change: dict[str, Any], says: str) -> None:
    fields: dict[str, Any] = {"start": START, "mode": garble.Mode.TILE, "tile": 16, "n_instances": 4}
    with pytest.raises(ValueError, match=says):
        garble.Garbler(ADDER, garble.Run(**{**fields, **change}), SEED)
    with pytest.raises(ValueError, match=says):
        garble.Evaluator(ADDER, garble.Run(**{**fields, **change}))


def test_calls_that_are_refused() -> None:
    run = a_run(n=20)
    with pytest.raises(ValueError, match="seed: 31 bytes, not 32"):
        garble.Garbler(ADDER, run, SEED[1:])
    garbler, evaluator = garble.Garbler(ADDER, run, SEED), garble.Evaluator(ADDER, run)
    with pytest.raises(ValueError, match="not 0 or 1"):
        garbler.encode(0, np.full((1, 20), 2, dtype=np.uint8))
    with pytest.raises(ValueError, match=r"bits: shape \[1, 19\]"):
        garbler.encode(0, np.zeros((1, 19), dtype=np.uint8))
    with pytest.raises(ValueError, match="inputs: 2 from 15, of 16 inputs"):
        garbler.zero_labels(15, 2)
    with pytest.raises(ValueError, match="buffer: 511 bytes, less than a gate of a tile, 512"):
        garbler.next_tables(511)
    with pytest.raises(ValueError, match="tables are still to be made"):
        garbler.output_colours()
    with pytest.raises(ValueError, match="input 0 has no labels yet"):
        evaluator.feed(bytes(1))
    with pytest.raises(ValueError, match=r"labels: shape \[16, 20, 15\]"):
        evaluator.set_input_labels(0, np.zeros((16, 20, 15), dtype=np.uint8))
    labels = garbler.encode(0, drawn(20))
    with pytest.raises(ValueError, match="labels"):
        evaluator.set_input_labels(0, labels[:, :, ::-1])
    evaluator.set_input_labels(0, labels)
    with pytest.raises(ValueError, match="input 3 has its labels"):
        evaluator.set_input_labels(3, labels[:1])
    tables = garbler.next_tables(1 << 20) or b""
    with pytest.raises(ValueError, match=f"tables: {len(tables) + 1} bytes where {len(tables)} are due"):
        evaluator.feed(tables + b" ")
    evaluator.feed(tables[:-1])
    with pytest.raises(ValueError, match="1 bytes of tables are still to come"):
        evaluator.output_labels()


def test_nothing_is_shown() -> None:
    garbler, evaluator, _ = garbled(a_run(), drawn(50))
    for text in (repr(garbler._core), repr(evaluator._core), repr(ADDER)):
        assert len(text) < 100
        assert SEED.hex() not in text


def test_every_machine_has_the_portable_kernel() -> None:
    assert _core.garbling_kernels()[0] == "portable"


def given(n: int = 20) -> tuple[garble.Garbler, garble.Evaluator, Bytes, Bytes]:
    """Both sides of the adder, its bits, and pads for the transfers of its second operand."""
    run, random = a_run(n=n), np.random.default_rng(6)
    pads = random.integers(0, 256, (2, 8 * n, 16), dtype=np.uint8)
    return garble.Garbler(ADDER, run, SEED), garble.Evaluator(ADDER, run), drawn(n), pads


@pytest.mark.parametrize("chunk", [7, 20, 160])
@pytest.mark.parametrize("backwards", [False, True])
def test_labels_from_an_open_seed_and_from_transfers(chunk: int, backwards: bool) -> None:
    garbler, evaluator, bits, pads = given()
    own, theirs = np.arange(8, dtype=np.uint32), np.arange(8, 16, dtype=np.uint32)
    if backwards:
        theirs = np.ascontiguousarray(theirs[::-1])
    garbler.open_inputs(own, np.ascontiguousarray(bits[own]), b"an open seed ...")
    evaluator.open_inputs(own, b"an open seed ...")
    choices = np.ascontiguousarray(bits[theirs]).reshape(-1)
    for index in range(0, len(choices), chunk):
        both = np.ascontiguousarray(pads[:, index : index + chunk])
        chosen = both[choices[index : index + chunk], np.arange(both.shape[1])]
        garbler.transfer(theirs, index, both)
        evaluator.transfer(theirs, index, choices[index : index + chunk], chosen, both[1].reshape(-1))
    evaluator.feed(garbler.next_tables(1 << 20) or b"")
    expected = [(x + y) % 256 for x, y in zip(integers(bits[:8]), integers(bits[8:]), strict=True)]
    assert decoded(garbler, evaluator) == expected
    ones = garbler.encode(0, np.ones((8, 20), np.uint8))
    assert np.array_equal(garbler.zero_labels(0, 8) ^ ones, np.broadcast_to(garbler.deltas(), (8, 20, 16)))


@pytest.mark.parametrize("backwards", [False, True])
def test_labels_of_random_choices_are_exchanged_where_the_input_is_another(backwards: bool) -> None:
    garbler, evaluator, bits, pads = given()
    own, theirs = np.arange(8, dtype=np.uint32), np.arange(8, 16, dtype=np.uint32)
    if backwards:
        theirs = np.ascontiguousarray(theirs[::-1])
    choices = np.random.default_rng(7).integers(0, 2, (8, 20), dtype=np.uint8)
    chosen = pads[choices.reshape(-1), np.arange(160)]
    garbler.transfer(theirs, 0, pads)
    evaluator.transfer(theirs, 0, choices.reshape(-1), chosen, pads[1].reshape(-1))
    garbler.open_inputs(own, np.ascontiguousarray(bits[own]), bytes(16))
    evaluator.open_inputs(own, bytes(16))
    before, masked = garbler.zero_labels(8, 8), choices ^ bits[theirs]
    garbler.flip(theirs, masked)
    in_order = masked[::-1] if backwards else masked
    assert np.array_equal(garbler.zero_labels(8, 8), before ^ garbler.deltas() * in_order[:, :, np.newaxis])
    evaluator.feed(garbler.next_tables(1 << 20) or b"")
    expected = [(x + y) % 256 for x, y in zip(integers(bits[:8]), integers(bits[8:]), strict=True)]
    assert decoded(garbler, evaluator) == expected
    with pytest.raises(ValueError, match="tables have been made"):
        garbler.flip(theirs, masked)


def test_only_labels_that_were_given_are_exchanged() -> None:
    garbler, _, bits, pads = given()
    wires = np.arange(8, 16, dtype=np.uint32)
    garbler.open_inputs(wires[1:2] - 8, bits[:1], bytes(16))
    garbler.transfer(wires, 0, np.ascontiguousarray(pads[:, :30]))
    garbler.flip(wires[:1], bits[:1])
    for wire in (9, 10, 1):
        with pytest.raises(ValueError, match=f"input {wire} does not have all of its own"):
            garbler.flip(np.array([wire], np.uint32), bits[:1])
    for wrong in (bits[:2], np.ascontiguousarray(bits[:1, 1:])):
        with pytest.raises(ValueError, match="bits: shape"):
            garbler.flip(wires[:1], wrong)
    with pytest.raises(ValueError, match="0 or 1"):
        garbler.flip(wires[:1], bits[:1] + np.uint8(1))


def test_an_input_has_its_labels_once_and_for_all_instances() -> None:
    garbler, evaluator, _, pads = given()
    wires = np.arange(8, 16, dtype=np.uint32)
    garbler.transfer(wires, 0, np.ascontiguousarray(pads[:, :30]))
    with pytest.raises(ValueError, match="input 9 has its labels"):
        garbler.transfer(wires, 25, np.ascontiguousarray(pads[:, :10]))
    with pytest.raises(ValueError, match="input 9 has labels for some instances only"):
        garbler.next_tables(1 << 20)
    with pytest.raises(ValueError, match="input 8 has its labels"):
        garbler.open_inputs(wires[:1], np.zeros((1, 20), np.uint8), bytes(16))
    with pytest.raises(ValueError, match="transfers: 20 from 150, of 160"):
        garbler.transfer(wires, 150, np.ascontiguousarray(pads[:, :20]))
    with pytest.raises(ValueError, match="wires: 16, of 16 inputs"):
        garbler.transfer(wires + 1, 0, np.ascontiguousarray(pads[:, :20]))
    with pytest.raises(ValueError, match="pads"):
        garbler.transfer(wires, 30, pads[:1])
    with pytest.raises(ValueError, match="seed: 15 bytes"):
        evaluator.open_inputs(wires, bytes(15))
    with pytest.raises(ValueError, match="0 or 1"):
        evaluator.transfer(wires, 0, np.full(1, 2, np.uint8), pads[0, :1], pads[1, :1].reshape(-1))
    with pytest.raises(ValueError, match="pads, corrections: 16 and 32 bytes for 1 choices"):
        evaluator.transfer(wires, 0, np.ones(1, np.uint8), pads[0, :1], pads[1, :2].reshape(-1))
