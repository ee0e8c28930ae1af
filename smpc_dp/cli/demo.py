"""`smpc-dp demo`: the main job, on real data, on this machine."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from smpc_dp.cli.live import LiveBoard
from smpc_dp.cli.reporting import Reporting, ReportPath
from smpc_dp.console.output import print_json, progress_console, report_error
from smpc_dp.demo.lenders import LENDERS
from smpc_dp.demo.report import announce, as_data, page, report
from smpc_dp.demo.run import Demonstration, demonstrate, open_folder
from smpc_dp.demo.verifiable import VerifiableRun, demonstrate_verifiable, report_verifiable
from smpc_dp.errors import SmpcError
from smpc_dp.session.events import Event, OnEvent, ignore
from smpc_dp.session.launcher import run_child
from smpc_dp.session.local import AGGREGATOR


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
    watch = ignore if reporting is None else reporting.watch
    console = page()
    folder = None if out is None else open_folder(out)
    if verifiable:
        raise typer.Exit(_verifiable(console, folder, reporting, as_json))
    if not as_json:
        announce(console, kill)
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="smpc-dp-demo-") as scratch:
            code, ended = _run(Path(scratch), kill, watch, as_json)
    else:
        code, ended = _run(folder, kill, watch, as_json)
    if ended is not None and as_json:
        print_json(as_data(ended))
    elif ended is not None:
        report(console, ended)
        if folder is not None:
            console.print(f"Session, shards and results are in {folder}; its keys/ are secret (mode 0600).")
    if ended is not None and reporting is not None:
        # Not at the top: most demonstrations write no report.
        from smpc_dp.cli.demo_report import write_demo_report

        write_demo_report(reporting, ended)
    raise typer.Exit(code)


def _verifiable(console: Console, folder: Path | None, reporting: Reporting | None, as_json: bool) -> int:
    """Run the verifiable demonstration; return the exit code."""
    watch = ignore if reporting is None else reporting.watch

    def show(event: Event) -> None:
        watch(event)
        board.show(event)

    runs: list[VerifiableRun] = []

    async def act(where: Path) -> int:
        try:
            runs.extend(await demonstrate_verifiable(where, on_event=show, on_run=board.begin))
        except SmpcError as error:
            report_error(error)
            return 1
        return 0

    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="smpc-dp-demo-")))
        where = folder
        with LiveBoard([AGGREGATOR, *LENDERS], quiet=as_json) as board:
            code = run_child(lambda: act(where), supervised=False)
    if runs and as_json:
        print_json({"runs": [run.to_json() for run in runs]})
    elif runs:
        report_verifiable(console, runs)
    if runs and reporting is not None:
        from smpc_dp.cli.demo_report import write_verifiable_report

        write_verifiable_report(reporting, runs)
    return code


def _run(folder: Path, kill: bool, watch: OnEvent, quiet: bool) -> tuple[int, Demonstration | None]:
    """Run the demonstration in `folder` with live progress; return the exit code and the demonstration."""
    terminal = progress_console().is_terminal
    shown: set[str] = set()
    killed: set[str] = set()
    ended: list[Demonstration] = []

    def show(event: Event) -> None:
        watch(event)
        # Without a terminal nine processes would fill the page: only what is new at the aggregator is shown.
        inbound = event.kind == "step" and event.step not in {*shown, "done"}
        if event.kind == "ended" and event.party in killed:
            return
        if (
            terminal
            or event.kind in ("failed", "ended")
            or (event.party == AGGREGATOR and (inbound or event.kind == "lost"))
        ):
            shown.add(event.step)
            board.show(event)

    async def act() -> int:
        try:
            ended.append(await demonstrate(folder, kill=kill, on_event=show, on_kill=note_kill))
        except SmpcError as error:
            report_error(error)
            return 1
        return 0 if ended[0].exact else 1

    def note_kill(name: str) -> None:
        killed.add(name)
        board.note(name, "killed (SIGKILL)")

    with LiveBoard([AGGREGATOR, *LENDERS], quiet=quiet) as board:
        code = run_child(act, supervised=False)
    return code, ended[0] if ended else None
