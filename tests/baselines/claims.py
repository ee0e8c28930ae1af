"""Claims, assumptions and limits over a grid of sessions: every protocol in each of its forms, without a run.

`python -m tests.baselines claims` writes them anew, to read the difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from smpc_dp.capabilities.learn.averager import PlainAverager, PlainExchange
from smpc_dp.capabilities.learn.exchanges import PlannedMessages
from smpc_dp.capabilities.learn.local_reports import LocalReports
from smpc_dp.capabilities.learn.methods import AveragerTable, PlannedAverages
from smpc_dp.capabilities.pairs.active.claims import active_privacy
from smpc_dp.capabilities.pairs.garbled import claims as evaluation
from smpc_dp.capabilities.pairs.garbled.params import Output, PairwiseParameters
from smpc_dp.capabilities.pairs.kernels import (
    Field,
    auc,
    auc_private_labels,
    gini_mean_difference,
    kendall_tau,
)
from smpc_dp.capabilities.pairs.statistics.compiled import plan_statistic
from smpc_dp.capabilities.pairs.ustatistic import result as pairs
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.capabilities.reports.local_auc import LocalAuc
from smpc_dp.capabilities.reports.local_names import LocalNames
from smpc_dp.capabilities.reports.reports import LocalReport, ReportRequest
from smpc_dp.capabilities.servers.requests.programs import compile_operation
from smpc_dp.capabilities.servers.secret_sharing.claims import with_servers
from smpc_dp.capabilities.servers.statistics import result as shared
from smpc_dp.capabilities.servers.statistics.plan import statistic_program
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.phases.parameters import MOST_SHOWN
from smpc_dp.engine.registry import checker_of, session_protocol
from smpc_dp.engine.result import Privacy
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Roster
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.records.schema import read_schema
from smpc_dp.report.document import Sentences
from smpc_dp.report.sections import learned_privacy
from smpc_dp.session.exchange.params import plan_exchange
from smpc_dp.wire.signing import encode

FILE = Path(__file__).with_name("claims.json")
# Above 1/n for the numbers of parties here, so that a warning comes first.
LARGE_DELTA = 0.3
SUM: dict[str, Any] = {"length": 2, "lower": -1.0, "upper": 1.0, "precision": 2.0**-10}
PRIVATE = SUM | {"epsilon": 1.0, "delta": 1e-6}
# On a coarse grid, where noise is planned fast.
BITS: dict[str, Any] = {
    "length": 1,
    "lower": 0,
    "upper": 8,
    "kind": "integer",
    "epsilon": 1.0,
    "delta": 1e-3,
}
WEIGHTS = {"max_weight": 3}
UNCHECKED = {"total": "unchecked"}
CORRUPT: dict[str, dict[str, Any]] = {"c = 0": {"corrupt": 0.0}, "c = 1": {"corrupt": 0.2}}
DELTAS: dict[str, dict[str, Any]] = {"": {}, ", large delta": {"delta": LARGE_DELTA}}
COLUMNS: dict[str, Any] = {
    "age": {"lower": 0.0, "upper": 100.0},
    "ill": {"lower": 0.0, "upper": 1.0, "step": 1.0},
    "sex": {"values": ["f", "m"]},
}
SCHEMA: dict[str, Any] = {"max_rows": 100, "columns": COLUMNS}
PERSON: dict[str, Any] = {"unit": "person", "id": "who", "rows_per_person": 2, "parties_per_person": 3}
PUBLIC: dict[str, Any] = {"rows": "public"}
# Values of `age` are filled in for rows of the public number that do not count.
PERSON_PUBLIC = PERSON | PUBLIC | {"columns": COLUMNS | {"age": COLUMNS["age"] | {"missing": False}}}
RECORDS: dict[str, Any] = {
    "records": SCHEMA,
    "ask": ["count", "mean(age)", "sex"],
    "epsilon": 1.0,
    "delta": 1e-6,
}
TABLES: dict[str, Any] = {
    "records": SCHEMA,
    "ask": ["sex", "count"],
    "smallest_count": 5,
    "dataset": "rows of 2026",
}
FITTED: dict[str, Any] = {
    "records": SCHEMA | {"rows_expected": 500},
    "ask": "logistic(ill ~ age)",
    "steps": 3,
}
EFFECTS: dict[str, Any] = {"records": SCHEMA, "ask": "random_effects(age, 100)"}
FORMS: dict[str, dict[str, Any]] = {
    "through an aggregator": {},
    "direct": {"topology": "direct"},
    "verifiable": {"verifiable": True},
}
VECTOR_FORMS = {**FORMS, "roll-back": {"on_dropout": "roll-back"}}
# With 200 parties: too many for the complete graph.
SPARSE: dict[str, Any] = {
    "length": 1,
    "lower": -1,
    "upper": 1,
    "epsilon": 2.0,
    "delta": 1e-4,
    "corrupt": 0.05,
    "dropout": 0.02,
}

JsonObject = dict[str, Any]
Stated = Iterator[tuple[str, Privacy | Sequence[str] | str]]


def checked(protocol: str, parameters: Mapping[str, object], parties: int = 5) -> Any:
    """Return the checked parameters of a session."""
    made, issues = checker_of(protocol, session_protocol(protocol).version)(parameters, parties)
    assert made is not None, issues
    return made


def of_rows(given: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of records with more in their schema, and public rows where it has them."""
    rows = {"public_rows": [10] * 5} if more.get("rows") == "public" else {}
    return {**given, "records": {**given["records"], **more}, **rows}


