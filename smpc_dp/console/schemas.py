"""Schemas of what `--json` prints: their names, versions and types.

A printed object begins with name and version of its schema; docs/reference/compatibility.md has the promise.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any, NamedTuple

import msgspec

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.extensions import imported

# First keys of a printed object.
SCHEMA, SCHEMA_VERSION = "schema", "schema_version"
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class Listed(NamedTuple):
    """Entry in the list of JSON schemas: module and name of the type described, what prints it, version.

    Attributes:
        module, type: a struct, or a TypedDict, with the keys after the first two.
        about: what prints it.
        version: raised where a key is removed, or changes its kind or its meaning.
    """

    module: str
    type: str
    about: str
    version: int = 1


_LEARN = "smpc_dp.capabilities.learn"
_PAIRS = "smpc_dp.capabilities.pairs"
_REPORTS = "smpc_dp.capabilities.reports.commands.printed"
_RESULTS = "smpc_dp.results.printed"

SCHEMAS: Mapping[str, Listed] = {
    "average": Listed(_RESULTS, "PrintedAverage", "run, party: a sum or an average"),
    "statistics": Listed(_RESULTS, "PrintedStatistics", "run, party, statistics: statistics of records"),
    "pairwise": Listed(f"{_PAIRS}.commands.printed", "PrintedStatistic", "run, party: a statistic of pairs"),
    "learned": Listed(f"{_LEARN}.commands.printed", "PrintedLearned", "party: what it has learned"),
    "learned-by-party": Listed(
        f"{_LEARN}.commands.printed", "PrintedByParty", "run: what each party has learned"
    ),
    "report-sent": Listed(_REPORTS, "PrintedSent", "party: a local report that it has sent"),
    "report-estimate": Listed(_REPORTS, "PrintedEstimate", "run, party: an estimate from local reports"),
    "report-names": Listed(_REPORTS, "PrintedNames", "run, party: names from local reports"),
    "opened": Listed(
        "smpc_dp.capabilities.servers.requests.printed", "PrintedOpened", "party: what servers have opened"
    ),
    "audit-log": Listed("smpc_dp.logs.audits.audit_report", "Report", "audit: of a log"),
    "audit-result": Listed("smpc_dp.results.audit", "ResultReport", "audit: of a party's result"),
    "audit-comparison": Listed(
        "smpc_dp.results.audit", "Comparison", "audit --compare, and of the evidence of a refusal"
    ),
    "audit-certificate": Listed(
        f"{_PAIRS}.requests.audit_certificate", "CertificateReport", "audit --certificate"
    ),
    "verify-log": Listed("smpc_dp.logs.opinion", "Opinion", "smpc-dp-verify: of a log"),
    "verify-result": Listed(_RESULTS, "PrintedSecondOpinion", "smpc-dp-verify: of a result, or of two"),
    "check": Listed("smpc_dp.cli.check", "PrintedCheck", "check"),
    "keygen": Listed("smpc_dp.cli.keygen", "PrintedIdentity", "keygen"),
    "roster": Listed("smpc_dp.cli.roster", "PrintedRoster", "roster"),
    "ledger": Listed("smpc_dp.cli.ledger", "PrintedLedger", "ledger create, ledger show"),
    "plan-session": Listed("smpc_dp.session.planned", "SessionPlan", "plan session"),
    "plan-secagg": Listed("smpc_dp.cli.plan_secagg", "PlannedSum", "plan secagg"),
    "plan-budget": Listed("smpc_dp.cli.plan_budget", "PlannedBudget", "plan budget"),
    "plan-check": Listed("smpc_dp.cli.plan_check", "PrintedAudit", "plan check"),
    "plan-check-session": Listed("smpc_dp.cli.plan_check", "PrintedReleaseAudit", "plan check --session"),
    "plan-gopa": Listed("smpc_dp.privacy.gopa.plan", "GopaPlan", "plan gopa"),
    "plan-verifiable": Listed("smpc_dp.privacy.gopa.verifiable", "VerifiablePlan", "plan verifiable"),
    "plan-pairwise": Listed(f"{_PAIRS}.commands.printed", "PlannedPairs", "plan pairwise"),
    "plan-pairwise-servers": Listed(
        "smpc_dp.privacy.central_pairwise", "CentralPlan", "plan pairwise --engine mpyc"
    ),
    "plan-network": Listed("smpc_dp.privacy.network.plan", "NetworkPlan", "plan network"),
    "plan-sgd": Listed("smpc_dp.privacy.dp_sgd", "SgdPlan", "plan sgd"),
    "plan-gossip": Listed("smpc_dp.privacy.gossip_plan", "GossipPlan", "plan gossip"),
    "plan-groups": Listed(f"{_LEARN}.group_plan", "GroupPlan", "plan groups"),
    "plan-collaboration": Listed("smpc_dp.privacy.collaboration", "CollaborationPlan", "plan collaboration"),
    "plan-personalized": Listed(f"{_LEARN}.utility", "PersonalizedUtility", "plan personalized"),
    "plan-boosting": Listed(f"{_LEARN}.utility", "BoostingUtility", "plan boosting"),
    "plan-local-global": Listed(f"{_LEARN}.utility", "LocalGlobalUtility", "plan local-global"),
    "plan-diffusion": Listed(f"{_LEARN}.utility", "DiffusionUtility", "plan diffusion"),
    "simulate-average": Listed("smpc_dp.cli.simulate", "PrintedRun", "simulate average"),
    "simulate-averages": Listed("smpc_dp.cli.simulate", "PrintedRuns", "simulate average --runs"),
    "circuits-list": Listed(f"{_PAIRS}.commands.printed", "PrintedCircuits", "circuits list"),
    "circuits-check": Listed(f"{_PAIRS}.commands.printed", "PrintedChecks", "circuits check"),
    "circuits-run": Listed(f"{_PAIRS}.commands.printed", "PrintedEvaluation", "circuits run"),
    "demo": Listed("smpc_dp.demo.report", "PrintedDemonstration", "demo"),
    "demo-verifiable": Listed("smpc_dp.demo.verifiable", "PrintedDemonstration", "demo --verifiable"),
}


def with_schema(name: str, value: Mapping[str, object]) -> dict[str, object]:
    """Return an object with the name and the version of its schema before its own keys."""
    return {SCHEMA: name, SCHEMA_VERSION: SCHEMAS[name].version, **value}


def name_of(kind: type) -> str:
    """Return the name of the published JSON schema that describes the JSON output of a struct's class."""
    return _names()[kind.__module__, kind.__name__]


