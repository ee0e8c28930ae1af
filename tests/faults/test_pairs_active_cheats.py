"""Sides that deviate in what they compute: correlations, circuits, rows, masked values, guesses of digits."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.pairs.active import garbler as garbling
from smpc_dp.capabilities.pairs.active import participant
from smpc_dp.capabilities.pairs.active.messages import COIN, COMMIT, DIGEST_BYTES, MACS, OUTPUTS, Outputs
from smpc_dp.capabilities.pairs.active.participant import ActiveParticipant
from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.circuits.bristol import parse_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, Op
from smpc_dp.capabilities.pairs.garbled.effects import Effects
from smpc_dp.capabilities.pairs.garbled.messages import PIECE_HEADER
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import Bits, Block
from smpc_dp.crypto.active import Garbler, Labels, LeakyTriples, Masks, OpenedBits, SharedBits, Side, Triples
from smpc_dp.crypto.garble import LABEL_BYTES
from smpc_dp.crypto.ot import Receiver, Rows, Sender
from tests.active_pairs import NAMES, Pair, expected_of, outputs_of, plan_of
from tests.faults.test_ot import cheat as guess_digits
from tests.faults.test_pairs_active import (
    EXPECTED,
    HONEST,
    PIECES,
    PLAN,
    STEPS,
    VALUES,
    Recorded,
    cheated,
    check_failed,
    flipped,
    resigned,
    run,
    step_of,
)
from tests.reference.ot_twin import bits, polyval

# Every kind of gate; each wire is an operand of an AND gate, or of an XOR whose output is.
SMALL_CIRCUIT = parse_bristol(b"""10 14
2 2 2
1 2

