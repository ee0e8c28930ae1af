"""Keys of the newest saved states, outside the store. Specification: protocols/saved-states/README.md."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from smpc_dp.engine.attempt_files import AttemptFiles
from smpc_dp.errors import LocalError


class Key(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Key of one state, 32 bytes, and its name; an empty key: the state is not restored."""

    name: bytes
    secret: bytes

    def __repr__(self) -> str:
        return "Key(secret)"


class _Keys(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Current and proposed key of an attempt."""

    version: Literal[1]
    current: Key
    proposed: tuple[Key, ...]


class KeyRing:
    """Key files, one for each attempt, in a folder without backups; raises LocalError on failure."""

    def __init__(self, folder: Path) -> None:
        self._files = AttemptFiles(folder, ".keys", "keys of saved states", _Keys)

    def create(self, attempt: bytes, key: Key) -> None:
        """Store the key of an attempt's first state."""
        with self._files.held(attempt) as keys:
            if keys is not None:
                raise LocalError("an attempt has keys before it begins")
            self._files.write(attempt, _Keys(1, key, ()))

    def propose(self, attempt: bytes, before: bytes, key: Key) -> None:
        """Store the key of a next state beside the current one, which must be named `before`."""
        with self._files.held(attempt) as keys:
            if keys is None or keys.current.name != before:
                raise LocalError("another process has gone on from the state, or its key was set back")
            self._files.write(attempt, _Keys(1, keys.current, (*keys.proposed, key)))

    def commit(self, attempt: bytes, name: bytes) -> None:
        """Make a proposed key the only one; do nothing if it is current."""
        with self._files.held(attempt) as keys:
            if keys is not None and keys.current.name == name:
                return
            key = next((one for one in keys.proposed if one.name == name), None) if keys else None
            if key is None:
                raise LocalError("another process has gone on from the state, or its key was set back")
            self._files.write(attempt, _Keys(1, key, ()))

    def get(self, attempt: bytes, name: bytes) -> bytes | None:
        """Return the current or a proposed key; None for an unknown name."""
        keys = self._files.read(attempt)
        known = () if keys is None else (keys.current, *keys.proposed)
        return next((one.secret for one in known if one.name == name), None)

    def has(self, attempt: bytes) -> bool:
        """Tell whether there are keys of an attempt, which were not removed."""
        return self._files.read(attempt) is not None

    def remove(self, attempt: bytes) -> None:
        """Destroy the keys of an attempt."""
        self._files.remove(attempt)
