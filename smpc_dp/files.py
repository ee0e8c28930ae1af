"""Files: read no further than was said, where somebody else decides the size; written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from smpc_dp.errors import LocalError


def read_bounded(path: str | os.PathLike[str], what: str, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes; `what` names it in errors ("the graph").

    A device or a pipe that never ends is left after as many bytes. Raises LocalError when the file cannot be
    read or is longer.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise LocalError(f"{path}: cannot read {what} ({error.strerror})") from None
    if len(content) > most:
        raise LocalError(f"{path}: cannot read {what} (longer than {most} bytes)")
    return content


def write_file(path: str | os.PathLike[str], content: bytes, what: str) -> None:
    """Write a file, over an existing one; raise LocalError, with `what` it was, when that fails."""
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise LocalError(f"{path}: cannot write {what} ({error.strerror})") from None


def replace_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> None:
    """Write a file as a whole or not at all: `write` fills another one beside it, which then takes its place.

    On disk when this returns. Raises OSError, and what `write` raises; nothing is left behind then.
    """
    place = Path(path)
    beside = place.with_name(f".{place.name}.{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