2 1 0 2 4 XOR
2 1 4 3 5 AND
1 1 5 6 INV
1 1 1 7 EQW
2 1 6 7 8 AND
1 1 1 9 EQ
2 1 8 9 10 XOR
2 1 1 10 11 AND
2 1 11 4 12 XOR
2 1 12 5 13 AND
""")
SMALL = plan_of(SMALL_CIRCUIT, 2)
SMALL_VALUES, OTHER_VALUES = [[2, 1], [1, 3]], [[1, 2], [2, 0]]
# A false label of one gate gives the right masked value with probability 1/2, and is harmless then: so many
# instances that it does not in all.
WIDE = plan_of(SMALL_CIRCUIT, 16)
WIDE_VALUES, OTHER_WIDE = [one * 8 for one in SMALL_VALUES], [one * 8 for one in OTHER_VALUES]
SMALL_EXPECTED = expected_of(SMALL.circuit, SMALL_VALUES)
SMALL_RUN = Recorded()
assert outputs_of(Pair().evaluate(SMALL, SMALL_VALUES, SMALL_RUN), SMALL) == [SMALL_EXPECTED] * 2
ANDS, INSTANCES = SMALL.ands, SMALL.parameters.instances


def steps_of(name: str, recorded: Recorded) -> list[str]:
    """The steps of what a member has sent."""
    return [step_of(*message) for message in recorded.messages if message[0] == name]


class Reckless(ActiveParticipant):
    """A side that goes on whatever its own checks find."""

    def _require(self, arrived: bytes | memoryview, expected: bytes) -> None:
        pass


# Another correlation than that of the transfers, or two.


class OtherLeaky(LeakyTriples):
    """Leaky triples whose first message is made with another correlation from triple `first` on."""

    def __init__(self, side: Side, other: Side, first: int) -> None:
        super().__init__(side)
        self._other, self._first = LeakyTriples(other), first

    def begin(self, first: int, shares: SharedBits) -> Labels:
        copied = SharedBits(*(part.copy() for part in shares))
        sent, others = super().begin(first, shares), self._other.begin(first, copied)
        sent[LABEL_BYTES * self._first :] = others[LABEL_BYTES * self._first :]
        return sent


class OtherDelta(Reckless):
    """A side with another correlation than its transfers have, in triples or in masks, tables and MACs."""

    where = ""

    def _set_up(self) -> Effects[tuple[Side, LeakyTriples]]:
        side, leaky = yield from super()._set_up()
        other = dataclasses.replace(side, delta=bytes([side.delta[0] ^ 2]) + side.delta[1:])
        if self.where == "some triples":
            leaky = OtherLeaky(side, other, self._plan.leaky // 2)
        elif self.where != "masks":
            leaky = LeakyTriples(other)
        return (side if "triples" in self.where else other), leaky


@pytest.mark.parametrize("cheat", NAMES)
@pytest.mark.parametrize("where", ["all", "triples", "some triples", "masks"])
def test_another_correlation_than_that_of_the_transfers_is_refused(where: str, cheat: str) -> None:
    recorded = Recorded()
    ends, pair = cheated(cheat, OtherDelta, tamper=recorded, where=where)
    if (where, cheat) == ("masks", "bob"):
        # The evaluator's correlation serves its own checks alone by then.
        assert outputs_of({"alice": ends["alice"], "bob": ends["alice"]}, PLAN)[0] == EXPECTED
        return
    check_failed(ends[HONEST[cheat]], recorded.codes)
    assert pair.setups[HONEST[cheat]].ends() is None
    # The equality of triples shows it, or the garbler's labels do, before its answer and any output.
    sent = steps_of(HONEST[cheat], recorded)
    assert (COIN in sent) is (where == "masks")
    assert OUTPUTS not in sent


# Another circuit under the digest of the agreed one.


def changed_circuits(circuit: Circuit) -> list[tuple[str, Circuit]]:
    """Circuits with one gate changed, which have as many AND gates and the same wires."""
    changed = []
    for number, (op, a, b, _) in enumerate(circuit.gates()):
        columns: dict[str, Any] = {"op": circuit.op.copy(), "a": circuit.a.copy(), "b": circuit.b.copy()}
        if op in (Op.INV, Op.EQW):
            columns["op"][number] = Op.EQW if op == Op.INV else Op.INV
        elif op == Op.EQ:
            columns["a"][number] ^= 1
        else:
            # Another input wire in place of the first operand.
            columns["a"][number] = next(wire for wire in range(circuit.n_inputs) if wire not in (a, b))
        changed.append((f"{number} {Op(op).name}", dataclasses.replace(circuit, **columns)))
    return changed


def with_circuit(plan: ActivePlan, circuit: Circuit) -> ActivePlan:
    """The plan with the digests of the agreed circuit, and the gates of another."""
    other = copy.copy(plan)
    object.__setattr__(other, "compiled", plan_of(circuit, plan.parameters.instances).compiled)
    return other


class OtherCircuit(Reckless):
    """A side that masks and garbles, or evaluates, another circuit from its masks on."""

    circuit = SMALL_CIRCUIT

    def _mask(
        self, side: Side, block: Block, triples: Triples, shared: SharedBits
    ) -> Effects[tuple[Masks, Bits]]:
        self._plan = with_circuit(self._plan, self.circuit)
        return (yield from super()._mask(side, block, triples, shared))


@pytest.mark.parametrize("cheat", NAMES)
@pytest.mark.parametrize(
    ("circuit"), [pytest.param(one, id=name) for name, one in changed_circuits(SMALL_CIRCUIT)]
)
def test_another_circuit_under_the_agreed_digest_is_refused(circuit: Circuit, cheat: str) -> None:
    recorded = Recorded()
    ends, _ = cheated(cheat, OtherCircuit, WIDE, WIDE_VALUES, recorded, circuit=circuit)
    check_failed(ends[HONEST[cheat]], recorded.codes)


@pytest.mark.parametrize(
    ("circuit"), [pytest.param(one, id=name) for name, one in changed_circuits(SMALL_CIRCUIT)]
)
def test_tables_of_another_circuit_are_refused_when_all_openings_were_right(
    monkeypatch: pytest.MonkeyPatch, circuit: Circuit
) -> None:
    other = with_circuit(WIDE, circuit).compiled

    class OtherTables(Masks):
        """The garbler's masks are those of the agreed circuit up to openings, and then of the other."""

        def __init__(
            self, side: Side, compiled: Any, n_instances: int, inputs: SharedBits, gates: SharedBits
        ) -> None:
            super().__init__(side, compiled, n_instances, inputs, gates)
            self.other = Masks(side, other, n_instances, inputs, gates)

        def open(self, triples: Triples) -> OpenedBits:
            self.other.open(triples)
            return super().open(triples)

        def multiply(self, triples: Triples, opened: Bits) -> None:
            if self.side.garbler:
                self.core = self.other.core
            super().multiply(triples, opened)

    monkeypatch.setattr(participant, "Masks", OtherTables)
    recorded = Recorded()
    ends, _ = cheated("alice", Reckless, WIDE, WIDE_VALUES, recorded)
    check_failed(ends["bob"], recorded.codes)


