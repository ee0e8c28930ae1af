"""`smpc-dp party`: one member of a session on this host."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smpc_dp.cli import statistic as statistics
from smpc_dp.cli.member import HostMember, exit_code, reported_member
from smpc_dp.cli.output import (
    UNCHARGED,
    check_can_write,
    console,
    deliver,
    progress_console,
    result_text,
)
from smpc_dp.cli.reporting import Reporting, ReportPath
from smpc_dp.cli.statistics import load_rows, plan_lines, records_text, take_part
from smpc_dp.errors import ConfigCheck, ConfigError, SmpcError
from smpc_dp.net.events import Event, OnEvent
from smpc_dp.net.inputs import read_vector
from smpc_dp.net.launcher import print_event, run_child
from smpc_dp.net.member import Membership
from smpc_dp.net.session_file import load_session
from smpc_dp.net.tasks import task_of
from smpc_dp.net.tolerance import tolerances
from smpc_dp.protocols.records import RecordParameters

# Modules of learners, servers and aggregators take long to load: each function imports its own.
if TYPE_CHECKING:
    from smpc_dp.identity.roster import Role
    from smpc_dp.learn.requirements import Learned
    from smpc_dp.net.audit import Report
    from smpc_dp.net.session_file import SessionFile
    from smpc_dp.protocols.record_result import RecordResult
    from smpc_dp.protocols.result import Result
    from smpc_dp.protocols.secret_sharing.agreement import Opened
    from smpc_dp.protocols.ustatistic.result import StatisticResult

    Ended = Result | RecordResult | StatisticResult | Opened

Operation = Literal["sum", "average"]


def party(
    session: Annotated[Path, typer.Argument(help="The session file.")],
    name: Annotated[str, typer.Option("--as", help="Which member of the roster this host is.")],
    vector: Annotated[
        Path | None,
        typer.Option(
            "--input",
            help="Party: its vector or record (.npy, .json, .csv, .txt), or table (.csv, .parquet); default "
            "inputs/NAME beside the session file, with one of these endings.",
        ),
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Identity file; default keys/NAME.key.")] = None,
    operation: Annotated[
        Operation | None, typer.Option(help="Party: what to compute; default average.")
    ] = None,
    weight: Annotated[int | None, typer.Option(help="Party: its secret weight.")] = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="Party: clip values to the bounds instead of refusing them.")
    ] = False,
    number: Annotated[
        int | None,
        typer.Option(min=1, help="Party: the request that its vector is for; default 1, the first one."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(help="Who is called by others: host:port to bind, if not the roster's address."),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option(
            min=0, help="Aggregator, server: requests to serve, 0 until every party has left; default 1."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the result there as JSON.")] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Party: its privacy ledger, charged before its vector leaves.")
    ] = None,
    board: Annotated[
        Path | None,
        typer.Option(
            help="Aggregator: folder for logs of verifiable runs and statistics; default board beside the "
            "session file."
        ),
    ] = None,
    statistic: statistics.KernelName = None,
    field: statistics.Fields = None,
    epsilon: statistics.Epsilon = None,
    delta: statistics.Delta = None,
    partners: statistics.Partners = None,
    noise: statistics.NoiseName = None,
    covert: statistics.Covert = None,
    public_label: Annotated[
        int | None, typer.Option(help="Party: its public label, 0 or 1, where the statistic has them.")
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(help="Party: fetch the log of a verifiable run, audit it, and keep it there."),
    ] = None,
    report: ReportPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    events: Annotated[bool, typer.Option("--events", hidden=True)] = False,
) -> None:
    """Run one member of a session on this host.

    An aggregator or server serves requests, a party contributes its vector to one, or its record to a
    statistic.
    """
    loaded = load_session(session)
    role = _role(loaded, name, session)
    serves = role != "party"
    given: dict[str, object]
    sums: dict[str, object] = {"--operation": operation, "--weight": weight}
    sums |= {"--clip": clip or None, "--number": number}
    if serves:
        given = {"--input": vector, **sums, "--ledger": ledger, "--audit": audit, "--report": report}
        _refuse_given(given, f"is for parties, and '{name}' is the {role}")
        if role == "server":
            _refuse_given({"--board": board}, f"is for an aggregator, and '{name}' is a server")
    else:
        called = loaded.roster.aggregator is None and not loaded.roster.servers
        given = {"--requests": requests, "--board": board, "--listen": None if called else listen}
        _refuse_given(given, f"is for the aggregator, and '{name}' is a party")
    requested = statistics.Statistic.requested(statistic, field, epsilon, delta, partners, noise, covert)
    if requested is not None:
        _refuse_given(sums, "is for sums")
        if serves:
            raise typer.BadParameter(f"--statistic is not for '{name}', the {role}")
        requested = requested.marked(public_label)
    else:
        _refuse_given({"--public-label": public_label}, "is for --statistic")
    check_can_write(out, audit)
    first = [] if requested is not None else [*map(str, tolerances(loaded)), *plan_lines(loaded)]
    reporting = Reporting.of(report)
    watch: OnEvent = Reporting.watched(reporting, print_event if events else partial(_show, first))
    host = HostMember(session, name, vector, key, listen, ledger, board, audit, watch)
    problems: list[str] = []
    others = {**sums, "--requests": requests, "--statistic": statistic}
    if task_of(loaded).name == "learner":
        from smpc_dp.cli.learn import run_learning

        _refuse_given(others, "is not for a session that learns")
        learned: list[Learned] = []
        with reported_member(reporting, loaded, host, learned, problems):
            code = run_learning(host, out, learned, problems, serves=serves, as_json=as_json, events=events)
        raise typer.Exit(code)
    if task_of(loaded).name == "report":
        from smpc_dp.cli.reports import run_reporting

        _refuse_given({**others, "--audit": audit, "--report": report}, "is not for a session of reports")
        raise typer.Exit(run_reporting(host, out, serves=serves, as_json=as_json, events=events))
    results: list[Ended] = []

    async def compute() -> Report | None:
        if serves:
            checked = loaded.checked_parameters
            steps = checked.steps if isinstance(checked, RecordParameters) else 1
            wanted = steps if requests is None else requests or None
            await _serve(host, role, wanted, results)
            return None
        if requested is not None:
            results.append(await statistics.take_part(requested, host))
            return None
        return await _contribute(host, sums, results)

    with reported_member(reporting, loaded, host, results, problems, statistic=requested is not None):
        try:
            code = run_child(
                partial(exit_code, compute, name, events=events, problems=problems), supervised=events
            )
        finally:
            # Also after Ctrl-C: a result may be there before the connection has ended.
            written = [
                deliver(result.to_json(), out, partial(_text, result, name), as_json=as_json, quiet=events)
                for result in results
            ]
    # What could not be written was printed as JSON: nothing is added to that.
    if results and all(written) and not (serves or as_json or events or ledger):
        console().print(UNCHARGED)
    raise typer.Exit(code or int(not all(written)))


def _role(loaded: SessionFile, name: str, path: Path) -> Role:
    """Return the role of a member; raise ConfigError if the roster has none of this name."""
    names = [entry.name for entry in loaded.roster]
    if name not in names:
        reason = f"{name!r} is not in the roster of {path}: {', '.join(names)}"
        raise ConfigError.at("--as", reason, ConfigCheck.UNKNOWN_NAME)
    return loaded.roster.member(name).role


async def _serve(host: HostMember, role: Role, requests: int | None, results: list[Ended]) -> None:
    """Serve requests as a server or the aggregator; add the results, raise the first request's error."""
    served: Sequence[Ended | SmpcError]
    if role == "server":
        from smpc_dp.net.servers.computing_server import serve_shares

        served = await serve_shares(
            host.session,
            host.name,
            key=host.key,
            requests=requests,
            listen_on=host.listen,
            on_event=host.watch,
        )
    else:
        from smpc_dp.net.aggregator import serve

        served = await serve(
            host.session,
            name=host.name,
            key=host.key,
            requests=requests,
            listen_on=host.listen,
            on_event=host.watch,
            board=host.board,
        )
    for ended in served:
        if isinstance(ended, SmpcError):
            raise ended
        results.append(ended)
    if requests is None:
        # what the last of several steps gave
        del results[:-1]


