"""Each message of an evaluation that is secure against both sides, changed: the honest side stops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.pairs.active import participant
from smpc_dp.capabilities.pairs.active.evaluator import ActiveEvaluatorRole
from smpc_dp.capabilities.pairs.active.garbler import ActiveGarblerRole
from smpc_dp.capabilities.pairs.active.messages import (
    CHI,
    COIN,
    COMMIT,
    EQUAL,
    MACS,
    OPENED,
    OPENING,
    OUTPUTS,
    SHARES,
    Chi,
    Coin,
    Commit,
    Equal,
    Macs,
    Opened,
    Opening,
    Outputs,
    Shares,
)
from smpc_dp.capabilities.pairs.active.participant import ActiveParticipant, BlockOutputs
from smpc_dp.capabilities.pairs.active.plan import ActivePlan, Group
from smpc_dp.capabilities.pairs.active.role import evaluation_failure
from smpc_dp.capabilities.pairs.garbled.effects import Effects
from smpc_dp.capabilities.pairs.garbled.messages import CONTROL, PIECE_HEADER
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, Evaluated
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.simulation.pairwise import Tamper
from smpc_dp.crypto.active import SharedBits, Side
from smpc_dp.crypto.active_opening import SharedOutputs
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import Sender
from smpc_dp.crypto.transcript import encode_uint
from smpc_dp.errors import Check, Code, LocalError, SmpcError, TimeoutFault, VerificationError
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.signing import decode, decode_envelope, encode_envelope
from tests.active_pairs import CONTEXT, HUB, IDENTITIES, NAMES, Ends, Pair, expected_of, outputs_of, plan_of

PLAN = plan_of(find("less_u16").build(), 2)
VALUES = [[3, 700], [4, 6]]
EXPECTED = expected_of(PLAN.circuit, VALUES)
HONEST = {"alice": "bob", "bob": "alice"}
SIGNED: dict[str, type[msgspec.Struct]] = {
    COMMIT: Commit,
    EQUAL: Equal,
    COIN: Coin,
    MACS: Macs,
    OUTPUTS: Outputs,
}


def step_of(sender: str, data: bytes) -> str:
    """The step of a signed message; empty for a piece."""
    return decode_envelope(data[1:], sender).step if data[0] == CONTROL else ""


class Recorded:
    """Passes on all messages, and records them and the codes of aborts."""

    def __init__(
        self, change: Callable[[str, int, bytes], bytes] = lambda _sender, _number, data: data
    ) -> None:
        self._change = change
        self.messages: list[tuple[str, bytes]] = []
        self.codes: list[Code] = []

    def __call__(self, sender: str, _to: str, data: bytes) -> list[bytes]:
        if step_of(sender, data) == ABORT:
            self.codes.append(decode(decode_envelope(data[1:], sender).body, Abort, sender).code)
        number = len(self.messages)
        self.messages.append((sender, data))
        return [self._change(sender, number, data)]

    def steps(self) -> list[str]:
        return [step_of(sender, data) for sender, data in self.messages]


def run(tamper: Tamper, seed: int = 1) -> tuple[Ends, Pair]:
    pair = Pair(seed)
    return pair.evaluate(PLAN, VALUES, tamper), pair


def check_stopped(ends: Ends, pair: Pair, cheat: str, codes: list[Code]) -> None:
    """The honest side has the one error or the right output, and ends both setups with an error."""
    honest = ends[HONEST[cheat]]
    if isinstance(honest, Evaluated):
        assert outputs_of({name: honest for name in NAMES}, PLAN)[0] == EXPECTED
        return
    check_failed(honest, codes)
    assert pair.setups[HONEST[cheat]].ends() is None
    assert pair.setups[HONEST[cheat]].state == (b"", 0, b"", 0, 0, 0)


def check_failed(error: Evaluated | SmpcError, codes: list[Code]) -> None:
    assert isinstance(error, VerificationError)
    assert (error.check, error.code) == (Check.EVALUATION_FAILED, Code.EVALUATION)
    assert str(error) == str(evaluation_failure())
    # Masks in frames of the check that failed do not outlive it.
    assert error.__cause__ is not None
    assert error.__cause__.__traceback__ is None
    assert set(codes) == {Code.EVALUATION}


HONEST_RUN = Recorded()
assert outputs_of(run(HONEST_RUN)[0], PLAN) == [EXPECTED] * 2
STEPS = [(sender, step_of(sender, data)) for sender, data in HONEST_RUN.messages]
PIECES = [number for number, (_, step) in enumerate(STEPS) if not step]
"""Pieces: of the setups, transfers, triples, openings, inputs, tables and masked values, of both sides."""


COMMITS = [(name, COMMIT) for name in NAMES]


def flipped(content: bytes, stride: int) -> bytes:
    """Flip bit 0 of each byte at a multiple of `stride`."""
    changed = bytearray(content)
    for position in range(0, len(changed), stride):
        changed[position] ^= 1
    return bytes(changed)


@pytest.mark.parametrize("number", PIECES)
def test_a_changed_piece_ends_both_sides_without_blame(number: int) -> None:
    # One bit of each 16 bytes: of every hash, table and row, as single ones are used with probability 1/2.
    cheat = STEPS[number][0]
    head = PIECE_HEADER.size

    def change(_sender: str, at: int, data: bytes) -> bytes:
        return data[:head] + flipped(data[head:], 16) if at == number else data

    recorded = Recorded(change)
    ends, pair = run(recorded)
    check_failed(ends[HONEST[cheat]], recorded.codes)
    check_stopped(ends, pair, cheat, recorded.codes)
    assert recorded.codes


def resigned(sender: str, data: bytes, change: Callable[[Any], Any]) -> bytes:
    """A signed message with another body, signed by its sender."""
    envelope = decode_envelope(data[1:], sender)
    body = change(decode(envelope.body, SIGNED[envelope.step], sender))
    (written,) = CONTEXT.write(IDENTITIES[sender], envelope.run_id, envelope.step, [envelope.receiver], body)
    return bytes([CONTROL]) + encode_envelope(written)


FIELDS = [
    (sender, step, field)
    for sender, step in dict.fromkeys(STEPS)
    if step in SIGNED
    for field in SIGNED[step].__struct_fields__
]


@pytest.mark.parametrize(("cheat", "step", "field"), FIELDS)
def test_a_changed_field_of_a_signed_message_ends_both_sides_without_blame(
    cheat: str, step: str, field: str
) -> None:
    def other(body: Any) -> Any:
        value = getattr(body, field)
        return replace(body, **{field: value + 1 if isinstance(value, int) else flipped(value, 64)})

    def change(sender: str, _number: int, data: bytes) -> bytes:
        return resigned(sender, data, other) if (sender, step_of(sender, data)) == (cheat, step) else data

    recorded = Recorded(change)
    ends, pair = run(recorded)
    check_failed(ends[HONEST[cheat]], recorded.codes)
    check_stopped(ends, pair, cheat, recorded.codes)


def test_a_single_changed_bit_of_any_piece_never_gives_another_output() -> None:
    # Drawn pieces and bits; some bits are not used, as their row is not, and then the output is right.
    random, stopped = Random("bits"), 0
    for seed in range(8):
        number = random.choice(PIECES[6:])
        cheat, drawn = STEPS[number][0], random.random()

        def change(_sender: str, at: int, data: bytes, number: int = number, drawn: float = drawn) -> bytes:
            if at != number:
                return data
            bit = int(drawn * 8 * (len(data) - PIECE_HEADER.size)) + 8 * PIECE_HEADER.size
            return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]

        recorded = Recorded(change)
        ends, pair = run(recorded, seed)
        check_stopped(ends, pair, cheat, recorded.codes)
        stopped += not isinstance(ends[HONEST[cheat]], Evaluated)
    assert stopped


KINDS: dict[str, type[ActiveParticipant]] = {"alice": ActiveGarblerRole, "bob": ActiveEvaluatorRole}


def cheated(
    cheat: str,
    deviation: type[ActiveParticipant],
    plan: ActivePlan = PLAN,
    values: Sequence[Sequence[int]] = VALUES,
    tamper: Tamper | None = None,
    seed: int = 1,
    **fields: Any,
) -> tuple[Ends, Pair]:
    """Evaluate while the side `cheat` has the methods of `deviation`, with other attributes `fields`."""
    pair = Pair(seed)
    kind: Any = type("Cheat", (deviation, KINDS[cheat]), fields)
    side = "garbler" if cheat == "alice" else "evaluator"
    return pair.evaluate(plan, values, tamper, **{side: kind}), pair


class Reflecting(ActiveParticipant):
    """A side that waits for the other's commitments and openings, and sends them back."""

    def _compare_triples(self, group: Group, value: bytes) -> Effects[bytes]:  # noqa: ARG002 (the role's)
        peer = HONEST[self.name]
        yield self._control(peer, COMMIT, (yield from self._take(peer, COMMIT, Commit)))
        yield self._control(peer, EQUAL, (yield from self._take(peer, EQUAL, Equal)))
        coin = yield from self._take(peer, COIN, Coin)
        yield self._control(peer, COIN, coin)
        return self._bound(Label.ACTIVE_BUCKETS, encode_uint(group.number), coin.seed, coin.seed)


