"""The twin of authenticated garbling: right outputs, and what each attack of its specification gains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, comb, log2
from typing import Any

import pytest

from smpc_dp_verify.encodings import uint
from tests.reference.active_twin import (
    SIDES,
    Dealer,
    E,
    Evaluation,
    G,
    Shared,
    Stopped,
    Transfers,
    bucket_size,
    log2_of_bad_bucket,
    seeded,
)
from tests.reference.garble_twin import AND, EQ, EQW, INV, XOR, Circuit, Gate

GARBLER_INPUTS, EVALUATOR_INPUTS, COIN = (0, 1, 2), (3, 4), 5
# Wire 8 is an AND gate of XORs of inputs of both sides and a coin; wire 10 depends on it.
SMALL = Circuit(
    11,
    6,
    [Gate(XOR, 0, 3, 6), Gate(XOR, 1, 5, 7), Gate(AND, 6, 7, 8), Gate(INV, 8, 0, 9), Gate(AND, 9, 4, 10)],
    [10, 8],
)


def drawn_circuit(label: str) -> Circuit:
    random, gates, wires = seeded(label), [], 6
    for _ in range(20):
        op = random.choice([XOR, AND, AND, INV, EQ, EQW])
        a = random.getrandbits(1) if op == EQ else random.randrange(wires)
        gates.append(Gate(op, a, random.randrange(wires), wires))
        wires += 1
    return Circuit(wires, 6, gates, [random.randrange(wires) for _ in range(4)])


def evaluation(label: str, circuit: Circuit = SMALL, instances: int = 1, **given: Any) -> Evaluation:
    """An evaluation with an ideal dealer, of small buckets unless they are given."""
    random = seeded(label)
    inputs = [
        {wire: [random.getrandbits(1) for _ in range(instances)] for wire in wires}
        for wires in (GARBLER_INPUTS, EVALUATOR_INPUTS)
    ]
    settings: dict[str, Any] = {"bucket": 2, "fewest": 2, "source": Dealer(random)}
    settings |= {"start": random.getrandbits(128), "instances": instances} | given
    return Evaluation(circuit, (inputs[G], inputs[E]), [COIN], random=random, **settings)


def expected(one: Evaluation) -> list[int]:
    """The outputs in the clear, the coin being the sum of both sides' masks."""
    rows = []
    for n in range(one.instances):
        bits = [one.inputs[G][w][n] for w in GARBLER_INPUTS] + [one.inputs[E][w][n] for w in EVALUATOR_INPUTS]
        rows.append(one.circuit.plain([*bits, one.masks[COIN, n].opened()]))
    return [row[k] for k in range(len(one.circuit.outputs)) for row in rows]


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("number", range(4))
def test_outputs_are_those_of_the_circuit(number: int, instances: int) -> None:
    one = evaluation(f"right {number}", drawn_circuit(f"circuit {number}"), instances)
    one.run()
    assert one.output_to(G) == one.output_to(E) == one.output_to_aggregator(bytes(32)) == expected(one)


def test_a_circuit_without_and_gates_has_no_triples() -> None:
    circuit = Circuit(8, 6, [Gate(XOR, 0, 3, 6), Gate(INV, 6, 0, 7)], [7, 0])
    one = evaluation("no AND", circuit)
    one.run()
    assert one.triples == []
    assert one.output_to(E) == one.output_to_aggregator(bytes(32)) == expected(one)


def test_outputs_and_operands_of_every_kind() -> None:
    """Inputs of both sides, a coin, constants, repeated wires; a wire with itself or its negation."""
    gates = [
        Gate(EQ, 1, 0, 6),
        Gate(EQ, 0, 0, 7),
        Gate(XOR, 3, 3, 8),
        Gate(INV, 0, 0, 9),
        Gate(AND, 0, 0, 10),
        Gate(AND, 0, 9, 11),
        Gate(AND, 6, 7, 12),
        Gate(AND, 6, 3, 13),
        Gate(AND, 8, 5, 14),
        Gate(XOR, 10, 13, 15),
        Gate(INV, 8, 0, 16),
        Gate(AND, 16, 15, 17),
    ]
    circuit = Circuit(18, 6, gates, [0, 3, COIN, 6, 7, 8, 9, 9, 16, *range(10, 18), 17])
    for number in range(4):
        one = evaluation(f"kinds {number}", circuit, 2)
        one.run()
        assert one.output_to(G) == one.output_to(E) == one.output_to_aggregator(bytes(32)) == expected(one)


