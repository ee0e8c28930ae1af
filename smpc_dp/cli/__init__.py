"""The command `smpc-dp`: thin, one file per command."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

import smpc_dp
from smpc_dp.cli.commands import CommandGroup
from smpc_dp.cli.logs import Level, shown_logs
from smpc_dp.console.output import abandon_output, report_error, report_line, writable_streams
from smpc_dp.errors import SmpcError
from smpc_dp.signals import unwind_on_signals

# Whatever Click the installed Typer stands on, its own or the package.
UsageError: type[Any] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    cls=CommandGroup,
    name="smpc-dp",
    help="Secure multi-party computation with differential privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    """Print the package's versions and kernels and exit if `wanted`; else do nothing."""
    if wanted:
        # Not imported above: it loads every protocol.
        from smpc_dp.session.versions import installed_versions

        typer.echo(f"smpc-dp {smpc_dp.__version__}\n{installed_versions()}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback takes it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print versions and kernels.")
    ] = False,
    log_level: Annotated[
        Level | None, typer.Option("--log-level", help="Log to standard error, from this level on.")
    ] = None,
) -> None:
    """Handle the options that stand before a command: `--version`, and the log level, which is set."""
    context.obj = log_level
    if log_level is not None:
        context.with_resource(shown_logs(log_level))


def main() -> int:
    """Run the command line and return its exit code: 1 after an error, 2 for wrong usage, else the command's.

    Ctrl-C leaves with KeyboardInterrupt, SIGTERM with SystemExit(143), SIGHUP with SystemExit(129).
    """
    with writable_streams():
        try:
            with unwind_on_signals():
                code = _run()
                sys.stdout.flush()
                return code
        except OSError as error:
            if error.filename is not None:
                report_line(f"{error.filename}: {error.strerror}")
            else:
                # No file was opened, so it is standard output: a full disk, or a reader that has left.
                abandon_output()
                report_line(f"cannot write the output ({error.strerror})")
            return 1


def _run() -> int:
    """Run the command line, print errors as messages, return the exit code (130: KeyboardInterrupt)."""
    try:
        code = app(prog_name="smpc-dp", standalone_mode=False)
    except SmpcError as error:
        report_error(error)
        return 1
    except typer.Abort:
        return 1
    except UsageError as error:
        context = error.ctx
        if context is not None and error.message == context.get_help():
            # A group without a command: its help.
            sys.stderr.write(f"{error.message}\n")
        else:
            path = "smpc-dp" if context is None else context.command_path
            report_line(f"{error.format_message().rstrip('.')} (try '{path} --help')")
        return 2
    if code == 130:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0
