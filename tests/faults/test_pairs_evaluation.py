"""Attacks and accidents in a two-party evaluation: who is blamed, and that no wrong value comes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, pack, unpack
from smpc_dp.capabilities.pairs.garbled.aggregator import AggregatorRole
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Send
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole
from smpc_dp.capabilities.pairs.garbled.messages import BULK, CHECK, CONTROL, PIECE_HEADER, Confirm, Receipt
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.simulation.pairwise import Tamper, evaluate_in_memory
from smpc_dp.crypto.agree import public_key
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import Check, Code, ConfigError, PeerFault, SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.signing import Context, decode, decode_envelope, encode_envelope

IDENTITIES = {name: Identity.generate(name) for name in ("alice", "bob", "hub")}
INSTANCES = 300
X, Y = list(range(INSTANCES)), [7 * number for number in range(INSTANCES)]
SUMS = [x + y for x, y in zip(X, Y, strict=True)]

Ends = Mapping[str, Evaluated | SmpcError]


def roles(
    output: str = "both",
    circuits: tuple[str, str] = ("add64", "add64"),
    evaluator: type[EvaluatorRole] = EvaluatorRole,
) -> dict[str, Participant]:
    """The garbler alice, the evaluator bob and, if it learns the output, the aggregator."""
    third = output == "aggregator"
    keys = {name: identity.public_key for name, identity in IDENTITIES.items()}
    context = Context("pairwise", 1, bytes(32), 1, ("alice", "bob"), "hub" if third else "", keys)
    plans = [plan(find(name).build(), output) for name in circuits]
    random = SystemRandomness()
    taking: dict[str, Participant] = {
        "alice": GarblerRole(context, IDENTITIES["alice"], plans[0], [pack(X, 64)], random),
        "bob": evaluator(context, IDENTITIES["bob"], plans[1], [pack(Y, 64)], random),
    }
    if third:
        taking["hub"] = AggregatorRole(context, IDENTITIES["hub"], plans[0], random)
    return taking


def plan(circuit: Circuit, output: str) -> Plan:
    fields = {"circuit": "add64", "garbler": "alice", "evaluator": "bob", "instances": INSTANCES}
    return Plan(circuit, PairwiseParameters(**fields, output=output))  # type: ignore[arg-type]


def pieces(sender: str, change: Callable[[int, bytes], list[bytes]]) -> Tamper:
    """Change the pieces that `sender` sends; the first argument of `change` counts them."""
    count = -1

    def tamper(name: str, to: str, data: bytes) -> list[bytes]:
        nonlocal count
        if name != sender or data[0] != BULK:
            return [data]
        count += 1
        return change(count, data)

    return tamper


def nobody_has_a_value(ends: Ends) -> None:
    assert all(isinstance(end, SmpcError) for end in ends.values())


def fault_of(ends: Ends, name: str) -> PeerFault:
    end = ends[name]
    assert isinstance(end, PeerFault), end
    return end


def record(output: str = "both") -> list[tuple[str, bytes]]:
    sent: list[tuple[str, bytes]] = []

    def listen(sender: str, to: str, data: bytes) -> list[bytes]:
        sent.append((sender, data))
        return [data]

    ends = evaluate_in_memory(roles(output), listen)
    assert all(isinstance(end, Evaluated) for end in ends.values())
    return sent


def indices(sent: list[tuple[str, bytes]], sender: str) -> list[bytes]:
    return [data for name, data in sent if name == sender and data[0] == BULK]


def test_differing_circuits_are_refused_before_any_piece_is_sent_and_both_digests_are_named() -> None:
    sent: list[bytes] = []

    def listen(sender: str, to: str, data: bytes) -> list[bytes]:
        sent.append(data)
        return [data]

    ends = evaluate_in_memory(roles(circuits=("add64", "sub64")), listen)
    digests = {find(name).build().digest.hex() for name in ("add64", "sub64")}
    for end in ends.values():
        assert isinstance(end, ConfigError)
        assert all(value in str(end) for value in digests)
    assert all(data[0] == CONTROL for data in sent)


@pytest.mark.parametrize("sender", ["alice", "bob"])
def test_a_flipped_bit_in_any_piece_is_found_before_an_output_is_decoded(sender: str) -> None:
    """Pieces: transfers' set-up and extension, labels, tables; at their first, middle and last bytes."""
    sent = record()
    for number, piece in enumerate(indices(sent, sender)):
        content = len(piece) - PIECE_HEADER.size
        for index in {0, content // 2, content - 1}:

            def flip(count: int, data: bytes, number: int = number, index: int = index) -> list[bytes]:
                if count != number or len(data) <= PIECE_HEADER.size + index:
                    return [data]
                wrong = bytearray(data)
                wrong[PIECE_HEADER.size + index] ^= 0x10
                return [bytes(wrong)]

            ends = evaluate_in_memory(roles(), pieces(sender, flip))
            nobody_has_a_value(ends)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("swapped", lambda count, data: [] if count == 5 else [data]),
        ("repeated", lambda count, data: [data, data] if count == 5 else [data]),
        ("truncated", lambda count, data: [data[:-1]] if count == 5 else [data]),
        ("lengthened", lambda count, data: [data + b"\0"] if count == 5 else [data]),
        ("header", lambda count, data: [bytes([BULK]) + b"\1" + data[2:]] if count == 5 else [data]),
        ("empty", lambda count, data: [b""] if count == 5 else [data]),
    ],
)
def test_pieces_out_of_order_or_of_another_size_are_refused(
    name: str, change: Callable[[int, bytes], list[bytes]]
) -> None:
    held: list[bytes] = []

    def swap(count: int, data: bytes) -> list[bytes]:
        if count == 5:
            held.append(data)
            return []
        return [data, *held] if count == 6 else [data]

    ends = evaluate_in_memory(roles(), pieces("alice", swap if name == "swapped" else change))
    nobody_has_a_value(ends)
    assert fault_of(ends, "bob").culprit == "alice"
    assert fault_of(ends, "alice").culprit == "bob"


