"""Reading a file whose size somebody else decides: never more of it than was said."""

from __future__ import annotations

import os
from pathlib import Path

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
