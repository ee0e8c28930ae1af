"""`smpc-dp board`: serve and export the logs of verifiable runs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.cli import checkpoints
from smpc_dp.console.output import console
from smpc_dp.errors import LocalError

app = typer.Typer(name="board", help="The bulletin board of verifiable runs.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Do nothing: group of the commands about public logs (`smpc-dp board ...`)."""
    pass


@app.command()
def serve(
    board: Annotated[
        Path,
        typer.Argument(help="The log: a .board file, JSON lines, or a folder of logs, of which the newest."),
    ],
    session: Annotated[
        str | None, typer.Option(help="The session file, or its digest: a log of another one does not hold.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where to listen; what is served is public.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8600,
) -> None:
    """Serve a log to auditors over HTTP, read-only, until Ctrl-C, with a page that follows it.

    The page shows entries as they arrive, each party's state, who signed something false, the verdict and
    what is not proven, and finds a party's contribution by its receipt. It is this server's word: an audit on
    one's own machine proves.
    """
    from smpc_dp.logs.audits.audit_selection import session_digest_of
    from smpc_dp.logs.audits.log_page_server import LogPageServer
    from smpc_dp.logs.audits.log_watch import LogWatch

    digest = None if session is None else session_digest_of(session)
    watch = LogWatch(board, digest)
    with LogPageServer(watch, host, port) as server, watch:
        console().print(f"the page: {server.url.removesuffix('board.jsonl')}")
        console().print(f"smpc-dp audit {server.url}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


@app.command()
def export(
    board: Annotated[Path, typer.Argument(help="The .board file.")],
    out: Annotated[Path, typer.Argument(help="The file of JSON lines to write.")],
) -> None:
    """Write a log as JSON lines, as it is now; also of a run that was cut off."""
    from smpc_dp.logs.store import Store

    with Store.open(board) as store:
        try:
            with out.open("xb") as file:
                size = store.export(file)
        except FileExistsError:
            raise LocalError(f"{out}: exists already") from None
        except OSError as error:
            raise LocalError(f"{out}: cannot write the log ({error.strerror})") from None
    console().print(f"{size} bytes written to {out}")


for _command in (checkpoints.checkpoint, checkpoints.prove, checkpoints.cosign, checkpoints.accept):
    app.command()(_command)