class OtherCommitments(ActiveParticipant):
    """A side that opens something else than it has committed to."""

    purpose = b""

    def _commitment(self, sender: int, group: Group, purpose: bytes, *parts: bytes) -> bytes:
        if (sender, purpose) == (self._side, self.purpose):
            parts = (*parts[:-1], bytes(32))
        return super()._commitment(sender, group, purpose, *parts)


@pytest.mark.parametrize("cheat", NAMES)
@pytest.mark.parametrize("purpose", [b"equality", b"coin"])
def test_what_was_not_committed_to_is_refused(cheat: str, purpose: bytes) -> None:
    recorded = Recorded()
    ends, _ = cheated(cheat, OtherCommitments, tamper=recorded, purpose=purpose)
    check_failed(ends[HONEST[cheat]], recorded.codes)


class FalseMacs(ActiveParticipant):
    """A side whose MACs on what it opens are false, in a transcript that both have alike."""

    label = Label.ACTIVE_DIFFERENCES

    def _named(self, label: Label, number: int, sender: int) -> bytes:
        false = (label, sender) == (self.label, self._side)
        return bytes(32) if false else super()._named(label, number, sender)


@pytest.mark.parametrize("cheat", NAMES)
@pytest.mark.parametrize(
    "label",
    [Label.ACTIVE_DIFFERENCES, Label.ACTIVE_OPENINGS, Label.ACTIVE_OUTPUT],
    ids=lambda label: label[15:],
)
def test_bits_without_their_macs_are_refused(cheat: str, label: Label) -> None:
    recorded = Recorded()
    ends, pair = cheated(cheat, FalseMacs, tamper=recorded, label=label)
    check_failed(ends[HONEST[cheat]], recorded.codes)
    assert pair.setups[HONEST[cheat]].ends() is None


