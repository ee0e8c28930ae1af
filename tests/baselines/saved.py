"""Saved states of every role, made from seeds, with what happens in each of them.

The file has, for each role, the states of a run in their order, their keys, and the events between them.
A process that restores a state, and takes its events, must reach the next one with its messages.
"""

from __future__ import annotations

import contextlib
import hashlib
import lzma
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

import msgspec
from msgspec import inspect

from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.crypto.seal import NONCE_BYTES
from smpc_dp.engine.codec import Codec, Record
from smpc_dp.engine.counter import Entry as Counted
from smpc_dp.engine.counter import FileCounter
from smpc_dp.engine.events import Cancellation, Event, Report, Start
from smpc_dp.engine.keyring import Key, KeyRing
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.saved import SavedRun, Saving
from smpc_dp.engine.saved_collector import Entry
from smpc_dp.engine.seal import Position, open_state, seal_state
from smpc_dp.engine.store import Row, Store
from smpc_dp.errors import SmpcError
from smpc_dp.wire.envelope import Envelope
from tests.faults import saved_scene, test_saved_aggregator, test_saved_pairs_statistic
from tests.faults import test_saved_pairs_statistic_aggregator as statistic_aggregator
from tests.faults.restoring import MemoryCounter, MemoryKeys, MemoryStore
from tests.faults.saved_gopa_direct import CoordinatorScene, DirectScene
from tests.faults.saved_sums import ExchangeScene, GopaScene, SumScene, VerifiableScene
from tests.faults.test_saved_aggregator import handled
from tests.faults.virtual import Stream

FILE = Path(__file__).with_name("saved.json")
# The seed of what is drawn beside events, which have theirs from 0 on.
BESIDE = 1_000_000
# The role whose files are stored too, and the index of the state: a row with entries beside it.
ON_DISK, AT = "secagg aggregator, a party lost", 2


# What the file has.


class Saved(msgspec.Struct):
    """A saved state and what happens in it.

    Attributes:
        kind: the name of the state's type.
        position, key, digest: of the row in a store; content: what is encrypted, with which nonce.
        events: until the next state, each as an entry of the store; `Start` is empty, and the report of a
            statistic's party without failed pairs an empty array.
        inbox: SHA-256 of the entries that are beside the row before the last event.
    """

    kind: str
    position: Position
    key: Key
    digest: bytes
    content: bytes
    nonce: bytes
    events: list[bytes] = []
    inbox: bytes = b""

    @classmethod
    def of(cls, kind: str, row: Row, key: Key) -> Saved:
        """Return the state of a row."""
        content = open_state(key.secret, row.position, row.sealed)
        return cls(kind, row.position, key, row.digest, content, row.sealed[:NONCE_BYTES])

    @property
    def row(self) -> Row:
        """The row in a store."""
        nonce = Recorded(self.nonce)
        return Row(
            self.position, self.key.name, seal_state(self.key.secret, self.position, self.content, nonce)
        )

    @property
    def record(self) -> Record:
        """The content, decoded."""
        return msgspec.msgpack.decode(self.content, type=Record)


class Recorded:
    """Randomness that was drawn before."""

    def __init__(self, drawn: bytes) -> None:
        self._drawn = drawn

    def bytes(self, n: int) -> bytes:
        """Return the bytes."""
        assert n == len(self._drawn)
        return self._drawn


class Role(msgspec.Struct):
    """The saved states of one role.

    Attributes:
        states: of a run, in order; stopped: follows the second one if the run is cancelled.
    """

    states: list[Saved]
    stopped: Saved

    def happened(self, index: int) -> tuple[int, list[Event]]:
        """Return the number of the first event in a state, and the events in it."""
        number = sum(len(state.events) for state in self.states[:index])
        return number, [unpacked(event) for event in self.states[index].events]


class Disk(msgspec.Struct):
    """The files of a role in a state, before the last event.

    Attributes:
        application, version: of the store's SQLite file; store: its content as SQL.
        keys, counter: the content of their files by name.
    """

    application: int
    version: int
    store: list[str]
    keys: dict[str, bytes]
    counter: dict[str, bytes]

    def write(self, folder: Path) -> None:
        """Write the files for `on_disk`."""
        with contextlib.closing(sqlite3.connect(folder / "store")) as connection:
            connection.executescript("\n".join(self.store))
            connection.execute(f"PRAGMA application_id = {self.application}")
            connection.execute(f"PRAGMA user_version = {self.version}")
        for part, files in (("keys", self.keys), ("counter", self.counter)):
            (folder / part).mkdir()
            for name, content in files.items():
                (folder / part / name).write_bytes(content)
                (folder / part / name).chmod(0o600)

    @classmethod
    def read(cls, folder: Path) -> Disk:
        """Return the files in a folder."""
        with contextlib.closing(sqlite3.connect(folder / "store")) as connection:
            [(application,)] = connection.execute("PRAGMA application_id")
            [(version,)] = connection.execute("PRAGMA user_version")
            store = [*connection.iterdump()]
        keys, counter = (
            {path.name: path.read_bytes() for path in sorted((folder / part).glob(f"*.{part}"))}
            for part in ("keys", "counter")
        )
        return cls(application, version, store, keys, counter)