def sums() -> Stated:
    """Yield the claims of secure sums and of GOPA about vectors."""
    for corrupt, looking in CORRUPT.items():
        yield f"secagg, exact, {corrupt}", checked("secagg", SUM | looking).privacy(5)
        for kind, given in (("exact", SUM), ("noisy", BITS)):
            parameters = checked("secagg", given | looking | UNCHECKED)
            yield f"secagg, {kind}, {corrupt}, unchecked total", parameters.privacy(5)
        given = {key: value for key, value in PRIVATE.items() if key != "precision"}
        asked = {"length": 1, "on_dropout": "roll-back"} | UNCHECKED
        parameters = checked("gopa", given | looking | asked, 6)
        yield f"gopa, roll-back, {corrupt}, unchecked total", parameters.privacy(5)
        for name, delta in DELTAS.items():
            yield f"secagg, noisy, {corrupt}{name}", checked("secagg", BITS | looking | delta).privacy(5)
        for form, more in VECTOR_FORMS.items():
            for name, delta in DELTAS.items():
                given = {key: value for key, value in PRIVATE.items() if key != "precision"}
                parameters = checked("gopa", given | {"length": 1} | looking | more | delta, 6)
                yield f"gopa, {form}, {corrupt}{name}", parameters.privacy(5)
                if form == "verifiable":
                    for excluded in (1, 2, 5):
                        claimed = parameters.privacy(4, excluded=excluded)
                        yield f"gopa, {form}, {corrupt}{name}, {excluded} excluded", claimed
    for name, more in (("", {}), (", unchecked total", UNCHECKED)):
        parameters = checked("secagg", SUM | {"same_survivors": False} | more)
        yield f"secagg, exact, any survivors{name}", parameters.privacy(5)
    parameters = checked("secagg", SUM | {"total": "checked"}, MOST_SHOWN + 1)
    yield "secagg, exact, more than each party is shown, checked total", parameters.privacy(10_000)
    yield "secagg, exact, sparse", checked("secagg", SUM, 300).privacy(290)
    yield "secagg, skellam", checked("secagg", BITS | {"mechanism": "skellam"}).privacy(5)
    yield "secagg, weights", checked("secagg", PRIVATE | WEIGHTS).privacy(5)
    for form, more in VECTOR_FORMS.items():
        yield f"gopa, {form}, sparse", checked("gopa", SPARSE | more, 200).privacy(196)
    yield "gopa, weights", checked("gopa", PRIVATE | WEIGHTS).privacy(5)
    yield "gopa, direct, weights", checked("gopa", PRIVATE | WEIGHTS | FORMS["direct"]).privacy(5)


