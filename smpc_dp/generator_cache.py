"""Files of the generators of vector commitments, one a block: reading is much faster than making.

Files are compared with digests in this package at every read, so the folder need not be trusted: a file that
is cut, altered or of another version is made anew. Many processes may use one folder: a file is written as a
whole, and its content is always the same.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from pathlib import Path

from smpc_dp.crypto.vector_commitments import (
    BLOCK_BYTES,
    BLOCK_POINTS,
    IN_PROCESS,
    Generators,
)
from smpc_dp.files import replace_file

_LOG = logging.getLogger("smpc_dp")
# With the version of the generators: versions with other ones do not replace each other's files.
_NAME = "vector-generators-1"
# Seconds after which nobody stores a block any more.
ABANDONED = 600.0


def default_folder() -> Path | None:
    """Return the folder for smpc-dp's cached files, by XDG; None if the user has no known home.

    None if neither XDG_CACHE_HOME nor a home of the user is known.
    """
    stated = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if stated.is_absolute():
        return stated / "smpc-dp"
    try:
        return Path.home() / ".cache" / "smpc-dp"
    except RuntimeError:
        return None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file and return its descriptor; do not block on a named pipe without a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


class GeneratorCache:
    """Cache of elliptic-curve generators for commitments: in memory, and as files in a folder."""

    def __init__(self, folder: Path | None = None, generators: Generators | None = None) -> None:
        """Use `folder`, or `default_folder`: it is made when the first block is stored. Load `generators`."""
        parent = folder or default_folder()
        self._folder = parent / _NAME if parent else None
        self._generators = Generators() if generators is None else generators
        self._stores = True

    def load(self, length: int, threads: int = 1) -> Generators:
        """Return this cache's generators, extended to at least `length`; blocks are read, or made and stored.

        The object is the same one every time, and grows. A folder that cannot be used is logged once; the
        generators are then in memory only. Raises ValueError for a length that is not between 1 and
        MAX_LENGTH, or a number of threads that is not 1 or 2.
        """
        return self._generators.extended(length, threads, self._append)

    def _append(self, threads: int) -> None:
        """Append the next block of generators in memory: read from its file, or made and stored."""
        if self._folder is None:
            self._generators.make_block(threads)
            self._do_without("no home of the user is known")
            return
        path = self._folder / f"{len(self._generators) // BLOCK_POINTS:03}"
        if not self._read(path):
            self._store(path, self._generators.make_block(threads))

    def _read(self, path: Path) -> bool:
        """Append the generators in a block's file; return False if it is missing, damaged or unreadable."""
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                return self._generators.append_block(file.read(BLOCK_BYTES + 1) or b"")
        except FileNotFoundError:
            return False
        except OSError as error:
            self._do_without(f"{path}: {error.strerror}")
            return False

    def _store(self, path: Path, block: bytes) -> None:
        """Write a block of generators to its file; after a first failure, which is logged, do nothing."""
        if not self._stores:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._remove_drafts(path)
            replace_file(path, lambda file: file.write(block))
        except OSError as error:
            self._do_without(f"{path}: {error.strerror}")

    def _remove_drafts(self, path: Path) -> None:
        """Delete temporary files of this block older than 10 minutes, which killed processes have left."""
        for draft in path.parent.glob(f".{path.name}.*"):
            with suppress(FileNotFoundError):
                if time.time() - draft.stat().st_mtime > ABANDONED:
                    draft.unlink()

    def _do_without(self, reason: str) -> None:
        """Log a warning that the cache folder cannot be used, once, and store nothing from then on."""
        if self._stores:
            _LOG.warning("generators of commitments are not stored, and made in memory: %s", reason)
        self._stores = False


def load_generators(length: int, threads: int = 1) -> None:
    """Load commitment generators for vectors of `length` elements into this process, with a file cache."""
    GeneratorCache(generators=IN_PROCESS).load(length, threads)
