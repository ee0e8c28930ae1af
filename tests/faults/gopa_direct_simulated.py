"""A stage for attacks on GOPA without a relay: real machines, and an attacker's hand on every message."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa import direct_messages as d
from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.capabilities.gopa.direct_params import DirectParameters, check_parameters
from smpc_dp.capabilities.gopa.direct_states import party
from smpc_dp.capabilities.gopa.versions import EARLIER_VERSION
from smpc_dp.encoding import fixed_point_sum
from smpc_dp.engine.events import Cancellation, Deadline, Event, Message, PeersLost, Start
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.result import Outcome
from smpc_dp.engine.run import Run
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import Signer
from smpc_dp.wire.abort import ABORT, LEAVE, Abort
from smpc_dp.wire.envelope import EVERYONE, Envelope
from smpc_dp.wire.signing import Context, decode

LENGTH = 3
Tamper = Callable[[Envelope], Iterable[Envelope]]

KINDS: Mapping[str, type[msgspec.Struct]] = {
    m.HELLO: m.Hello,
    d.START: d.Start,
    m.ADVERTISE: d.Advertise,
    d.MERKLE_COMMITMENT: d.MerkleCommitment,
    m.REVEAL: d.Reveal,
    d.PARTICIPANTS: d.Participants,
    m.ATTEST_PARTICIPANTS: m.Attestation,
    g.PUBLISH: g.Published,
    d.HELD: d.Held,
    d.FORWARD: d.Forward,
    d.PUBLISHED: d.Published,
    d.ATTEST_TOTAL: m.Attestation,
    d.WITNESS: d.Witness,
    ABORT: Abort,
    LEAVE: Abort,
}


def parameters_for(parties: int, **more: object) -> DirectParameters:
    given: dict[str, object] = {"length": LENGTH, "lower": -9.0, "upper": 9.0, "epsilon": 1.0, "delta": 1e-6}
    given |= {"dropout": 0.25, "corrupt": 0.13, "topology": "direct"} | more
    parameters, faults = check_parameters(given, parties)
    assert isinstance(parameters, DirectParameters), faults
    return parameters


class DirectRow:
    """Requests of one session; p1 coordinates the first one, p2 the second."""

    def __init__(self, parties: int = 8, run: int = 1, **more: object) -> None:
        self.parameters = parameters_for(parties, **more)
        self.encoding = self.parameters.encoding
        keys = SeededRandomnessForSimulation(1, "direct attack")
        self.names = tuple(f"p{number}" for number in range(1, parties + 1))
        self.signers = {name: Signer(name, SigningKey(keys.bytes(32))) for name in self.names}
        self.digest = keys.bytes(32)
        self.run = run
        self.vectors = np.random.default_rng(run).uniform(-9, 9, (parties, LENGTH))
        self.begin(1)

    def begin(self, request: int) -> None:
        """Give everyone a new machine, for another request."""
        self.context = Context(
            protocol=self.parameters.protocol,
            version=EARLIER_VERSION,
            session_digest=self.digest,
            request=request,
            names=self.names,
            aggregator=EVERYONE,
            keys={name: bytes(signer.key.verify_key) for name, signer in self.signers.items()},
            operation=self.parameters.planned(),
        )
        self.sent: list[Envelope] = []
        self.errors: dict[str, SmpcError] = {}
        self.parties: dict[str, Run[Outcome]] = {}
        for phase, name in enumerate(self.names):
            ring_vector, _ = self.encoding.encode(self.vectors[phase], party=name)
            randomness = SeededRandomnessForSimulation(self.run, f"direct {request} {name}")
            self.parties[name] = party(
                self.context, self.parameters, self.signers[name], ring_vector, randomness
            )

    def execute(self, tamper: Tamper = lambda envelope: (envelope,), out: Iterable[str] = ()) -> DirectRow:
        """Run to the end, in order of sending; `out` are processes that are not there at all."""
        queue: deque[Envelope] = deque()
        absent = self.out = set(out)

        def act(name: str, event: Event) -> None:
            try:
                sent = list(self.parties[name].handle(event))
            except SmpcError as error:
                self.errors[name] = error
                sent = list(self.parties[name].handle(Cancellation(error)))
            self.sent += sent
            for envelope in sent:
                queue.extend(tamper(envelope))

        for name in self.names:
            if name not in absent:
                act(name, Start())
        for name in self.names:
            if name not in absent:
                act(name, PeersLost(tuple(absent)))
        while True:
            while queue:
                envelope = queue.popleft()
                if envelope.receiver not in {*self.errors, *absent}:
                    act(envelope.receiver, Message(envelope))
            waiting = [
                party for name, party in self.parties.items() if not party.finished and name not in {*absent}
            ]
            if not waiting:
                return self
            latest = min(waiting, key=lambda party: (party.state.patient, party.state.phase))
            act(latest.name, Deadline())

    def sign(self, envelope: Envelope) -> Envelope:
        """Sign what a sender sends anew."""
        receiver = envelope.receiver if envelope.step in d.TO_ONE else EVERYONE
        signer = self.signers[envelope.sender]
        message = msgspec.Raw(envelope.body)
        [signed] = self.context.write(signer, envelope.run_id, envelope.step, (receiver,), message)  # type: ignore[arg-type]
        return msgspec.structs.replace(signed, receiver=envelope.receiver)

    def change(self, envelope: Envelope, **fields: Any) -> Envelope:
        """Return the message with other content, signed by its sender."""
        message = msgspec.structs.replace(self.read(envelope), **fields)
        return self.sign(msgspec.structs.replace(envelope, body=msgspec.msgpack.encode(message)))

    def read(self, envelope: Envelope) -> Any:
        """Return what a message says."""
        return decode(envelope.body, KINDS[envelope.step], envelope.sender)

    def number(self, name: str) -> int:
        """Return a party's number."""
        return self.names.index(name) + 1

    def grid(self, name: str) -> NDArray[np.int64]:
        """Return a party's vector on the grid: the secret."""
        return fixed_point_sum(self.encoding, [self.vectors[self.names.index(name)]])

    def steps_of(self, name: str) -> set[str]:
        """Return the steps that a party has sent."""
        return {envelope.step for envelope in self.sent if envelope.sender == name}

    def outcomes(self) -> dict[str, Outcome]:
        """Return the results of those who have one; all must have the same."""
        results = {
            name: party.result
            for name, party in self.parties.items()
            if party.finished and name not in {*self.errors, *self.out}
        }
        firsts = next(iter(results.values()), None)
        for outcome in results.values():
            assert firsts is not None
            np.testing.assert_array_equal(outcome.total, firsts.total)
            assert outcome.survivors == firsts.survivors
        return results

    # What tests assert

    def assert_blames(self, name: str, culprit: str, reason: str) -> PeerFault:
        """A machine ended with a PeerFault of the culprit for this reason."""
        error = self.errors[name]
        assert isinstance(error, PeerFault), error
        assert (error.culprit, reason in error.reason) == (culprit, True), error
        return error

    def assert_missing(self, name: str, *missing: str) -> None:
        """A machine ended because these are missing."""
        error = self.errors[name]
        assert isinstance(error, TimeoutFault), error
        assert error.missing == set(missing), error

    def assert_proves(self, fault: PeerFault) -> None:
        """The evidence of a fault holds before anyone who has the roster."""
        evidence = fault.evidence
        step = fault.reason.split("'")[1]
        shown = set()
        for which in ("first", "second"):
            run_id, body_hash = evidence[f"{which} run id"], evidence[which]
            statement = self.context.statement(run_id, step, fault.culprit, EVERYONE, body_hash)
            self.context.verify(self.context.keys[fault.culprit], statement, evidence[f"{which} signature"])
            shown.add((run_id, body_hash))
        assert len(shown) == 2, "two different messages"

    def assert_published(self, *published: str) -> None:
        """Everyone who is in the set has the right total, and what the others left in it is counted."""
        results = self.outcomes()
        assert set(results) == set(published)
        outcome = next(iter(results.values()))
        assert outcome.survivors == published
        expected = sum((self.grid(name) for name in published), np.zeros(LENGTH, np.int64))
        assert outcome.noise is not None
        off = np.abs(outcome.total - expected) * self.encoding.step
        # Seven standard deviations in three coordinates: 8e-12.
        assert (off < 7 * outcome.noise.total).all()


def by(step: str, sender: str, change: Callable[[Envelope], Iterable[Envelope]]) -> Tamper:
    """Return a hand on what one sender sends in one step."""

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        return change(envelope) if (envelope.step, envelope.sender) == (step, sender) else (envelope,)

    return tamper


def silent(name: str, step: str) -> Tamper:
    """Return a hand that ends a process before it sends its first message of a step."""
    dead = False

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        nonlocal dead
        dead = dead or (envelope.sender == name and envelope.step == step)
        return () if dead and envelope.sender == name else (envelope,)

    return tamper
