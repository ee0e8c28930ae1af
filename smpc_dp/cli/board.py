"""`smpc-dp board`: serve and export the logs of verifiable runs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.cli import checkpoints
from smpc_dp.cli.output import console
from smpc_dp.errors import LocalError

app = typer.Typer(name="board", help="The bulletin board of verifiable runs.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    pass


@app.command()
def serve(
    board: Annotated[Path, typer.Argument(help="The log: a .board file, or JSON lines.")],
    host: Annotated[str, typer.Option(help="Where to listen; what is served is public.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8600,
) -> None:
    """Serve a log to auditors over HTTP, read-only, until Ctrl-C."""
    from smpc_dp.log.serve import BoardServer

    with BoardServer(board, host, port) as server:
        console().print(f"smpc-dp audit {server.url}")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


@app.command()
def export(
    board: Annotated[Path, typer.Argument(help="The .board file.")],
    out: Annotated[Path, typer.Argument(help="The file of JSON lines to write.")],
) -> None:
    """Write a log as JSON lines, as it is now; also of a run that was cut off."""
    from smpc_dp.log.store import Store

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
