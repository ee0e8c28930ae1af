"""The reports of `smpc-dp demo`: of the sums of eight lenders, and of their verifiable statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from smpc_dp.cli.reporting import ONE_MACHINE, Reporting, make_report
from smpc_dp.cli.run_report import concluded, privacy_facts
from smpc_dp.demo.lenders import DATA_SOURCE, LENDERS, LENGTH
from smpc_dp.demo.report import RECEIVED, fit_table, not_protected, protected, received_table, score_table
from smpc_dp.demo.run import Demonstration
from smpc_dp.demo.verifiable import PROTECTED, VerifiableRun, answers_table, audit_command, reported
from smpc_dp.logs.audits.audit_report import audit_sections
from smpc_dp.report import sections
from smpc_dp.report.document import Section, Sentences, Text, section
from smpc_dp.report.table import Table
from smpc_dp.session.local import AGGREGATOR


def write_demo_report(reporting: Reporting, ended: Demonstration) -> None:
    """Write the report of the demonstration in which eight lenders pool their statistics to a file."""
    trace, result = reporting.trace, ended.result
    trace.names = (*LENDERS, AGGREGATOR)
    present, absent = len(result["survivors"]), len(result["absent"])
    facts = [("lenders in it", f"{present} of {present + absent}"), ("loans", f"{ended.fitted.loans:,}")]
    facts += [("sums equal to the pooled", f"{ended.equal} of {LENGTH}"), *privacy_facts(result["privacy"])]
    facts += [("time", f"{ended.seconds:.1f} s"), ("sent in all", sections.amount(trace.total))]
    parts = [
        *section("result", "Result", [Text(f"Data: {DATA_SOURCE}."), fit_table(ended), score_table(ended)]),
        *section("seen", RECEIVED, [received_table(ended)]),
        *section("protected", "What was protected", [Sentences(tuple(protected(ended)))]),
        *sections.limits_section(not_protected(ended)),
        *sections.privacy_section(result["privacy"], {}),
        *sections.roles_section(["secagg-checked"], [ONE_MACHINE]),
        *sections.losses_section(result["absent"], result["faults"], trace),
        *sections.times_section(trace),
        *sections.traffic_section(trace),
        *section("sums", "All sums", sections.vector_section(result, None)[0].blocks),
        *sections.evidence_section(result["evidence"]),
    ]
    state = "good" if ended.exact else "bad"
    verdict = "exact" if ended.exact else "NOT EXACT"
    conclusion = f"{concluded(result, present + absent)} The result is {verdict}."
    title, privacy = "Eight lenders pool their statistics", result["privacy"]
    reporting.write(make_report(title, conclusion, facts, parts, state=state, privacy=privacy))


def _spent(runs: Sequence[VerifiableRun]) -> Table:
    """Return a table of the privacy spent by each run, and by all together: each is about the same loans."""
    verdicts = [run.audit.verdict for run in runs]
    claimed = [(one.epsilon, one.delta) for one in verdicts if one is not None and one.epsilon is not None]
    rows = [(f"run {index}", *map(sections.number, one)) for index, one in enumerate(claimed, 1)]
    if len(claimed) == len(runs):
        both = (sections.number(sum(column)) for column in zip(*claimed, strict=True))
        rows.append(("all runs together", *both))
    columns = (("of each loan of an honest lender", ""), ("epsilon", "number"), ("delta", "number"))
    note = "The same loans are in each run: epsilons and deltas add up. No ledger was charged."
    return Table("Privacy of each loan, for both answers", columns, tuple(rows), note)


def write_verifiable_report(reporting: Reporting, runs: Sequence[VerifiableRun]) -> None:
    """Write the report of the verifiable demonstration to a file."""
    trace = reporting.trace
    trace.names = (*LENDERS, AGGREGATOR)
    parts: list[Section] = []
    for number, run in enumerate(runs, 1):
        heading = f"Run {number}: {run.culprit} cheats"
        parts += section(f"run-{number}", heading, [Sentences(reported(run)), answers_table(run)])
    missing = [f"Not in the result of run {number}: {run.culprit}." for number, run in enumerate(runs, 1)]
    last = runs[-1]
    # Without --out the log is gone.
    retained = {"limits", "parties", "log", "asked", *(["again"] if last.log.exists() else [])}
    parts += [
        *section("noise", "What is protected, and what is proven", [Text(PROTECTED)]),
        *section("privacy", "Privacy spent", [_spent(runs)]),
        *sections.roles_section(["verifiable-records"], [ONE_MACHINE]),
        *sections.losses_section(None, [], trace, missing),
        *sections.times_section(trace),
        *sections.traffic_section(trace),
        *(
            replace(one, heading=f"{one.heading} (run {len(runs)})")
            for one in audit_sections(
                last.audit, audit_command(last), "The command that audits the log of this run:"
            )
            if one.id in retained
        ),
    ]
    facts = [("runs", str(len(runs))), ("time", f"{sum(run.seconds for run in runs):.1f} s")]
    facts.append(("sent in all", sections.amount(trace.total)))
    reporting.write(
        make_report(
            "Eight lenders answer questions about their loans with proofs",
            "Both cheats were named, and left out.",
            facts,
            parts,
        )
    )
