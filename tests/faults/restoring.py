"""Members whose process ends after every event: each event is handled by a role that was restored for it.

For the seeded schedules, whose own code does not change: `restore_every_step` patches `Run`. States are
encoded, sealed, opened and decoded by the product's code; the media are in memory, or in a folder.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from smpc_dp import database
from smpc_dp.engine.codec import Codec
from smpc_dp.engine.collector import CollectorRole
from smpc_dp.engine.counter import Counter, Entry, FileCounter
from smpc_dp.engine.events import Event
from smpc_dp.engine.keyring import Key, KeyRing
from smpc_dp.engine.peers import PeerRole
from smpc_dp.engine.run import Run
from smpc_dp.engine.saved import SavedRun, Saving
from smpc_dp.engine.state import State
from smpc_dp.engine.store import Row, Store
from smpc_dp.errors import LocalError
from smpc_dp.wire.envelope import Envelope
from tests.faults.saved_scene import kind_of


class MemoryStore:
    """A `Store` of one attempt."""

    def __init__(self) -> None:
        self._row: Row | None = None
        self._entries: list[bytes] = []

    def begin(self, row: Row) -> None:
        self._row = row

    def check_none_open(self, _session: bytes, _request: int, _role: str) -> None:
        assert self._row is None

    def swap(self, before: Row, after: Row, entries: int | None = 0) -> None:
        self._check_newest(before)
        if entries not in (None, len(self._entries)):
            raise LocalError("there are other entries")
        self._row, self._entries = after, []

    def append(self, row: Row, number: int, sealed: bytes) -> None:
        self._check_newest(row)
        assert number == len(self._entries)
        self._entries.append(sealed)

    def entries(self, row: Row) -> list[bytes]:
        self._check_newest(row)
        return [*self._entries]

    def find(self, _session: bytes, _request: int, _role: str) -> Row | None:
        return self._row

    def _check_newest(self, row: Row) -> None:
        if self._row is None or self._row.digest != row.digest:
            raise LocalError("not the newest")


class MemoryKeys:
    """A `KeyRing` of one attempt."""

    def __init__(self) -> None:
        self._current, self._proposed = Key(b"", b""), dict[bytes, Key]()

    def create(self, _attempt: bytes, key: Key, *following: Key) -> None:
        self._current, self._proposed = key, {one.name: one for one in following}

    def propose(self, _attempt: bytes, before: bytes, key: Key) -> None:
        assert self._current.name == before
        self._proposed[key.name] = key

    def commit(self, _attempt: bytes, name: bytes, following: Key | None = None) -> None:
        if self._current.name != name:
            self._current, self._proposed = self._proposed[name], {}
            if following is not None:
                self._proposed[following.name] = following

    def get(self, _attempt: bytes, name: bytes) -> bytes | None:
        return self._current.secret if self._current.name == name else None


class MemoryCounter:
    """A `Counter` of one attempt."""

    def __init__(self) -> None:
        self._public_label: Entry | None = None

    def read(self, _attempt: bytes) -> Entry | None:
        return self._public_label

    def advance(self, _attempt: bytes, before: Entry | None, after: Entry) -> None:
        assert self._public_label in (before, after)
        self._public_label = after


def codec_of(role: Any) -> Codec:
    """Return the codec of a role's states."""
    makers: dict[type, Callable[[Any], Codec]] = {CollectorRole: Codec.of_collector, PeerRole: Codec.of_peer}
    return makers.get(type(role), Codec.of_party)(role)


class Processes:
    """The processes of one member in one run, one after the other; `restored` counts them."""

    def __init__(self, run: Run[Any], saving: Saving) -> None:
        self._kind = kind_of(run.role)
        self._role, self._member, self._saving = run.role, run.member, saving
        self._live: SavedRun[Any] = self._kind.begin(run.role, run.member, run.state, saving)
        self._chooser = random.Random(len(run.name))
        self.restored = 0

    def handle(self, run: Run[Any], event: Event) -> Sequence[Envelope]:
        """Handle an event in a new process; what ends a run goes on in the process that it came up in."""
        self._restore()
        try:
            messages = self._live.handle(event)
            if self._chooser.random() < 0.2:
                # Before the driver does the work that a state leaves to it.
                self._restore()
            return messages
        finally:
            run._state, run._failed = self._live._state, self._live._failed

    def _restore(self) -> None:
        """Go on in a new process; seldom while there is work in memory, which would end with the old one."""
        works = any(getattr(self._live.state, name, ()) for name in ("pairs", "evaluations"))
        if not self._live.finished and (not works or self._chooser.random() < 0.02):
            self._live = self._kind.restore(self._role, self._member, self._saving)
            self.restored += 1


@contextmanager
def restored_if_drawn(seed: int, folder: Path) -> Iterator[list[Processes]]:
    """Restore each role before each event in half of the schedules; in some of those from files in `folder`.

    Gives the members' processes as they come up; none in the other schedules.
    """
    drawn = random.Random(f"restored {seed}").random()
    with pytest.MonkeyPatch.context() as patch:
        yield [] if drawn < 0.5 else restore_every_step(patch, folder if drawn > 0.9 else None)


def restore_every_step(patch: pytest.MonkeyPatch, folder: Path | None = None) -> list[Processes]:
    """Restore each role before each event, from now on; return the members' processes as they come up.

    `folder`: for media on disk; None: they are in memory.
    """
    taken = Run.step_from
    members: dict[Run[Any], Processes] = {}
    result: list[Processes] = []
    numbers = itertools.count()

    def saving(codec: Codec) -> Saving:
        store: Any = MemoryStore()
        keys: Any = MemoryKeys()
        counter: Counter = MemoryCounter()
        if folder is not None:
            own = folder / f"member {next(numbers)}"
            for part in ("keys", "counter"):
                (own / part).mkdir(parents=True)
            store, keys, counter = Store(own / "store"), KeyRing(own / "keys"), FileCounter(own / "counter")
        return Saving(codec, store, keys, counter)

    def step_from(run: Run[Any], state: State, event: Event) -> Sequence[Envelope]:
        if type(run) is not Run or not run.role.saved:
            return taken(run, state, event)
        assert state is run.state
        if run not in members:
            members[run] = Processes(run, saving(codec_of(run.role)))
            result.append(members[run])
        return members[run].handle(run, event)

    patch.setattr(Run, "step_from", step_from)
    # Nobody takes the power away.
    patch.setattr(os, "fsync", lambda _descriptor: None)
    patch.setattr(database, "SYNCHRONOUS", "OFF")
    return result
