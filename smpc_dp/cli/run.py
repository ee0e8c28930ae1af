"""`smpc-dp run`: every member of a session as its own process on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from smpc_dp.cli import statistic as statistics
from smpc_dp.cli.live import LiveBoard
from smpc_dp.cli.logs import log_options
from smpc_dp.cli.party import Operation
from smpc_dp.cli.reporting import Reporting, ReportPath, reported_below
from smpc_dp.cli.saved_members import SavedMembers
from smpc_dp.cli.statistics import plan_lines
from smpc_dp.console.options import refuse_given
from smpc_dp.console.output import UNCHARGED, check_can_write, console, deliver, report_error, report_line
from smpc_dp.errors import ConfigCheck, ConfigError, Issues, LocalError, SmpcError
from smpc_dp.identity.address import is_web_address
from smpc_dp.session.events import Event, OnEvent, ignore
from smpc_dp.session.inputs import find_input, read_weights
from smpc_dp.session.launcher import Launcher, ProcessOutcome, member_command, run_child
from smpc_dp.session.local import check_free
from smpc_dp.session.member import Membership, default_key
from smpc_dp.session.planned import tolerance_lines
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp.session.tasks import GivenInputs, Task, find_task, task_of


def run(
    context: typer.Context,
    session: Annotated[Path, typer.Argument(help="The session file.")],
    inputs: Annotated[
        Path | None, typer.Option(help="Folder with NAME.npy, .json, .csv or .txt; default inputs/.")
    ] = None,
    keys: Annotated[Path | None, typer.Option(help="Folder with NAME.key; default keys/.")] = None,
    operation: Annotated[Operation | None, typer.Option(help="What to compute; default average.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="JSON file {name: weight}, for a session with weights.")
    ] = None,
    clip: Annotated[
        bool, typer.Option("--clip", help="Clip values to the bounds instead of refusing them.")
    ] = False,
    ledgers: Annotated[
        Path | None, typer.Option(help="Folder with NAME.ledger, a privacy ledger of each party.")
    ] = None,
    board: Annotated[
        Path | None, typer.Option(help="Folder for the log of a verifiable run or a statistic.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a folder of each member, in no backup: started again after a kill, the run "
            "goes on."
        ),
    ] = None,
    counter: Annotated[
        Path | None,
        typer.Option(help="Folder, with one for each member, that nothing ever sets back; see party."),
    ] = None,
    statistic: statistics.KernelName = None,
    field: statistics.Fields = None,
    epsilon: statistics.Epsilon = None,
    delta: statistics.Delta = None,
    partners: statistics.Partners = None,
    noise: statistics.NoiseName = None,
    covert: statistics.Covert = None,
    security: statistics.SecurityName = None,
    labels: Annotated[
        Path | None, typer.Option(help="JSON file {name: 0 or 1}, for a statistic with public labels.")
    ] = None,
    report: ReportPath = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the result there as JSON; of a learner the model.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Run a whole session on this machine.

    Starts every member as a process, shows their progress and prints the result.
    """
    reporting = Reporting.of(report)
    check_can_write(out)
    loaded = load_session(session)
    parties = loaded.roster.party_names
    servers = [member.name for member in loaded.roster.servers]
    own_task = task_of(loaded)
    sums: dict[str, object] = {"--operation": operation, "--weights": weights, "--clip": clip or None}
    given = {**sums, "--statistic": statistic, "--labels": labels, "--report": report}
    refused = own_task.refused | own_task.refused_together
    _refuse_given({option: given[option] for option in given if option in refused}, own_task.refusal)
    if own_task.without_ledgers and ledgers is None:
        raise ConfigError.at("--ledgers", own_task.without_ledgers, ConfigCheck.MISSING)
    if statistic is not None:
        _refuse_given(sums, "is for sums, not for --statistic")
    else:
        _refuse_given({"--labels": labels}, "is for --statistic")
    wanted = statistics.Statistic.requested(
        statistic, field, epsilon, delta, partners, noise, covert, security
    )
    if wanted is not None:
        wanted.check(loaded)
    task = own_task if wanted is None else find_task("pairs")
    ended = _Ended()
    # Nothing is read before it, so that a report says which input was refused.
    with _reported(reporting, loaded, task, ended):
        weight_of = _read_weights(weights, task, loaded, parties)
        label_of = statistics.read_labels(labels, parties)
        folder = inputs if inputs is not None else session.parent / "inputs"
        files = {name: find_input(folder, name, task.suffixes(loaded)) for name in parties}
        aggregator = _load_all(loaded, session, keys)
        if wanted is not None:
            statistics.check_records(wanted, files, label_of)
        else:

            def membership(name: str) -> Membership:
                return Membership.load(session, name, _key_file(keys, session, name), loaded=loaded)

            task.check_inputs(loaded, GivenInputs(files, membership, weight_of, clip))
        if ledgers is not None:
            ended.ledgers = {name: _ledger(ledgers, name) for name in parties}
            _check_ledgers(ledgers, parties)
            if state is None:
                # Those of a run that goes on need what is left of it alone, which each party checks.
                task.check_ledgers(loaded, ended.ledgers)
        _check_addresses(loaded)
        saved = SavedMembers(loaded, session, keys, state, counter)
        with tempfile.TemporaryDirectory(prefix="smpc-dp-") as scratch:
            outputs = {name: Path(scratch) / f"{name}.json" for name in task.members_with_result(loaded)}
            own = {
                name: [
                    *_given({"--input": files[name], "--out": outputs.get(name)}),
                    *_given_options(wanted, statistic, field, label_of.get(name)),
                    *_given({"--operation": operation, "--weight": weight_of.get(name)}),
                    *(["--clip"] if clip else []),
                    *_given({"--ledger": None if ledgers is None else _ledger(ledgers, name)}),
                    *_given(saved.options(name)),
                ]
                for name in parties
            }
            shared = [*log_options(context.obj), "party", str(session)]
            serving = _given({"--board": board, "--out": outputs.get(aggregator or "")})
            serving += _given(saved.options(aggregator or ""))
            commands = _commands(shared, keys, aggregator, serving, servers, own)
            watch = ignore if reporting is None else reporting.watch
            logs = context.obj is not None
            ends = task.ends_run(loaded)
            ended.outcomes = outcomes = _launch(commands, ends, watch, quiet=as_json, logs=logs)
            ended.results = results = results_of(outputs, outcomes)
        planned = [] if wanted is not None else [*tolerance_lines(loaded), *plan_lines(loaded)]
        written = task.print_run(loaded, outcomes, results, planned, as_json=as_json, out=out)
        if written is None:
            written = _report(task, outcomes, aggregator, results, planned, as_json, out)
    if not written:
        # It was printed as JSON, or cannot be printed: nothing is added to that.
        raise typer.Exit(1)
    if not as_json:
        _print_notes(ledgers, task.has_log(loaded), board or session.parent / "board")


