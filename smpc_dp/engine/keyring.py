"""Keys of the newest saved states, outside the store. Specification: protocols/saved-states/README.md."""

from __future__ import annotations

from pathlib import Path

import msgspec

from smpc_dp.engine.attempt_files import CONTENT_BYTES, AttemptFiles, Slot
from smpc_dp.errors import LocalError


class Key(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Key of one state, 32 bytes, and its name; an empty key: the state is not restored."""

    name: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "Key(secret)"


_NAME_BYTES, _KEY_BYTES = 16, 32
_GONE_ON = "another process has gone on from the state, or its key was set back"


class KeyRing:
    """Key files, one for each attempt, in a folder without backups; raises LocalError on failure.

    The slot with the least number has the current key, those with the next number proposed ones.
    """

    def __init__(self, folder: Path) -> None:
        self._files = AttemptFiles(folder, ".keys", "keys of saved states", 2)

    def create(self, attempt: bytes, key: Key) -> None:
        """Store the key of an attempt's first state."""
        with self._files.opened(attempt, create=True) as file:
            if file is None or not file.is_absent:
                raise LocalError("an attempt has keys before it begins")
            file.create(0, _packed(key))

    def propose(self, attempt: bytes, before: bytes, key: Key) -> None:
        """Store the key of a next state beside the current one, which must be named `before`."""
        with self._files.opened(attempt) as file:
            if file is None or _key(file.slots[0]).name != before:
                raise LocalError(_GONE_ON)
            file.put(file.first_free(), file.slots[0].number + 1, _packed(key))

    def commit(self, attempt: bytes, name: bytes) -> None:
        """Make a proposed key the only one; do nothing if it is current."""
        with self._files.opened(attempt) as file:
            slots = () if file is None else file.slots
            chosen = next((slot for slot in slots if _key(slot).name == name), None)
            if file is None or chosen is None:
                raise LocalError(_GONE_ON)
            if chosen is slots[0]:
                # Of a process that was killed when it overwrote the key before, or whose disk failed.
                file.renew()
                file.clear(*(slot.ordinal for slot in slots))
                return
            # What a process that was killed has proposed may not be on disk.
            file.sync()
            if len(slots) > 2:
                # Only one of the proposed keys may follow the current one.
                file.clear(slots[0].ordinal, chosen.ordinal)
            file.clear(chosen.ordinal)

    def get(self, attempt: bytes, name: bytes) -> bytes | None:
        """Return the current or a proposed key; None for an unknown name."""
        with self._files.opened(attempt) as file:
            keys = () if file is None else map(_key, file.slots)
            return next((one.secret for one in keys if one.name == name), None)

    def has(self, attempt: bytes) -> bool:
        """Tell whether there are keys of an attempt, which were not removed."""
        with self._files.opened(attempt) as file:
            return file is not None

    def remove(self, attempt: bytes) -> None:
        """Destroy the keys of an attempt."""
        self._files.remove(attempt)


def _packed(key: Key) -> bytes:
    """Return the content of a slot; an empty key is 32 zeros."""
    return (key.name + key.secret).ljust(CONTENT_BYTES, b"\0")


def _key(slot: Slot) -> Key:
    """Return the key of a slot."""
    name, secret = slot.content[:_NAME_BYTES], slot.content[_NAME_BYTES:][:_KEY_BYTES]
    return Key(name, secret if secret.strip(b"\0") else b"")
