"""`smpc-dp party`: one member of a session on this host."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from smpc_dp.cli import statistic as statistics
from smpc_dp.cli.connecting import (
    Behind,
    CaFile,
    Certificate,
    CertificateKey,
    KeyFile,
    ListenOn,
    MetricsPort,
    Pages,
    PingSeconds,
    web_settings,
)
from smpc_dp.cli.member import exit_code, reported_member
from smpc_dp.cli.metering import Metering
from smpc_dp.cli.reporting import Reporting, ReportPath
from smpc_dp.cli.statistics import plan_lines
from smpc_dp.console.options import refuse_given
from smpc_dp.console.output import UNCHARGED, check_can_write, console, deliver, print_note, report_line
from smpc_dp.console.schemas import with_schema
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.host import HostMember
from smpc_dp.session.launcher import print_event, run_child
from smpc_dp.session.member import Membership
from smpc_dp.session.planned import tolerance_lines
from smpc_dp.session.session_file import load_session
from smpc_dp.session.session_state import check_can_save
from smpc_dp.session.tasks import find_task, task_of

if TYPE_CHECKING:
    from smpc_dp.identity.roster import Role, Roster
    from smpc_dp.logs.audits.audit_report import Report
    from smpc_dp.session.saved_session import SavedSessionState
    from smpc_dp.session.session_file import SessionFile

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
    key: KeyFile = None,
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
    listen: ListenOn = None,
    requests: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Aggregator, server: requests to serve; 0: a server until every party has left, an "
            "aggregator until it is stopped; default 1.",
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
    security: statistics.SecurityName = None,
    public_label: Annotated[
        int | None, typer.Option(help="Party: its public label, 0 or 1, where the statistic has them.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder of this member's own, in no backup: started again after a kill, it goes on in its "
            "request. Default: state/NAME-DIGEST beside the session file for an aggregator with --requests 0,"
            " $STATE_DIRECTORY/NAME-DIGEST for every member where systemd sets that; else none."
        ),
    ] = None,
    stateless: Annotated[
        bool, typer.Option("--no-state", help="Keep no state, also where there is a default.")
    ] = False,
    counter: Annotated[
        Path | None,
        typer.Option(help="Folder that nothing ever sets back, with which --state goes on from any step."),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option(help="Party: fetch the log of a verifiable run, audit it, and keep it there."),
    ] = None,
    ca: CaFile = None,
    ping: PingSeconds = None,
    certificate: Certificate = None,
    certificate_key: CertificateKey = None,
    behind: Behind = None,
    pages: Pages = False,
    metrics: MetricsPort = None,
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
    sums = {"--operation": operation, "--weight": weight, "--clip": clip or None, "--number": number}
    _refuse_for_others(
        loaded,
        name,
        role,
        party={
            **sums,
            "--input": vector,
            "--ledger": ledger,
            "--audit": audit,
            "--report": report,
            "--ca": ca,
            "--ping": ping,
        },
        aggregator={"--board": board, "--metrics": metrics},
        listening={"--requests": requests, "--listen": listen},
        https={
            "--tls-certificate": certificate,
            "--tls-key": certificate_key,
            "--behind": behind,
            "--pages": pages or None,
        },
    )
    requested = statistics.Statistic.requested(
        statistic, field, epsilon, delta, partners, noise, covert, security
    )
    if requested is not None:
        _refuse_given({one: sums[one] for one in sums if one != "--number"}, "is for sums")
        if serves:
            raise typer.BadParameter(f"--statistic is not for '{name}', the {role}")
        requested = requested.marked(public_label)
    else:
        _refuse_given({"--public-label": public_label}, "is for --statistic")
    endless = role == "aggregator" and requests == 0
    if endless:
        _refuse_given({"--out": out}, "has no result of an aggregator that serves until it is stopped")
    check_can_write(out, audit)
    first = [] if requested is not None else [*tolerance_lines(loaded), *plan_lines(loaded)]
    reporting = Reporting.of(report)
    shown: OnEvent = print_event if events else partial(_show, first, endless=endless)
    metering = Metering(metrics)
    watch = metering.watched(loaded.digest, Reporting.watched(reporting, shown))
    web = web_settings(ca, ping, certificate, certificate_key, behind, pages=pages)
    own = task_of(loaded)
    given: dict[str, object] = {**sums, "--requests": requests, "--audit": audit, "--report": report}
    # What else a statistic of pairs has is not for the session's own task to refuse.
    given = given if requested is None else {"--statistic": statistic}
    _refuse_given({option: given[option] for option in given if option in own.refused}, own.refusal)
    problems: list[str] = []
    results: list[Any] = []
    state = _state_folder(session, loaded, name, state, is_endless=endless, stateless=stateless)
    opened = _open_state(session, loaded, name, key, state, counter)
    host = HostMember(
        session, name, vector, key, listen, ledger, board, audit, watch, print_note, web, opened
    )

    async def compute() -> Report | None:
        member = Membership.load(session, name, key, role, loaded, web)
        if serves:
            served = own.steps(loaded) if requests is None else requests
            async with metering.serving():
                for line in await own.serve(host, role, served, results):
                    report_line(line)
            return None
        if requested is not None:
            results.append(await statistics.take_part(requested, host, loaded, number))
            return None
        audited: Report | None = await own.contribute(host, member, sums, results)
        return audited

    asked = own if requested is None else find_task("pairs")
    with reported_member(reporting, loaded, asked, host, results, problems):
        try:
            code = run_child(
                partial(exit_code, compute, name, events=events, problems=problems), supervised=events
            )
        finally:
            # Also after Ctrl-C: a result may be there before the connection has ended.
            written = [_deliver(result, name, role, out, as_json=as_json, quiet=events) for result in results]
    if opened is not None:
        # What could not be written was printed.
        opened.answer_last()
        opened.close()
    # What could not be written was printed as JSON: nothing is added to that.
    if results and all(written) and not (serves or as_json or events or ledger):
        console().print(UNCHARGED)
    raise typer.Exit(code or int(not all(written)))


def _refuse_for_others(
    loaded: SessionFile,
    name: str,
    role: Role,
    *,
    party: dict[str, object],
    aggregator: dict[str, object],
    listening: dict[str, object],
    https: dict[str, object],
) -> None:
    """Raise BadParameter for options that are meant for members of another role than `name`'s."""
    if role == "party":
        called = {"--listen": None} if _is_called(loaded.roster) else {}
        others = {**aggregator, **listening, **called, **https}
        _refuse_given(others, f"is for the aggregator, and '{name}' is a party")
    else:
        _refuse_given(party, f"is for parties, and '{name}' is the {role}")
    if role == "server":
        _refuse_given(aggregator, f"is for an aggregator, and '{name}' is a server")


