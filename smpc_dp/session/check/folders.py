"""Lines about folders: whether files can be written, locked and synced there, and how much room there is."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from smpc_dp.session.check.lines import HostCheck, Line

# Bytes that must be free for the files of a session: states, logs, ledgers.
LEAST_FREE = 16 << 20

_TODO = {
    errno.ENOSPC: "The disk is full: free some room on it, or name a folder on another one.",
    errno.EDQUOT: "The quota is used up: free some room, or name a folder on another disk.",
    errno.EROFS: "The file system is mounted read-only: mount it for writing, or name another folder.",
    errno.ENOLCK: "The file system has no locks: name a folder on a local disk.",
    errno.EOPNOTSUPP: "The file system has no locks, or no sync: name a folder on a local disk.",
}
_NOT_ALLOWED = "Give {path} to the user that runs smpc-dp (`id -un` prints it), or name another folder."


def folder_line(check: HostCheck, path: Path, *, is_made: bool = False) -> Line:
    """Write a test file in a folder, or above one still to be made (`is_made`); return the line to show."""
    try:
        return _folder_line(check, path, is_made=is_made)
    except OSError as error:
        return _refused(check, path, error)


def _folder_line(check: HostCheck, path: Path, *, is_made: bool) -> Line:
    """Test a folder, or the one above if it is made later; return the line; OSError if not examined."""
    folder = path
    while is_made and not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.exists():
        return Line(check, "fix", f"{path}: there is no such folder", f"Make it: mkdir -m 700 {path}")
    if not folder.is_dir():
        return Line(check, "fix", f"{folder}: is no folder", "Name a folder, or move this file away.")
    try:
        free = _write(folder)
    except OSError as error:
        return _refused(check, folder, error)
    if free < LEAST_FREE:
        text = f"{folder}: {free >> 20} MiB are free, {LEAST_FREE >> 20} are the least"
        return Line(check, "fix", text, _TODO[errno.ENOSPC])
    return Line(check, "ok", f"{folder}: writable, {free >> 20} MiB free")


def _refused(check: HostCheck, folder: Path, error: OSError) -> Line:
    """Return the line that says that files cannot be written in a folder, and why."""
    todo = _TODO.get(error.errno or 0, _NOT_ALLOWED.format(path=folder))
    return Line(check, "fix", f"{folder}: cannot write a file ({error.strerror})", todo)


def _write(folder: Path) -> int:
    """Write and lock a temporary file in a folder, to test it; return the free bytes there."""
    with tempfile.TemporaryFile(dir=folder) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(bytes(4096))
        file.flush()
        os.fsync(file.fileno())
    return shutil.disk_usage(folder).free
