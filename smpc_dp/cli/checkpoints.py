"""`smpc-dp board checkpoint`, `prove`, `cosign` and `accept`: checkpoints of session logs, and witnesses."""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.errors import ConfigCheck, ConfigError, LocalError

SessionLogFile = Annotated[Path, typer.Argument(help="The session log, JSON lines.")]
CheckpointFile = Annotated[Path, typer.Argument(help="The signed checkpoint.")]


def checkpoint(
    log: SessionLogFile,
    key: Annotated[Path, typer.Option(help="The key of the checkpoints, NAME.checkpoints.")],
) -> None:
    """Print a signed checkpoint of a session log as it is now.

    An aggregator whose session names a key does so itself, in the file beside the log. It is a C2SP
    checkpoint: the origin is the session digest, or that of a group, in hex; leaf i is line i of the file.
    """
    from smpc_dp.identity.keys import CHECKPOINTS, Identity
    from smpc_dp.logs.audits.audit_selection import read_session_log
    from smpc_dp.logs.checkpoint import sign_checkpoint

    _print(sign_checkpoint(read_session_log(log), Identity.load(key, CHECKPOINTS)))


def prove(
    log: SessionLogFile,
    note: CheckpointFile,
    line: Annotated[int | None, typer.Option(min=0, help="Prove that this line, from 0, is in it.")] = None,
    old: Annotated[int | None, typer.Option(min=0, help="Prove that it continues so many lines.")] = None,
) -> None:
    """Print a proof of inclusion (--line), or what a witness is sent (--old): a proof of consistency."""
    from smpc_dp.logs.audits.audit_selection import read_session_log
    from smpc_dp.logs.checkpoint import Checkpoint, inclusion_proof, witness_request
    from smpc_dp.logs.signed_note import SignedNote

    if (line is None) == (old is None):
        raise ConfigError.at("--line", "give either --line or --old", ConfigCheck.CONFLICT)
    listed, content = read_session_log(log), _read(note)
    parsed = Checkpoint.parse(SignedNote.parse(content).text)
    parsed.check(listed)
    if (line or 0) >= parsed.size or (old or 0) > parsed.size:
        raise ConfigError.at(
            "--line" if old is None else "--old",
            f"the checkpoint is of {parsed.size} lines",
            ConfigCheck.RANGE,
        )
    _print(
        inclusion_proof(listed, line, content)
        if line is not None
        else witness_request(listed, old or 0, content)
    )


def cosign(
    request: Annotated[Path, typer.Argument(help="What `board prove --old` printed.")],
    session: Annotated[Path, typer.Option(help="The session file: it names the log's key.")],
    key: Annotated[Path, typer.Option(help="The witness's key, of `smpc-dp keygen`.")],
    folder: Annotated[Path, typer.Option(help="Where the last checkpoint of each log is remembered.")],
) -> None:
    """Act as a witness: print a cosignature of a checkpoint that continues the last one.

    It says that the log was only appended to since then, not that what it lists is right.
    """
    from smpc_dp.identity.keys import Identity
    from smpc_dp.logs.audits.log_session import is_scope
    from smpc_dp.logs.checkpoint import Witness
    from smpc_dp.session.session_file import load_session

    loaded = load_session(session, audited=True)
    aggregator = loaded.roster.aggregator
    if aggregator is None or aggregator.checkpoint_key is None:
        raise ConfigError.at("session", "names no key of checkpoints", ConfigCheck.MISSING)
    witness = Witness(Identity.load(key), folder)
    is_known = functools.partial(is_scope, loaded)
    cosignature = witness.cosign(_read(request), aggregator.checkpoint_key, int(time.time()), is_known)
    typer.echo(f"witness: {witness.key}", err=True)
    _print(cosignature)


def accept(
    note: CheckpointFile,
    cosignatures: Annotated[list[Path], typer.Argument(help="What witnesses printed.")],
    witness: Annotated[list[str], typer.Option(help="Key of a witness, name+id+base64; repeatable.")],
) -> None:
    """Add the cosignatures of witnesses to a checkpoint, each after it was verified."""
    from smpc_dp.files import lock_folder, replace_file
    from smpc_dp.logs.checkpoint import add_cosignatures
    from smpc_dp.logs.signed_note import NoteKey

    lines = b"".join(_read(path) for path in cosignatures)
    keys = [NoteKey.parse(text, "--witness") for text in witness]
    try:
        # The aggregator writes the file of a longer log, and others add to it.
        with lock_folder(note.parent):
            content = _read(note)
            result = add_cosignatures(content, lines, keys)
            replace_file(note, lambda out: out.write(result))
    except OSError as error:
        raise LocalError(f"{note}: cannot write the checkpoint ({error.strerror})") from None
    added = result.count(b"\n") - content.count(b"\n")
    typer.echo(f"{added} cosignatures added to {note}")


def _read(path: Path) -> bytes:
    """Return the bytes of a checkpoint or of a request for a cosignature; raise LocalError if too long."""
    from smpc_dp.files import read_bounded
    from smpc_dp.logs.checkpoint import MAX_REQUEST

    return read_bounded(path, "the file", MAX_REQUEST)


def _print(content: bytes) -> None:
    """Write the bytes of a signed note to standard output, unchanged."""
    typer.echo(content.decode(), nl=False)
