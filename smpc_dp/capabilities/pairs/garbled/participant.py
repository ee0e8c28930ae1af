"""Common part of garbler, evaluator and aggregator: hello, run id, signed messages, hashed pieces."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from smpc_dp.capabilities.pairs.garbled.claims import privacy_of
from smpc_dp.capabilities.pairs.garbled.effects import Buffer, Effects, Receive, Send
from smpc_dp.capabilities.pairs.garbled.messages import (
    BULK,
    CONTROL,
    HELLO,
    MAX_CONTROL,
    NONCE_BYTES,
    PIECE_HEADER,
    START,
    Hello,
    Sealed,
    Start,
)
from smpc_dp.capabilities.pairs.garbled.plan import Plan, Rows
from smpc_dp.capabilities.pairs.garbled.transfers import Transfers
from smpc_dp.crypto.agree import agree, public_key
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.engine.result import Privacy
from smpc_dp.errors import (
    Check,
    ConfigCheck,
    ConfigError,
    PeerFault,
    SmpcError,
    VerificationError,
)
from smpc_dp.wire.abort import ABORT, TEXTS, Abort, abort_of
from smpc_dp.wire.signing import (
    Context,
    Signer,
    decode,
    decode_envelope,
    encode_envelope,
)

M = TypeVar("M", bound=msgspec.Struct)
H = TypeVar("H", bound=Hello)

GARBLER, EVALUATOR = 0, 1


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Result of a role in a two-party evaluation: its packed outputs, if learned, and the run's hashes.

    `outputs` has one array for each output value of the circuit, packed as by `circuits.circuit.pack`, or is
    None for a role that does not learn them. `transcript` is the last hash that both have signed; in a
    malicious evaluation without an aggregator the garbler alone signs it, and the evaluator compares.
    """

    outputs: list[Rows] | None
    run_id: bytes
    circuit: bytes
    transcript: bytes
    privacy: Privacy


def run_identifier(
    bound: tuple[bytes, bytes],
    session_digest: bytes,
    request: int,
    names: Sequence[str],
    nonces: bytes,
    keys: bytes,
) -> bytes:
    """Return the id of a run: a hash of protocol, session, request, participants, their nonces and keys."""
    joined = "\n".join(names).encode()
    return digest(Label.RUN_ID, *bound, session_digest, encode_uint(request), joined, nonces, keys)