# Selective failure: each input bit, row of a gate, masked value and output bit.


class OtherInput(Reckless):
    """A side that computes with other masked values of an input wire than those that were sent."""

    wire = 0

    def _mask_inputs(self, block: Block, masks: Bits) -> Effects[Bits]:
        masked = yield from super()._mask_inputs(block, masks)
        masked.reshape(-1, block.count)[self.wire] ^= 1
        return masked


@pytest.mark.parametrize("cheat", NAMES)
@pytest.mark.parametrize("wire", range(SMALL_CIRCUIT.n_inputs))
def test_other_masked_values_of_any_input_wire_are_refused_whatever_the_inputs(cheat: str, wire: int) -> None:
    for values in (WIDE_VALUES, OTHER_WIDE):
        recorded = Recorded()
        ends, _ = cheated(cheat, OtherInput, WIDE, values, recorded, wire=wire)
        check_failed(ends[HONEST[cheat]], recorded.codes)


def masked_values(plan: ActivePlan, seen: Recorded) -> Any:
    """Masked values by wire and instance, from what was sent: those of inputs, and of AND gates."""
    circuit, count = plan.circuit, plan.parameters.instances
    pieces = {
        name: [data for by, data in seen.messages if by == name and not step_of(by, data)] for name in NAMES
    }
    masked = np.zeros((circuit.n_wires, count), np.uint8)

    def unpacked(piece: bytes, rows: int) -> Any:
        content = np.frombuffer(piece[PIECE_HEADER.size :], np.uint8)
        return np.unpackbits(content, count=rows * count, bitorder="little").reshape(rows, count)

    # The garbler's last pieces are its inputs and the tables, the evaluator's its inputs and the values.
    for side, name in enumerate(NAMES):
        masked[plan.own_wires[side]] = unpacked(pieces[name][-2], len(plan.own_wires[side]))
    of_gates = iter(unpacked(pieces["bob"][-1][:-DIGEST_BYTES], plan.ands))
    for op, a, b, out in circuit.gates():
        if op == Op.XOR:
            masked[out] = masked[a] ^ masked[b]
        elif op == Op.AND:
            masked[out] = next(of_gates)
        elif op != Op.EQ:
            masked[out] = masked[a]
    return masked


class FalseRows(Garbler):
    """A garbler of tables in which one row, T or V or the bit, of one gate is changed by its correlation.

    Labels stay labels: what is changed is the value of a wire, where the row is used.
    """

    place = (0, 0, "T")

    def __init__(self, masks: Masks, first: int, masked: Bits) -> None:
        super().__init__(masks, first, masked)
        self._delta = np.frombuffer(masks.side.delta, np.uint8)

    def tables(self, seed: bytes) -> tuple[Labels, Bits]:
        tables, table_bits = super().tables(seed)
        gate, instance, row = self.place
        if row == "bit":
            table_bits[gate * INSTANCES + instance] ^= 1
        else:
            number = (2 * gate + (row == "V")) * INSTANCES + instance
            tables[LABEL_BYTES * number : LABEL_BYTES * (number + 1)] ^= self._delta
        return tables, table_bits


@pytest.mark.parametrize("row", ["T", "V", "bit"])
@pytest.mark.parametrize("gate", range(ANDS))
@pytest.mark.parametrize("instance", range(INSTANCES))
def test_a_false_row_is_refused_where_the_masked_value_of_its_operand_is_1(
    monkeypatch: pytest.MonkeyPatch, gate: int, instance: int, row: str
) -> None:
    operands = [(a, b) for op, a, b, _ in SMALL.circuit.gates() if op == Op.AND][gate]
    used = row == "bit" or masked_values(SMALL, SMALL_RUN)[operands[row == "V"], instance]
    monkeypatch.setattr(garbling, "Garbler", FalseRows)
    monkeypatch.setattr(FalseRows, "place", (gate, instance, row))
    recorded = Recorded()
    ends = Pair().evaluate(SMALL, SMALL_VALUES, recorded)
    if used:
        check_failed(ends["bob"], recorded.codes)
        assert OUTPUTS not in steps_of("bob", recorded)
    else:
        assert outputs_of(ends, SMALL) == [SMALL_EXPECTED] * 2


