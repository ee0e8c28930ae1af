"""The command `smpc-dp`: thin, one file per command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import smpc_dp
from smpc_dp.cli import bench, circuits, demo, keygen, party, plan, roster, run, simulate, vectors
from smpc_dp.cli.output import report_error
from smpc_dp.errors import SmpcError

app = typer.Typer(
    name="smpc-dp",
    help="Secure multi-party computation with differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in (demo, keygen, roster, run, party):
    command.register(app)
for group in (plan, simulate, circuits, bench, vectors):
    app.add_typer(group.app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"smpc-dp {smpc_dp.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line: exit code 0, 1 after an error, 2 for wrong usage, 130 after Ctrl-C."""
    try:
        app()
    except SmpcError as error:
        report_error(error)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
