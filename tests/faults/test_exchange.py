"""Attacks on an exchange: swapped keys, replays, moved boxes, false sets; each is refused and named."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp.crypto import agree
from smpc_dp.engine.events import Message, Start
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.exchange import messages as m
from smpc_dp.session.exchange import states
from smpc_dp.session.exchange.params import ExchangeParameters, plan_exchange
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR, SimulatedRun, simulated_run
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context, decode, encode
from tests.exchanges import drive_exchange

VECTORS = np.array([[0.5, 0.25], [-0.5, 0.125], [0.0, 0.75]])
Change = Callable[[Envelope], Envelope]


def parameters(parties: int = 3, **more: int) -> ExchangeParameters:
    return plan_exchange(parties, length=2, l2_bound=1.0, precision=2**-20, **more)


class Run:
    """An exchange of three parties whose aggregator is an attacker with the aggregator's own key."""

    def __init__(self, given: ExchangeParameters, request: int = 1) -> None:
        self.simulated: SimulatedRun = simulated_run(
            3, protocol="exchange", seed_for_simulation=4, request=request
        )
        context = self.simulated.context
        self.parties = [
            states.party(
                context,
                given,
                self.simulated.signers[name],
                given.encoding.encode(VECTORS[index], party=name)[0],
                self.simulated.sources[name],
            )
            for index, name in enumerate(context.names)
        ]
        self.aggregator = states.aggregator(context, given, self.simulated.signers[AGGREGATOR])

    def go(self, change: Change) -> None:
        """Carry all messages, the aggregator's changed and signed again; raises a party's first error."""
        sent = [envelope for party in self.parties for envelope in party.handle(Start())]
        while sent:
            answers = [answer for envelope in sent for answer in self.aggregator.handle(Message(envelope))]
            sent = []
            for answer in answers:
                party = self.parties[self.simulated.context.names.index(answer.receiver)]
                sent += party.handle(Message(change(answer)))

    def rewrite(self, envelope: Envelope, body: msgspec.Struct) -> Envelope:
        signer = self.simulated.signers[AGGREGATOR]
        context = self.simulated.context
        (written,) = context.write(signer, envelope.run_id, envelope.step, (envelope.receiver,), body)
        return written


def on(run: Run, step: str, receiver: int, change: Callable[[bytes], msgspec.Struct]) -> Change:
    def apply(envelope: Envelope) -> Envelope:
        if (envelope.step, envelope.receiver) != (step, run.simulated.context.names[receiver]):
            return envelope
        return run.rewrite(envelope, change(envelope.body))

    return apply


def refused(run: Run, change: Change) -> SmpcError:
    with pytest.raises(SmpcError) as caught:
        run.go(change)
    return caught.value


def start_of(body: bytes) -> m.Start:
    return decode(body, m.Start, "hub")


def deliver_of(body: bytes) -> m.Deliver:
    return decode(body, m.Deliver, "hub")


def test_everybody_gets_the_same_sum() -> None:
    run = Run(parameters())
    run.go(lambda envelope: envelope)
    assert [party.finished for party in run.parties] == [True] * 3
    for party in run.parties:
        np.testing.assert_array_equal(party.result.total, run.parties[0].result.total)
        np.testing.assert_allclose(party.result.total * 2.0**-20, VECTORS.sum(axis=0), atol=3e-6)
        assert party.result.survivors == run.simulated.context.names
    assert run.aggregator.result.survivors == run.simulated.context.names


