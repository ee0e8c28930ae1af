"""Negative vectors: one message of a valid run, changed in one part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from smpc_dp.capabilities.gopa import messages as g
from smpc_dp.engine.phases import messages as m
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, Signer, decode
from smpc_dp_lab.vectors import runs
from smpc_dp_lab.vectors.runs import AGGREGATOR, SCENARIOS, Scenario, header

S = TypeVar("S", bound=msgspec.Struct)
# What fields become: another value, or a function of the one that was there. Or a function of the whole that
# returns these.
Fields = Mapping[str, object] | Callable[[Any], Mapping[str, object]]
Kinds = Mapping[str, type[msgspec.Struct]]

VICTIM = "alice"
CULPRIT = "carol"
# Which message a step has, in secure aggregation and GOPA.
KINDS: Kinds = {
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
    m.SURVIVORS_CERTIFICATE: m.Certificate,
    m.UNMASK: m.Unmask,
    m.RESULT: m.Result,
    g.PUBLISH: g.Published,
    g.AVERAGE: g.Average,
}

# Which layer refuses: the envelope (who, to whom, which signature), the order of steps, the strict decoding
# of a body, or a check of its content.
ENVELOPE, ORDER, DECODING, CONTENT = "envelope", "order", "decoding", "content"


@dataclass(frozen=True, slots=True)
class Negative:
    """Test vector of a fault: after `after` messages of a run, the receiver gets `envelope` instead.

    A party must raise `error`. The aggregator must exclude the culprit and notify it by an `Abort`.
    """

    name: str
    about: str
    base: str
    after: int
    envelope: Envelope
    layer: str
    error: str
    culprit: str
    prefix: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the test vector as JSON data: base run, changed envelope and expected error."""
        return {
            **header(f"{self.prefix}negative", self.name, self.about),
            "base": f"{self.prefix}run-{self.base}.json",
            "after": self.after,
            "envelope": envelope_json(self.envelope),
            "expect": {"layer": self.layer, "error": self.error, "culprit": self.culprit},
        }


def envelope_json(envelope: Envelope) -> dict[str, str]:
    """Return an envelope's fields as JSON data of a test vector, bytes in hex."""
    return {
        "run_id": envelope.run_id.hex(),
        "step": envelope.step,
        "sender": envelope.sender,
        "receiver": envelope.receiver,
        "body": envelope.body.hex(),
        "signature": envelope.signature.hex(),
    }


class Finished(Protocol):
    """Interface of a finished run: messages sent, signing context and keys."""

    @property
    def sent(self) -> list[Envelope]:
        """All messages that were sent in the run, in order."""

    @property
    def context(self) -> Context:
        """The context of the run, for which its messages are signed."""

    @property
    def signers(self) -> Mapping[str, Signer]:
        """The signing key of each member, by name."""


R = TypeVar("R", bound=Finished)