class Stored(msgspec.Struct):
    """Content of the file: of each role the structure, and the role, as MessagePack, compressed by LZMA."""

    structures: dict[str, dict[str, str]]
    roles: dict[str, bytes]
    disk: Disk

    def role(self, name: str) -> Role:
        """Return a role."""
        return msgspec.msgpack.decode(lzma.decompress(self.roles[name]), type=Role)


def stored() -> Stored:
    """Return the content of the file."""
    return msgspec.json.decode(FILE.read_bytes(), type=Stored)


def packed(event: Event) -> bytes:
    """Return an event as it is stored."""
    match event:
        case Start():
            return b""
        case Report([]):
            return b"\x90"
        case _:
            return msgspec.msgpack.encode(Entry.of(event))


def unpacked(content: bytes) -> Event:
    """Return a stored event."""
    match content:
        case b"":
            return Start()
        case b"\x90":
            return Report([])
        case _:
            return msgspec.msgpack.decode(content, type=Entry).event()


# Processes that restore a state and go on.


class Scene(Protocol):
    """What a process of a role needs that restores it."""

    codec: Codec
    input: bytes

    def process(self) -> tuple[Any, Any, Any]:
        """Return role, member and first state as a new process makes them."""


@contextlib.contextmanager
def drawn(seed: int) -> Iterator[None]:
    """Replace the random bytes of the operating system by those of a seed."""
    with mock.patch.object(SystemRandomness, "bytes", partial(Stream.bytes, Stream(seed))):
        yield


class Media:
    """Store, keys and counter of one role, in memory; `saved` is in them."""

    def __init__(self, saved: Saved | None = None) -> None:
        self.store, self.keys, self.counter = MemoryStore(), MemoryKeys(), MemoryCounter()
        if saved is not None:
            put(saved, self.store, self.keys, self.counter)

    def saving(self, scene: Any, _faults: object = None) -> Saving:
        """Return what a process saves on."""
        store: Any = self.store
        keys: Any = self.keys
        return Saving(scene.codec, store, keys, self.counter, input=scene.input)

    def newest(self, run: SavedRun[Any]) -> Saved:
        """Return the state that a run has saved last."""
        return Saved.of(type(run.state).__name__, run._row, self.keys._current)


def put(saved: Saved, store: Any, keys: Any, counter: Any) -> None:
    """Put a saved state on empty media."""
    attempt = saved.position.attempt
    store.begin(saved.row)
    keys.create(attempt, saved.key)
    counter.advance(attempt, None, Counted(saved.position.counter, saved.digest))


def on_disk(scene: Scene, folder: Path) -> Saving:
    """Return what a process of a role saves on in a folder."""
    store, keys, counter = Store(folder / "store"), KeyRing(folder / "keys"), FileCounter(folder / "counter")
    return Saving(scene.codec, store, keys, counter, input=scene.input)


def restored(scene: Scene, saving: Saving) -> SavedRun[Any]:
    """Return a run that a new process goes on with."""
    role, member, _ = scene.process()
    run: SavedRun[Any] = saved_scene.kind_of(role).restore(role, member, saving)
    return run


def take(run: SavedRun[Any], event: Event, seed: int) -> None:
    """Give a run an event; what it draws then is of the seed."""
    with drawn(seed):
        handled(run, event)


def proceed(scene: Scene, saved: Saved, number: int, events: Sequence[Event]) -> tuple[Saved, Saved]:
    """Take events, each in a new process, until the next state is saved; return both states.

    `number` is that of the first event in the run.
    """
    media, taken, inbox = Media(saved), list[bytes](), b""
    saving = media.saving(scene)
    for seed, event in enumerate(events, number):
        run = restored(scene, saving)
        entries = media.store.entries(run._row)
        take(run, event, seed)
        taken.append(packed(event))
        if run._row.digest != saved.digest:
            inbox = hashlib.sha256(b"".join(entries)).digest() if entries else b""
            break
    return msgspec.structs.replace(saved, events=taken, inbox=inbox), media.newest(run)


def stopped(scene: Scene, saved: Saved) -> Saved:
    """Return the state that is saved when a run is cancelled in a saved state."""
    media = Media(saved)
    run = restored(scene, media.saving(scene))
    take(run, Cancellation(SmpcError("cancelled")), BESIDE)
    return media.newest(run)


# The roles.


class Statistic(statistic_aggregator.Hall):
    """The aggregator of a statistic, whose board outlives its processes."""

    def process(self) -> tuple[Any, Any, Any]:
        """Return role, member and first state as a new process makes them."""
        run = self.new_aggregator()
        return run.role, run.member, run.state


class Excluding(test_saved_aggregator.Hall):
    """The aggregator of a secure sum, to which a party sends a message with a wrong signature."""

    def _say(self, claimed: Sequence[Envelope]) -> None:
        super()._say(
            [
                msgspec.structs.replace(envelope, signature=bytes(64))
                if (envelope.step, envelope.sender) == (m.DEAL, test_saved_aggregator.DAVE)
                else envelope
                for envelope in claimed
            ]
        )


