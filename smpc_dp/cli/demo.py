"""`smpc-dp demo`: the main job, on real data, on this machine."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from smpc_dp.cli.live import LiveBoard
from smpc_dp.cli.reporting import Reporting, ReportPath
from smpc_dp.console.output import print_as, report_error
from smpc_dp.demo.lenders import LENDERS
from smpc_dp.demo.report import announce, as_data, page, report
from smpc_dp.demo.run import demonstrate, open_folder
from smpc_dp.demo.verifiable import demonstrate_verifiable, report_verifiable
from smpc_dp.errors import SmpcError
from smpc_dp.session.events import OnEvent
from smpc_dp.session.launcher import run_child
from smpc_dp.session.local import AGGREGATOR

T = TypeVar("T")


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Keep session file, keys, shards and results in this folder, new or empty."),
    ] = None,
    report_file: ReportPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Kill one lender half-way.")] = True,
    verifiable: Annotated[
        bool, typer.Option("--verifiable", help="Instead: one lender cheats, is named, and is left out.")
    ] = False,
) -> None:
    """Show the main job on real data, on this machine.

    Eight lenders compute exact statistics and a regression on all their loans; one is killed half-way. With
    --verifiable they release the number and the mean rate of all loans with noise and proofs, twice, and the
    logs are audited.
    """
    reporting = Reporting.of(report_file)
    console = page()
    folder = None if out is None else open_folder(out)
    if verifiable:
        runs = _run(
            lambda where, show, board: demonstrate_verifiable(where, on_event=show, on_run=board.begin),
            folder,
            reporting,
            as_json,
        )
        if as_json:
            print_as("demo-verifiable", {"runs": [run.to_json() for run in runs]})
        else:
            report_verifiable(console, runs)
        if reporting is not None:
            # Not at the top: most demonstrations write no report.
            from smpc_dp.cli.demo_report import write_verifiable_report

            write_verifiable_report(reporting, runs)
        return
    if not as_json:
        announce(console, kill)
    ended = _run(
        lambda where, show, _board: demonstrate(where, kill=kill, on_event=show), folder, reporting, as_json
    )
    if as_json:
        print_as("demo", as_data(ended))
    else:
        report(console, ended)
        if folder is not None:
            console.print(f"Session, shards and results are in {folder}; its keys/ are secret (mode 0600).")
    if reporting is not None:
        from smpc_dp.cli.demo_report import write_demo_report

        write_demo_report(reporting, ended)
    raise typer.Exit(0 if ended.exact else 1)


def _run(
    act: Callable[[Path, OnEvent, LiveBoard], Awaitable[T]],
    folder: Path | None,
    reporting: Reporting | None,
    quiet: bool,
) -> T:
    """Run a demonstration with live progress and return its result; exit with an error code if it fails.

    Runs in `folder` or a temporary one. Exits if it fails or is stopped.
    """
    results: list[T] = []

    async def run() -> int:
        try:
            results.append(await act(where, Reporting.watched(reporting, board.show), board))
        except SmpcError as error:
            report_error(error)
            return 1
        return 0

    with contextlib.ExitStack() as stack:
        where = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="smpc-dp-demo-")))
        board = stack.enter_context(LiveBoard([AGGREGATOR, *LENDERS], quiet=quiet))
        code = run_child(run, supervised=False)
    if code:
        raise typer.Exit(code)
    return results[0]
