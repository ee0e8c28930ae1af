"""Negative vectors of a two-party evaluation: one message to one role, changed in one part."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from smpc_dp.capabilities.pairs.garbled import messages as m
from smpc_dp.capabilities.pairs.garbled.effects import Receive
from smpc_dp.capabilities.pairs.garbled.messages import BULK, CONTROL, PIECE_HEADER
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.errors import SmpcError
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, decode_envelope, encode_envelope
from smpc_dp_lab.vectors.fault import Fields, Kinds, altered, signed_again
from smpc_dp_lab.vectors.pairwise_runs import EVALUATOR, GARBLER, Scenario, new_run
from smpc_dp_lab.vectors.runs import header

# Which message a step has.
KINDS: Kinds = {
    m.HELLO: m.Hello,
    m.START: m.Start,
    m.CHECK: m.Check,
    m.CONFIRM: m.Confirm,
    m.DECODE: m.Decode,
    m.HASHES: m.Sealed,
    m.LABELS: m.Sealed,
    m.RECEIPT: m.Receipt,
}

# Which layer refuses: the framing of pieces; the envelope (who, to whom, which signature); the order of
# steps; the strict decoding of a body; the comparison of circuits and plans; the oblivious transfer; the
# hash of all pieces; or a check of content.
FRAMING, ENVELOPE, ORDER, DECODING = "framing", "envelope", "order", "decoding"
AGREEMENT, TRANSFER, TRANSCRIPT, CONTENT = "agreement", "transfer", "transcript", "content"


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a role that was fed messages, the messages that it read, in order, and its last step."""

    end: Evaluated | SmpcError | None
    taken: list[tuple[str, bytes]]
    step: str


def replay(
    role: Participant, arriving: Mapping[str, Iterable[bytes]], fault: Fault | None = None
) -> Replayed:
    """Feed a role each sender's messages, in the order in which it reads, with the fault at its index.

    The end is None when the role asks for more than there is.
    """
    queues = {sender: deque(messages) for sender, messages in arriving.items()}
    taken: list[tuple[str, bytes]] = []
    effects = role.run()
    try:
        effect = next(effects)
        while True:
            if not isinstance(effect, Receive):
                effect = next(effects)
                continue
            if not queues[effect.sender]:
                effects.close()
                return Replayed(None, taken, role.step)
            data = queues[effect.sender].popleft()
            if fault is not None and len(taken) == fault.after:
                if effect.sender != fault.sender:
                    raise LookupError(f"{fault.name}: message {fault.after} is due from {effect.sender}")
                data = fault.message
            taken.append((effect.sender, data))
            effect = effects.send(data)
    except StopIteration as stop:
        return Replayed(stop.value, taken, role.step)
    except SmpcError as error:
        return Replayed(error, taken, role.step)


@dataclass(frozen=True, slots=True)
class Fault:
    """Test vector of a fault: after `after` messages of a run, `receiver` gets `message` instead.

    It must raise `error` once it has taken that message and `later` more. Where all faults have one error,
    `step` is its step then, and `code` what it tells the others.
    """

    name: str
    about: str
    base: str
    receiver: str
    after: int
    sender: str
    message: bytes
    layer: str
    error: str = "PeerFault"
    culprit: str = ""
    later: int = 0
    step: str = ""
    code: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the test vector as JSON data: base run, changed message and expected error."""
        return {
            **header("negative", self.name, self.about),
            "base": f"run-{self.base}.json",
            "receiver": self.receiver,
            "after": self.after,
            "message": {"sender": self.sender, "bytes": self.message.hex()},
            "expect": {
                "layer": self.layer,
                "error": self.error,
                "culprit": self.culprit,
                "later": self.later,
            }
            | ({"step": self.step, "code": self.code} if self.step else {}),
        }


class Base:
    """Finished two-party run from which test vectors are made, by changing one message at a time.

    Faults are those of the garbler in what it sends to the evaluator, where nobody else is named.
    """

    def __init__(self, scenario: Scenario, kinds: Kinds = KINDS) -> None:
        """`kinds`: the message of each step."""
        self.scenario = scenario
        self.name = scenario.name
        self.kinds = kinds
        self.run = new_run(self.scenario).execute()

    def taken(self, receiver: str) -> list[tuple[str, bytes]]:
        """Return the messages that `receiver` reads in the run, in order: sender and message."""
        return replay(new_run(self.scenario).roles[receiver], self.run.sent_to(receiver)).taken

    def step(self, step: str, sender: str = GARBLER, receiver: str = EVALUATOR) -> tuple[int, Envelope]:
        """Return the index of a signed message among those that `receiver` reads, and its envelope."""
        for index, (name, data) in enumerate(self.taken(receiver)):
            if name == sender and data[0] == CONTROL and opened(data, sender).step == step:
                return index, opened(data, sender)
        raise LookupError(f"{self.name}: no {step} from {sender} to {receiver}")

    def piece(self, number: int, sender: str = GARBLER, receiver: str = EVALUATOR) -> tuple[int, bytes]:
        """Return the index and content of a piece; counted from the last one if `number` is negative."""
        pieces = [
            (index, data[PIECE_HEADER.size :])
            for index, (name, data) in enumerate(self.taken(receiver))
            if name == sender and data[0] == BULK
        ]
        return pieces[number]

    def sign(self, envelope: Envelope, **changes: Any) -> Envelope:
        """Return an envelope with changed fields, signed anew by its sender."""
        changed = msgspec.structs.replace(envelope, **changes)
        return signed_again(self.run.context, self.run.signers[changed.sender], changed)

    def made(
        self,
        name: str,
        about: str,
        index: int,
        message: bytes,
        layer: str,
        *,
        sender: str = GARBLER,
        receiver: str = EVALUATOR,
        error: str = "PeerFault",
        culprit: str | None = None,
        later: int = 0,
    ) -> Fault:
        """Return the fault of a message at an index; the culprit is the sender by default, if any."""
        if culprit is None:
            culprit = sender if error == "PeerFault" else ""
        reported = (name, about, self.name, receiver, index, sender, message, layer, error, culprit, later)
        return Fault(*reported)

    def claimed(
        self,
        name: str,
        about: str,
        step: str,
        fields: Fields,
        layer: str,
        *,
        sender: str = GARBLER,
        receiver: str = EVALUATOR,
        **expect: Any,
    ) -> Fault:
        """Return the fault of a message with other fields, signed by its sender; `expect` as of `made`."""
        index, envelope = self.step(step, sender, receiver)
        message = altered(decode(envelope.body, self.kinds[step], sender), fields)
        changed = framed(self.sign(envelope, body=msgspec.msgpack.encode(message)))
        return self.made(name, about, index, changed, layer, sender=sender, receiver=receiver, **expect)


def opened(data: bytes, sender: str) -> Envelope:
    """Decode a signed message, as it was on the wire, to its envelope."""
    return decode_envelope(data[1:], sender)


def framed(envelope: Envelope) -> bytes:
    """Encode an envelope as the bytes of a signed message on the wire."""
    return bytes([CONTROL]) + encode_envelope(envelope)


def piece_of(side: int, number: int, content: bytes) -> bytes:
    """Return a bulk message (piece) as on the wire: header, and content."""
    return PIECE_HEADER.pack(BULK, side, number, len(content)) + content


def uint64(n: int) -> bytes:
    """Return an integer as 8 bytes, big-endian."""
    return struct.pack(">Q", n)
