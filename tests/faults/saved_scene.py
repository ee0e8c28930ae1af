"""A party whose process dies, forks and is set back: its media, its wire, and a small protocol.

`Scene` is all that a protocol has to give; tests/faults/test_saved_states.py runs over any number of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import numpy as np
from nacl.signing import SigningKey
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.direct_messages import TO_ONE, WITNESS, Witness
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.counter import FileCounter
from smpc_dp.engine.events import Cancellation, Message, PeersLost, Start
from smpc_dp.engine.keyring import KeyRing
from smpc_dp.engine.party import Member, PartyRole, PartyState, Row
from smpc_dp.engine.peers import PeerRole
from smpc_dp.engine.saved import Charge, SavedRun, Saving
from smpc_dp.engine.saved_collector import SavedCollection, SavedPeer
from smpc_dp.engine.state import State, Transition
from smpc_dp.engine.store import Store
from smpc_dp.errors import Check, LocalError, PrivacyError, SmpcError
from smpc_dp.session.memory.simulated_run import Signer
from smpc_dp.wire.abort import LEAVE
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import Context, decode


class Scene(Protocol):
    """One run of a protocol around one party, whose processes are the test's.

    Attributes:
        codec: of the party's states; states: how many are saved in a run without faults, the first included.
        input: the party's, as bytes.
    """

    codec: Codec
    states: int
    input: bytes

    def process(self) -> tuple[PartyRole | PeerRole, Any, State]:
        """Return role, member and first state as a new process of the party makes them."""

    def answer(self, sent: Sequence[Envelope], variant: int = 0) -> Sequence[Envelope | PeersLost]:
        """Return what the others send to the party after it has sent this; again the same for the same.

        Another `variant` is another message of the same step, if the others can make one.
        """

    def check(self, run: SavedRun[Any]) -> None:
        """Check the result of a run that has ended well."""


# A crash, and a device that fails.


class Crash(BaseException):
    """The process ends here."""


class Faults:
    """Counts what a process does to its media; at number `at` it crashes or fails, `before` or after it.

    `meanwhile` is called instead of a fault: what others do at that moment.
    """

    def __init__(
        self,
        at: int | None = None,
        before: bool = True,
        fails: bool = False,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        self.at, self.before, self.fails, self.meanwhile = at, before, fails, meanwhile
        self.done: list[str] = []

    def around(self, reason: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any) -> Any:
            mine = len(self.done) == self.at
            self.done.append(reason)
            if mine and self.before:
                self._strike(reason)
            result = action(*arguments)
            if mine and not self.before:
                self._strike(reason)
            return result

        return act

    def _strike(self, reason: str) -> None:
        if self.meanwhile is not None:
            self.meanwhile()
        elif self.fails:
            raise LocalError(f"{reason}: input/output error")
        else:
            raise Crash(reason)


class Faulty:
    """Another object, some of whose methods fail."""

    def __init__(self, inner: Any, faults: Faults, methods: Sequence[str]) -> None:
        self._inner = inner
        for name in methods:
            setattr(self, name, faults.around(f"{type(inner).__name__}.{name}", getattr(inner, name)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# Methods that write keys, of which a crash or a fault at each is tried.
KEY_WRITES = ("create", "propose", "commit", "end", "remove")


class Media:
    """Store, keys and counter in folders of their own, and the charges, which nothing sets back."""

    def __init__(self, folder: Path, *, counted: bool) -> None:
        self.folder, self.counted = folder, counted
        for part in ("store", "keys", "counter"):
            (folder / part).mkdir(parents=True)
        self.charges: dict[bytes, bytes] = {}
        self.refuses = False

    def copy(self, to: Path, *parts: str) -> Media:
        """Return media with parts of their own, copied, and the other parts shared."""
        other = Media(to, counted=self.counted)
        other.charges = self.charges
        for part in ("store", "keys", "counter"):
            (to / part).rmdir()
            if part in parts:
                shutil.copytree(self.folder / part, to / part)
            else:
                (to / part).symlink_to(self.folder / part)
        return other

    def take(self, to: Path) -> None:
        """Take a snapshot of all parts."""
        for part in ("store", "keys", "counter"):
            shutil.copytree(self.folder / part, to / part)

    def set_back(self, snapshot: Path, *parts: str) -> None:
        """Put parts of a snapshot in the place of what is there."""
        for part in parts:
            shutil.rmtree(self.folder / part)
            shutil.copytree(snapshot / part, self.folder / part)

    def charge(self, run_id: bytes, released: bytes) -> None:
        if self.refuses:
            raise PrivacyError("the budget is spent")
        if self.charges.setdefault(run_id, released) != released:
            raise PrivacyError("the run was charged for other bytes")

    def saving(self, scene: Scene, faults: Faults | None = None, **changed: Any) -> Saving:
        faults = faults or Faults()
        store: Any = Faulty(Store(self.folder / "store" / "states"), faults, ("begin", "swap", "append"))
        keys: Any = Faulty(KeyRing(self.folder / "keys"), faults, KEY_WRITES)
        counter: Any = None
        if self.counted:
            counter = Faulty(FileCounter(self.folder / "counter"), faults, ("advance",))
        charge: Charge = faults.around("charge", self.charge)
        given = {"input": scene.input, **changed}
        return Saving(scene.codec, store, keys, counter, charge=charge, **given)


class Wire:
    """All that any process of the party has sent."""

    def __init__(self) -> None:
        self.sent: list[Envelope] = []
        self._attempts: list[bytes] = []

    def send(
        self, run: SavedRun[Any], messages: Sequence[Envelope], faults: Faults | None = None
    ) -> Sequence[Envelope]:
        (faults or Faults()).around("send", self._send)(run._row.position.attempt, messages)
        return messages

    def _send(self, attempt: bytes, messages: Sequence[Envelope]) -> None:
        self.sent.extend(messages)
        self._attempts.extend([attempt] * len(messages))

    def assert_one_for_each_step(self) -> None:
        claimed: dict[tuple[bytes, str, str], tuple[bytes, bytes, bytes]] = {}
        for attempt, envelope in zip(self._attempts, self.sent, strict=True):
            # Some steps differ from peer to peer, and a witness is of one proposal; others are signed once.
            apart = envelope.receiver if envelope.step in TO_ONE else ""
            if envelope.step == WITNESS:
                apart = decode(envelope.body, Witness, envelope.sender).step
            key = (attempt, envelope.step, apart)
            signed = (envelope.run_id, envelope.body, envelope.signature)
            assert claimed.setdefault(key, signed) == signed, key

    @property
    def steps(self) -> list[str]:
        return list(dict.fromkeys(envelope.step for envelope in self.sent))


def kind_of(role: Any) -> type[SavedRun[Any]]:
    """Return the holder of a role that is saved."""
    kinds: dict[type, type[SavedRun[Any]]] = {CollectorRole: SavedCollection, PeerRole: SavedPeer}
    return kinds.get(type(role), SavedRun)


def begin(scene: Scene, media: Media, wire: Wire, faults: Faults | None = None) -> SavedRun[Any]:
    """Begin a run and send its first message."""
    faults = faults or Faults()
    role, member, state = scene.process()
    run: SavedRun[Any] = kind_of(role).begin(role, member, state, media.saving(scene, faults))
    wire.send(run, run.handle(Start()), faults)
    return run


def restore(
    scene: Scene, media: Media, wire: Wire, faults: Faults | None = None, **changed: Any
) -> SavedRun[Any]:
    """Restore as a new process, connect, and send again what the newest state has sent."""
    faults = faults or Faults()
    role, member, _ = scene.process()
    run: SavedRun[Any] = kind_of(role).restore(role, member, media.saving(scene, faults, **changed))
    if not run.state.run_id and not run.resend():
        wire.send(run, run.handle(Start()), faults)
    else:
        wire.send(run, run.resend(), faults)
    return run


def step(
    scene: Scene,
    run: SavedRun[Any],
    wire: Wire,
    faults: Faults | None = None,
    variant: int = 0,
    *,
    reports: bool = True,
) -> bool:
    """Give a run the answer to what it has sent last, as a driver does; return whether it goes on.

    `reports`: errors to the run, which sends its end; else they are raised.
    """
    faults = faults or Faults()
    answers = scene.answer(run.resend(), variant)
    if isinstance(run.state, PartyState):
        # Of messages that come together the next one.
        received = run.state.progress.received
        answers = [
            claimed for claimed in answers if isinstance(claimed, PeersLost) or claimed.step not in received
        ][:1]
    for claimed in answers:
        event = claimed if isinstance(claimed, PeersLost) else Message(claimed)
        try:
            wire.send(run, run.handle(event), faults)
        except SmpcError as error:
            if not reports:
                raise
            wire.send(run, run.handle(Cancellation(error)), faults)
            return False
    return not run.finished


def execute(scene: Scene, run: SavedRun[Any], wire: Wire, faults: Faults | None = None) -> None:
    """Play a run to its end."""
    while step(scene, run, wire, faults):
        pass


def states_on_the_way(
    scene: Scene, media: Media, wire: Wire, folder: Path, variant: int = 0
) -> Iterator[SavedRun[Any]]:
    """Play a run, and after each saved state take a snapshot as FOLDER/NUMBER; the first has sent `hello`."""
    run = begin(scene, media, wire)
    goes_on = True
    for number in range(1, scene.states):
        media.take(folder / str(number))
        yield run
        if not goes_on:
            return
        goes_on = step(scene, run, wire, variant=variant)


# A small protocol: one draw, one attestation, one release.


class Hello(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    nonce: bytes


class Claimed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    text: bytes


class Vector(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    values: bytes


class Waits(PartyState, frozen=True, kw_only=True, eq=False):
    vector: NDArray[np.uint32]


class AwaitStart(PartyState, frozen=True, kw_only=True, eq=False):
    expects: ClassVar[str] = "start"
    renews: ClassVar[bool] = True
    vector: NDArray[np.uint32]
    nonce: bytes


class AwaitSet(PartyState, frozen=True, kw_only=True, eq=False):
    expects: ClassVar[str] = "set"
    vector: NDArray[np.uint32]
    secret: bytes
    notes: Mapping[int, tuple[bytes, bytes]]


class AwaitGo(PartyState, frozen=True, kw_only=True, eq=False):
    expects: ClassVar[str] = "go"
    releases: ClassVar[bool] = True
    vector: NDArray[np.uint32]
    secret: bytes
    members: PartySet


class AwaitCount(PartyState, frozen=True, kw_only=True, eq=False):
    expects: ClassVar[str] = "count"
    members: PartySet
    certificate: Claimed | None = None


class AwaitTotal(PartyState, frozen=True, kw_only=True, eq=False):
    expects: ClassVar[str] = "total"


class Finished(PartyState, frozen=True, kw_only=True, eq=False):
    over: ClassVar[bool] = True
    outcome: bytes


SESSION = b"s" * 32


def run_id_of(claimed: bytes) -> bytes:
    return claimed.ljust(32, b"r")


def on_begin(member: Member[None], state: Waits) -> Transition:
    nonce = member.random.bytes(32)
    after = AwaitStart(vector=state.vector, nonce=nonce)
    return Transition(after, (member.write(member.context.session_digest, "hello", Hello(nonce)),))


def on_start(member: Member[None], state: AwaitStart, body: bytes) -> Transition:
    run_id = run_id_of(decode(body, Claimed, "hub").text)
    secret = member.random.bytes(32)
    after = AwaitSet(
        run_id=run_id, vector=state.vector, secret=secret, notes={2: (secret, b""), 1: (b"", b"")}
    )
    return Transition(after, (member.write(run_id, "advertise", Claimed(secret)),))


def on_set(member: Member[None], state: AwaitSet, body: bytes) -> Transition:
    members = PartySet.unpack(decode(body, Claimed, "hub").text, 2, "hub")
    if 1 not in members:
        raise member.refuse("left this party out", Check.NOT_INCLUDED)
    after = AwaitGo(run_id=state.run_id, vector=state.vector, secret=state.secret, members=members)
    return Transition(after, (member.write(state.run_id, "attest-set", Claimed(members.packed)),))


def on_go(member: Member[None], state: AwaitGo, body: bytes) -> Transition:
    noise = np.frombuffer(member.random.bytes(4), np.uint32)
    after = AwaitCount(run_id=state.run_id, members=state.members, certificate=decode(body, Claimed, "hub"))
    message = Vector((state.vector + noise).tobytes())
    return Transition(after, (member.write(state.run_id, "masked", message),))


def on_count(member: Member[None], state: AwaitCount, _body: bytes) -> Transition:
    opened = Claimed(member.random.bytes(8))
    return Transition(AwaitTotal(run_id=state.run_id), (member.write(state.run_id, "open", opened),))


def on_total(_member: Member[None], state: AwaitTotal, body: bytes) -> Transition:
    return Transition(Finished(run_id=state.run_id, outcome=decode(body, Claimed, "hub").text))


ROLE = PartyRole(
    Waits,
    on_begin,
    "hello",
    (
        Row(AwaitStart, on_start, (AwaitSet,), ("advertise",), ""),
        Row(AwaitSet, on_set, (AwaitGo,), ("attest-set",), ""),
        Row(AwaitGo, on_go, (AwaitCount,), ("masked",), ""),
        Row(AwaitCount, on_count, (AwaitTotal,), ("open",), ""),
        Row(AwaitTotal, on_total, (Finished,), (), ""),
    ),
    "open",
    saved=True,
)
ANSWERS = {"hello": "start", "advertise": "set", "attest-set": "go", "masked": "count", "open": "total"}


class SmallScene:
    """The small protocol: an aggregator that answers each step at once, in two ways if it is asked to."""

    codec = Codec.of_party(ROLE)
    states = 7
    input = np.arange(100, 103, dtype=np.uint32).tobytes()

    def __init__(self, operation: str = "q") -> None:
        self.signers = {name: Signer(name, SigningKey(name.encode().ljust(32))) for name in ("alice", "hub")}
        keys = {name: bytes(signer.key.verify_key) for name, signer in self.signers.items()}
        keys["bob"] = bytes(32)
        self.context = Context("small", 1, SESSION, 7, ("alice", "bob"), "hub", keys, operation)
        self.run_id = b""

    def process(self) -> tuple[PartyRole, Any, State]:
        member = Member(self.context, None, self.signers["alice"], SystemRandomness())
        return ROLE, member, Waits(vector=np.frombuffer(self.input, np.uint32))

    def answer(self, sent: Sequence[Envelope], variant: int = 0) -> Sequence[Envelope]:
        return [self._answer(envelope, variant) for envelope in sent if envelope.step != LEAVE]

    def _answer(self, envelope: Envelope, variant: int) -> Envelope:
        expected = ANSWERS[envelope.step]
        text = f"{expected} {variant}".encode()
        run_id = run_id_of(text) if expected == "start" else envelope.run_id
        if expected == "set":
            text = pack_set((1, 2)[: 2 - variant], 2)
        [answer] = self.context.write(self.signers["hub"], run_id, expected, ("alice",), Claimed(text))
        return answer

    def check(self, run: SavedRun[Any]) -> None:
        assert run.result.startswith(b"total ")