@functools.cache
def _names() -> Mapping[tuple[str, str], str]:
    """Return the names of all JSON schemas, each by the (module, type) of the struct that it describes."""
    return {(listed.module, listed.type): name for name, listed in SCHEMAS.items()}


def schema_of(name: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of this name, with descriptions; ConfigError if unknown.

    Objects may have further keys in a later release. Raises ConfigError for an unknown name, and where the
    capability is not installed.
    """
    listed = SCHEMAS.get(name)
    module = None if listed is None else imported(listed.module)
    if listed is None:
        raise ConfigError.at("NAME", f"{name!r} is none of {', '.join(SCHEMAS)}", ConfigCheck.CHOICE)
    if module is None:
        reason = f"{name!r} is of a capability that is not installed"
        raise ConfigError.at("NAME", reason, ConfigCheck.UNSUPPORTED)
    (top,), others = msgspec.json.schema_components(
        [getattr(module, listed.type)], ref_template="#/$defs/{name}"
    )
    for table in others.values():
        _require_defaults(table)
    own = others.pop(top["$ref"].rpartition("/")[2])
    described = {"properties": own["properties"], "$defs": others}
    for key, meaning in meanings().get(name, {}).items():
        _describe(described, key.split("."), meaning)
    for key, field in own["properties"].items():
        if "description" not in field and key in meanings()["common"]:
            field["description"] = meanings()["common"][key]
    first = {SCHEMA: {"const": name}, SCHEMA_VERSION: {"const": listed.version}}
    return {
        "$schema": DIALECT,
        "$id": f"urn:smpc-dp:schema:{name}:{listed.version}",
        **own,
        "title": f"smpc-dp {listed.about}",
        "properties": first | own["properties"],
        "required": [*first, *own["required"]],
        "$defs": dict(others),
    }


@functools.cache
def meanings() -> Mapping[str, Mapping[str, str]]:
    """Return descriptions of JSON keys, as schema name -> key path joined by dots -> text."""
    return tomllib.loads(resources.files(__package__).joinpath("fields.toml").read_text("utf-8"))


def _describe(schema: Mapping[str, Any], path: list[str], meaning: str) -> None:
    """Set the description of the key at `path` in a JSON Schema; raise KeyError if the key is not there."""
    field = schema["properties"][path[0]]
    if len(path) == 1:
        field["description"] = meaning
        return
    kinds = [field.get("items", field), *field.get("anyOf", ())]
    (inner,) = [kind["$ref"].rpartition("/")[2] for kind in kinds if "$ref" in kind]
    _describe({**schema["$defs"][inner], "$defs": schema["$defs"]}, path[1:], meaning)


def _require_defaults(table: dict[str, Any]) -> None:
    """Mark the keys with defaults in a JSON Schema as required: output always has them. Edit in place."""
    properties = table.get("properties", {})
    made = [key for key, field in properties.items() if field.pop("default", properties) is not properties]
    if properties:
        table["required"] = [*table.get("required", ()), *made]