def record_sums() -> Stated:
    """Yield the claims of statistics of records by secure sums and by GOPA."""
    schemas: dict[str, dict[str, Any]] = {"records": {}, "persons": PERSON, "public rows": PUBLIC}
    for rows, more in (schemas | {"persons in public rows": PERSON_PUBLIC}).items():
        yield f"secagg, {rows}", checked("secagg", of_rows(RECORDS, more)).privacy(5)
        yield f"gopa, {rows}", checked("gopa", of_rows(RECORDS, more)).privacy(5)
    noise = {"epsilon": 1.0, "delta": 1e-6}
    for name, given in {"regression": FITTED, "random effects": EFFECTS}.items():
        yield f"secagg, {name}", checked("secagg", given | noise).privacy(5)
        yield f"secagg, {name}, exact", checked("secagg", given).privacy(5)
        for kind, more in ((", exact", {}), ("", noise)):
            parameters = checked("secagg", given | more | UNCHECKED)
            yield f"secagg, {name}{kind}, unchecked total", parameters.privacy(5)
    # The noise of one table has tails of another kind.
    counts = RECORDS | {"ask": "sex", "corrupt": 0.0, "dropout": 0.0}
    yield "secagg, one table", checked("secagg", counts, 4).privacy(4)
    for corrupt, looking in CORRUPT.items():
        yield f"secagg, records, {corrupt}", checked("secagg", RECORDS | looking).privacy(5)
        parameters = checked("secagg", RECORDS | looking | UNCHECKED)
        yield f"secagg, records, {corrupt}, unchecked total", parameters.privacy(5)
        for form, more in FORMS.items():
            for name, one in {**DELTAS, ", totals visible": {"hidden_totals": 0.0}}.items():
                given = RECORDS | {"ask": ["count"]} | looking | more | one
                parameters, case = checked("gopa", given, 6), f"{form}, {corrupt}{name}"
                yield f"gopa, records, {case}", parameters.privacy(5)
                if form == "verifiable":
                    for excluded in (2, 5):
                        claimed = parameters.privacy(4, excluded=excluded)
                        yield f"gopa, records, {case}, {excluded} excluded", claimed


def exchanges() -> Stated:
    """Yield the claims of exchanges."""
    vectors: dict[str, Any] = {"length": 2, "l2_bound": 1.0, "precision": 2.0**-10}
    yield "exchange, exact", plan_exchange(3, **vectors).privacy(3)
    for name, delta in {"": 1e-6, ", large delta": 0.6}.items():
        for honest, parties in ((1, 3), (2, 2)):
            made = plan_exchange(parties, **vectors, epsilon=1.0, delta=delta, honest=honest)
            yield f"exchange, {honest} honest{name}", made.privacy(parties)


def servers() -> Stated:
    """Yield the claims of sums, records and tables on shares."""
    noises: dict[str, dict[str, Any]] = {
        "exact": {},
        "laplace": {"epsilon": 1.0},
        "gaussian": {"epsilon": 1.0, "delta": 1e-6, "mechanism": "gaussian"},
    }
    for name, noise in noises.items():
        program = compile_operation(checked("mpyc", SUM | noise), "sum", 5, (), b"")
        yield f"mpyc, sum, {name}", with_servers(shared.claim_of(program, 3))
    table = AveragerTable(method="mpyc")
    groups = {
        "exact": table.plan_exact(5, 2, 1.0),
        "noisy": table.plan(5, 2, 1.0, 1.0, 1e-6),
        "large delta": table.plan(5, 2, 1.0, 1.0, LARGE_DELTA),
    }
    for name, group in groups.items():
        yield f"mpyc, vectors of a group, {name}", PlannedAverages({5: group}).plan_shared(5).privacy()
    for rows, more in {"records": {}, "persons": PERSON, "public rows": PUBLIC}.items():
        yield f"mpyc, {rows}", checked("mpyc", of_rows(RECORDS, more)).privacy(3)
    yield "mpyc, tables", checked("mpyc", TABLES).privacy(5)
    yield "mpyc, tables of persons", checked("mpyc", of_rows(TABLES, PERSON)).privacy(3)