@dataclasses.dataclass
class _Ended:
    """Data for the report of a run, filled as the run goes on: outcomes, results and ledgers."""

    outcomes: Mapping[str, ProcessOutcome] = dataclasses.field(default_factory=dict)
    results: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    ledgers: Mapping[str, Path] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def _reported(reporting: Reporting | None, session: SessionFile, task: Task, ended: _Ended) -> Iterator[None]:
    """Context manager that, given `reporting`, writes the run's report at its end, also after an error."""
    problem = ""
    try:
        yield
    except SmpcError as error:
        problem = str(error)
        raise
    except typer.Exit:
        problem = "no member has a right result" if ended.results else "no member has a result"
        raise
    finally:
        if reporting is not None:
            # Not at the top: most runs have none.
            from smpc_dp.cli.run_report import write_run_report

            with reported_below(problem):
                write_run_report(
                    reporting,
                    session,
                    task,
                    ended.outcomes,
                    ended.results,
                    problem,
                    ended.ledgers,
                )


def _refuse_given(options: Mapping[str, object], why: str) -> None:
    """Raise ConfigError for options that were given and do not apply."""
    refuse_given(options, why, lambda option, why: ConfigError.at(option, why, ConfigCheck.UNSUPPORTED))


def _given(options: Mapping[str, object]) -> list[str]:
    """Return the options that have a value as command-line arguments."""
    return [text for option, value in options.items() if value is not None for text in (option, str(value))]


def _read_weights(
    weights: Path | None, task: Task, session: SessionFile, parties: Sequence[str]
) -> dict[str, int]:
    """Return the weights in a file by party, or none without a file; ConfigError if the session has none."""
    if weights is not None and not task.has_weights(session):
        raise ConfigError.at(
            "--weights", "this session has no weights: its max_weight is 0", ConfigCheck.UNSUPPORTED
        )
    return {} if weights is None else read_weights(weights, parties)


def _given_options(
    requested: statistics.Statistic | None,
    statistic: str | None,
    field: Sequence[str] | None,
    public_label: int | None,
) -> list[str]:
    """Return a party's command-line arguments for the requested statistic; none for a sum."""
    if requested is None or statistic is None:
        return []
    return statistics.arguments(requested, statistic, field, public_label)


def _commands(
    shared: Sequence[str],
    keys: Path | None,
    aggregator: str | None,
    serving: Sequence[str],
    servers: Sequence[str],
    parties: Mapping[str, Sequence[str]],
) -> dict[str, list[str]]:
    """Return the command line of every member, aggregator and servers first; ConfigError for a stray --board.

    `shared` are the arguments of all, `serving` those of the aggregator alone, `parties` each party's own.
    """
    own: dict[str, Sequence[str]] = {}
    if aggregator is not None:
        own[aggregator] = serving
    elif serving:
        raise ConfigError.at("--board", "is for a session with an aggregator", ConfigCheck.UNSUPPORTED)
    own |= dict.fromkeys(servers, ())
    own |= parties
    return {
        name: member_command(*shared, "--as", name, *_key(keys, name), *arguments)
        for name, arguments in own.items()
    }


