"""Write a small private file atomically and durably, by one writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from smpc_dp.errors import LocalError
from smpc_dp.files import replace_file

LOCK_SECONDS = 30.0
_POLL_SECONDS = 0.02


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Context manager that locks a ledger or report exclusively on this host; LocalError if not free in 30 s.

    The lock ends with the process that holds it. Raises LocalError if it is not free within 30 seconds.
    """
    lock = path.with_name(path.name + ".lock")
    deadline = time.monotonic() + LOCK_SECONDS
    while (descriptor := _try_lock(lock)) is None:
        if time.monotonic() > deadline:
            raise LocalError(f"{lock}: another process has held it for {LOCK_SECONDS:g} s")
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)


def _try_lock(lock: Path) -> int | None:
    """Return the locked lock file's descriptor; None if another process holds it; LocalError if unusable."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(lock, flags, 0o600)
    except FileNotFoundError:
        raise LocalError(f"{lock.parent}: no such folder for the ledger") from None
    except OSError as error:
        raise LocalError(f"{lock}: cannot open the lock ({error.strerror})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A lock on a file that was unlinked meanwhile excludes nobody.
        if os.path.samestat(os.fstat(descriptor), os.stat(lock, follow_symlinks=False)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def write_durably(path: Path, content: bytes, *, new: bool = False) -> None:
    """Write a private file (mode 0600) atomically to disk; LocalError on failure, or if a `new` one exists.

    A crash leaves the old content or the new one. With `new` an existing file is never replaced. Raises
    LocalError.
    """
    beside = path.with_name(path.name + ".new")
    try:
        replace_file(path, lambda file: file.write(content), 0o600, beside=beside, new=new)
    except FileExistsError:
        raise LocalError(f"{path}: exists already, and a ledger is never overwritten") from None
    except OSError as error:
        raise LocalError(f"{path}: cannot write the ledger ({error.strerror})") from None