def answers() -> Stated:
    """Yield the limits that stand beside the answers about records."""
    noise = {"epsilon": 1.0, "delta": 1e-6}
    requests = {
        "records": checked("secagg", RECORDS),
        "persons in public rows": checked("secagg", of_rows(RECORDS, PERSON_PUBLIC)),
        "records on shares": checked("mpyc", RECORDS),
        "regression": checked("secagg", FITTED | noise),
        "exact regression": checked("secagg", FITTED),
    }
    for name, parameters in requests.items():
        made = parameters.request.answers((), 5, level=0.95, simultaneous=False)
        yield f"answers, {name}", made.not_protected
    tables = checked("mpyc", TABLES).request
    yield "answers, tables", tables.answers(tables.bounds[1], 0.95).not_protected


def statistics() -> Stated:
    """Yield the claims of statistics of pairs, garbled and on shares, and of their simulations."""
    score, spread = auc(Field(0, 3)), gini_mean_difference(Field(0, 3))
    plans = {
        "garbled": plan_statistic(spread, 20, 1.0, partners=2),
        "covert": plan_statistic(spread, 20, 1.0, partners=2, covert=4),
        "malicious": plan_statistic(spread, 20, 1.0, partners=2, malicious=True),
        "bipartite": plan_statistic(score, 20, 1.0, partners=1),
        "large delta": plan_statistic(spread, 20, 1.0, LARGE_DELTA, partners=1, noise="gaussian"),
    }
    for name, plan in plans.items():
        for how in ("protocol", "ideal"):
            yield f"pairs, {name}, {how}", pairs.privacy_of(plan, 20, how)
    labels, seed = [0, 1] * 10, bytes(32)
    programs = {
        "exact": statistic_program(spread, 20, None),
        "laplace": statistic_program(spread, 20, 1.0),
        "large delta": statistic_program(spread, 20, 1.0, LARGE_DELTA, distribution="gaussian"),
        "public labels": statistic_program(score, 20, 1.0, public_labels=labels),
        "private labels": statistic_program(auc_private_labels(Field(0, 3)), 20, 1.0),
        "each pair": statistic_program(spread, 20, 1.0, distribution="pair_laplace", partners=1, design=seed),
    }
    for name, program in programs.items():
        yield f"pairs on shares, {name}", with_servers(shared.claim_of(program, 3))
        yield f"pairs on shares, {name}, simulated", shared.claim_of(program, 3, "ideal").privacy()


def evaluations() -> Stated:
    """Yield the claims of evaluations of circuits by two parties."""
    for covert in (0, 2):
        for output in ("both", "aggregator"):
            for instances, transfers in ((1, 0), (64, 100)):
                parameters = PairwiseParameters(
                    "add32", "alice", "bob", instances=instances, output=output, covert=covert
                )
                case = f"{covert} copies, to {output}, {instances} instances"
                yield f"circuit, {case}", evaluation.privacy_of(parameters, 64, transfers)
    learners: tuple[Output, ...] = ("both", "aggregator")
    for learner in learners:
        parameters = PairwiseParameters("add32", "alice", "bob", output=learner, security="malicious")
        yield f"circuit, malicious, to {learner}", active_privacy(parameters)
    for copies in (2, 0):
        parameters = PairwiseParameters(
            "kendall_tau32_laplace",
            "alice",
            "bob",
            random_inputs=[2, 5],
            covert=copies,
            security="covert" if copies else "malicious",
        )
        claim = evaluation.privacy_of(parameters, 1, 0) if copies else active_privacy(parameters)
        yield f"circuit with coins, {parameters.security}", claim


def reports() -> Stated:
    """Yield the claims of local reports, and of estimates from them."""
    plan = LocalPairwise.plan(gini_mean_difference(Field(0, 5, exact=True)), 4.0)
    binned = LocalPairwise.plan(kendall_tau(Field(0, 9), Field(0, 9)), 4.0, bins=[2, 2])
    yield "reports, pairs", plan.privacy
    yield "reports, names", LocalNames.plan(read_schema(SCHEMA), ["sex"], 1.0, 1e-6).privacy
    yield "reports, estimate of many", estimated(plan, 5, 100)
    yield "reports, estimate of few", estimated(plan, 5, 4)
    yield "reports, estimate of few that are rounded", estimated(binned, [5, 5], 4)
    tree = LocalAuc.plan(Field(0, 1, 0.01), 4.0, levels=3, coins=bytes(32))
    yield "reports, auc", tree.privacy