async def _contribute(host: HostMember, sums: Mapping[str, Any], results: list[Ended]) -> Report | None:
    """Check everything of one party, then connect and compute; add the result.

    Audits the log if that is requested. `sums`: the options of sums.
    """
    member = Membership.load(host.session, host.name, host.key)
    if task_of(member.session).name == "records":
        _refuse_given({**sums, "--audit": host.audit}, "is not for statistics of records")
        results.append(await take_part(host, load_rows(host, member)))
        return None
    if host.audit is not None and not member.session.is_logged:
        raise ConfigError.at("--audit", "is for a session with verifiable = true", ConfigCheck.UNSUPPORTED)
    encoding = member.encoding
    vector = read_vector(host.input_file)
    clip = bool(sums["--clip"])
    ring_vector, clipped = encoding.encode(vector, party=host.name, weight=sums["--weight"], clip=clip)
    operation: Operation = sums["--operation"] or "average"
    async with host.connect() as opened:
        # Added at once: it is there, whatever the audit says.
        results.append(await opened.sum_encoded(operation, ring_vector, clipped, number=sums["--number"]))
        return None if host.audit is None else await opened.log().audit(keep=host.audit)


def _text(result: Ended, name: str) -> str:
    """Format a result of the member `name`."""
    from smpc_dp.protocols.record_result import RecordResult
    from smpc_dp.protocols.secret_sharing.agreement import Opened
    from smpc_dp.protocols.ustatistic.result import StatisticResult

    if isinstance(result, StatisticResult):
        return statistics.statistic_text(result.to_json())
    if isinstance(result, RecordResult):
        return records_text(result.to_json())
    if isinstance(result, Opened):
        return str(result)
    clipped = [f"clipped: {result.clipped} values of {name}"] if result.clipped else []
    return "\n".join([result_text(result.to_json()), *clipped])


def _refuse_given(options: Mapping[str, object], why: str) -> None:
    """Raise ConfigError for options that were given and do not apply."""
    for option, value in options.items():
        if value is not None:
            raise typer.BadParameter(f"{option} {why}")


def _show(first: list[str], event: Event) -> None:
    """Print an event but traffic; before the first one print the lines in `first`, and empty it."""
    if event.kind == "traffic":
        return
    while first:
        progress_console().print(first.pop(0))
    clock = time.strftime("%H:%M:%S")
    progress_console().print(f"{clock} {event.party}: {event.text}")
