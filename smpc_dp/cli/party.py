"""`smpc-dp party`: one member of a session on this host."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Literal

import typer

from smpc_dp.cli.output import console, print_json, progress_console, report_error
from smpc_dp.errors import ConfigError, Fault, LocalError, SmpcError
from smpc_dp.protocols.result import Result
from smpc_dp.runtime.aggregator import serve
from smpc_dp.runtime.events import Event, OnEvent
from smpc_dp.runtime.inputs import find_input, read_vector
from smpc_dp.runtime.launcher import print_event, run_child
from smpc_dp.runtime.member import Membership
from smpc_dp.runtime.session import connect
from smpc_dp.runtime.session_file import load_session

Operation = Literal["sum", "average"]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(party)


def party(
    session: Annotated[Path, typer.Argument(help="The session file.")],
    name: Annotated[str, typer.Option("--as", help="Which member of the roster this host is.")],
    vector: Annotated[
        Path | None, typer.Option("--input", help="Vector of this party (.npy, .json, .csv, .txt).")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Identity file; default keys/NAME.key.")] = None,
    operation: Annotated[Operation, typer.Option(help="What to compute.")] = "average",
    weight: Annotated[int | None, typer.Option(help="This party's secret weight.")] = None,
    clip: Annotated[bool, typer.Option(help="Clip values to the bounds instead of refusing them.")] = False,
    listen: Annotated[
        str | None, typer.Option(help="Aggregator: host:port to bind, if not the roster's address.")
    ] = None,
    requests: Annotated[
        int, typer.Option(min=0, help="Aggregator: requests to serve; 0: until every party has left.")
    ] = 1,
    out: Annotated[Path | None, typer.Option(help="Write the result there as JSON.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    events: Annotated[bool, typer.Option("--events", hidden=True)] = False,
) -> None:
    """Run one member: an aggregator serves requests, a party contributes its vector to one."""
    member = load_session(session).roster
    names = [entry.name for entry in member]
    if name not in names:
        raise ConfigError([Fault("--as", f"{name!r} is not in the roster of {session}: {', '.join(names)}")])
    watch: OnEvent = print_event if events else _show
    results: list[Result] = []

    async def act() -> int:
        try:
            if member.member(name).role == "aggregator":
                served = await serve(
                    session, name=name, key=key, requests=requests or None, listen_on=listen, on_event=watch
                )
                for ended in served:
                    if isinstance(ended, SmpcError):
                        raise ended
                    results.append(ended)
            else:
                results.append(await contribute(session, name, vector, key, operation, weight, clip, watch))
        except SmpcError as error:
            if events:
                print_event(Event(name, "failed", detail=str(error)))
            report_error(error)
            return 1
        return 0

    code = run_child(act, supervised=events)
    for result in results:
        if out is not None:
            write_result(result, out)
        if as_json:
            print_json(result.to_json())
        elif not events:
            console().print(summary(result))
    raise typer.Exit(code)


async def contribute(
    session: Path,
    name: str,
    vector: Path | None,
    key: Path | None,
    operation: Operation,
    weight: int | None,
    clip: bool,
    on_event: OnEvent,
) -> Result:
    """Check everything of one party, then connect and compute."""
    membership = Membership.load(session, name, key)
    file = vector if vector is not None else find_input(session.parent / "inputs", name)
    lanes, clipped = membership.parameters.encoding.encode(
        read_vector(file), party=name, weight=weight, clip=clip
    )
    async with connect(session, name, key=key, on_event=on_event) as opened:
        return await opened.run_encoded(operation, lanes, clipped)


def write_result(result: Result, path: Path) -> None:
    """Write a result as JSON; raise LocalError if the file cannot be written."""
    try:
        path.write_text(json.dumps(result.to_json(), allow_nan=False) + "\n", "utf-8")
    except OSError as error:
        raise LocalError(f"{path}: cannot write the result ({error.strerror})") from None


def summary(result: Result) -> str:
    """Return a result in a few lines for a person."""
    shown = ", ".join(f"{value:g}" for value in result.value[:8].tolist())
    more = f", … ({len(result.value)} values)" if len(result.value) > 8 else ""
    lines = [
        f"{result.kind} over {len(result.survivors)} of "
        f"{len(result.survivors) + len(result.absent)} parties: [{shown}{more}]",
        f"without: {', '.join(result.absent)}" if result.absent else "nobody was missing",
        f"privacy: {result.privacy.claim}",
        *(f"not protected: {line}" for line in result.privacy.not_protected),
    ]
    return "\n".join(lines)


def _show(event: Event) -> None:
    clock = time.strftime("%H:%M:%S")
    what = {
        "connected": f"connected to {event.detail}",
        "refused": f"refused {event.detail}",
        "step": f"{event.step}: waits for {event.waiting}",
        "lost": f"lost {event.detail}",
        "done": "done",
        "failed": "failed",
    }[event.kind]
    progress_console().print(f"{clock} {event.party}: {what}")
