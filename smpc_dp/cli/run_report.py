"""The report of `smpc-dp run`, and of what else runs a session: its result, its privacy and its course."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from smpc_dp.cli.reporting import ONE_MACHINE, Reporting, make_report
from smpc_dp.errors import SmpcError
from smpc_dp.learn.registry import LearnParameters
from smpc_dp.net.launcher import ProcessOutcome
from smpc_dp.net.session_file import SessionFile
from smpc_dp.net.tolerance import tolerances
from smpc_dp.protocols.gopa.params import GopaParameters
from smpc_dp.protocols.phases.parameters import SumParameters
from smpc_dp.protocols.records import RecordParameters
from smpc_dp.protocols.result import noise_reach
from smpc_dp.protocols.secret_sharing.params import SharedParameters
from smpc_dp.report import sections
from smpc_dp.report.document import Section, Sentences, section
from smpc_dp.report.sections import number
from smpc_dp.report.table import Table

LEVEL = 0.95
LEAVING = "A party that has no further step leaves, and the aggregator reports that as a loss too."
# Names in a sentence.
SHOWN = 5
NOT_COUNTED = {
    "pairs": "What pairs of parties send each other over channels of their own is not counted.",
    "servers": "What servers send each other is not counted.",
}


def write_run_report(
    reporting: Reporting,
    session: SessionFile,
    outcomes: Mapping[str, ProcessOutcome],
    results: Mapping[str, Mapping[str, Any]],
    problem: str,
    ledgers: Mapping[str, Path] = MappingProxyType({}),
    *,
    statistic: bool,
    notes: Sequence[str] = (ONE_MACHINE,),
) -> None:
    """Write the report of a session whose members ran here.

    `results` by party, as JSON data; `problem`: why there is no right result, "" where there is one.
    `ledgers`: by party, read here for a session that learns, whose results have no receipt. `statistic`: it
    is one of pairs.
    """
    views = views_of(session, statistic=statistic)
    failed = [f"{name}: {outcome.reason}" for name, outcome in outcomes.items() if not outcome.ok]
    result = None if problem or not results else next(iter(results.values()))
    trace, roster = reporting.trace, session.roster
    trace.names = tuple(member.name for member in sorted(roster, key=lambda member: member.role != "party"))
    head, own = (
        ("The run failed", sections.charged_section(*_states(ledgers)))
        if result is None
        else described(results, ledgers, statistic=statistic, checked=session.checked_parameters)
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
            [LEAVING] if trace.losses and result is not None and "learner" in result else [],
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
        facts = [*facts_of(session, results), *facts]
    conclusion = f"The run failed: {problem}" if problem else concluded(result, len(session.roster.parties))
    reporting.write(
        make_report(head, conclusion, facts, parts, state="bad" if problem else "good"),
        own=any(result.get("confidential", False) for result in results.values()),
    )


def views_of(session: SessionFile, *, statistic: bool = False) -> list[str]:
    """Return the kinds of computation of a session, by their keys of `roles.VIEWS`."""
    checked = session.checked_parameters
    if isinstance(checked, SharedParameters):
        return ["servers"]
    if isinstance(checked, LearnParameters):
        result = [_view_of_sum(one) for one in checked.requests]
        return list(dict.fromkeys(view for view in result if view))
    if statistic:
        return ["pairs"]
    view = _view_of_sum(checked)
    return [view] if view else []


def _view_of_sum(parameters: object) -> str:
    """Return the key of `roles.VIEWS` for the parameters of a request; "" for another package's protocol."""
    if isinstance(parameters, SharedParameters):
        return "servers"
    if not isinstance(parameters, SumParameters) or parameters.protocol not in ("secagg", "gopa", "exchange"):
        return ""
    if parameters.protocol == "exchange":
        return "exchange"
    if isinstance(parameters, RecordParameters) and parameters.protocol == "secagg":
        return "records"
    if isinstance(parameters, GopaParameters):
        return _view_of_gopa(parameters)
    return "secagg" if parameters.noise(parameters.plan.parties, 0) is None else "secagg-noisy"