def estimated(plan: LocalPairwise, record: Any, parties: int) -> Privacy:
    """Return the privacy of the estimate from a report of each party."""
    names = [f"p{number}" for number in range(parties)]
    analyst, people = Identity.generate("analyst"), [Identity.generate(name) for name in names]
    entries = [analyst.entry("aggregator", "127.0.0.1:7100"), *(one.entry() for one in people)]
    request, received = ReportRequest(plan, Roster(entries), "claims"), []
    for identity in people:
        drawn = plan.randomise(record)
        signed = digest(Label.LOCAL_REPORT, request.digest, identity.name.encode(), drawn)
        signature = identity.sign(signed)
        received.append(encode(LocalReport(identity.name, request.digest, drawn, signature)))
    return request.estimate(received).estimate.privacy


def learners() -> Stated:
    """Yield the claims about an average and a message of learners."""
    for method in ("secagg", "gopa", "local", "mpyc"):
        table = AveragerTable(method=method)
        yield f"average, {method}", PlannedAverages({5: table.plan(5, 2, 1.0, 1.0, 1e-6)}).claim
        if method in ("secagg", "mpyc"):
            yield f"average, {method}, public", PlannedAverages({5: table.plan_exact(5, 2, 1.0)}).claim
            exact = PlannedAverages({5: table.plan_exact(5, 2, 1.0)}, exposes=True)
            yield f"average, {method}, exact", exact.claim
    table = AveragerTable(total="unchecked")
    yield "average, unchecked totals", PlannedAverages({5: table.plan(5, 2, 1.0, 1.0, 1e-6)}).claim
    exact = PlannedAverages({5: table.plan_exact(5, 2, 1.0)}, exposes=True)
    yield "average, unchecked totals, exact", exact.claim
    messages = plan_exchange(3, length=2, l2_bound=1.0, precision=2.0**-10)
    yield "message, exact", PlannedMessages(messages).claim
    yield "message, of reports", LocalReports.plan(1.0, 4).claim
    yield "average, in the clear", PlainAverager(3).claim
    yield "message, in the clear", PlainExchange(3).claim
    guarantee = LocalReports.plan(1.0, 4).guarantee.to_json() | {"warnings": ["a warning"]}
    for name, given in {"without a guarantee": None, "with a guarantee": guarantee}.items():
        for confidential in (False, True):
            result = {"guarantee": given, "claim": "", "confidential": confidential}
            blocks = [one for part in learned_privacy({"alice": result}, {}) for one in part.blocks]
            lists = [one.texts for one in blocks if isinstance(one, Sentences) and one.kind == "limits"]
            case = f"{name}{', confidential' if confidential else ''}"
            yield f"page of a learner, {case}", [text for texts in lists for text in texts]


def to_json(stated: Privacy | Sequence[str] | str) -> Any:
    """Return what a reader is told, as plain JSON data; numbers with the digits that are alike everywhere."""
    if not isinstance(stated, Privacy):
        return stated if isinstance(stated, str) else list(stated)
    plain = stated.to_json()
    numbers = {key: plain[key] and float(f"{plain[key]:.6g}") for key in ("epsilon", "delta")}
    texts = {key: plain[key] for key in ("unit", "claim", "assumptions", "not_protected")}
    return numbers | texts | {"guarantee": None if stated.guarantee is None else of(stated.guarantee)}


def of(guarantee: PrivacyGuarantee) -> JsonObject:
    """Return what a guarantee has besides, as plain JSON data."""
    sensitivity = {norm: float(f"{most:.6g}") for norm, most in guarantee.sensitivity.items()}
    others = {key: getattr(guarantee, key) for key in ("relation", "unit", "mechanism", "proof")}
    return {**others, "sensitivity": sensitivity}


def all_claims() -> JsonObject:
    """Return what is stated of each session of the grid, by its name."""
    groups = (sums, record_sums, exchanges, servers, answers, statistics, evaluations, reports, learners)
    listed = [(name, to_json(stated)) for group in groups for name, stated in group()]
    assert len(listed) == len(dict(listed)), "two sessions have one name"
    return dict(listed)


def text() -> str:
    """Return the content of the stored file."""
    return json.dumps(all_claims(), indent=1, ensure_ascii=True) + "\n"