@pytest.mark.parametrize("without", SIDES)
def test_a_side_may_have_no_inputs(without: int) -> None:
    one = evaluation(f"without {without}")
    inputs = [one.inputs[G], one.inputs[E]]
    inputs[1 - without] |= inputs[without]
    inputs[without] = {}
    one.inputs = (inputs[G], inputs[E])
    one.run()
    everything = inputs[1 - without]
    bits = [everything[wire][0] for wire in range(5)] + [one.masks[COIN, 0].opened()]
    assert one.output_to(G) == one.output_to(E) == SMALL.plain(bits)


@pytest.mark.long
@pytest.mark.parametrize("k", [2, 4])
def test_transfers_of_both_directions_take_the_place_of_the_dealer(k: int) -> None:
    seeds = ((b"a" * 32, b"b" * 32), (b"c" * 32, b"d" * 32))
    source = Transfers((b"run",), seeds, k)
    assert [delta & 1 for delta in source.deltas] == [1, 0]
    one = evaluation("transfers", source=source, bucket=None, fewest=31)
    one.start = source.start
    one.run()
    assert one.output_to(G) == one.output_to_aggregator(bytes(32)) == expected(one)


def test_buckets_are_the_smallest_of_the_formula() -> None:
    """Compared with exact fractions and every m for the small ones."""
    assert {count: bucket_size(count) for count in (31, 253, 1 << 18)} == {31: 8, 253: 6, 1 << 18: 4}
    assert bucket_size(1 << 18, 1 << 10) == 4
    assert bucket_size(1 << 19) == 3
    for count, size in ((31, 7), (31, 8), (253, 5), (253, 6)):
        total = count * size
        exact = max(Fraction(count * comb(m, size), comb(total, size) << m) for m in range(size, total + 1))
        assert exact == Fraction(count * comb(2 * size - 1, size), comb(total, size) << 2 * size - 1)
        assert log2(exact) == pytest.approx(log2_of_bad_bucket(count, size), abs=1e-6)
        assert (exact <= Fraction(1, 1 << 41)) == (size == bucket_size(count))


def test_bytes_of_an_and_gate_are_those_of_the_table() -> None:
    for k, row in ((2, [290, 371, 451, 532]), (4, [210, 267, 323, 380])):
        sizes = [b * (96 / k + 32.25) + 0.25 * (b - 1) + 32 / k + 32.75 for b in (3, 4, 5, 6)]
        assert [ceil(size) for size in sizes] == row


# Attacks: what a corrupt side sends in place of the right message.


def flipped(value: Any) -> Any:
    """`value` with its first bit changed."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    if isinstance(value, dict):
        first = next(iter(value))
        return value | {first: flipped(value[first])}
    if isinstance(value, tuple | list):
        return type(value)([flipped(value[0]), *value[1:]])
    return value ^ 1


def at(*path: int) -> Callable[[Any], Any]:
    """Change the first bit of the element that `path` leads to."""

    def change(value: Any) -> Any:
        def inner(part: Any, rest: tuple[int, ...]) -> Any:
            if not rest:
                return flipped(part)
            if isinstance(part, dict):
                place = list(part)[rest[0]]
                return part | {place: inner(part[place], rest[1:])}
            return type(part)([inner(one, rest[1:]) if i == rest[0] else one for i, one in enumerate(part)])

        return inner(value, path)

    return change


STOPS = [
    ("d", at(0), "equality"),
    ("commit", at(0), "equality"),
    ("equal", at(0), "equality"),
    ("equal", at(1), "equality"),
    ("commit", at(1), "coin"),
    ("coin", flipped, "coin"),
    ("openings", at(0, 0), "openings"),
    ("openings", at(0, 1), "openings"),
    ("differences", at(0, 0), "differences"),
    ("differences", at(1), "differences"),
    ("openings", at(1), "openings"),
    ("masked", at(0, 0), "masked"),
    ("masked", at(1), "masked"),
    ("macs", flipped, "macs"),
    ("output", at(0, 0), "output"),
    ("output", at(1), "output"),
    ("opening", at(0), "chi"),
    ("opening", at(1), "chi"),
]


def attacked(label: str, corrupt: int, step: str, change: Callable[[Any], Any], **given: Any) -> Evaluation:
    def tamper(name: str, side: int, value: Any) -> Any:
        return change(value) if name == step else value

    return evaluation(label, tamper=tamper, corrupt=corrupt, **given)


def finish(one: Evaluation) -> list[int]:
    """The outputs to all three, which must be one."""
    one.run()
    outputs = [one.output_to(E), one.output_to(G), one.output_to_aggregator(bytes(range(32)))]
    assert outputs[0] == outputs[1] == outputs[2]
    return outputs[0]


def stopping_check(one: Evaluation) -> str | None:
    """The check that stops an honest side, or None where all take the right outputs."""
    try:
        outputs = finish(one)
    except Stopped as stopped:
        return stopped.check
    assert outputs == expected(one)
    return None


@pytest.mark.parametrize("corrupt", SIDES)
@pytest.mark.parametrize(("step", "change", "check"), STOPS)
def test_a_changed_message_stops_the_honest_side(
    step: str, change: Callable[[Any], Any], check: str, corrupt: int
) -> None:
    one = attacked(f"{step} {corrupt}", corrupt, step, change)
    if (step, corrupt) in {("masked", G), ("macs", E)}:
        # That side sends no such message.
        assert finish(one) == expected(one)
        return
    with pytest.raises(Stopped) as stopped:
        finish(one)
    assert (stopped.value.side, stopped.value.check) == (1 - corrupt, check)


@pytest.mark.parametrize("corrupt", SIDES)
@pytest.mark.parametrize("step", ["shares", "opened"])
def test_the_aggregator_takes_no_falsified_share(step: str, corrupt: int) -> None:
    change = at(0, 0) if step == "shares" else flipped
    one = attacked(f"{step} {corrupt}", corrupt, step, change)
    one.run()
    with pytest.raises(ValueError, match="the shares of"):
        one.output_to_aggregator(bytes(range(32)))


@pytest.mark.parametrize("corrupt", SIDES)
def test_a_false_u_is_a_guess_of_one_bit(corrupt: int) -> None:
    """U changed anywhere passes just where the other side's x of that triple is 0."""
    outcomes = set()
    for number in range(24):
        one = attacked(f"U {corrupt} {number}", corrupt, "U", at(0))
        check = stopping_check(one)
        outcomes.add((check, one.leaked[0].share[1 - corrupt]))
    assert outcomes == {(None, 0), ("equality", 1)}


