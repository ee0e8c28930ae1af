"""What an attacker of authenticated garbling gains: leaky triples by the core, all else by the twin."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from smpc_dp.crypto.active import LeakyTriples, SharedBits, Side, bucket_order
from smpc_dp.crypto.ot import Receiver, Sender
from tests.reference.active_twin import NAMES, SIDES, Dealer, E, Evaluation, G, Stopped, Tamper, seeded
from tests.reference.garble_twin import AND, hash_label
from tests.reference.test_active_twin import (
    EVALUATOR_INPUTS,
    GARBLER_INPUTS,
    STOPS,
    at,
    attacked,
    drawn_circuit,
    evaluation,
    expected_wins,
    finish,
    stopping_check,
)

TRIALS = 1000
INPUTS = (GARBLER_INPUTS, EVALUATOR_INPUTS)
# Not bit 0, which would change z.
FLIP = 2


def transferred(k: int, count: int, seed: str) -> tuple[list[Side], list[SharedBits]]:
    """By side its keys, and shared random bits, from transfers of both directions."""
    random, sides = Random(seed), []
    choices = [np.array([random.getrandbits(1) for _ in range(count)], np.uint8) for _ in SIDES]
    keys, macs = [], []
    for u in SIDES:
        context = NAMES[u].ljust(32)
        sender = Sender("receiver", context, random.randbytes(32), k, bit=u == G)
        receiver = Receiver("sender", context, random.randbytes(32), k)
        sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
        packed = np.packbits(choices[1 - u], bitorder="little").tobytes()
        response, rows = receiver.correlated(sender.challenge(count, receiver.extend(count, packed)))
        keys.append(sender.correlated(response))
        macs.append(rows)
        sides.append(Side(u == G, sender.delta, bytes(16)))
    return sides, [SharedBits(choices[u], macs[1 - u], keys[u]) for u in SIDES]


@pytest.mark.parametrize("corrupt", SIDES, ids=["garbler", "evaluator"])
@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize(("count", "size", "leaks"), [(3, 1, 1), (4, 2, 2), (4, 2, 3), (4, 2, 4)])
def test_leaky_bits_that_are_guessed_fill_a_bucket_as_often_as_the_formula_says(
    count: int, size: int, leaks: int, k: int, corrupt: int
) -> None:
    """A side makes `leaks` triples leak and bets that the other's x is its own; its win is a bucket of these.

    Equality passes exactly if all guesses are right. Wins further from the formula than by 5 standard
    deviations: once in 40,000 runs for all cases together; seeded.
    """
    random, total = Random(f"{count} {size} {leaks} {k} {corrupt}"), count * size
    sides, shared = transferred(k, 3 * total * TRIALS, f"transfers {k}")
    wins = 0
    for trial in range(TRIALS):
        part = slice(3 * total * trial, 3 * total * (trial + 1))
        own = [SharedBits(*(column[part].copy() for column in shared[u])) for u in SIDES]
        guessed = own[corrupt].bits[:leaks].tolist() == own[1 - corrupt].bits[:leaks].tolist()
        leaky = [LeakyTriples(side) for side in sides]
        sent = [leaky[u].begin(0, own[u]) for u in SIDES]
        for u in SIDES:
            # What it sends makes the triples leak, what it takes shifts its own values where its share is 1.
            sent[u][: 16 * leaks : 16] ^= FLIP
        d = [leaky[u].answer(sent[1 - u]) for u in SIDES]
        values = [leaky[u].finish(d[G] ^ d[E], bytes(32)) for u in SIDES]
        assert (values[G] == values[E]) is guessed
        if guessed:
            order = bucket_order(total, random.randbytes(32)).reshape(count, size)
            wins += bool((order < leaks).all(axis=1).any())
    exact = expected_wins(count, size, leaks)
    assert abs(wins / TRIALS - exact) <= 5 * (exact * (1 - exact) / TRIALS) ** 0.5


def under_another_delta(one: Evaluation, count: int) -> Tamper:
    """Make the first `count` values of U with another Delta."""

    def tamper(name: str, side: int, value: Any) -> Any:
        if name != "U":
            return value
        delta, changed = one.source.deltas[side], list(value)
        for i in range(count):
            key, place = one.leaked[i].key[side], one.triple_keys(i)[side]
            changed[i] ^= hash_label(key ^ delta, place) ^ hash_label(key ^ delta ^ 1 << 77, place)
        return changed

    return tamper


@pytest.mark.parametrize("corrupt", SIDES)
def test_triples_under_another_correlation_pass_where_the_others_x_is_0(corrupt: int) -> None:
    """Two of four triples are made under another Delta: no more than a guess that these do not leak."""
    outcomes = set()
    for number in range(24):
        one = evaluation(f"two {corrupt} {number}", corrupt=corrupt)
        one.tamper = under_another_delta(one, 2)
        check = stopping_check(one)
        outcomes.add((check, any(x.share[1 - corrupt] for x in one.leaked[:2])))
    assert outcomes == {(None, False), ("equality", True)}


def in_row(j: int, half: int, error: int) -> Callable[[Any], Any]:
    """Add `error` to T or V of gate j, for half 0 or 1."""

    def change(tables: Any) -> Any:
        row = list(tables[j, 0])
        row[half] ^= error
        return tables | {(j, 0): tuple(row)}

    return change


@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("by", ["a bit", "the correlation"])
def test_every_false_row_stops_exactly_where_its_masked_value_is_1(by: str, number: int) -> None:
    circuit = drawn_circuit(f"circuit {number}")
    gates = [gate for gate in circuit.gates if gate.op == AND]
    for j, half in product(range(len(gates)), range(2)):
        # The dealer's: it is drawn anew for each gate.
        source = Dealer(seeded(f"row {j} {half} {number}"))
        error = 1 if by == "a bit" else source.deltas[G]
        one = attacked("row", G, "tables", in_row(j, half, error), circuit=circuit, source=source)
        used = {None: 0, "macs": 1}[stopping_check(one)]
        assert used == one.active[(gates[j].a, gates[j].b)[half], 0] & 1


@pytest.mark.parametrize("number", range(2))
def test_every_lie_about_a_masked_value_stops_the_garbler(number: int) -> None:
    circuit = drawn_circuit(f"circuit {number}")
    for j in range(sum(gate.op == AND for gate in circuit.gates)):
        one = attacked(f"lie {j}", E, "masked", at(0, j), circuit=circuit)
        with pytest.raises(Stopped, match="garbler stops: masked"):
            one.run()
        assert ("macs", G) not in one.sent


def checks_by_inputs(corrupt: int, make: Callable[[], Evaluation]) -> list[str | None]:
    """The check that stops the honest side, of evaluations that differ in its inputs alone."""
    found, wires = [], INPUTS[1 - corrupt]
    for values in ((0,) * len(wires), (1,) * len(wires), (1, *(0,) * (len(wires) - 1))):
        one = make()
        one.inputs[1 - corrupt].update({wire: [bit] for wire, bit in zip(wires, values, strict=True)})
        found.append(stopping_check(one))
    return found


@pytest.mark.parametrize("corrupt", SIDES)
@pytest.mark.parametrize(("step", "change", "_check"), STOPS)
def test_the_check_that_stops_does_not_depend_on_the_honest_inputs(
    step: str, change: Callable[[Any], Any], _check: str, corrupt: int
) -> None:
    found = checks_by_inputs(corrupt, partial(attacked, f"{step} {corrupt}", corrupt, step, change))
    assert len({*found}) == 1


@pytest.mark.parametrize("corrupt", SIDES)
def test_whether_a_leaky_triple_stops_does_not_depend_on_the_honest_inputs(corrupt: int) -> None:
    outcomes = set()
    for number in range(8):
        make = partial(attacked, f"leaky {corrupt} {number}", corrupt, "U", at(0))
        found = checks_by_inputs(corrupt, make)
        assert len({*found}) == 1
        outcomes.add(found[0])
    assert outcomes == {None, "equality"}


@pytest.mark.parametrize("row", range(2))
def test_how_often_a_false_row_stops_does_not_depend_on_the_evaluators_inputs(row: int) -> None:
    """Each count of 32 fair coins lies within 5 to 27 but for 2e-5; there are eight, four for each row."""
    stopped = {bits: 0 for bits in product((0, 1), repeat=2)}
    for number, bits in product(range(32), stopped):
        one = attacked(f"often {row} {number} {bits}", G, "tables", at(1, row))
        for wire, bit in zip(EVALUATOR_INPUTS, bits, strict=True):
            one.inputs[E][wire][0] = bit
        try:
            finish(one)
        except Stopped:
            stopped[bits] += 1
    assert all(5 <= count <= 27 for count in stopped.values())
