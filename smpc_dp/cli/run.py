"""`smpc-dp run`: every member of a session as its own process on this machine."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from smpc_dp.cli.live import LiveBoard
from smpc_dp.cli.output import console, print_json
from smpc_dp.cli.party import Operation
from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.runtime.inputs import find_input, read_vector
from smpc_dp.runtime.launcher import Ending, Launcher, member_command
from smpc_dp.runtime.member import Membership, default_key
from smpc_dp.runtime.session_file import SessionFile, load_session


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(run)


def run(
    session: Annotated[Path, typer.Argument(help="The session file.")],
    inputs: Annotated[
        Path | None, typer.Option(help="Folder with NAME.npy, .json, .csv or .txt; default inputs/.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with NAME.key; default keys/.")] = None,
    operation: Annotated[Operation, typer.Option(help="What to compute.")] = "average",
    weights: Annotated[
        Path | None, typer.Option(help="JSON file {name: weight}, for a session with weights.")
    ] = None,
    clip: Annotated[bool, typer.Option(help="Clip values to the bounds instead of refusing them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Start every party and the aggregator on this machine, show their progress and print the result."""
    loaded = load_session(session)
    parties = [member.name for member in loaded.roster.parties]
    weight_of = _weights(weights, parties)
    folder = inputs if inputs is not None else session.parent / "inputs"
    files = {name: find_input(folder, name) for name in parties}
    aggregator = _check(loaded, session, keys, files, weight_of, clip)
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as scratch:
        outputs = {name: Path(scratch) / f"{name}.json" for name in parties}
        commands: dict[str, list[str]] = {
            aggregator: member_command("party", str(session), "--as", aggregator, *_key(keys, aggregator))
        }
        for name in parties:
            arguments = ["--input", str(files[name]), "--operation", operation, "--out", str(outputs[name])]
            if name in weight_of:
                arguments += ["--weight", str(weight_of[name])]
            if clip:
                arguments.append("--clip")
            commands[name] = member_command(
                "party", str(session), "--as", name, *_key(keys, name), *arguments
            )
        with LiveBoard([aggregator, *parties], quiet=as_json) as board:
            endings = asyncio.run(Launcher(board.show).run(commands, aggregator))
        results = {
            name: json.loads(path.read_text("utf-8")) for name, path in outputs.items() if path.exists()
        }
    _report(endings, aggregator, results, as_json)


def _check(
    loaded: SessionFile,
    session: Path,
    keys: Path | None,
    files: dict[str, Path],
    weight_of: dict[str, int],
    clip: bool,
) -> str:
    """Check every key and input before any process starts; return the aggregator's name."""
    aggregator = loaded.roster.aggregator
    if aggregator is None:
        raise ConfigError([Fault("roster", "has no aggregator")])
    for member in loaded.roster:
        path = keys / f"{member.name}.key" if keys is not None else default_key(session, member.name)
        membership = Membership.load(session, member.name, path, member.role)
        if member.role == "party":
            membership.parameters.encoding.encode(
                read_vector(files[member.name]),
                party=member.name,
                weight=weight_of.get(member.name),
                clip=clip,
            )
    return aggregator.name


def _key(keys: Path | None, name: str) -> list[str]:
    return [] if keys is None else ["--key", str(keys / f"{name}.key")]


def _weights(path: Path | None, parties: list[str]) -> dict[str, int]:
    if path is None:
        return {}
    try:
        weights = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise LocalError(f"{path}: cannot read the weights ({error.strerror})") from None
    except ValueError as error:
        raise ConfigError([Fault(str(path), f"not JSON ({error})")]) from None
    if not isinstance(weights, dict) or set(weights) != set(parties):
        raise ConfigError([Fault(str(path), "must give one weight for each party of the roster")])
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int):
            raise ConfigError([Fault(f"{path}: {name}", f"the weight must be an integer, is {weight!r}")])
    return weights


def _report(
    endings: dict[str, Ending], aggregator: str, results: dict[str, dict[str, Any]], as_json: bool
) -> None:
    failed = {name: ending for name, ending in endings.items() if not ending.ok}
    if aggregator in failed or not results:
        for name, ending in failed.items():
            detail = ending.last.detail if ending.last is not None and ending.last.detail else ending.errors
            typer.echo(f"smpc-dp: {name}: {_line(detail) or f'exit code {ending.exit_code}'}", err=True)
        raise typer.Exit(1)
    result = next(iter(results.values()))
    agree = all(other["fixed_point"] == result["fixed_point"] for other in results.values())
    if not agree:
        raise LocalError("the parties were given differing results")
    if as_json:
        print_json(result)
        return
    out = console()
    shown = ", ".join(f"{value:g}" for value in result["value"][:8])
    more = f", … ({len(result['value'])} values)" if len(result["value"]) > 8 else ""
    out.print(f"{result['kind']} over {len(result['survivors'])} parties: [{shown}{more}]")
    if result["absent"]:
        out.print(f"without: {', '.join(result['absent'])}")
    for name, ending in failed.items():
        detail = ending.last.detail if ending.last is not None and ending.last.detail else ""
        out.print(f"{name} failed: {_line(detail) or f'exit code {ending.exit_code}'}")
    out.print(f"privacy: {result['privacy']['claim']}")
    for line in result["privacy"]["not_protected"]:
        out.print(f"not protected: {line}")


def _line(text: str) -> str:
    return " ".join(text.split())[:500]