class Participant:
    """Base class of garbler, evaluator and aggregator in one run; `run` yields what it sends and awaits.

    `step` is the current step: "hello", "setup" of the oblivious transfers, then in each block "transfers",
    "inputs", "tables" and "outputs". No input is used before "inputs".
    """

    def __init__(
        self,
        context: Context,
        identity: Signer,
        plan: Plan,
        randomness: Randomness,
        transfers: Transfers | None = None,
    ) -> None:
        self._context = context
        self._identity = identity
        self._plan = plan
        self._randomness = randomness
        self._garbler = plan.parameters.garbler
        self._evaluator = plan.parameters.evaluator
        third = plan.parameters.output == "aggregator"
        self._everyone = (self._garbler, self._evaluator, *([context.aggregator] if third else []))
        self._protocol = (context.protocol.encode(), encode_uint(context.version))
        self._run_id = b""
        self._secret = randomness.bytes(32) if third else b""
        self._keys: dict[str, bytes] = {}
        self._nonces = b""
        self._start = b""
        self._index = 0
        self._transfers = Transfers() if transfers is None else transfers
        self._sequence = [0, 0]
        self._pieces: list[StreamHash] = []
        self.step = HELLO

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    @property
    def name(self) -> str:
        """Name of the member that the role acts for."""
        return self._identity.name

    @property
    def judges(self) -> bool:
        """Whether the role holds unchecked evidence that may convict its partner; here always false."""
        return False

    @property
    def run_id(self) -> bytes:
        """Identifier of the run, derived from all hellos; empty bytes until the hellos are exchanged."""
        return self._run_id

    def run(self) -> Effects[Evaluated]:
        """Run the role as a generator of sends and waits; on failure destroy its transfers, and raise.

        The setup of the transfers does not outlive an evaluation that fails.
        """
        try:
            return (yield from self._run())
        except BaseException:
            self._transfers.destroy()
            raise

    def _run(self) -> Effects[Evaluated]:
        """Run all steps of the role, hellos included, and return its result; subclasses implement this."""
        raise NotImplementedError

    def farewell(self, error: SmpcError) -> list[Send]:
        """Return signed messages that tell the other participants that `error` has ended the run."""
        abort = abort_of(error)
        return [self._control(peer, ABORT, abort) for peer in self._others]

    @property
    def _others(self) -> list[str]:
        """Return the names of the other participants of the evaluation."""
        return [name for name in self._everyone if name != self.name]

    def _control(self, to: str, step: str, message: msgspec.Struct) -> Send:
        """Return a signed protocol message to `to`, separate from the pieces of garbled data."""
        run_id = self._run_id or self._context.session_digest
        (envelope,) = self._context.write(self._identity, run_id, step, [to], message)
        return Send(to, (bytes([CONTROL]), encode_envelope(envelope)))

    def _take(
        self, sender: str, step: str, kind: type[M], *, rounds: int = 0, awaited: Sequence[str] = ()
    ) -> Effects[M]:
        """Wait for a sender's signed message of a step; return it decoded as `kind`, or raise PeerFault.

        `rounds` and `awaited`: as of `Receive`.
        """
        data = yield Receive(sender, MAX_CONTROL, rounds=rounds, awaited=tuple(awaited))
        return self._open(data, sender, step, kind)

    def _take_of_aggregator(self, step: str, kind: type[M]) -> Effects[M]:
        """Wait for the aggregator's signed message of a step, which needs a message of the other side."""
        awaited = [name for name in (self._garbler, self._evaluator) if name != self.name]
        return self._take(self._context.aggregator, step, kind, awaited=awaited)

    def _open(self, data: Buffer, sender: str, step: str, kind: type[M]) -> M:
        """Decode a signed message; raise PeerFault for a wrong receiver, signature or step."""
        if data[:1] != bytes([CONTROL]):
            raise PeerFault(
                sender, f"sent something else than the signed message '{step}'", Check.UNEXPECTED_STEP
            )
        envelope = decode_envelope(bytes(data[1:]), sender)
        if envelope.receiver != self.name:
            raise PeerFault(sender, f"sent a message for {envelope.receiver!r}", Check.WRONG_RECEIVER)
        self._context.check(envelope)
        if envelope.step == ABORT:
            raise self._stopped(sender, decode(envelope.body, Abort, sender))
        if envelope.step != step:
            raise PeerFault(sender, f"sent '{envelope.step}' where '{step}' is due", Check.UNEXPECTED_STEP)
        if envelope.run_id != (self._run_id or self._context.session_digest):
            raise PeerFault(sender, f"sent '{step}' of another run", Check.OTHER_RUN)
        return decode(envelope.body, kind, sender)

    def _stopped(self, sender: str, abort: Abort) -> PeerFault:
        """Return the error that says that `sender` stopped the run, and whom it blames."""
        known = abort.names() <= {*self._everyone}
        if not abort.is_sound or not known:
            return PeerFault(sender, "sent a malformed abort", Check.MALFORMED)
        blamed = f" and blames {abort.culprit}" if abort.culprit else ""
        missing = "".join(f", {name}" for name, _ in abort.missing)
        return PeerFault(
            sender, f"stopped the run{blamed}: {TEXTS[abort.code]}{missing}", Check.REPORTED, accuser=sender
        )

    def _greet(self) -> Effects[None]:
        """Exchange hellos and the start, derive the run id; destroy transfers if the two ends differ."""
        self._transfers.make_room(self._plan.transfer_rows)
        own = Hello(
            self._randomness.bytes(NONCE_BYTES),
            self._plan.circuit.digest,
            self._plan.digest,
            public_key(self._secret) if self._secret else b"",
            self._transfers.context,
            self._transfers.next_index,
        )
        hellos = yield from self._exchange_hellos(own)
        indices = {(hellos[name].setup, hellos[name].index) for name in (self._garbler, self._evaluator)}
        if len(indices) > 1:
            # One of the two has lost its side, or says so: both set up again.
            self._transfers.destroy()
        self._index = hellos[self._garbler].index if len(indices) == 1 else 0
        yield from self._take_start()

    def _exchange_hellos(self, own: H) -> Effects[dict[str, H]]:
        """Exchange hellos, compare circuits and plans, derive the run id; return hellos by name."""
        hellos = {self.name: own}
        for peer in self._others:
            yield self._control(peer, HELLO, own)
        for peer in self._others:
            hellos[peer] = yield from self._take(peer, HELLO, type(own))
        for peer in self._others:
            self._compare(peer, own, hellos[peer])
        self._keys = {name: hello.seal_key for name, hello in hellos.items()}
        self._nonces = b"".join(hellos[name].nonce for name in self._everyone)
        self._run_id = run_identifier(
            self._context.bound,
            self._context.session_digest,
            self._context.request,
            self._everyone,
            self._nonces,
            self._joined_keys,
        )
        return hellos

    def _take_start(self) -> Effects[None]:
        """Send or receive the garbler's random start value, and begin the hashes of pieces."""
        if self.name == self._garbler:
            # Only now: no hello can depend on it.
            self._start = self._randomness.bytes(NONCE_BYTES)
            for peer in self._others:
                yield self._control(peer, START, Start(self._start))
        else:
            self._start = (yield from self._take(self._garbler, START, Start)).start
        self._pieces = [
            StreamHash(self._bound(Label.PAIRWISE_PIECES, self._plan.digest, encode_uint(side)))
            for side in (GARBLER, EVALUATOR)
        ]

    @property
    def _joined_keys(self) -> bytes:
        """The X25519 keys of all participants, joined in their order."""
        return b"".join(self._keys[name] for name in self._everyone)

    def _compare(self, peer: str, own: Hello, theirs: Hello) -> None:
        """Raise ConfigError if a peer's hello has another circuit or plan, PeerFault for a missing key."""
        if theirs.circuit != own.circuit:
            reason = f"{peer} has {theirs.circuit.hex()}, {self.name} has {own.circuit.hex()}"
            raise ConfigError.at("circuit", reason, ConfigCheck.DIFFERS)
        if theirs.plan != own.plan:
            raise ConfigError.at(
                "parameters", f"{peer} cuts the batch differently than {self.name}", ConfigCheck.DIFFERS
            )
        if len(theirs.seal_key) != len(own.seal_key):
            raise PeerFault(
                peer, "its hello has no key to seal with, or one that is not needed", Check.KEY_DIFFERS
            )

    def _bound(self, label: Label, *parts: bytes) -> bytes:
        """Return the hash of some parts, bound to this run and to a label of the hash's purpose."""
        run = (self._run_id, self._start, self._plan.circuit.digest)
        return digest(label, *self._protocol, *run, *parts)

    def _tweak(self) -> bytes:
        """Return the 16 public bytes from which every garbling hash key of the run is derived."""
        return self._bound(Label.PAIRWISE_KEYS, self._garbler.encode(), self._evaluator.encode())[:16]

    def _open_seed(self) -> bytes:
        """Return 16 public bytes that fix the active labels of the garbler's inputs."""
        return self._bound(Label.PAIRWISE_OPEN, self._garbler.encode(), self._evaluator.encode())[:16]

    def _transfer_context(self) -> bytes:
        """Return the hash that binds the oblivious transfers to this run and its two sides."""
        return self._bound(Label.PAIRWISE_TRANSFER, self._garbler.encode(), self._evaluator.encode())

    def _proof(self, block: int, labels: bytes | memoryview) -> bytes:
        """Return a hash of a block's active output labels, which shows that its sender has them."""
        return self._bound(Label.PAIRWISE_OUTPUTS, encode_uint(block), hashlib.sha256(labels).digest())

    def seal_terms(self, peer: str, sender: str, receiver: str, step: str, block: int) -> tuple[bytes, bytes]:
        """Return the key and the associated data that encrypt a message from `sender` to `receiver`."""
        ends = (sender.encode(), receiver.encode())
        info = self._bound(Label.SEAL_KEY, *ends)
        try:
            key = agree(self._secret, self._keys[peer], salt=self._run_id, info=info)
        except VerificationError as error:
            raise PeerFault(peer, str(error), error.check) from None
        return key, self._bound(Label.SEAL_AAD, *ends, step.encode(), encode_uint(block))

    def _hash(self, side: int, header: bytes, content: Buffer) -> None:
        """Feed a piece of garbled data into the hash of all pieces sent by `side`, and count the piece."""
        self._sequence[side] += 1
        self._pieces[side].update(header)
        self._pieces[side].update(content)

    def _piece(self, side: int, content: Buffer) -> Send:
        """Return the next numbered piece of garbled data to be sent to the other side, and hash it."""
        header = PIECE_HEADER.pack(BULK, side, self._sequence[side], memoryview(content).nbytes)
        self._hash(side, header, content)
        return Send((self._evaluator, self._garbler)[side], (header, content))

    def _take_piece(self, side: int, limit: int, ahead: int = 0) -> Effects[memoryview]:
        """Wait for the peer's next piece of garbled data; check its number and length, hash and return it."""
        sender = (self._garbler, self._evaluator)[side]
        # A signed farewell may come instead.
        data = yield Receive(sender, max(limit + PIECE_HEADER.size, 4096), ahead)
        if data[:1] == bytes([CONTROL]):
            self._open(data, sender, "a piece", Hello)
        content = memoryview(data)[PIECE_HEADER.size :]
        expected = PIECE_HEADER.pack(BULK, side, self._sequence[side], len(content))
        if data[: PIECE_HEADER.size] != expected:
            raise PeerFault(
                sender,
                f"sent something else than its piece number {self._sequence[side]}",
                Check.OUT_OF_SEQUENCE,
            )
        if not 1 <= len(content) <= limit:
            raise PeerFault(
                sender, f"sent a piece of {len(content)} bytes, 1 to {limit} are due", Check.WRONG_LENGTH
            )
        self._hash(side, expected, content)
        return content

    def _value(self) -> bytes:
        """Return the hash of all garbled data that both sides have sent so far."""
        return self._bound(Label.PAIRWISE_TRANSCRIPT, *(pieces.digest() for pieces in self._pieces))

    def _check_value(self, sender: str, claimed: bytes) -> None:
        """Raise PeerFault unless a sender claims the hash of all data that this side computed."""
        if not hmac.compare_digest(claimed, self._value()):
            raise PeerFault(
                sender, "signed another hash of tables and labels than ours", Check.TRANSCRIPT_DIFFERS
            )

    def _check_block(self, sender: str, expected: int, claimed: int) -> None:
        """Raise PeerFault unless the block number that a message claims is the expected one."""
        if claimed != expected:
            raise PeerFault(
                sender,
                f"sent a message of block {claimed} where block {expected} is due",
                Check.OUT_OF_SEQUENCE,
            )

    def _for_aggregator(self, step: str, block: int, sealed: bytes) -> Send:
        """Return a message of sealed output data for the aggregator, with the hash of all pieces."""
        return self._control(self._context.aggregator, step, Sealed(block, self._value(), sealed))

    def _evaluated(self, outputs: Sequence[Rows] | None, transcript: bytes) -> Evaluated:
        """Return the role's result: outputs, if learned, with the transcript's hash and privacy."""
        return Evaluated(
            None if outputs is None else list(outputs),
            self._run_id,
            self._plan.circuit.digest,
            transcript,
            privacy_of(self._plan.parameters, self._plan.tile, self._index + self._plan.transfer_rows),
        )