def _launch(
    commands: dict[str, list[str]], last: str | None, watch: OnEvent, *, quiet: bool, logs: bool
) -> dict[str, ProcessOutcome]:
    """Run all members, stopped soon after `last` ends, showing progress; return their outcomes, or exit."""
    # What the members log goes past a table that is drawn anew.
    with LiveBoard(list(commands), quiet=quiet or logs) as live:

        def show(event: Event) -> None:
            watch(event)
            live.show(event)

        launcher = Launcher(show, own_errors=logs)

        async def act() -> int:
            try:
                await launcher.run(commands, last)
            except SmpcError as error:
                report_error(error)
                return 1
            return 0

        code = run_child(act, supervised=False)
    if code:
        raise typer.Exit(code)
    return launcher.outcomes


def _print_notes(ledgers: Path | None, has_log: bool, board: Path) -> None:
    """Say if nothing was charged, and print the name of this run's log, if it has one."""
    if ledgers is None:
        console().print(UNCHARGED)
    if not has_log:
        return
    logs = sorted(board.glob("request-*.jsonl"), key=lambda path: path.stat().st_mtime)
    console().print(
        f"log: {logs[-1] if logs else board}, which smpc-dp audit checks, given --session and --head"
    )


def _load_all(loaded: SessionFile, session: Path, keys: Path | None) -> str | None:
    """Load every member's key before any process starts, or raise; return the aggregator's name, or None."""
    for member in loaded.roster:
        path = _key_file(keys, session, member.name)
        Membership.load(session, member.name, path, member.role)
    aggregator = loaded.roster.aggregator
    return None if aggregator is None else aggregator.name


def _check_addresses(loaded: SessionFile) -> None:
    """Raise LocalError if a member's address is in use, ConfigError if it is a web address (wss://)."""
    roster = loaded.roster
    served = roster.aggregator is not None or roster.servers
    for member in roster:
        if member.address is None or (member.role == "party" and served):
            continue
        if is_web_address(member.address):
            reason = f"{member.name}: its address is wss://; on one machine members meet at host:port"
            raise ConfigError.at("roster", reason, ConfigCheck.UNSUPPORTED)
        try:
            check_free(member.address)
        except LocalError as error:
            raise LocalError(f"{member.name}: {error}") from None


def _check_ledgers(folder: Path, parties: Sequence[str]) -> None:
    """Check that each party's ledger opens and is its own; ConfigError with a fault for each that is not."""
    # Not at the top: most sessions have no ledger, and the accountant takes a while to load.
    from smpc_dp.privacy.accountant.ledger import Ledger

    issues = Issues()
    for name in parties:
        try:
            Ledger.open(_ledger(folder, name), party=name)
        except (ConfigError, LocalError) as error:
            issues.add_issue("--ledgers", str(error), ConfigCheck.FORMAT)
    issues.raise_issues()


def _ledger(folder: Path, name: str) -> Path:
    """Return the path of a party's ledger file in a folder, by the party's name."""
    return folder / f"{name}.ledger"


def _key_file(keys: Path | None, session: Path, name: str) -> Path:
    """Return the path of a member's key: in the given folder, or beside the session file."""
    return keys / f"{name}.key" if keys is not None else default_key(session, name)


def _key(keys: Path | None, name: str) -> list[str]:
    """Return the command-line option that gives a member its key, if there is a folder of keys."""
    return [] if keys is None else ["--key", str(keys / f"{name}.key")]


def results_of(
    files: Mapping[str, Path], outcomes: Mapping[str, ProcessOutcome]
) -> dict[str, dict[str, Any]]:
    """Return the members' results as JSON data, from their files or printed output; none for others."""
    results: dict[str, dict[str, Any]] = {}
    for name, file in files.items():
        written = file.read_text("utf-8").splitlines() if file.exists() else []
        for line in [*written, *outcomes[name].output]:
            with contextlib.suppress(ValueError):
                value = json.loads(line)
                if isinstance(value, dict):
                    results.setdefault(name, value)
    return results


def _report(
    task: Task,
    outcomes: dict[str, ProcessOutcome],
    aggregator: str | None,
    results: dict[str, dict[str, Any]],
    planned: Sequence[str],
    as_json: bool,
    out: Path | None,
) -> bool:
    """Print the plan, results and failures of all members; return False if the result cannot be written.

    Exits with code 1 if the aggregator has failed, or there is no result; LocalError for differing ones.
    """
    failed = {name: outcome for name, outcome in outcomes.items() if not outcome.ok}
    if aggregator in failed or not results:
        # The others repeat what the aggregator has said.
        for name, outcome in failed.items():
            if name == aggregator or outcome.first or aggregator not in failed:
                report_line(f"{name}: {outcome.reason}")
        raise typer.Exit(1)
    result = next(iter(results.values()))
    agree = all(other[key] == result[key] for other in results.values() for key in task.agreed)
    if not agree:
        raise LocalError("the parties were given differing results")

    def shown() -> str:
        return "\n".join([*planned, task.text(results)])

    written = deliver(result, out, shown, as_json=as_json)
    for name, outcome in failed.items():
        # An analyst that has all reports waits for nobody.
        if name not in result.get("reported", ()):
            report_line(f"{name}: {outcome.reason}")
    return written