@pytest.mark.parametrize("cheat", NAMES)
def test_no_coin_is_shown_after_a_wrong_triple(cheat: str) -> None:
    # U is the longest piece before the commitments; each of its values is changed.
    head = PIECE_HEADER.size
    before = [number for number in PIECES if number < min(map(STEPS.index, COMMITS))]
    number = max(
        (number for number in before if STEPS[number][0] == cheat),
        key=lambda number: (len(HONEST_RUN.messages[number][1]) == head + 16 * PLAN.leaky, number),
    )
    assert len(HONEST_RUN.messages[number][1]) == head + 16 * PLAN.leaky

    def change(_sender: str, at: int, data: bytes) -> bytes:
        return data[:head] + flipped(data[head:], 16) if at == number else data

    recorded = Recorded(change)
    ends, _ = run(recorded)
    check_failed(ends[HONEST[cheat]], recorded.codes)
    assert COIN not in recorded.steps()
    assert EQUAL in recorded.steps()


@pytest.mark.parametrize("cheat", NAMES)
def test_a_reflected_commitment_is_not_met(cheat: str) -> None:
    recorded = Recorded()
    ends, _ = cheated(cheat, Reflecting, tamper=recorded)
    check_failed(ends[HONEST[cheat]], recorded.codes)
    assert [step for step in recorded.steps() if step in SIGNED] == [COMMIT, COMMIT, EQUAL, EQUAL]