@pytest.mark.parametrize("half", [0, 1])
def test_a_false_row_stops_or_is_not_used_whatever_the_inputs(half: int) -> None:
    """The row of a half counts where that input's masked value is 1, which no input decides."""
    stopped = {bits: 0 for bits in ((0, 0), (0, 1), (1, 0), (1, 1))}
    for number in range(24):
        for bits in stopped:
            one = attacked(f"row {half} {number}", G, "tables", at(0, half))
            one.inputs[E][3][0], one.inputs[E][4][0] = bits
            used = {None: 0, "macs": 1}[stopping_check(one)]
            gate = one.circuit.gates[2]
            assert used == one.active[(gate.a, gate.b)[half], 0] & 1
            stopped[bits] += used
    # Sums of 24 fair coins lie within 3 to 21 but for 4e-5; there are eight of them.
    assert all(3 <= count <= 21 for count in stopped.values())


def test_a_false_bit_of_a_row_always_stops() -> None:
    for number in range(8):
        with pytest.raises(Stopped, match="macs"):
            finish(attacked(f"bit {number}", G, "tables", at(0, 2)))


def test_a_lie_about_a_masked_value_would_tell_a_mask_share() -> None:
    """Without the check of the labels G's answer tells the evaluator G's share of the other input's mask."""
    right = 0
    for number in range(12):
        one = attacked(f"lie {number}", E, "masked", at(0, 0), omitted=frozenset({"masked"}))
        one.run()
        # Gate 1 has wire 9, the negation of wire 8, as its first input: E lied about wire 8.
        second = (4, 0)
        places = [(wire, 0) for wire in (8, 10)]
        said = dict(zip(places, one.sent["masked", E][0], strict=True))
        keys = [
            [shared.key[E] ^ bit * one.source.deltas[E] for shared, bit in zip(checked, bits, strict=True)]
            for checked in [[shared for shared, _ in one.check_bits(said)]]
            for bits in ((0, 0), (0, 1), (1, 0), (1, 1))
        ]
        answers = [one.digest("active-macs", [bytes(8)], macs) for macs in keys]
        found = answers.index(one.sent["macs", G])
        honest = [
            (shared.share[E] ^ value) for shared, value in one.check_bits({p: one.values[p] for p in places})
        ]
        # r' of gate 1 is the honest one plus r of the mask of the second input.
        right += (found & 1) ^ honest[1] == one.masks[second].share[G]
    assert right == 12


@pytest.mark.parametrize("bit", [0, 1])
def test_a_side_with_the_wrong_bit_of_delta_fails(bit: int) -> None:
    """Both sides have the same bit 0. A triple passes with probability 3/4: all 62 of a try but for 2e-8."""
    for number in range(4):
        random = seeded(f"delta {bit} {number}")
        source = Dealer(random, (random.getrandbits(127) << 1 | bit, random.getrandbits(127) << 1 | bit))
        with pytest.raises(Stopped, match="equality"):
            finish(evaluation(f"delta {number}", source=source, fewest=31))


