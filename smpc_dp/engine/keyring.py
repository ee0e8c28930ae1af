"""Keys of the newest saved states, outside the store. Specification: protocols/saved-states/README.md."""

from __future__ import annotations

from pathlib import Path

import msgspec

from smpc_dp.engine.attempt_files import CONTENT_BYTES, AttemptFiles, Slot
from smpc_dp.errors import LocalError


class Key(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A key of 32 bytes that encrypts one saved state, with the state's name."""

    name: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "Key(secret)"


_NAME_BYTES, _KEY_BYTES = 16, 32
_GONE_ON = "another process has gone on from the state, or its key was set back"


class KeyRing:
    """Folder of keys of saved states, for no backup: a file per attempt of a run; errors are LocalError.

    The slot with the least number has the current key, those with the next number proposed ones.
    """

    def __init__(self, folder: Path) -> None:
        self._files = AttemptFiles(folder, ".keys", "keys of saved states", 2)

    def create(self, attempt: bytes, *keys: Key) -> None:
        """Store the key of an attempt's first state, and a proposed key; LocalError if it has any key."""
        with self._files.opened(attempt, create=True) as file:
            if file is None or not file.is_absent:
                raise LocalError("an attempt has keys before it begins")
            file.create(0, *map(_packed, keys))

    def propose(self, attempt: bytes, before: bytes, key: Key) -> None:
        """Store a key for the next state beside the current key; LocalError if that is not named `before`."""
        with self._files.opened(attempt) as file:
            if file is None or _key(file.slots[0]).name != before:
                raise LocalError(_GONE_ON)
            file.put(file.first_free(), file.slots[0].number + 1, _packed(key))

    def commit(self, attempt: bytes, name: bytes, following: Key | None = None) -> None:
        """Make the proposed key of this name the current one, and destroy the others; LocalError if missing.

        `following`: is proposed for the next state in the same write; None: the process has not proposed the
        key itself, or no state follows.
        """
        with self._files.opened(attempt) as file:
            slots = () if file is None else file.slots
            chosen = next((slot for slot in slots if _key(slot).name == name), None)
            if file is None or chosen is None:
                raise LocalError(_GONE_ON)
            current = slots[0]
            if following is None or chosen is current:
                # Of a process that was killed, or whose disk failed: what it wrote may not be on disk.
                file.renew()
            if chosen is current:
                file.clear(*(slot.ordinal for slot in slots))
            else:
                # Only one of the proposed keys may follow the current one.
                file.clear(current.ordinal, chosen.ordinal)
            if following is not None:
                ordinal = file.first_free() if chosen is current else current.ordinal
                file.put(ordinal, chosen.number + 1, _packed(following))
            elif chosen is not current:
                file.clear(chosen.ordinal)

    def end(self, attempt: bytes, before: bytes) -> None:
        """Destroy all keys of an attempt; LocalError if its current key is not named `before`."""
        with self._files.opened(attempt) as file:
            if file is None or _key(file.slots[0]).name != before:
                raise LocalError(_GONE_ON)
            file.erase()

    def get(self, attempt: bytes, name: bytes) -> bytes | None:
        """Return the current or proposed key of this name; None if there is no such key."""
        with self._files.opened(attempt) as file:
            keys = () if file is None else map(_key, file.slots)
            return next((one.secret for one in keys if one.name == name), None)

    def has(self, attempt: bytes) -> bool:
        """Tell whether the keys of an attempt exist and were not removed."""
        with self._files.opened(attempt) as file:
            return file is not None

    def remove(self, attempt: bytes) -> None:
        """Destroy all keys of an attempt, so that its saved states cannot be read."""
        self._files.remove(attempt)


def _packed(key: Key) -> bytes:
    """Return a key and its name as the content of a slot in a key file."""
    return (key.name + key.secret).ljust(CONTENT_BYTES, b"\0")


def _key(slot: Slot) -> Key:
    """Return the key that a slot of a key file holds."""
    return Key(slot.content[:_NAME_BYTES], slot.content[_NAME_BYTES:][:_KEY_BYTES])