def _is_called(roster: Roster) -> bool:
    """Tell whether parties call each other, since the roster has no aggregator and no server."""
    return roster.aggregator is None and not roster.servers


def _state_folder(
    session: Path, loaded: SessionFile, name: str, state: Path | None, *, is_endless: bool, stateless: bool
) -> Path | None:
    """Return the folder for a member's state, made if it is a default; None if it keeps none; or LocalError.

    Without an option it is for members of a service: one that serves until it is stopped, or that systemd
    gives a folder.
    """
    if stateless:
        _refuse_given({"--state": state}, "is not for --no-state")
        return None
    # Several folders are separated by colons.
    given = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]
    if state is not None or not (given or is_endless):
        return state
    try:
        check_can_save(loaded)
    except ConfigError as error:
        print_note(f"keeps no state, which {error.issues[0].reason}")
        return None
    folder = (Path(given) if given else session.parent / "state") / f"{name}-{loaded.digest.hex()[:16]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot make the folder for the state ({error.strerror})"
        raise LocalError(f"{folder}: {reason}: give another by --state, or --no-state") from None
    return folder


def _open_state(
    session: Path, loaded: SessionFile, name: str, key: Path | None, state: Path | None, counter: Path | None
) -> SavedSessionState | None:
    """Open the saved state of a member's session and print its notice; return None without a folder `state`.

    Raises as `SavedSessionState`.
    """
    if state is None:
        _refuse_given({"--counter": counter}, "is for --state")
        return None
    # Not at the top: most members keep nothing.
    from smpc_dp.session.saved_session import SavedSessionState

    check_can_save(loaded)
    member = Membership.load(session, name, key, _role(loaded, name, session), loaded)
    opened = SavedSessionState(member, state, counter, answers=False)
    print_note(opened.notice)
    return opened


def _role(loaded: SessionFile, name: str, path: Path) -> Role:
    """Return the role of the member `name` in the session; raise ConfigError if the roster lacks the name."""
    names = [entry.name for entry in loaded.roster]
    if name not in names:
        reason = f"{name!r} is not in the roster of {path}: {', '.join(names)}"
        raise ConfigError.at("--as", reason, ConfigCheck.UNKNOWN_NAME)
    return loaded.roster.member(name).role


def _deliver(result: Any, name: str, role: Role, out: Path | None, *, as_json: bool, quiet: bool) -> bool:
    """Write a member's result to a file and print it; return False if either fails."""
    printed: Any = with_schema(result.schema, result.to_json())

    def text() -> str:
        # A server has what it opened, of whatever task.
        return str(result) if role == "server" else find_task(result.task).text({name: printed})

    confidential = printed.get("confidential", False)
    return deliver(printed, out, text, as_json=as_json, quiet=quiet, confidential=confidential)


def _refuse_given(options: Mapping[str, object], why: str) -> None:
    """Raise BadParameter, with the reason `why`, for options that were given."""
    refuse_given(options, why, lambda option, why: typer.BadParameter(f"{option} {why}"))


def _show(first: list[str], event: Event, *, endless: bool = False) -> None:
    """Print an event of the run, except traffic; before the first event print the lines in `first`.

    `endless`: whether nothing else says how a request has ended.
    """
    if event.kind == "traffic":
        return
    while first:
        print_note(first.pop(0))
    clock = time.strftime("%H:%M:%S")
    text = event.text
    if endless and event.kind in ("done", "failed"):
        text = f"request {event.request}: {text}" + (f": {event.detail}" if event.detail else "")
    print_note(f"{clock} {event.party}: {text}")
