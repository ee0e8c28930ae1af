"""Output of commands: errors in one line each on standard error, results as text or as one JSON object."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from smpc_dp.console.schemas import name_of, with_schema
from smpc_dp.errors import MOST_ERROR, ConfigError, LocalError, SmpcError, printable

# Each function that prints for a person imports its own: a process that `run` starts prints JSON alone.
if TYPE_CHECKING:
    from rich.console import Console

# Printed after a result for which no privacy ledger was given.
UNCHARGED = "no ledger was given: nothing was charged"
# Width where there is no terminal.
PAGE = 100


class _Remarks:
    """Wrapper of the standard error stream that ignores failed writes, so that a run never ends by one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text to standard error; ignore an OSError, as of a closed stream."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush standard error; ignore an OSError, as of a closed stream."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Results:
    """Wrapper of standard output that turns BrokenPipeError (its reader left) into an ordinary OSError.

    For BrokenPipeError and EPIPE, rich and typer end the process without a message, before a command can act.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text to standard output; raise an ordinary OSError if its reader has left."""
        with _plain_error():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush standard output; raise an ordinary OSError if its reader has left."""
        with _plain_error():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def _plain_error() -> Iterator[None]:
    """Turn a BrokenPipeError in the block into an OSError without a number."""
    try:
        yield
    except BrokenPipeError as error:
        raise OSError(None, error.strerror) from None


class _Closed(io.TextIOBase):
    """Stand-in for a standard output that was closed before the process began; writing raises OSError."""

    def write(self, text: str) -> int:  # noqa: ARG002 - nothing can be written
        """Raise OSError, as for a write to a closed stream; nothing is written."""
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))


@contextlib.contextmanager
def writable_streams() -> Iterator[None]:
    """In the block escape what stdout and stderr cannot encode; stderr's errors are dropped.

    Characters that a stream's encoding does not have are printed as escapes.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Python has None for a stream that was closed when it started.
    output: Any = _Results(sys.stdout or _Closed())
    remarks: Any = _Remarks(sys.stderr or io.StringIO())
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(remarks):
        yield


def console() -> Console:
    """Return the `rich` console that prints results for people on standard output."""
    from rich.console import Console

    return Console(
        highlight=False,
        soft_wrap=True,
        markup=False,
        emoji=False,
        width=None if sys.stdout.isatty() else PAGE,
    )


def progress_console() -> Console:
    """Return the `rich` console that shows progress on standard error, apart from the results."""
    from rich.console import Console

    # On a terminal a live table must stay within its lines.
    return Console(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=not sys.stderr.isatty())


def print_note(line: str) -> None:
    """Print a line about progress on standard error, apart from the results on standard output."""
    progress_console().print(line)


def print_json(value: object) -> None:
    """Print a value as one line of JSON on standard output."""
    sys.stdout.write(_json_line(value))


def print_as(schema: str, value: Mapping[str, object]) -> None:
    """Print an object on standard output as JSON, preceded by the name and version of its JSON schema."""
    print_json(msgspec.to_builtins(with_schema(schema, value)))


def print_struct(value: msgspec.Struct) -> None:
    """Print a struct on standard output as JSON, with the name and version of its class's JSON schema."""
    print_as(name_of(type(value)), msgspec.to_builtins(value))


def print_table(
    title: str | None, columns: Sequence[str], rows: Iterable[Sequence[object]], *lines: str
) -> None:
    """Print a table with a title and column headings on standard output, and further lines below it."""
    from rich.table import Table

    table = Table(*columns, title=title)
    for row in rows:
        table.add_row(*map(str, row))
    out = console()
    for part in (table, *lines):
        out.print(part)


def print_plan(
    plan: msgspec.Struct,
    as_json: bool,
    title: str,
    rows: Iterable[Sequence[object]],
    *lines: str,
    columns: Sequence[str] = ("what", "value", "meaning"),
) -> None:
    """Print a plan for a session: as JSON if `as_json`, else as a table with further lines below it."""
    if as_json:
        print_struct(plan)
    else:
        print_table(title, columns, rows, *lines)


def check_can_write(*paths: Path | None, name: str = "the result") -> None:
    """Raise LocalError, before a long computation, if an output file cannot be written; skip None."""
    for path in paths:
        if path is not None:
            _check_can_write(path, name)


def _check_can_write(path: Path, name: str) -> None:
    """Raise LocalError if a file cannot be written; called before a long computation."""
    folder = path if path.exists() else path.parent
    if path.is_dir():
        raise LocalError(f"{path}: cannot write {name} (is a folder)")
    if not folder.exists():
        raise LocalError(f"{path}: cannot write {name} (there is no folder {folder})")
    if not folder.is_dir() and folder != path:
        raise LocalError(f"{path}: cannot write {name} ({folder} is no folder)")
    if not os.access(folder, os.W_OK | (0 if folder == path else os.X_OK)):
        raise LocalError(f"{path}: cannot write {name} (no right to write to {folder})")


def abandon_output() -> None:
    """Point a broken standard output to /dev/null, so that Python does not complain of it at exit."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def deliver(
    printed: object,
    out: Path | None,
    text: Callable[[], str],
    *,
    as_json: bool = False,
    quiet: bool = False,
    confidential: bool = False,
    stored: object = None,
) -> bool:
    """Write a result to the file `out` and print it; return True, or report a failure and return False.

    The run that gave it is over, and may have been paid for: a result that could not be written is printed as
    JSON in any case, and to standard error where standard output takes nothing.
    `text`: its lines for a person, which `quiet` leaves out; `confidential`: the file is for its owner alone;
    `stored`: what the file holds, where that is not `printed`.
    """
    written = out is None or _write_json(printed if stored is None else stored, out, confidential)
    try:
        if as_json or not written:
            print_json(printed)
        elif not quiet:
            console().print(text())
        sys.stdout.flush()
    except OSError as error:
        abandon_output()
        report_line(f"cannot write the output ({error.strerror})")
        if out is None or not written:
            sys.stderr.write(_json_line(printed))
        return False
    return written


def _json_line(value: object) -> str:
    """Return a value as one line of JSON; raise ValueError for infinities."""
    return json.dumps(value, allow_nan=False) + "\n"


def _write_json(value: object, path: Path, confidential: bool) -> bool:
    """Write a value as JSON to a file (owner-only if `confidential`); on failure report it, return False."""
    try:
        if confidential:
            path.touch(mode=0o600)
            path.chmod(0o600)
        path.write_text(_json_line(value), "utf-8")
    except OSError as error:
        report_error(LocalError(f"{path}: cannot write the result ({error.strerror})"))
        return False
    return True


def report_error(error: SmpcError) -> None:
    """Print an error of this library on standard error, one line for each fault of a configuration."""
    faults = error.issues if isinstance(error, ConfigError) else ()
    for line in [str(fault) if fault.where else fault.reason for fault in faults] or [str(error)]:
        report_line(line)


def report_line(text: str) -> None:
    """Print one line on standard error in the form of an error."""
    sys.stderr.write(f"smpc-dp: {printable(' '.join(text.split()), MOST_ERROR)}\n")