def test_no_byte_of_a_vector_leaves_its_party_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither as floats nor as steps of the grid, in integers of four or eight bytes; nor in a refusal."""
    claimed: list[bytes] = []
    write = Context.write

    def record(context: Context, *given: Any) -> list[Envelope]:
        envelopes = write(context, *given)
        claimed.extend(encode(envelope) for envelope in envelopes)
        return envelopes

    monkeypatch.setattr(Context, "write", record)
    Run(parameters()).go(lambda envelope: envelope)
    assert len(claimed) >= 12
    broken = Run(parameters())
    refused(broken, on(broken, m.DELIVER, 0, lambda _: m.Deliver(b"", [])))
    every = b"".join(claimed)
    for number in map(float, VECTORS.ravel()[VECTORS.ravel() != 0]):
        steps = int(number * 2**20)
        forms = [struct.pack(kind, number) for kind in ("<d", ">d")]
        forms += [struct.pack(kind, steps) for kind in ("<q", ">q", "<i", ">i")]
        assert not [form for form in forms if form in every]


def test_noise_is_drawn_once_for_all_receivers() -> None:
    given = plan_exchange(3, length=2, l2_bound=1.0, precision=2**-16, epsilon=1.0, delta=1e-6)
    ring_vector = [given.encoding.encode(vector, party="a party")[0] for vector in VECTORS]
    (first, second, third), errors = drive_exchange(given, ring_vector, seed=3)
    assert not errors
    for name, one, other in (
        (first.name, second, third),
        (second.name, first, third),
        (third.name, first, second),
    ):
        np.testing.assert_array_equal(one.state.received[name], other.state.received[name])
    values = given.real(second.state.received[first.name])
    assert np.abs(values - VECTORS[0]).min() > 0


def test_a_swapped_key_is_not_taken() -> None:
    run = Run(parameters())

    def swap(body: bytes) -> m.Start:
        start = start_of(body)
        number, content, signature = start.hellos[0]
        hello = decode(content, m.Hello, "x")
        other = msgspec.structs.replace(hello, key=agree.public_key(bytes(range(32))))
        return msgspec.structs.replace(start, hellos=[(number, encode(other), signature), *start.hellos[1:]])

    error = refused(run, on(run, m.START, 2, swap))
    assert isinstance(error, PeerFault)
    assert error.culprit == run.simulated.context.names[0]
    assert "invalid signature" in str(error)


def test_a_hello_of_another_request_is_not_taken() -> None:
    """The same identities and session, an earlier request: its signature is good, its request is not."""
    run, earlier = Run(parameters(), 2), Run(parameters(), 1)
    (old,) = earlier.parties[0].handle(Start())

    def replay(body: bytes) -> m.Start:
        start = start_of(body)
        number, _, _ = start.hellos[0]
        return msgspec.structs.replace(start, hellos=[(number, old.body, old.signature), *start.hellos[1:]])

    assert earlier.simulated.context.session_digest == run.simulated.context.session_digest
    error = refused(run, on(run, m.START, 1, replay))
    assert isinstance(error, PeerFault)
    assert "another session, request or question" in str(error)


def test_nonces_of_others_do_not_hide_ones_own() -> None:
    run = Run(parameters())

    def forget(body: bytes) -> m.Start:
        start = start_of(body)
        return msgspec.structs.replace(start, nonces=bytes(32) + start.nonces[32:])

    error = refused(run, on(run, m.START, 0, forget))
    assert "does not have the nonce of party-00001" in str(error)


def test_users_with_differing_nonces_have_differing_runs() -> None:
    """An aggregator that shows one party another nonce gives it another run: its boxes do not open."""
    run = Run(parameters())

    def lie(body: bytes) -> m.Start:
        start = start_of(body)
        return msgspec.structs.replace(start, nonces=start.nonces[:64] + bytes(32))

    assert isinstance(refused(run, on(run, m.START, 0, lie)), PeerFault)


@pytest.mark.parametrize("index", [0, 30, -1])
def test_a_changed_box_is_refused(index: int) -> None:
    run = Run(parameters())

    def flip(body: bytes) -> m.Deliver:
        deliver = deliver_of(body)
        (number, box), *rest = deliver.boxes
        changed = bytearray(box)
        changed[index] ^= 1
        return msgspec.structs.replace(deliver, boxes=[(number, bytes(changed)), *rest])

    error = refused(run, on(run, m.DELIVER, 1, flip))
    assert isinstance(error, PeerFault)
    assert error.culprit == run.simulated.context.names[0]
    assert "cannot be read" in str(error)


def test_boxes_do_not_change_places() -> None:
    run = Run(parameters())

    def exchange(body: bytes) -> m.Deliver:
        deliver = deliver_of(body)
        (one, first), (two, second) = deliver.boxes
        return msgspec.structs.replace(deliver, boxes=[(one, second), (two, first)])

    assert "cannot be read" in str(refused(run, on(run, m.DELIVER, 2, exchange)))


def test_a_box_that_was_sent_is_delivered() -> None:
    run = Run(parameters())
    drop = on(
        run,
        m.DELIVER,
        0,
        lambda body: msgspec.structs.replace(deliver_of(body), boxes=deliver_of(body).boxes[:1]),
    )
    assert "exactly the boxes" in str(refused(run, drop))


def test_too_few_senders_are_refused_by_each_user() -> None:
    run = Run(parameters())

    def fewer(body: bytes) -> m.Deliver:
        return m.Deliver(pack_set([1, 2], 3), deliver_of(body).boxes[:1])

    assert "2 parties are there, 3 are needed" in str(refused(run, on(run, m.DELIVER, 0, fewer)))


def test_a_user_that_sends_along_no_edge_is_left_out() -> None:
    given = parameters().between(((2,), (1,), ()))
    run = Run(given)
    hellos = [envelope for party in run.parties for envelope in party.handle(Start())]
    starts = [answer for envelope in hellos for answer in run.aggregator.handle(Message(envelope))]
    sent = {
        answer.receiver: run.parties[index].handle(Message(answer)) for index, answer in enumerate(starts)
    }
    name = run.simulated.context.names[2]
    (honest,) = sent[name]
    body = m.Send([(1, b"x")])
    (forged,) = run.simulated.context.write(
        run.simulated.signers[name], honest.run_id, m.SEND, (AGGREGATOR,), body
    )
    run.aggregator.handle(Message(forged))
    for index in (0, 1):
        run.aggregator.handle(Message(sent[run.simulated.context.names[index]][0]))
    assert "does not send to exactly" in "; ".join(run.aggregator.result.faults)


def test_a_user_that_keeps_a_box_back_is_left_out_and_not_the_hub_blamed() -> None:
    run = Run(parameters(missing=1))
    names = run.simulated.context.names
    hellos = [envelope for party in run.parties for envelope in party.handle(Start())]
    starts = [answer for envelope in hellos for answer in run.aggregator.handle(Message(envelope))]
    delivered: list[Envelope] = []
    for index, start in enumerate(starts):
        (honest,) = run.parties[index].handle(Message(start))
        if index == 2:
            boxes = decode(honest.body, m.Send, names[2]).boxes[:1]
            signer = run.simulated.signers[names[2]]
            (honest,) = run.simulated.context.write(
                signer, honest.run_id, m.SEND, (AGGREGATOR,), m.Send(boxes)
            )
        delivered += run.aggregator.handle(Message(honest))
    for envelope in delivered:
        if envelope.step == m.DELIVER:
            run.parties[names.index(envelope.receiver)].handle(Message(envelope))
    assert run.aggregator.result.absent == (names[2],)
    for party in run.parties[:2]:
        assert party.result.survivors == names[:2]


def test_a_partner_that_dies_is_named_to_its_receiver_alone() -> None:
    given = parameters().between(((2,), (1,), ()))
    run = Run(given)
    first = run.simulated.context.names[0]
    errors = drive([run.aggregator, *run.parties], MemoryNetwork(Faults(kill={first: 2}), seed=1), AGGREGATOR)
    second, third = run.simulated.context.names[1:]
    error = errors[second]
    assert isinstance(error, TimeoutFault)
    assert error.missing == {first}
    assert third not in errors


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("far", [1 << 40, -(1 << 40)])
def test_a_vector_out_of_bounds_names_its_sender(apart: bool, far: int) -> None:
    """Also where another party's makes up for it in the sum."""
    given = parameters().to_each() if apart else parameters()
    ring_vector = [np.zeros(given.shape, np.uint64) for _ in VECTORS]
    ring_vector[1][...] = np.int64(far).view(np.uint64)
    ring_vector[2][...] = np.int64(-far).view(np.uint64)
    parties, errors = drive_exchange(given, ring_vector, seed=1)
    error = errors[parties[0].name]
    assert isinstance(error, PeerFault)
    assert error.culprit == parties[1].name
    assert "out of bounds" in str(error)


@pytest.mark.parametrize(
    ("lies", "culprit", "named"),
    [((1 << 60, -(1 << 60)), 1, "within the bounds"), ((0, (1 << 20) - 2), 2, "its L2 norm 1.4")],
    ids=["cancel", "norm"],
)
def test_each_vector_is_checked_by_itself(lies: tuple[int, int], culprit: int, named: str) -> None:
    """Of two that cancel the sum is within its bounds; and each coordinate may be within a bound of norms."""
    given = parameters()
    run = Run(given)
    for index, lie in zip((1, 2), lies, strict=True):
        grid = np.array([lie, lie]) - given.encoding.lowest
        context = run.simulated.context
        name = context.names[index]
        ring_vector = grid.astype(np.int64).view(np.uint64)
        run.parties[index] = states.party(
            context, given, run.simulated.signers[name], ring_vector, run.simulated.sources[name]
        )
    error = refused(run, lambda envelope: envelope)
    assert isinstance(error, PeerFault)
    assert error.culprit == run.simulated.context.names[culprit]
    assert named in error.reason