class RecordedRun(Generic[R]):
    """Finished run from which negative test vectors are made, by changing one message at a time.

    Faults are those of `aggregator` in what it sends to `victim`, and of `culprit` in what it sends to
    `aggregator`.
    """

    def __init__(
        self,
        name: str,
        run: R,
        kinds: Kinds = KINDS,
        prefix: str = "",
        *,
        aggregator: str = AGGREGATOR,
        victim: str = VICTIM,
        culprit: str = CULPRIT,
    ) -> None:
        """`kinds` has the message type of each step; `prefix` begins the names of files."""
        self.name, self.run, self._kinds, self._prefix = name, run, kinds, prefix
        self._aggregator, self._victim, self._culprit = aggregator, victim, culprit

    def to(self, receiver: str) -> list[Envelope]:
        """Return the messages that the run sent to `receiver`, in order."""
        return [envelope for envelope in self.run.sent if envelope.receiver == receiver]

    def find(self, step: str, sender: str = "", receiver: str = "") -> tuple[int, Envelope]:
        """Return how many messages `receiver` got before this one, and the message."""
        if not sender:
            first = next((envelope.sender for envelope in self.run.sent if envelope.step == step), "")
            sender = self._aggregator if first == self._aggregator else self._culprit
        receiver = receiver or (self._victim if sender == self._aggregator else self._aggregator)
        for index, envelope in enumerate(self.to(receiver)):
            if (envelope.step, envelope.sender) == (step, sender):
                return index, envelope
        raise LookupError(f"{self.name}: no {step} from {sender} to {receiver}")

    def read(self, step: str, sender: str = "", receiver: str = "") -> Any:
        """Return the decoded body of the first message of this step, sender and receiver."""
        envelope = self.find(step, sender, receiver)[1]
        return decode(envelope.body, self._kinds[step], envelope.sender)

    def sign(self, envelope: Envelope, **changes: Any) -> Envelope:
        """Return an envelope with changed fields, signed anew by its sender."""
        changed = msgspec.structs.replace(envelope, **changes)
        addressed = msgspec.structs.replace(changed, receiver=self._for(changed))
        signed = signed_again(self.run.context, self.run.signers[changed.sender], addressed)
        return msgspec.structs.replace(signed, receiver=changed.receiver)

    def _for(self, envelope: Envelope) -> str:
        """Return the receiver's name that the envelope's signature covers."""
        return envelope.receiver

    def with_message(self, envelope: Envelope, fields: Fields) -> Envelope:
        """Return the envelope with fields of its message changed, signed by its sender."""
        message = decode(envelope.body, self._kinds[envelope.step], envelope.sender)
        return self.sign(envelope, body=msgspec.msgpack.encode(altered(message, fields)))

    def made(
        self, name: str, about: str, index: int, envelope: Envelope, layer: str = CONTENT, **expect: str
    ) -> Negative:
        """Return a negative vector with the envelope at an index; `expect` names another error or culprit."""
        error, culprit = expect.get("error", "PeerFault"), expect.get("culprit", envelope.sender)
        return Negative(name, about, self.name, index, envelope, layer, error, culprit, self._prefix)

    def fault(
        self,
        name: str,
        about: str,
        step: str,
        fields: Fields,
        layer: str = CONTENT,
        *,
        sender: str = "",
        later: int = 0,
        **expect: str,
    ) -> Negative:
        """Return a negative vector with one message's fields changed, signed by its sender.

        The message comes `later` places after the true one; with 0 it comes in its place.
        """
        index, envelope = self.find(step, sender)
        return self.made(name, about, index + later, self.with_message(envelope, fields), layer, **expect)

    def forged(
        self,
        name: str,
        about: str,
        step: str,
        fields: Fields,
        layer: str,
        *,
        later: int = 0,
        signed: bool = True,
    ) -> Negative:
        """Return a negative vector with one envelope's fields changed, the body as bytes among them."""
        index, envelope = self.find(step)
        changed = altered(envelope, fields)
        return self.made(name, about, index + later, self.sign(changed) if signed else changed, layer)

    def unexpected(self, name: str, about: str, expected: str, came: str) -> Negative:
        """Return a negative vector with the message of one step where that of another is expected."""
        return self.made(name, about, self.find(expected)[0], self.find(came)[1], ORDER)


class Base(RecordedRun[runs.RecordedRun]):
    """Recorded run of the scenario of this name, from which negative test vectors are made."""

    def __init__(
        self,
        name: str,
        scenarios: Sequence[Scenario] = SCENARIOS,
        new_run: Callable[[Any], runs.RecordedRun] = runs.new_run,
        kinds: Kinds = KINDS,
        victim: str = VICTIM,
    ) -> None:
        [scenario] = [scenario for scenario in scenarios if scenario.name == name]
        super().__init__(name, new_run(scenario).execute(), kinds, victim=victim)


def signed_again(context: Context, signer: Signer, envelope: Envelope) -> Envelope:
    """Return the envelope with the signature of `signer`; its body need not be a message."""
    body: Any = msgspec.Raw(envelope.body)
    [signed] = context.write(signer, envelope.run_id, envelope.step, (envelope.receiver,), body)
    return signed


def altered(struct: S, fields: Fields) -> S:
    """Return a copy of a message or envelope in which some fields are replaced."""
    given = fields(struct) if callable(fields) else fields
    new = {name: to(getattr(struct, name)) if callable(to) else to for name, to in given.items()}
    return msgspec.structs.replace(struct, **new)


def flip(data: bytes, index: int = 0, mask: int = 1) -> bytes:
    """Return a copy of the bytes in which the bits `mask` of one byte are flipped."""
    changed = bytearray(data)
    changed[index] ^= mask
    return bytes(changed)