@pytest.mark.parametrize("replayed", ["alice", "bob"])
def test_the_messages_of_another_run_are_refused(replayed: str) -> None:
    earlier = [data for sender, data in record() if sender == replayed]
    waiting = list(earlier)

    def replay(sender: str, to: str, data: bytes) -> list[bytes]:
        if sender != replayed:
            return [data]
        everything = list(waiting)
        waiting.clear()
        return everything

    other = "bob" if replayed == "alice" else "alice"
    assert fault_of(evaluate_in_memory(roles(), replay), other).culprit == replayed


def test_a_piece_of_another_run_is_refused() -> None:
    earlier = indices(record(), "alice")
    ends = evaluate_in_memory(
        roles(), pieces("alice", lambda count, data: [earlier[count]] if count == 4 else [data])
    )
    nobody_has_a_value(ends)


@pytest.mark.parametrize("step", ["hello", CHECK])
def test_a_changed_or_unsigned_control_message_names_its_sender(step: str) -> None:
    def forge(sender: str, to: str, data: bytes) -> list[bytes]:
        if sender == "alice" and data[0] == CONTROL:
            envelope = decode_envelope(data[1:], "alice")
            if envelope.step == step:
                body = bytearray(envelope.body)
                body[-1] ^= 1
                changed = type(envelope)(
                    envelope.run_id,
                    envelope.step,
                    envelope.sender,
                    envelope.receiver,
                    bytes(body),
                    envelope.signature,
                )
                return [bytes([CONTROL]) + encode_envelope(changed)]
        return [data]

    fault = fault_of(evaluate_in_memory(roles(), forge), "bob")
    assert fault.culprit == "alice"
    assert "signature" in fault.reason


class LyingEvaluator(EvaluatorRole):
    """Shows the garbler, or seals for the aggregator, a label that it does not have."""

    def _control(self, to, step, message):  # type: ignore[no-untyped-def]
        if isinstance(message, Confirm):
            colours = bytes([message.colours[0] ^ 1]) + message.colours[1:]
            message = Confirm(message.block, message.transcript, colours, message.proof)
        return super()._control(to, step, message)

    def _seal_labels(self, active, block):  # type: ignore[no-untyped-def]
        wrong = np.array(active)
        wrong[5, 17, 3] ^= 0x40
        return super()._seal_labels(wrong, block)


@pytest.mark.parametrize("output", ["garbler", "both"])
def test_an_evaluator_cannot_make_the_garbler_take_another_output(output: str) -> None:
    ends = evaluate_in_memory(roles(output, evaluator=LyingEvaluator))
    assert fault_of(ends, "alice").culprit == "bob"
    assert "does not have the output labels" in fault_of(ends, "alice").reason
    assert not (isinstance(ends["bob"], Evaluated) and ends["bob"].outputs)


def test_a_label_that_matches_neither_hash_names_the_evaluator_and_gives_no_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LyingEvaluator, "_control", EvaluatorRole._control)
    ends = evaluate_in_memory(roles("aggregator", evaluator=LyingEvaluator))
    nobody_has_a_value(ends)
    fault = fault_of(ends, "hub")
    assert fault.culprit == "bob"
    assert "output 5 of instance 17" in fault.reason
    assert fault_of(ends, "alice").culprit == "hub"
    assert "stopped the run and blames bob: " in fault_of(ends, "alice").reason