def _view_of_gopa(parameters: GopaParameters) -> str:
    # Not at the top: most sessions have no such parameters.
    from smpc_dp.protocols.gopa.direct_params import DirectParameters

    records = "-records" if isinstance(parameters, RecordParameters) else ""
    if parameters.is_logged:
        return f"verifiable{records}"
    if isinstance(parameters, DirectParameters):
        return f"gopa-direct{records}"
    return f"gopa{records or f'-{parameters.on_dropout}'}"


def ledger_state(path: Path, party: str) -> dict[str, Any]:
    """Return what a party's ledger has spent and may spend, as a receipt has it."""
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
    """Return the state of each ledger that can be read, and why others cannot."""
    states, unread = {}, []
    for name, path in ledgers.items():
        try:
            states[name] = ledger_state(path, name)
        except SmpcError as error:
            unread.append(str(error))
    return states, unread


def described(
    results: Mapping[str, Mapping[str, Any]], ledgers: Mapping[str, Path], *, statistic: bool, checked: Any
) -> tuple[str, list[Section]]:
    """Return the title, and the sections about the result and its privacy."""
    result = next(iter(results.values()))
    if "learner" in result:
        return f"Learning: {result['learner']}", [
            *sections.learned_section(results),
            *sections.learned_privacy(results, *_states(ledgers)),
        ]
    privacy = result["privacy"]
    receipts = {name: one["privacy"].get("receipt") for name, one in results.items()}
    own = [*sections.privacy_section(privacy, receipts), *sections.limits_section(privacy["not_protected"])]
    if statistic:
        return f"Statistic of pairs: {result['kernel']}", [*sections.pairs_section(result), *own]
    if "estimates" in result:
        exact = privacy["epsilon"] is None
        return "Statistics of records", [*sections.statistics_section(result, exact=exact), *own]
    interval = interval_of(result, checked)
    return result["kind"].capitalize(), [*sections.vector_section(result, interval), *own]


def interval_of(result: Mapping[str, Any], parameters: Any) -> tuple[float, float] | None:
    """Return how far the noise of a sum or an average goes, and the level; None where it is not known."""
    averaged = result["kind"] == "average"
    weight = result["weight"] if averaged else 1
    error = result["standard_error"]
    on_shares = isinstance(parameters, SharedParameters)
    encoding = parameters.sum_encoding if on_shares else parameters.encoding
    # As `Result.interval`: the weight has noise too.
    if not error or (averaged and encoding.max_weight):
        return None
    distributions = parameters.noise_distributions(len(result["survivors"]), result["residual_pairs"])
    return noise_reach(distributions, error * weight, result["step"], LEVEL) / weight, LEVEL


def facts_of(session: SessionFile, results: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return what stands out of a result."""
    result = next(iter(results.values()))
    parties = len(session.roster.parties)
    if "learner" in result:
        guarantee = result["guarantee"] or {"epsilon": None, "delta": None, "protects": None}
        present, privacy = len(results), {**guarantee, "unit": guarantee["protects"]}
    else:
        present, privacy = len(result["survivors"]) or result.get("parties", 0), result["privacy"]
    return [("parties in it", f"{present} of {parties}"), *privacy_facts(privacy)]


def privacy_facts(privacy: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what stands out of a guarantee."""
    if privacy["epsilon"] is None:
        return [("differential privacy", "none")]
    return [
        ("epsilon", number(privacy["epsilon"])),
        ("delta", number(privacy["delta"])),
        ("protects one", str(privacy["unit"])),
    ]


def concluded(result: Mapping[str, Any] | None, parties: int) -> str:
    """Return how a run of so many parties ended, in one sentence."""
    absent = [] if result is None else result.get("absent", [])
    if not absent:
        return "The run ended with a result."
    named = ", ".join(absent[:SHOWN]) + (f" and {len(absent) - SHOWN} more" if len(absent) > SHOWN else "")
    return f"The run ended with a result over {parties - len(absent)} of {parties} parties, without {named}."


def asked_section(session: SessionFile, *, compared: bool) -> list[Section]:
    """Return the section of what the session file asks; `compared`: all members have agreed on it."""
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
    return section("asked", heading, [Sentences((protocol, digest, *tolerated)), table])
