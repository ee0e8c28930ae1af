"""`smpc-dp circuits`: the published Boolean circuits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from smpc_dp.capabilities.pairs.commands import circuits_run
from smpc_dp.capabilities.pairs.commands.printed import PrintedCircuit, PrintedFinding
from smpc_dp.capabilities.pairs.published.check import RANDOM_INPUTS
from smpc_dp.capabilities.pairs.published.entry import Published
from smpc_dp.capabilities.pairs.published.library import PUBLISHED, find
from smpc_dp.capabilities.pairs.published.publish import Finding, check_folder, check_published, export
from smpc_dp.console.output import console, print_as, progress_console

app = typer.Typer(
    name="circuits", help="List, export and check the published circuits.", no_args_is_help=True
)


circuits_run.register(app)


@app.callback()
def _group() -> None:
    """Do nothing: this callback only makes a group of the commands about circuits."""
    pass


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the published circuits with their inputs, outputs and gates."""
    rows = [_summary(entry) for entry in PUBLISHED.values()]
    if as_json:
        print_as("circuits-list", {"circuits": rows})
        return
    table = Table()
    table.add_column("name", no_wrap=True)
    for heading in ("inputs", "outputs", "AND", "XOR", "depth", "computes"):
        table.add_column(heading)
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    console().print(table)


@app.command("export")
def export_(
    name: Annotated[str | None, typer.Argument(help="A circuit of `smpc-dp circuits list`.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All circuits, and MANIFEST.json.")] = False,
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path(),
) -> None:
    """Write circuits as files in Bristol Fashion."""
    if every == (name is not None):
        raise typer.BadParameter("give one NAME, or --all")
    entries = [find(name)] if name is not None else list(PUBLISHED.values())
    for path in export(entries, out, with_manifest=every):
        console().print(str(path))


@app.command()
def check(
    folder: Annotated[Path, typer.Option(help="The folder of published circuits.")] = Path("circuits"),
    samples: Annotated[
        int, typer.Option(min=1, help="Random inputs where not all are tried.")
    ] = RANDOM_INPUTS,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that the published files are what the builder makes and compute what they say; exit 0 or 1."""
    findings = [check_folder(folder)]
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} circuits"),
        TimeElapsedColumn(),
        console=progress_console(),
        disable=as_json and not sys.stderr.isatty(),
    ) as bar:
        task = bar.add_task("", total=len(PUBLISHED))
        for done, entry in enumerate(PUBLISHED.values()):

            def show(tried: int, name: str = entry.name) -> None:
                bar.update(task, description=f"{name} ({tried} inputs)")

            show(0)
            findings.append(check_published(entry, folder, samples, show))
            bar.update(task, completed=done + 1)
    right = not any(finding.faults for finding in findings)
    if as_json:
        print_as("circuits-check", {"ok": right, "checks": [_as_dict(finding) for finding in findings]})
    else:
        _print(findings)
    if not right:
        raise typer.Exit(1)


def _summary(entry: Published) -> PrintedCircuit:
    """Return the row of `smpc-dp circuits list` for a published circuit: sizes, gates and summary."""
    circuit = entry.build()
    return {
        "name": entry.name,
        "inputs": list(circuit.inputs),
        "outputs": list(circuit.outputs),
        "and": circuit.and_count,
        "xor": circuit.xor_count,
        "and_depth": circuit.and_depth,
        "computes": entry.summary,
    }


def _cell(value: object) -> str:
    """Return a value as the text of a table cell; lists are joined by spaces."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _as_dict(finding: Finding) -> PrintedFinding:
    """Return what a check found about a published circuit, as plain JSON data."""
    return {"name": finding.name, "inputs_tried": finding.inputs_tried, "faults": list(finding.faults)}


def _print(findings: list[Finding]) -> None:
    """Print the result of each check of published circuits on a line, and its faults below."""
    for finding in findings:
        tried = f", {finding.inputs_tried} inputs" if finding.inputs_tried else ""
        console().print(f"{finding.name}: {'WRONG' if finding.faults else f'right{tried}'}")
        for fault in finding.faults:
            console().print(f"  {fault}")