def test_a_reflected_commitment_is_not_met() -> None:
    """E sends G's own commitments and openings back."""

    def reflect(name: str, side: int, value: Any) -> Any:
        return one.sent[name, G] if name in ("commit", "equal") else value

    one = evaluation("reflected", corrupt=E, tamper=reflect)
    with pytest.raises(Stopped, match="equality"):
        one.run()


@pytest.mark.parametrize("corrupt", SIDES)
def test_a_failed_equality_tells_the_shares_that_were_made_to_leak_alone(corrupt: int) -> None:
    """Of all guesses of the leaking shares one meets the opened hash: the shares, and nothing about Delta."""

    def leak(name: str, side: int, value: Any) -> Any:
        return [u ^ 2 if i < 3 else u for i, u in enumerate(value)] if name == "U" else value

    failed = 0
    for number in range(8):
        one = evaluation(f"failed {corrupt} {number}", corrupt=corrupt, tamper=leak)
        shares = []
        try:
            one.run()
        except Stopped:
            failed += 1
        for guess in product((0, 1), repeat=3):
            sums = list(one.sums[corrupt])
            for i, bit in enumerate(guess):
                sums[i] ^= 2 * bit
            if one.digest("active-equality", [uint(0)], sums) == one.sent["equal", 1 - corrupt][0]:
                shares.append(guess)
        assert shares == [tuple(x.share[1 - corrupt] for x in one.leaked[:3])]
    assert failed


@pytest.mark.parametrize("corrupt", SIDES)
def test_an_opening_under_another_chi_is_not_taken(corrupt: int) -> None:
    """Else a side searches a chi under which false shares have the sum of the right ones."""
    one = evaluation(f"chi {corrupt}", corrupt=corrupt)
    one.run()
    one.output_to_aggregator(bytes(32))
    other = one.sent["opening", corrupt]
    one.tamper = lambda name, _side, value: other if name == "opening" else value
    with pytest.raises(Stopped, match="chi"):
        one.output_to_aggregator(bytes(range(32)))


@pytest.mark.parametrize(("count", "size", "leaks"), [(3, 1, 1), (4, 2, 2), (4, 2, 4)])
def test_leaks_meet_in_a_bucket_as_often_as_the_formula_says(count: int, size: int, leaks: int) -> None:
    """G makes triples leak; it wins where all pass and a whole bucket leaks.

    Exact: 2^-m times the probability that m of l B triples fill a bucket. Seeds are fixed; a right twin
    lies outside of four standard deviations, or never wins, with probability 1e-4.
    """
    trials, wins = 300, 0
    for number in range(trials):

        def leak(name: str, side: int, value: Any) -> Any:
            return [u ^ 1 if i < leaks else u for i, u in enumerate(value)] if name == "U" else value

        one = evaluation(f"leaks {number}", corrupt=G, tamper=leak, bucket=size, fewest=count)
        one.gates = [gate for gate in one.circuit.gates if gate.op == AND]
        try:
            one.prepare()
        except Stopped:
            continue
        filled = [set(one.order[t * size : (t + 1) * size]) <= set(range(leaks)) for t in range(count)]
        wins += any(filled)
    exact = expected_wins(count, size, leaks)
    assert exact <= 2**-leaks * count * comb(leaks, size) / comb(count * size, size)
    spread = 4 * (exact * (1 - exact) / trials) ** 0.5
    assert wins > 0
    assert abs(wins / trials - exact) <= spread


def expected_wins(count: int, size: int, leaks: int) -> float:
    """2^-m times the probability that a bucket leaks, by inclusion and exclusion over buckets."""
    total, chance = count * size, 0.0
    for filled in range(1, leaks // size + 1):
        ways = comb(count, filled) * comb(total - filled * size, leaks - filled * size) / comb(total, leaks)
        chance += (-1) ** (filled + 1) * ways
    return 2.0**-leaks * chance


def test_a_coin_is_uniform_whatever_one_side_draws() -> None:
    """200 evaluations of which G fixed its masks: 68 to 132 coins are 1 but for 7e-6."""

    class Fixed(Dealer):
        def bits(self, choices: tuple[Sequence[int], Sequence[int]]) -> list[Shared]:
            return super().bits(([1] * len(choices[G]), choices[E]))

    ones = 0
    for number in range(200):
        one = evaluation(f"coin {number}", source=Fixed(seeded(f"masks {number}")))
        one.gates = []
        one.prepare()
        assert one.masks[COIN, 0].share[G] == 1
        ones += one.masks[COIN, 0].opened()
    assert 68 <= ones <= 132