def of_scene(scene: saved_scene.Scene, media: Any) -> None:
    """Play a run around a party."""
    wire = saved_scene.Wire()
    saved_scene.execute(scene, saved_scene.begin(scene, media, wire), wire)


def of_hall(hall: Any, media: Any) -> None:
    """Play a run around a role that has its hall."""
    hall.execute(hall.begin(media))


# By name what makes a scene for media, and what plays a run in it.
SCENES: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], object]]] = {
    "secagg party": (lambda _: SumScene(), of_scene),
    "secagg aggregator, a party lost": (lambda _: test_saved_aggregator.Hall(14), of_hall),
    "secagg aggregator, a party excluded": (lambda _: Excluding(), of_hall),
    "gopa party": (lambda _: GopaScene(), of_scene),
    "gopa aggregator": (lambda _: test_saved_aggregator.GopaHall(), of_hall),
    "gopa direct party": (lambda _: DirectScene(), of_scene),
    "gopa direct coordinator": (lambda _: CoordinatorScene(), of_scene),
    "verifiable party": (lambda _: VerifiableScene(), of_scene),
    "verifiable aggregator": (lambda _: test_saved_aggregator.VerifiableHall(), of_hall),
    "exchange party": (lambda _: ExchangeScene(), of_scene),
    "exchange aggregator": (lambda _: test_saved_aggregator.ExchangeHall(), of_hall),
    "ustatistic party": (lambda _: test_saved_pairs_statistic.Hall(), of_hall),
    "ustatistic aggregator": (lambda media: Statistic("again", media), lambda hall, _: hall.execute()),
}


def scene_of(name: str) -> Scene:
    """Return what a process of a role needs."""
    with drawn(BESIDE):
        scene: Scene = SCENES[name][0](Media())
        return scene


# All of it, made anew.


def text() -> str:
    """Return the content of the file, one field on a line; bytes are in base64."""
    roles = {name: role_of(name) for name in SCENES}
    packed_roles = {name: lzma.compress(msgspec.msgpack.encode(role)) for name, role in roles.items()}
    structures = {name: structure(scene_of(name)) for name in SCENES}
    content = msgspec.json.encode(Stored(structures, packed_roles, disk_of(roles[ON_DISK])))
    return msgspec.json.format(content, indent=1).decode() + "\n"


def structure(scene: Scene) -> dict[str, str]:
    """Return how the fields of each type of state are encoded that a role may save, by the type's name."""
    return {kind: form(inspect.type_info(cls)) for kind, cls in scene.codec._kinds.items()}


def role_of(name: str) -> Role:
    """Return the saved states of a role."""
    events, scene, media = played(name), scene_of(name), Media()
    role, member, first = scene.process()
    with drawn(BESIDE):
        run = saved_scene.kind_of(role).begin(role, member, first, media.saving(scene))
    states, number = [media.newest(run)], 0
    while events[number:]:
        states[-1], after = proceed(scene, states[-1], number, events[number:])
        number += len(states[-1].events)
        if after.digest != states[-1].digest:
            states.append(after)
    return Role(states, stopped(scene_of(name), states[1]))


def played(name: str) -> list[Event]:
    """Return the events of a role in a run, in order."""
    make, play = SCENES[name]
    events: list[Event] = []
    handle = SavedRun.handle

    def note(run: SavedRun[Any], event: Event) -> Sequence[Envelope]:
        events.append(event)
        with drawn(len(events) - 1):
            return handle(run, event)

    with drawn(BESIDE), mock.patch.object(SavedRun, "handle", note):
        media = Media()
        play(make(media), media)
    return events


def disk_of(role: Role) -> Disk:
    """Return the files of a role within a step."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "keys").mkdir()
        (folder / "counter").mkdir()
        scene, state = scene_of(ON_DISK), role.states[AT]
        saving = on_disk(scene, folder)
        put(state, saving.store, saving.keys, saving.counter)
        run = restored(scene, saving)
        number, events = role.happened(AT)
        for seed, event in enumerate(events[:-1], number):
            take(run, event, seed)
        return Disk.read(folder)


def form(kind: inspect.Type) -> str:
    """Return how values of a type are encoded: names of fields and their kinds, no names of classes."""
    match kind:
        case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType():
            fields = ", ".join(f"{field.encode_name}: {form(field.type)}" for field in kind.fields)
            return f"({fields})" if getattr(kind, "array_like", False) else f"{{{fields}}}"
        case inspect.DictType(key_type=key, value_type=value):
            return f"{{{form(key)} -> {form(value)}}}"
        case inspect.UnionType(types=types):
            return " | ".join(map(form, types))
        case inspect.TupleType(item_types=types):
            return f"({', '.join(map(form, types))})"
        case inspect.VarTupleType(item_type=item) | inspect.ListType(item_type=item):
            return f"[{form(item)}]"
        case inspect.LiteralType(values=values):
            return " | ".join(map(repr, values))
        case inspect.CustomType(cls=cls) | inspect.EnumType(cls=cls):
            return cls.__name__
        case _:
            return type(kind).__name__.removesuffix("Type").lower()