@pytest.mark.parametrize("wrong", NAMES)
def test_a_side_whose_correlation_has_the_wrong_bit_fails(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    def sender(peer: str, context: bytes, seed: bytes, k: int, *, bit: bool) -> Sender:
        return Sender(peer, context, seed, k, bit=bit ^ (peer == HONEST[wrong]))

    monkeypatch.setattr(participant, "Sender", sender)
    recorded = Recorded()
    ends, _ = run(recorded)
    check_failed(ends[HONEST[wrong]], recorded.codes)
    assert COIN not in recorded.steps()


@pytest.mark.parametrize(
    "error",
    [TimeoutFault({"bob"}, "tables"), LocalError("disk full"), evaluation_failure()],
    ids=["connection", "machine", "check"],
)
def test_the_other_side_is_sent_one_code_whatever_went_wrong(error: SmpcError) -> None:
    role = Pair().roles(PLAN, VALUES)["alice"]
    role.step = "tables"
    (message,) = role.farewell(error)
    envelope = decode_envelope(b"".join(message.parts)[1:], "alice")
    assert decode(envelope.body, Abort, "alice") == Abort(Code.EVALUATION)


def test_the_garbler_does_not_answer_false_masked_values() -> None:
    # The evaluator's last piece; its first bit is a masked value, and no byte of the digest is changed.
    last = max(number for number in PIECES if STEPS[number][0] == "bob")

    def change(_sender: str, at: int, data: bytes) -> bytes:
        head = PIECE_HEADER.size
        return data[:head] + flipped(data[head:], 1 << 20) if at == last else data

    recorded = Recorded(change)
    ends, _ = run(recorded)
    check_failed(ends["alice"], recorded.codes)
    assert MACS not in recorded.steps()


def test_no_share_of_an_output_is_sent_before_the_last_check() -> None:
    steps = [step for _, step in STEPS]
    assert steps.index(OUTPUTS) > max(number for number, step in enumerate(steps) if step == MACS)
    assert [step for step in steps if step in SIGNED] == [
        *([COMMIT] * 2),
        *([EQUAL] * 2),
        *([COIN] * 2),
        MACS,
        *([OUTPUTS] * 2),
    ]


def test_a_failure_later_than_setups_of_earlier_evaluations_ends_them() -> None:
    pair = Pair()
    assert outputs_of(pair.evaluate(PLAN, VALUES), PLAN) == [EXPECTED] * 2
    assert pair.setups["alice"].ends() is not None
    recorded = Recorded(
        lambda sender, _number, data: (
            resigned(sender, data, lambda body: replace(body, digest=bytes(32)))
            if step_of(sender, data) == OUTPUTS and sender == "alice"
            else data
        )
    )
    ends = pair.evaluate(PLAN, VALUES, recorded)
    check_failed(ends["bob"], recorded.codes)
    assert [setups.ends() for setups in pair.setups.values()] == [None, None]
    assert outputs_of(pair.evaluate(PLAN, VALUES), PLAN) == [EXPECTED] * 2
    assert np.array_equal(EXPECTED, [[1, 0]])


@pytest.mark.parametrize("name", NAMES)
def test_too_little_memory_for_a_block_ends_both_setups(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pair, plain = Pair(), participant.ActiveParticipant._draw
    pair.evaluate(PLAN, VALUES)
    assert pair.setups[name].ends() is not None

    def draw(role: participant.ActiveParticipant, counts: Sequence[tuple[int, int]]) -> list[SharedBits]:
        if role.name == name:
            raise MemoryError
        return plain(role, counts)

    monkeypatch.setattr(participant.ActiveParticipant, "_draw", draw)
    with pytest.raises(MemoryError):
        pair.evaluate(PLAN, VALUES)
    assert pair.setups[name].ends() is None


# Output to the aggregator alone.

THIRD = plan_of(PLAN.circuit, 2, output="aggregator")
AGGREGATORS: dict[str, type[msgspec.Struct]] = {SHARES: Shares, CHI: Chi, OPENING: Opening, OPENED: Opened}


def run_third(tamper: Tamper) -> tuple[Ends, Pair]:
    pair = Pair()
    return pair.evaluate(THIRD, VALUES, tamper), pair


def changed_at(
    sender: str, receiver: str, step: str, change: Callable[[Any], Any]
) -> Callable[[str, str, bytes], list[bytes]]:
    """Replace the body of each message of a step from a sender to a receiver, signed by the sender."""

    def tamper(by: str, to: str, data: bytes) -> list[bytes]:
        if (by, to, step_of(by, data)) != (sender, receiver, step):
            return [data]
        envelope = decode_envelope(data[1:], by)
        body = change(decode(envelope.body, AGGREGATORS[step], by))
        (written,) = CONTEXT.write(IDENTITIES[by], envelope.run_id, step, [to], body)
        return [bytes([CONTROL]) + encode_envelope(written)]

    return tamper


THIRD_FIELDS = [
    (sender, receiver, step, field)
    for sender, receiver, step in (
        ("alice", HUB, SHARES),
        ("bob", HUB, SHARES),
        (HUB, "alice", CHI),
        (HUB, "bob", CHI),
        ("alice", "bob", OPENING),
        ("bob", "alice", OPENING),
        ("alice", HUB, OPENED),
        ("bob", HUB, OPENED),
    )
    for field in AGGREGATORS[step].__struct_fields__
]


@pytest.mark.parametrize(("sender", "receiver", "step", "field"), THIRD_FIELDS)
def test_a_changed_message_of_an_output_to_the_aggregator_gives_it_none(
    sender: str, receiver: str, step: str, field: str
) -> None:
    def other(body: Any) -> Any:
        return replace(body, **{field: flipped(getattr(body, field), 64)})

    ends, _ = run_third(changed_at(sender, receiver, step, other))
    assert not isinstance(ends[HUB], Evaluated)
    check_failed(ends[HUB], [Code.EVALUATION])


class FalseShares(ActiveParticipant):
    """A side that gives the aggregator a share of which one bit is false, and opens what is asked."""

    bit = 0
    consistent = False

    def _show_aggregator(self, side: Side, held: Sequence[BlockOutputs]) -> Effects[None]:
        honest, own = SharedOutputs.opening, self._side == EVALUATOR

        def flip(shared: SharedBits) -> SharedBits:
            bits = shared.bits.copy()
            bits[self.bit] ^= 1
            return shared._replace(bits=bits)

        def opening(outputs: SharedOutputs, chi: bytes) -> tuple[bytes, bytes]:
            if self.consistent or outputs.adds != own:
                return honest(outputs, chi)
            return honest(dataclasses.replace(outputs, masks=flip(outputs.masks)), chi)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SharedOutputs, "opening", opening)
            false = dataclasses.replace(held[0], shared=flip(held[0].shared))
            yield from super()._show_aggregator(side, [false, *held[1:]])


@pytest.mark.parametrize("cheat", NAMES)
@pytest.mark.parametrize("bit", range(THIRD.output_bits))
@pytest.mark.parametrize("consistent", [True, False], ids=["opened as given", "opened as it is"])
def test_a_false_share_of_any_output_bit_is_refused(consistent: bool, bit: int, cheat: str) -> None:
    # Opened as given, the other side finds that the MACs are not those; opened as it is, the aggregator does.
    recorded = Recorded()
    ends, pair = cheated(cheat, FalseShares, THIRD, tamper=recorded, consistent=consistent, bit=bit)
    check_failed(ends[HUB], recorded.codes)
    assert (recorded.steps().count(OPENED) == 2) is not consistent
    if consistent:
        check_failed(ends[HONEST[cheat]], recorded.codes)
        assert pair.setups[HONEST[cheat]].ends() is None


def test_a_second_chi_is_not_answered() -> None:
    # The aggregator sends each its chi, and another one after it.
    def twice(by: str, to: str, data: bytes) -> list[bytes]:
        if step_of(by, data) != CHI:
            return [data]
        (second,) = changed_at(HUB, to, CHI, lambda body: replace(body, chi=bytes(32)))(by, to, data)
        return [data, second]

    recorded = Recorded()

    def tamper(by: str, to: str, data: bytes) -> list[bytes]:
        return [one for each in recorded(by, to, data) for one in twice(by, to, each)]

    ends, _ = run_third(tamper)
    assert outputs_of(ends, THIRD, (HUB,)) == [EXPECTED]
    assert [recorded.steps().count(step) for step in (CHI, OPENING, OPENED)] == [2, 2, 2]


@pytest.mark.parametrize("step", [SHARES, OPENING, OPENED])
@pytest.mark.parametrize("cheat", NAMES)
def test_a_message_of_another_evaluation_of_the_pair_is_refused(cheat: str, step: str) -> None:
    pair, seen = Pair(), Recorded()
    assert outputs_of(pair.evaluate(THIRD, VALUES, seen), THIRD, (HUB,)) == [EXPECTED]
    (old,) = (data for by, data in seen.messages if (by, step_of(by, data)) == (cheat, step))

    def tamper(by: str, _to: str, data: bytes) -> list[bytes]:
        return [old if (by, step_of(by, data)) == (cheat, step) else data]

    ends = pair.evaluate(THIRD, VALUES, tamper)
    check_failed(ends[HUB], [Code.EVALUATION])


@pytest.mark.parametrize("step", [SHARES, OPENING, OPENED])
@pytest.mark.parametrize("cheat", NAMES)
def test_who_stops_before_the_end_gives_the_aggregator_no_output(cheat: str, step: str) -> None:
    def tamper(by: str, to: str, data: bytes) -> list[bytes]:
        if (by, step_of(by, data)) != (cheat, step):
            return [data]
        envelope = decode_envelope(data[1:], by)
        (written,) = CONTEXT.write(IDENTITIES[by], envelope.run_id, ABORT, [to], Abort(Code.EVALUATION))
        return [bytes([CONTROL]) + encode_envelope(written)]

    ends, _ = run_third(tamper)
    check_failed(ends[HUB], [Code.EVALUATION])


def test_no_chi_is_drawn_before_both_shares_have_come() -> None:
    recorded = Recorded()
    ends, _ = run_third(recorded)
    assert outputs_of(ends, THIRD, (HUB,)) == [EXPECTED]
    steps = recorded.steps()
    assert max(number for number, step in enumerate(steps) if step == SHARES) < steps.index(CHI)
    assert [end.outputs for name, end in ends.items() if name != HUB and isinstance(end, Evaluated)] == [
        None,
        None,
    ]
