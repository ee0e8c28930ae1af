"""`smpc-dp audit`: check a log of a run, a party's result, two of them, or a certificate."""

from __future__ import annotations

import functools
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from smpc_dp.cli.reporting import Reporting, ReportPath
from smpc_dp.cli.statistics import answer_lines
from smpc_dp.console.output import console, print_struct, progress_console, report_line
from smpc_dp.console.workers import Ray, Workers
from smpc_dp.errors import ConfigCheck, ConfigError, printable
from smpc_dp.executors.opened import open_executor

# The auditors take long to load: each function imports what it needs.
if TYPE_CHECKING:
    from smpc_dp.capabilities.gopa.verifiable.verdict import Verdict
    from smpc_dp.capabilities.pairs.ustatistic.audit import StatisticVerdict
    from smpc_dp.logs.audits.audit_report import Report
    from smpc_dp.logs.audits.audit_selection import CheckpointPolicy

SHOWN = 8


def audit(
    board: Annotated[
        str | None,
        typer.Argument(help="The log: a file of JSON lines, an http(s) URL, or '-'; or a party's result."),
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Another party's result of the same run: whether both have one total.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(help="In place of a log: a certificate that a garbler cheated.")
    ] = None,
    session: Annotated[
        str | None, typer.Option(help="The session file, or its digest: what the parties agreed on.")
    ] = None,
    session_log: Annotated[
        Path | None, typer.Option(help="The aggregator's session log: its number of runs.")
    ] = None,
    request: Annotated[int | None, typer.Option(min=1, help="Which request the log should be of.")] = None,
    run: Annotated[str | None, typer.Option(help="Its run id, from a party's result.")] = None,
    head: Annotated[
        str | None, typer.Option(help="A head from a party's result, of the log or the session log.")
    ] = None,
    receipt: Annotated[
        Path | None, typer.Option(help="A party's receipt, as JSON: whether the log has its contribution.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A signed checkpoint that the session log must match.")
    ] = None,
    witness: Annotated[
        list[str] | None, typer.Option(help="Key of a witness that you trust, name+id+base64; repeatable.")
    ] = None,
    witnesses: Annotated[
        int | None, typer.Option(min=0, help="How many witnesses must have cosigned; by default all given.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, max=256, help="Threads; by default one for each processor.")
    ] = None,
    workers: Workers = None,
    ray: Ray = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds for a URL, from the first connection to the last byte.")
    ] = 600.0,
    second: Annotated[
        bool,
        typer.Option(
            "--second", help="Ask the second auditor too: smpc-dp-verify, in the repository's verify/."
        ),
    ] = False,
    second_timeout: Annotated[float, typer.Option(help="Seconds for the second auditor.")] = 3600.0,
    second_memory: Annotated[
        int, typer.Option(min=64, help="MiB for each process of the second auditor.")
    ] = 1024,
    report_file: ReportPath = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check the log of a verifiable run or of a pairwise statistic, a party's result, or a certificate.

    Signatures, order, heads, proofs, exclusions and the average; or signatures, order, coins, matchings and
    which pairs failed. It needs no key. Exit code 0: everything holds for the session and the run that were
    given. 1: it does not hold. 3: neither --session nor --receipt: the log is self-consistent, and may be
    made up; a receipt stands for the session and run that it names, and is worth as much as its source.
    4: a session was given, and nothing that says which of its runs this is: --run or --head does, from a
    party's result, since an aggregator that starts again can make many and show one. Of a
    pairwise statistic only --head with the log's last head does: the aggregator alone signs its end.
    5: --second was given, and the two auditors did not find the same.

    Of a party's result, as --out writes it: its run, signatures and total, with what it has. 0: it holds for
    the session file and --run, which is from another source than the file. 1: it does not hold. 3: no session
    file. 4: no --run. 6: it has no signed total. With --compare: 0: one total. 8: the aggregator has signed
    two results of one run. 6: there is nothing to compare. 1, 3: as above. Of FILE.evidence.json, which a
    session writes when an aggregator names another last result, the same: 8, 1 or 3.

    With --certificate: 0: it convicts a party of the session file that was given. 1: it does not. 3: it
    convicts the holder of a key, and no session was given.
    """
    if (neither := board is None) == (certificate is None):
        reason = "a log or --certificate, and not both"
        raise ConfigError.at("audit", reason, ConfigCheck.MISSING if neither else ConfigCheck.CONFLICT)
    of_logs = (session_log, head, receipt, checkpoint, witness, witnesses, workers, ray, report_file)
    is_of_log = second or any(option is not None for option in of_logs)
    of_run = (request, run)
    if certificate is not None:
        if is_of_log or compare is not None or any(option is not None for option in of_run):
            reason = "with it only --session and --json: the other options are about logs"
            raise ConfigError.at("--certificate", reason, ConfigCheck.CONFLICT)
        _audit_certificate(certificate, session, as_json)
    if board is None:
        return
    from smpc_dp.cli import audit_result
    from smpc_dp.logs.audits import audit as runtime
    from smpc_dp.results.audit import is_result
    from smpc_dp.results.refusal import is_refusal

    if compare is not None or is_refusal(board) or is_result(board):
        if is_of_log:
            reason = "of a result only --session, --run, --request and --json: the others are about logs"
            raise ConfigError.at("audit", reason, ConfigCheck.CONFLICT)
        audit_result.audit(board, compare, session, run, request, as_json=as_json)
        return

    reporting = Reporting.of(report_file)
    terminal = progress_console()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        console=terminal,
        disable=as_json or not terminal.is_terminal,
    ) as bar:
        task = bar.add_task("audit", total=None)

        def show(line: int, read: int, size: int | None) -> None:
            bar.update(task, description=f"line {line}", completed=read, total=size)

        run_audit = runtime.audit
        if second:
            from smpc_dp.logs.audits.second import audit_twice

            run_audit = functools.partial(audit_twice, seconds=second_timeout, memory=second_memory)
        # Threads suffice on this machine: the kernels do not hold the interpreter's lock.
        opened = nullcontext() if workers is None and ray is None else open_executor(workers, ray)
        with opened as executor:
            report = run_audit(
                board,
                session=session,
                session_log=session_log,
                request=request,
                run=run,
                head=head,
                receipt=receipt,
                checkpoint=_policy(checkpoint, witness or [], witnesses),
                threads=threads,
                executor=executor,
                timeout=timeout,
                progress=show,
            )
    if as_json:
        print_struct(report)
    else:
        _print(report)
    if reporting is not None:
        from smpc_dp.cli.audit_report import write_audit_report

        given = {"--session": session, "--session-log": session_log, "--request": request, "--run": run}
        given |= {"--head": head, "--receipt": receipt, "--checkpoint": checkpoint, "--witnesses": witnesses}
        options = [str(part) for pair in given.items() if pair[1] is not None for part in pair]
        options += [part for key in witness or () for part in ("--witness", key)]
        again = ["smpc-dp", "audit", board, *options, *(["--second"] if second else [])]
        write_audit_report(reporting, report, again)
    if report.code:
        raise typer.Exit(report.code)


def _policy(checkpoint: Path | None, witness: list[str], least: int | None) -> CheckpointPolicy | None:
    """Return the checkpoint policy that options give, None without one; ConfigError for a stray --witness."""
    from smpc_dp.logs.audits.audit_selection import CheckpointPolicy

    if checkpoint is not None:
        return CheckpointPolicy.of(checkpoint, witness, least)
    if witness or least:
        raise ConfigError.at("--witness", "there is no --checkpoint to witness", ConfigCheck.MISSING)
    return None


def _audit_certificate(certificate: Path, session: str | None, as_json: bool) -> None:
    """Check a certificate that a garbler cheated, and print the report; exit with its code if not 0."""
    from smpc_dp.session.tasks import CONVICTING

    report = CONVICTING.find().audit_certificate(certificate, session)
    if as_json:
        print_struct(report)
    else:
        out = console()
        out.print(report.conclusion)
        if report.ok and not report.session_checked:
            reason = "the certificate does not say of which session it is, as that of a pair of a statistic"
            out.print(f"only name and key are compared: {reason}")
    if report.code:
        raise typer.Exit(report.code)


def _print(report: Report) -> None:
    """Print an audit's report in the form for its kind of log."""
    out = console()
    out.print(report.statement)
    if report.verdict is not None:
        _print_verdict(report, report.verdict)
    if report.statistic is not None:
        _print_statistic(report, report.statistic)
    for fault in report.faults:
        report_line(fault)
    if report.receipt is not None:
        counted = "and counted" if report.receipt.counted else "and not counted"
        out.print(f"the contribution of {report.receipt.party} is entry {report.receipt.index}, {counted}")
    if report.checkpoint is not None:
        names = ", ".join(report.checkpoint.witnesses) or "nobody that was given"
        out.print(
            f"the session log fits the checkpoint of {report.checkpoint.size} lines, cosigned by {names}"
        )
    if report.second is not None and not report.second.differences:
        out.print("the second auditor found the same")
    if report.tries is not None:
        out.print(f"try {report.position} of {report.tries} of request {report.request} in the session log")
    for line in report.digest_lines:
        out.print(line)


def _print_verdict(report: Report, verdict: Verdict) -> None:
    """Print the verdict on a verifiable run: the session, the counted parties, and the average."""
    out = console()
    out.print(f"the log: {report.entries} entries, {report.bytes} bytes, {report.seconds:.2f} s")
    given = ", ".join(f"{key} {value}" for key, value in (report.parameters or {}).items())
    out.print(f"the parties' session: {printable(given)}")
    out.print(f"fine: {', '.join(verdict.counted)}")
    for item in verdict.excluded:
        out.print(f"excluded: {item.party}, entry {item.sequence}: {item.reason}")
    for name in verdict.silent:
        out.print(f"silent: {name} takes part, and the board has no publication of it")
    for one, other in verdict.void_edges:
        out.print(f"void: {one} and {other} committed to different noise; at least one of the two deviated")
    if verdict.answers is not None:
        for line in answer_lines(verdict.answers):
            out.print(printable(line))
        moved = f"{(verdict.bias or 0) / verdict.standard_error:.2g} standard deviations of its noise"
        out.print(
            f"cheats who see their noise first can have moved each sum by {moved} at most, in expectation"
        )
    elif verdict.average is not None:
        shown = ", ".join(f"{value:.6g}" for value in verdict.average[:SHOWN])
        more = f", … ({len(verdict.average)} values)" if len(verdict.average) > SHOWN else ""
        out.print(f"average: [{shown}{more}], standard error {verdict.standard_error:.2g}")
        moved = f"{verdict.bias or 0:.2g}"
        out.print(f"cheats who see their noise first can have moved it by {moved} at most, in expectation")
    if verdict.average is not None:
        unit = "honest party" if verdict.answers is None else verdict.answers["unit"]
        claim = "no claim" if verdict.epsilon is None else f"epsilon {verdict.epsilon:.4g}"
        out.print(f"privacy of each {unit}: {claim}, delta {verdict.delta:.3g}")


def _print_statistic(report: Report, result: StatisticVerdict) -> None:
    """Print the audit of a statistic of pairs: matchings, failed pairs, and the estimate."""
    out = console()
    out.print(f"the log: {report.entries} entries, {report.bytes} bytes")
    out.print(f"statistic: {printable(str(result.terms.get('kernel')))}, {result.partners} partners each")
    for number, attempt in enumerate(result.attempts, 1):
        silent, false = ", ".join(attempt.silent) or "nobody", ", ".join(attempt.false) or "nobody"
        out.print(f"draw {number}: {attempt.present} present; no coin: {silent}; a wrong one: {false}")
        if attempt.dropped:
            out.print(f"left out after it, though their coins are there: {', '.join(attempt.dropped)}")
    for reason, pairs in (("failed", result.failed), ("failed, but both say not", result.disputed)):
        for matching, one, other in pairs:
            out.print(f"{reason}: {one} with {other}, matching {matching + 1}")
    out.print(f"the aggregator's estimate: {result.value:.6g}; nobody else can check it")