@pytest.mark.parametrize("blamed", ["alice", "hub", "nobody\x1b[2J"])
def test_whom_a_peer_blames_is_not_believed_and_not_passed_on(blamed: str) -> None:
    taking = roles("aggregator")
    bob = taking["bob"]
    claimed: list[Abort] = []

    def stop() -> Effects[Evaluated]:
        yield from bob._greet()
        raise PeerFault("bob", "is enough", Check.TOO_MANY)

    def farewell(error: SmpcError) -> list[Send]:
        return [bob._control(peer, ABORT, Abort(Code.FAULT, blamed)) for peer in bob._others]

    def listen(sender: str, to: str, data: bytes) -> list[bytes]:
        if sender != "bob" and data[0] == CONTROL:
            envelope = decode_envelope(data[1:], sender)
            if envelope.step == ABORT:
                claimed.append(decode(envelope.body, Abort, sender))
        return [data]

    bob.run, bob.farewell = stop, farewell  # type: ignore[method-assign]
    ends = evaluate_in_memory(taking, listen)
    known = blamed in taking
    assert fault_of(ends, "alice").culprit == "bob"
    reason = f"stopped the run and blames {blamed}: broke the protocol"
    assert fault_of(ends, "alice").reason == (reason if known else "sent a malformed abort")
    assert claimed[0] == (Abort(Code.STOPPED) if known else Abort(Code.FAULT, "bob"))
    assert fault_of(ends, "hub").culprit in ("alice", "bob")
    assert str(ends["hub"]).isprintable()


def test_the_name_of_a_wrong_step_is_shown_without_what_a_terminal_obeys() -> None:
    taking = roles()
    bob = taking["bob"]

    def wrong() -> Effects[Evaluated]:
        yield from bob._greet()
        yield bob._control("alice", "\x1b]0;step\x07\n", Receipt(bytes(32)))
        raise PeerFault("bob", "is enough", Check.TOO_MANY)

    bob.run = wrong  # type: ignore[method-assign]
    fault = fault_of(evaluate_in_memory(taking), "alice")
    assert fault.culprit == "bob"
    assert str(fault).isprintable()


def test_sealed_outputs_open_for_the_aggregator_alone() -> None:
    """Neither the evaluator nor the garbler is sent what the other sealed, nor any bit of the output."""
    sent: list[tuple[str, str, bytes]] = []

    def listen(sender: str, to: str, data: bytes) -> list[bytes]:
        sent.append((sender, to, data))
        return [data]

    ends = evaluate_in_memory(roles("aggregator"), listen)
    aggregator = ends["hub"]
    assert isinstance(aggregator, Evaluated)
    assert aggregator.outputs is not None
    assert unpack(aggregator.outputs[0], INSTANCES) == SUMS
    steps = [
        (sender, to, decode_envelope(data[1:], sender).step)
        for sender, to, data in sent
        if data[0] == CONTROL
    ]
    assert ("alice", "hub", "hashes") in steps
    assert ("bob", "hub", "labels") in steps
    assert not [entry for entry in steps if entry[2] == "decode"]
    confirm = next(
        decode_envelope(data[1:], "bob").body
        for sender, to, data in sent
        if data[0] == CONTROL and decode_envelope(data[1:], sender).step == "confirm"
    )
    assert len(confirm) < 64


def test_a_corrupted_seal_names_its_sender() -> None:
    for sender, step in (("alice", "hashes"), ("bob", "labels")):
        role = roles("aggregator")
        original = role[sender]._for_aggregator

        def corrupt(kind: str, block: int, sealed: bytes, original=original):  # type: ignore[no-untyped-def]
            return original(kind, block, sealed[:-1] + bytes([sealed[-1] ^ 1]))

        role[sender]._for_aggregator = corrupt  # type: ignore[method-assign,assignment]
        fault = fault_of(evaluate_in_memory(role), "hub")
        assert fault.culprit == sender
        assert step in fault.reason


def test_another_plan_is_refused() -> None:
    role = roles()
    bob = role["bob"]
    bob._plan = Plan(bob._plan.circuit, replace_instances(bob._plan.parameters))
    for end in evaluate_in_memory(role).values():
        assert isinstance(end, ConfigError)
        assert "parameters" in str(end)


def replace_instances(parameters: PairwiseParameters) -> PairwiseParameters:
    fields = {name: getattr(parameters, name) for name in parameters.__struct_fields__}
    return PairwiseParameters(**(fields | {"mode": "unique"}))


def test_a_key_of_small_order_to_seal_with_names_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    taking = roles("aggregator")
    monkeypatch.setattr(
        "smpc_dp.capabilities.pairs.garbled.participant.public_key", public_key_but(taking["bob"])
    )
    fault = fault_of(evaluate_in_memory(taking), "hub")
    assert (fault.culprit, fault.reason) == ("bob", "public key is a point of small order")


def public_key_but(participant: Participant) -> Callable[[bytes], bytes]:
    """The public key of a secret, but of one participant's a point of small order."""
    return lambda secret: bytes(32) if secret == participant._secret else public_key(secret)
