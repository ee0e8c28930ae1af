"""The report of `smpc-dp run`, and of what else runs a session: its result, its privacy and its course."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from smpc_dp.cli.reporting import ONE_MACHINE, Reporting, make_report
from smpc_dp.errors import SmpcError
from smpc_dp.report import sections
from smpc_dp.report.document import Section, Sentences, section
from smpc_dp.report.sections import number
from smpc_dp.report.table import Table
from smpc_dp.session.launcher import ProcessOutcome
from smpc_dp.session.planned import total_notes, version_notes
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tasks import Task
from smpc_dp.session.tolerance import tolerances

# Names in a sentence.
SHOWN = 5
NOT_COUNTED = {
    "pairs": "What pairs of parties send each other over channels of their own is not counted.",
    "servers": "What servers send each other is not counted.",
}


def write_run_report(
    reporting: Reporting,
    session: SessionFile,
    task: Task,
    outcomes: Mapping[str, ProcessOutcome],
    results: Mapping[str, Mapping[str, Any]],
    problem: str,
    ledgers: Mapping[str, Path] = MappingProxyType({}),
    *,
    notes: Sequence[str] = (ONE_MACHINE,),
) -> None:
    """Write the report of a session of which all members, or one, ran on this machine.

    `task`: what they computed. `results` by party, as JSON data; `problem`: why there is no right result, ""
    where there is one. `ledgers`: by party, read here where results have no receipt.
    """
    views = task.views(session)
    failed = [f"{name}: {outcome.reason}" for name, outcome in outcomes.items() if not outcome.ok]
    result = None if problem or not results else next(iter(results.values()))
    trace, roster = reporting.trace, session.roster
    trace.names = tuple(member.name for member in sorted(roster, key=lambda member: member.role != "party"))
    states = partial(_states, ledgers)
    head, own = (
        ("The run failed", sections.charged_section(*states()))
        if result is None
        else (task.title(result), task.sections(session, results, states))
    )
    absent = [] if result is None else result.get("absent", [])
    missing = "; ".join(NOT_COUNTED[view] for view in views if view in NOT_COUNTED)
    parts: list[Section] = [
        *section("problem", "Why there is no result", [Sentences((problem, *failed))] if problem else []),
        *own,
        # Of a run that sent nothing there is nothing that a role saw.
        *(
            sections.roles_section(views, notes, failed=result is None)
            if views and (result or trace.sent or trace.steps)
            else []
        ),
        *sections.losses_section(
            None if result is None else absent,
            [] if result is None else result.get("faults", []),
            trace,
            [task.on_leaving] if trace.losses and result is not None and task.on_leaving else [],
        ),
        *sections.times_section(trace),
        *sections.traffic_section(trace, missing),
        *asked_section(session, compared=result is not None),
        *(() if result is None else sections.evidence_section(result.get("evidence"))),
    ]
    facts = [("time", f"{trace.seconds:.1f} s")]
    if trace.sent:
        facts.append(("sent in all", sections.amount(trace.total)))
    if result is not None:
        present = f"{task.counted(results)} of {len(roster.parties)}"
        facts = [("parties in it", present), *privacy_facts(task.privacy(result)), *facts]
    conclusion = f"The run failed: {problem}" if problem else concluded(result, len(session.roster.parties))
    reporting.write(
        make_report(
            head,
            conclusion,
            facts,
            parts,
            state="bad" if problem else "good",
            privacy=None if result is None else task.privacy(result),
        ),
        own=any(result.get("confidential", False) for result in results.values()),
    )


def ledger_state(path: Path, party: str) -> dict[str, Any]:
    """Return, as in a receipt, a ledger's data set, unit, spent cost and budget; raise if unreadable."""
    # Not at the top: most sessions have no ledger, and the accountant takes a while to load.
    from smpc_dp.privacy.accountant.ledger import Ledger

    ledger = Ledger.open(path, party=party)
    terms, spent = ledger.terms, ledger.spent()
    return {
        "dataset": terms.dataset,
        "unit": terms.unit,
        "spent": spent.to_json(),
        "budget_epsilon": terms.epsilon,
        "budget_delta": terms.delta,
    }


def _states(ledgers: Mapping[str, Path]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return (state of each ledger that can be read, reasons why the others cannot)."""
    states, unread = {}, []
    for name, path in ledgers.items():
        try:
            states[name] = ledger_state(path, name)
        except SmpcError as error:
            unread.append(str(error))
    return states, unread


def privacy_facts(privacy: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the main numbers of a guarantee as (name, text): epsilon, delta, unit."""
    if privacy["epsilon"] is None:
        return [("differential privacy", "none")]
    return [
        ("epsilon", number(privacy["epsilon"])),
        ("delta", number(privacy["delta"])),
        ("protects one", str(privacy["unit"])),
    ]


def concluded(result: Mapping[str, Any] | None, parties: int) -> str:
    """Return a sentence on how a run of this many parties ended, from its result or None."""
    absent = [] if result is None else result.get("absent", [])
    if not absent:
        return "The run ended with a result."
    named = ", ".join(absent[:SHOWN]) + (f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else "")
    return f"The run ended with a result over {parties - len(absent)} of {parties} parties, without {named}."


def asked_section(session: SessionFile, *, compared: bool) -> list[Section]:
    """Return the report's section on what the session file asks, and whether members agreed on it."""
    rows = tuple((key, sections.written(value)) for key, value in session.parameters.items())
    columns = (("parameter", ""), ("value", "long"))
    table = Table("Parameters, as the session file has them", columns, rows)
    tolerated = [f"The session {one}." for one in tolerances(session)]
    verifiable = session.is_logged
    protocol = (
        f"Protocol {session.protocol}, version {session.version}{', verifiable' if verifiable else ''}."
    )
    heading = "What the members agreed on" if compared else "What the session file asks"
    known = ": all members have compared it." if compared else "."
    digest = f"Session digest {session.digest.hex()}{known}"
    sentences = (protocol, digest, *tolerated, *version_notes(session), *total_notes(session))
    return section("asked", heading, [Sentences(sentences), table])