@pytest.mark.parametrize("values", list(product((0, 3), repeat=2)), ids=str)
def test_masked_values_on_which_a_false_row_depends_are_uniform_whatever_the_inputs(
    values: Sequence[int],
) -> None:
    # One of 13 wires (another is a constant), for one of four pairs of inputs, is further from the mean than
    # by 5 standard deviations once in 33,000 runs; seeded.
    count, seen = 1000, Recorded()
    plan = plan_of(SMALL.circuit, count)
    given = [[value] * count for value in values]
    assert outputs_of(Pair().evaluate(plan, given, seen), plan)[1] == expected_of(plan.circuit, given)
    masked = masked_values(plan, seen)
    constants = [out for op, _, _, out in plan.circuit.gates() if op == Op.EQ]
    for wire, ones in enumerate(masked.sum(axis=1)):
        if wire in constants:
            assert ones == 0
        else:
            assert abs(int(ones) - count / 2) < 5 * (count / 4) ** 0.5


@pytest.mark.parametrize("place", range(ANDS * INSTANCES))
def test_a_lie_about_any_masked_value_is_not_answered_whatever_the_garblers_inputs(place: int) -> None:
    last = max(
        at for at, (by, data) in enumerate(SMALL_RUN.messages) if by == "bob" and not step_of(by, data)
    )

    def lie(_sender: str, at: int, data: bytes) -> bytes:
        changed = bytearray(data)
        changed[PIECE_HEADER.size + place // 8] ^= (at == last) << place % 8
        return bytes(changed)

    for ours in ([2, 1], [1, 0]):
        recorded = Recorded(lie)
        ends = Pair().evaluate(SMALL, [ours, SMALL_VALUES[1]], recorded)
        check_failed(ends["alice"], recorded.codes)
        assert MACS not in recorded.steps()


@pytest.mark.parametrize("cheat", NAMES)
@pytest.mark.parametrize("bit", range(SMALL.output_bits))
def test_a_false_share_of_any_output_bit_is_refused_whatever_the_inputs(cheat: str, bit: int) -> None:
    def other(outputs: Outputs) -> Outputs:
        shares = bytearray(outputs.shares)
        shares[bit // 8] ^= 1 << bit % 8
        return replace(outputs, shares=bytes(shares))

    def change(sender: str, _number: int, data: bytes) -> bytes:
        return resigned(sender, data, other) if (sender, step_of(sender, data)) == (cheat, OUTPUTS) else data

    for values in (SMALL_VALUES, OTHER_VALUES):
        recorded = Recorded(change)
        ends = Pair().evaluate(SMALL, values, recorded)
        check_failed(ends[HONEST[cheat]], recorded.codes)


def test_whether_a_change_is_refused_and_when_does_not_depend_on_the_honest_inputs() -> None:
    # One bit of each message after the setups, with the same random draws; tables have a test of their own.
    tables = max(number for number in PIECES if STEPS[number][0] == "alice")
    for number in range(PIECES[6], len(STEPS)):
        if number == tables:
            continue
        cheat, step = STEPS[number]
        honest = NAMES.index(HONEST[cheat])
        stops = set()
        for value in (0, 0xFFFF):
            values = [list(row) for row in VALUES]
            values[honest] = [value, value ^ 0xF0F0]

            def change(sender: str, at: int, data: bytes, number: int = number, step: str = step) -> bytes:
                if at != number:
                    return data
                if step:
                    return resigned(sender, data, flipped_body)
                return data[:-1] + bytes([data[-1] ^ 1])

            recorded = Recorded(change)
            end = Pair().evaluate(PLAN, values, recorded)[HONEST[cheat]]
            stops.add((isinstance(end, Evaluated), tuple(recorded.steps())))
        assert len(stops) == 1


def flipped_body(body: Any) -> Any:
    """A body with its last field changed."""
    field = body.__struct_fields__[-1]
    return replace(body, **{field: flipped(getattr(body, field), 64)})


# Guesses of digits of the other side's correlation.

CONTEXT = b"c" * 32
ROW = 3


@pytest.mark.parametrize(("k", "digits"), [(2, (0,)), (2, (9,)), (2, (0, 9)), (4, (0,)), (4, (7,))])
@pytest.mark.parametrize("bit", [False, True])
def test_one_of_all_guesses_of_digits_passes_and_bit_0_is_no_secret(
    k: int, digits: tuple[int, ...], bit: bool
) -> None:
    """Of m digits 2^(k m) guesses, or 2^(k m - 1) with the public bit of digit 0: exactly one passes."""
    deltas, passed = set(), []
    guesses = list(product(range(1 << k), repeat=len(digits)))
    for guess in guesses:
        sender, receiver = (
            Sender("bob", CONTEXT, b"s" * 32, k, bit=bit),
            Receiver("alice", CONTEXT, b"r" * 32, k),
        )
        sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
        deltas.add(sender.delta)
        if guess_digits(sender, receiver, k, dict(zip(digits, guess, strict=True))):
            passed.append(guess)
    (delta,) = deltas
    truth = [sum(bits(delta)[digit * k + i] << i for i in range(k)) for digit in digits]
    assert passed == [tuple(truth)]
    possible = [guess for guess in guesses if digits[0] or guess[0] & 1 == bit]
    assert passed[0] in possible
    assert len(possible) == 1 << k * len(digits) - (digits[0] == 0)


class Guessing(Receiver):
    """A receiver that chooses otherwise in one transfer for digit 0 alone, and bets on that digit."""

    guess = 0

    def extend_into(self, count: int, choices: bytes, out: Rows) -> None:
        first = self.next_index == 0
        super().extend_into(count, choices, out)
        if first:
            # After the index and the number of transfers, digit 0's column is first.
            out[16 + ROW // 8] ^= 1 << ROW % 8

    def correlated(self, challenge: bytes, out: Rows | None = None) -> tuple[bytes, Rows]:
        response, rows = super().correlated(challenge, out)
        if challenge[:8] == bytes(8):
            length = 128 * (-(-len(rows) // 128) + 1)
            error = polyval(challenge[8:], [int(index == ROW) for index in range(length)])
            content = bytearray(response)
            for bit in range(4):
                if self.guess >> bit & 1:
                    column = np.frombuffer(content, np.uint8)[24 + 16 * bit : 40 + 16 * bit]
                    column ^= np.frombuffer(error, np.uint8)
            response = bytes(content)
            rows[ROW, 0] ^= self.guess
        return response, rows


@pytest.mark.parametrize("cheat", NAMES)
def test_a_side_that_guesses_a_digit_of_the_correlation_passes_or_ends_everything(
    monkeypatch: pytest.MonkeyPatch, cheat: str
) -> None:
    """With digit 0 of 4 bits, whose bit 0 is public, 1 of 8 guesses passes, and the output is right."""
    ends, pair = run(Recorded())
    held = pair.setups[HONEST[cheat]].ends()
    assert held is not None
    truth = held[0].delta[0] & 15

    def receiver(peer: str, *terms: Any) -> Receiver:
        return (Guessing if peer == HONEST[cheat] else Receiver)(peer, *terms)

    monkeypatch.setattr(participant, "Receiver", receiver)
    public, passed = truth & 1, []
    for guess in range(public, 16, 2):
        monkeypatch.setattr(Guessing, "guess", guess)
        recorded = Recorded()
        ends, pair = run(recorded)
        if isinstance(ends[HONEST[cheat]], Evaluated):
            assert outputs_of(ends, PLAN) == [EXPECTED] * 2
            passed.append(guess)
            continue
        check_failed(ends[HONEST[cheat]], recorded.codes)
        assert pair.setups[HONEST[cheat]].ends() is None
        assert not {COMMIT, COIN} & {*recorded.steps()}
    assert passed == [truth]
