"""A stage for attacks: real machines, a network that an attacker may change, and everyone's signing key."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import Encoding, fixed_point_sum
from smpc_dp.engine.events import Cancellation, Deadline, Event, Message, Start
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.last_results import SentResults
from smpc_dp.engine.phases.merkle_commitments import MerkleCommitment
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.phases.survivors import FixedSurvivors
from smpc_dp.engine.registry import make_aggregator, make_party, session_protocol
from smpc_dp.engine.run import Run, RunningRole
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.privacy.secagg_plan import SecAggPlan, plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.session.memory.simulated_run import Signer
from smpc_dp.wire.abort import ABORT, BLAMES, LEAVE, Abort
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, decode

AGGREGATOR = "relay"
LENGTH = 3

# An attacker's hand on one message under way: what is delivered in its place.
Tamper = Callable[[Envelope], Iterable[Envelope]]

KINDS: Mapping[str, type[msgspec.Struct]] = {
    m.HELLO: m.Hello,
    m.START: m.FollowingStart,
    m.ADVERTISE: m.Advertise,
    m.MERKLE_COMMITMENT: m.MerkleCommitment,
    m.REVEAL: m.Reveal,
    m.NEIGHBOURS: m.Neighbours,
    m.DEAL: m.Deal,
    m.DELIVER: m.Deliver,
    m.ATTEST_PARTICIPANTS: m.Attestation,
    m.PARTICIPANTS: m.Certificate,
    m.MASKED: m.Masked,
    m.SURVIVORS: m.Survivors,
    m.ATTEST_SURVIVORS: m.Attestation,
    m.SURVIVORS_CERTIFICATE: m.Certificate,
    m.UNMASK: m.Unmask,
    m.RESULT: m.Result,
    g.PUBLISH: g.Published,
    g.AVERAGE: g.Average,
    ABORT: Abort,
    LEAVE: Abort,
}


class SimulatedRun:
    """One run of one session, with `corrupt` parties and the aggregator in the attacker's hand if it likes.

    `session` decides keys and session digest, `run` the vectors and the parties' randomness
    (None: the operating system's): two runs of one session file have equal `session`. `fixed` and `last` have
    for members, the aggregator too, what earlier requests of the session have left them.

    Without `parameters` the total is unchecked, which is not the default of sessions: those have
    `tests.faults.checked_totals.CheckedRun`.
    """

    def __init__(
        self,
        parties: int,
        *,
        plan: SecAggPlan | None = None,
        dropout: float = 0.25,
        corrupt: float = 0.0,
        session: int = 1,
        run: int | None = 1,
        parameters: SumParameters | None = None,
        request: int = 1,
        fixed: Mapping[str, FixedSurvivors] | None = None,
        last: Mapping[str, Any] | None = None,
    ) -> None:
        self.fixed, self.last = fixed or {}, last or {}
        plan = plan or plan_secagg(parties, dropout=dropout, corrupt=corrupt)
        encoding = Encoding.plan(length=LENGTH, lower=-9.0, upper=9.0, precision=1e-3, parties=parties)
        self.parameters = parameters or SecAggParameters(encoding, plan)
        self.plan, self.encoding = self.parameters.plan, self.parameters.encoding
        source = SeededRandomnessForSimulation(session, "attack session")
        self.names = tuple(f"p{number}" for number in range(1, parties + 1))
        self.signers = {
            name: Signer(name, SigningKey(source.bytes(32))) for name in (*self.names, AGGREGATOR)
        }
        self.context = Context(
            protocol=self.parameters.protocol,
            version=session_protocol(self.parameters.protocol).version,
            session_digest=source.bytes(32),
            request=request,
            names=self.names,
            aggregator=AGGREGATOR,
            keys={name: bytes(signer.key.verify_key) for name, signer in self.signers.items()},
            operation=self.parameters.planned(),
        )
        self.vectors = np.random.default_rng(run or 1).uniform(-9, 9, (parties, LENGTH))
        self.randomness: dict[str, Randomness] = {
            name: SystemRandomness()
            if run is None
            else SeededRandomnessForSimulation(run, f"attack {session} {name}")
            for name in self.names
        }
        self.parties = {name: self.machine(name) for name in self.names}
        self.aggregator = make_aggregator(
            self.context,
            self.parameters,
            self.signers[AGGREGATOR],
            fixed=self.fixed.get(AGGREGATOR),
            last=self.last.get(AGGREGATOR, SentResults(source)),
        )
        self.sent: list[Envelope] = []
        self.errors: dict[str, SmpcError] = {}

    def machine(self, name: str) -> Run[Any]:
        """Return a machine of a party."""
        vector = self.vectors[self.names.index(name)]
        ring_vector, _ = self.encoding.encode(vector, party=name)
        return make_party(
            self.context,
            self.parameters,
            self.signers[name],
            ring_vector,
            self.randomness[name],
            self.fixed.get(name),
            last=self.last.get(name),
        )

    def grid(self, name: str) -> NDArray[np.int64]:
        """Return a party's vector on the integer grid: the secret that an attacker is after."""
        return fixed_point_sum(self.encoding, [self.vectors[self.names.index(name)]])

    def number(self, name: str) -> int:
        """Return a party's number."""
        return self.names.index(name) + 1

    def execute(self, tamper: Tamper = lambda envelope: (envelope,)) -> SimulatedRun:
        """Run to the end, in order of sending; silence becomes the aggregator's deadline, then everyone's."""
        queue: deque[Envelope] = deque()
        machines: dict[str, RunningRole] = {**self.parties, AGGREGATOR: self.aggregator}

        def act(name: str, event: Event) -> None:
            machine = machines[name]
            try:
                sent = list(machine.handle(event))
            except SmpcError as error:
                self.errors[name] = error
                sent = list(machine.handle(Cancellation(error)))
            self.sent += sent
            for envelope in sent:
                queue.extend(tamper(envelope))

        for name in self.names:
            act(name, Start())
        while True:
            while queue:
                envelope = queue.popleft()
                if envelope.receiver not in self.errors:
                    act(envelope.receiver, Message(envelope))
            waiting = [
                n for n in (AGGREGATOR, *self.names) if not machines[n].finished and n not in self.errors
            ]
            if not waiting:
                return self
            late = machines[waiting[0]]
            before = (late.step, late.waiting_count)
            act(late.name, Deadline())
            ended = late.finished or late.name in self.errors
            assert queue or ended or before != (late.step, late.waiting_count), "a deadline changes nothing"

    def change(self, envelope: Envelope, **fields: Any) -> Envelope:
        """Return the message with other content, signed by its sender."""
        message = decode(envelope.body, KINDS[envelope.step], envelope.sender)
        return self.write(envelope, msgspec.structs.replace(message, **fields))

    def write(self, envelope: Envelope, message: msgspec.Struct, **fields: Any) -> Envelope:
        """Return another message in the place of `envelope`, signed by its sender."""
        e = msgspec.structs.replace(envelope, **fields)
        return self.context.write(self.signers[e.sender], e.run_id, e.step, (e.receiver,), message)[0]

    def advertise(self, envelope: Envelope, **fields: Any) -> Envelope:
        """Return another advertisement of a party; its machine goes on as if it had made it."""
        changed, machine = self.change(envelope, **fields), self.parties[envelope.sender]
        digest, state = sha256(changed.body).digest(), machine.state
        drawn = msgspec.structs.replace(state.drawn, advertisement=digest)
        machine._state = msgspec.structs.replace(state, drawn=drawn)
        return changed

    def steps_of(self, name: str) -> list[str]:
        """Return the steps that a party has sent, in order."""
        return [envelope.step for envelope in self.sent if envelope.sender == name]

    def body_of(self, step: str, name: str) -> Any:
        """Return what a party sent in a step."""
        [envelope] = [e for e in self.sent if (e.step, e.sender) == (step, name)]
        return decode(envelope.body, KINDS[step], name)

    def merkle_commitment(self, changed: Mapping[int, bytes] | None = None) -> MerkleCommitment:
        """Return the Merkle commitment to what machines advertised, with the bodies `changed`."""
        bodies = {self.number(e.sender): e.body for e in self.sent if e.step == m.ADVERTISE}
        given = {number: sha256(body).digest() for number, body in (bodies | dict(changed or {})).items()}
        return MerkleCommitment(self.context, Label.ADVERTISEMENTS, given)

    def enroll(self, envelope: Envelope, merkle_commitment: MerkleCommitment) -> Envelope:
        """Return the receiver's Merkle commitment, or what it is shown of neighbours, under another root."""
        if envelope.step == m.MERKLE_COMMITMENT:
            proof = merkle_commitment.prove([self.number(envelope.receiver)])
            return self.change(envelope, root=merkle_commitment.root, proof=proof)
        message = decode(envelope.body, m.Neighbours, envelope.sender)
        return self.change(
            envelope, proof=merkle_commitment.prove(item.party for item in message.advertisements)
        )

    def without(self, envelope: Envelope, gone: Container[int], **fields: Any) -> Envelope:
        """Return `neighbours` without what it has of these parties, its proof of the rest."""
        message = decode(envelope.body, m.Neighbours, envelope.sender)
        places = [i for i, item in enumerate(message.advertisements) if item.party not in gone]
        size = m.KEY_BYTES
        changed = self.change(
            envelope,
            advertisements=[message.advertisements[i] for i in places],
            mask_keys=b"".join(message.mask_keys[size * i : size * i + size] for i in places),
            **{"openings": [opening for opening in message.openings if opening.party not in gone]} | fields,
        )
        return self.enroll(changed, self.merkle_commitment())

    def reported(self, name: str) -> Abort:
        """Return what the aggregator told a party that it excluded."""
        abort = next(e for e in self.sent if e.step == ABORT and e.receiver == name)
        return decode(abort.body, Abort, AGGREGATOR)

    def fault_of(self, name: str) -> str:
        """Return what the aggregator excluded a party for, in its own words."""
        return str(self.aggregator.state.inbox.excluded[self.number(name)])

    # What tests assert

    def assert_nothing_revealed(self) -> None:
        """No honest machine has shown a share, and no party has a result."""
        assert not [e for e in self.sent if e.step == m.UNMASK]
        assert not [
            name for name, party in self.parties.items() if party.finished and name not in self.errors
        ]

    def assert_blames(self, name: str, culprit: str, reason: str) -> None:
        """A machine ended with a PeerFault of the culprit for this reason."""
        error = self.errors[name]
        assert isinstance(error, PeerFault), error
        assert (error.culprit, reason in error.reason) == (culprit, True), error

    def assert_out(self, name: str, reason: str) -> None:
        """The aggregator excluded the party for its own fault, told it so, and lists the fault."""
        reported = self.reported(name)
        assert (reported.code in BLAMES, reported.culprit) == (True, name), reported
        assert any(
            fault.startswith(f"{name}: ") and reason in fault for fault in self.aggregator.result.faults
        ), self.aggregator.result.faults

    def assert_sum(self, *absent: str) -> None:
        """The aggregator's sum is exact, over everyone but `absent`; all who have a result have the same."""
        expected = sum(
            (self.grid(name) for name in self.names if name not in absent), np.zeros(LENGTH, np.int64)
        )
        assert self.aggregator.result.absent == absent
        machines = [self.aggregator, *self.parties.values()]
        for machine in machines:
            if machine.name not in self.errors:
                np.testing.assert_array_equal(machine.result.total, expected)

    def assert_too_few(self) -> None:
        """The aggregator stopped for want of parties and names the missing."""
        error = self.errors[AGGREGATOR]
        assert isinstance(error, TimeoutFault), error
        assert error.missing


def masking_with(simulated: SimulatedRun, name: str, key: bytes) -> Tamper:
    """Return a hand of a party that commits to a masking key which is not its own, and reveals it."""

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        if (envelope.step, envelope.sender) == (m.ADVERTISE, name):
            commitment = keys.key_commitment(simulated.context, envelope.run_id, name, key)
            return (simulated.advertise(envelope, key_commitment=commitment),)
        if (envelope.step, envelope.sender) == (m.REVEAL, name):
            return (simulated.change(envelope, mask_key=key),)
        return (envelope,)

    return tamper


def only(step: str, receiver: str | None, change: Callable[[Envelope], Iterable[Envelope]]) -> Tamper:
    """Return a hand on the messages of one step (to one receiver) that lets all others pass."""

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        hit = envelope.step == step and receiver in (None, envelope.receiver)
        return change(envelope) if hit else (envelope,)

    return tamper


def by(step: str, sender: str, change: Callable[[Envelope], Iterable[Envelope]]) -> Tamper:
    """Return a hand on what one sender sends in one step."""

    def tamper(envelope: Envelope) -> Iterable[Envelope]:
        return change(envelope) if (envelope.step, envelope.sender) == (step, sender) else (envelope,)

    return tamper
