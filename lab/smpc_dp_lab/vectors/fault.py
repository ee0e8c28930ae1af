"""What a negative vector is: one message of a good run, changed in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context, Signer, decode
from smpc_dp_lab.vectors.runs import AGGREGATOR, SCENARIOS, SCHEMA, Scenario, Staged, cast

B = TypeVar("B", bound=msgspec.Struct)

VICTIM = "alice"
CULPRIT = "carol"

# Which layer refuses: the envelope (who, to whom, which signature), the order of steps, the strict decoding
# of a body, or a check of its content.
ENVELOPE, ORDER, DECODING, CONTENT = "envelope", "order", "decoding", "content"


@dataclass(frozen=True, slots=True)
class Negative:
    """One fault: after the first `after` messages of the base run to `envelope.receiver`, it gets `envelope`.

    A party must raise `error`. The aggregator must exclude the culprit and tell it so by an `Abort`.
    """

    name: str
    about: str
    base: str
    after: int
    envelope: Envelope
    layer: str
    error: str
    culprit: str

    def to_json(self) -> dict[str, object]:
        """Return the vector."""
        return {
            "schema": SCHEMA,
            "kind": "negative",
            "name": self.name,
            "about": self.about,
            "base": f"run-{self.base}.json",
            "after": self.after,
            "envelope": envelope_json(self.envelope),
            "expect": {"layer": self.layer, "error": self.error, "culprit": self.culprit},
        }


def envelope_json(envelope: Envelope) -> dict[str, str]:
    """Return an envelope as vectors have it, bytes in hex."""
    return {
        "run_id": envelope.run_id.hex(),
        "step": envelope.step,
        "sender": envelope.sender,
        "receiver": envelope.receiver,
        "body": envelope.body.hex(),
        "signature": envelope.signature.hex(),
    }


class Finished(Protocol):
    """What a run that is over is known by."""

    @property
    def sent(self) -> list[Envelope]:
        """Every message, in order."""

    @property
    def context(self) -> Context:
        """What its messages are signed for."""

    @property
    def signers(self) -> Mapping[str, Signer]:
        """Everybody's signing key."""


R = TypeVar("R", bound=Finished)


class Played(Generic[R]):
    """A finished run whose messages are changed one at a time."""

    def __init__(self, name: str, run: R) -> None:
        self.name = name
        self.run = run

    def to(self, receiver: str) -> list[Envelope]:
        """Return what the run sent to `receiver`, in order."""
        return [envelope for envelope in self.run.sent if envelope.receiver == receiver]

    def find(self, step: str, sender: str, receiver: str) -> tuple[int, Envelope]:
        """Return how many messages `receiver` got before this one, and the message."""
        for place, envelope in enumerate(self.to(receiver)):
            if (envelope.step, envelope.sender) == (step, sender):
                return place, envelope
        raise LookupError(f"{self.name}: no {step} from {sender} to {receiver}")

    def sign(self, envelope: Envelope, **changes: Any) -> Envelope:
        """Return the envelope changed and signed by its sender."""
        changed = msgspec.structs.replace(envelope, **changes)
        raw = _Raw(changed.body)
        [signed] = self.run.context.write(
            self.run.signers[changed.sender],
            changed.run_id,
            changed.step,
            (self._for(changed),),
            raw.struct(),
        )
        return msgspec.structs.replace(signed, receiver=changed.receiver, body=changed.body)

    def _for(self, envelope: Envelope) -> str:
        """Return the receiver that is signed."""
        return envelope.receiver

    def made(
        self, name: str, about: str, place: int, envelope: Envelope, layer: str, **expect: str
    ) -> Negative:
        """Return a negative vector with the envelope at a place; `expect` names another error or culprit."""
        error, culprit = expect.get("error", "PeerFault"), expect.get("culprit", envelope.sender)
        return Negative(name, about, self.name, place, envelope, layer, error, culprit)

    def changed(
        self,
        name: str,
        about: str,
        kind: type[B],
        step: str,
        change: Callable[[B], Mapping[str, object]],
        *,
        sender: str = AGGREGATOR,
        receiver: str = VICTIM,
        layer: str = CONTENT,
        **expect: str,
    ) -> Negative:
        """Return a negative vector with one message's fields changed, signed by its sender."""
        place, envelope = self.find(step, sender, receiver)
        message = decode(envelope.body, kind, sender)
        body = msgspec.msgpack.encode(msgspec.structs.replace(message, **change(message)))
        return self.made(name, about, place, self.sign(envelope, body=body), layer, **expect)

    def of_a_party(
        self, name: str, about: str, kind: type[B], step: str, change: Callable[[B], Mapping[str, object]]
    ) -> Negative:
        """Return a negative vector with a message changed that a party sends to the aggregator."""
        return self.changed(name, about, kind, step, change, sender=CULPRIT, receiver=AGGREGATOR)


class Base(Played[Staged]):
    """A finished run with an aggregator."""

    def __init__(self, name: str, scenarios: Sequence[Scenario] = SCENARIOS) -> None:
        [scenario] = [scenario for scenario in scenarios if scenario.name == name]
        run = cast(scenario).play()
        super().__init__(name, run)
        self.run_id = run.parties[VICTIM].run_id


class _Raw:
    """A body as it stands, encoded or not, for signing."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def struct(self) -> Any:
        return msgspec.Raw(self._body)


def flip(data: bytes, place: int = 0) -> bytes:
    """Return the data with the lowest bit of one byte flipped."""
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def constant(**changes: object) -> Callable[[msgspec.Struct], Mapping[str, object]]:
    """Return a change that does not depend on the message."""

    def change(_message: msgspec.Struct) -> Mapping[str, object]:
        return changes

    return change
