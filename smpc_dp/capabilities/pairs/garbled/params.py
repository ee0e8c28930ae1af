"""Parameters of a two-party evaluation, as in a session file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import msgspec
from msgspec.structs import replace

from smpc_dp.capabilities.pairs.circuits.bristol import read_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import MAX_VALUES, Circuit
from smpc_dp.capabilities.pairs.garbled.messages import PAIR_COPIES
from smpc_dp.capabilities.pairs.published.library import PUBLISHED, find
from smpc_dp.decoding import convert
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.settings import read

MAX_INSTANCES = 1 << 32
MIN_COPIES, MAX_COPIES = 2, 64

Output = Literal["garbler", "evaluator", "both", "aggregator"]
Mode = Literal["tile", "unique"]
Security = Literal["semi-honest", "covert", "malicious"]
"""Garbler that an evaluation is secure against; the evaluator may be malicious with each."""
SECURITIES: tuple[Security, ...] = ("semi-honest", "covert", "malicious")


class PairwiseParameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Checked parameters of evaluations between two parties: circuit, security, and who learns outputs.

    `circuit` is the name of a published circuit or, with `digest` (64 hex digits of the circuit's digest),
    the path of a Bristol Fashion file beside the session file. `instances` evaluations are made. `garbler`
    and `evaluator` are names of parties; the circuit's input values with indices (from 0) in
    `evaluator_inputs` are the evaluator's, by default all but the first. `output` names the recipient of the
    result; `mode` tells whether garbling keys are shared by a tile of instances or unique to each. `covert`
    is the number of copies of which all but one are checked (`protocols/covert/README.md`), or 0 for one copy
    of a garbler that is assumed to be semi-honest. `security` says it by name, and "malicious" is another
    protocol (`protocols/active/README.md`), without copies and with mode "unique". With copies, or if it is
    "malicious", the input values with indices in `random_inputs` are uniform bits that the protocol draws.
    """

    # Of a session there are no other requests.
    requests: ClassVar[tuple[()]] = ()
    circuit: str
    garbler: str
    evaluator: str
    digest: str = ""
    instances: int = 1
    evaluator_inputs: list[int] | None = None
    output: Output = "both"
    mode: Mode = "tile"
    covert: int = 0
    random_inputs: list[int] = []
    security: Security | None = None

    @property
    def malicious(self) -> bool:
        """Whether evaluations are secure against a malicious garbler, not just a malicious evaluator."""
        return self.security == "malicious"


def copies_of(security: Security | None, covert: int | None, default: int = 0) -> int:
    """Return the number of garbled copies, 0 if not covert, for these settings; ConfigError in conflict.

    `default`: if neither is said; of "covert" alone it is PAIR_COPIES. Raises ConfigError for an unknown
    security, and for copies that are not for it.
    """
    if security is not None and security not in SECURITIES:
        reason = f"{security!r} is none of {', '.join(SECURITIES)}"
        raise ConfigError.at("security", reason, ConfigCheck.CHOICE)
    if security is None:
        return default if covert is None else covert
    if security == "covert" and covert is None:
        return PAIR_COPIES
    if (security == "covert") != bool(covert):
        reason = f"{security!r} is not for {covert or 'no'} copies: leave out one of the two"
        raise ConfigError.at("security", reason, ConfigCheck.CONFLICT)
    return covert or 0


def refuse_garbling(covert: int | None, security: Security | None) -> None:
    """Raise ConfigError if security or copies of garbling are given where servers compute."""
    for where, given in (("covert", covert), ("security", security)):
        if given:
            raise ConfigError.at(where, "servers garble nothing", ConfigCheck.UNSUPPORTED)


def check_parameters(
    parameters: Mapping[str, object], parties: int
) -> tuple[PairwiseParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of a session of two parties; return them, or None with the faults."""
    good, issues = read(PairwiseParameters, parameters, unknown="unknown parameter of pairwise")
    if parties != 2:
        issues.append(ConfigIssue("roster", f"exactly 2 parties, has {parties}", ConfigCheck.RANGE))
    if issues:
        return None, issues
    try:
        checked = _resolved(convert(good, PairwiseParameters), parameters)
    except ConfigError as error:
        return None, list(error.issues)
    if checked.garbler == checked.evaluator:
        issues.append(
            ConfigIssue("evaluator", f"is the garbler too: {checked.garbler!r}", ConfigCheck.CONFLICT)
        )
    if not 1 <= checked.instances <= MAX_INSTANCES:
        issues.append(
            ConfigIssue("instances", f"{checked.instances}, not between 1 and 2**32", ConfigCheck.RANGE)
        )
    if checked.covert and not MIN_COPIES <= checked.covert <= MAX_COPIES:
        reason = f"{checked.covert} copies, not between {MIN_COPIES} and {MAX_COPIES}, nor 0"
        issues.append(ConfigIssue("covert", reason, ConfigCheck.RANGE))
    if checked.digest and not re.fullmatch(r"[0-9a-f]{64}", checked.digest):
        issues.append(ConfigIssue("digest", "not 64 lower-case hex digits", ConfigCheck.FORMAT))
    if not checked.digest and checked.circuit not in PUBLISHED:
        issues.append(
            ConfigIssue(
                "circuit",
                f"{checked.circuit!r} is not a published circuit; a file needs its digest",
                ConfigCheck.UNKNOWN_NAME,
            )
        )
    issues += _index_issues(checked)
    return (None, issues) if issues else (checked, [])


def _index_issues(checked: PairwiseParameters) -> list[ConfigIssue]:
    """Return the faults in parameters that list input values by place: evaluator's and random ones."""
    issues = []
    for field in ("evaluator_inputs", "random_inputs"):
        indices = getattr(checked, field) or []
        if len(indices) > MAX_VALUES:
            reason = f"{len(indices)} input values, a circuit has {MAX_VALUES} at most"
            issues.append(ConfigIssue(field, reason, ConfigCheck.TOO_LARGE))
        elif sorted(set(indices)) != indices or any(index < 0 for index in indices):
            reason = "not places of input values, from 0, in increasing order"
            issues.append(ConfigIssue(field, reason, ConfigCheck.RANGE))
    if checked.random_inputs and not (checked.covert or checked.malicious):
        reason = "for security 'covert' or 'malicious' alone"
        issues.append(ConfigIssue("random_inputs", reason, ConfigCheck.UNSUPPORTED))
    return issues


def _resolved(checked: PairwiseParameters, given: Mapping[str, object]) -> PairwiseParameters:
    """Return parameters with defaults for copies and mode filled in, as the security level needs."""
    copies = copies_of(checked.security, checked.covert if "covert" in given else None)
    mode: Mode = "unique" if checked.malicious and "mode" not in given else checked.mode
    return replace(checked, covert=copies, mode=mode)


def load_circuit(parameters: PairwiseParameters, folder: Path) -> Circuit:
    """Return the circuit that checked parameters name; paths of files are relative to `folder`.

    Raises:
        ConfigError: the file is not a valid circuit, has another digest, or has not the input values named.
        LocalError: it cannot be read.
    """
    if parameters.digest:
        circuit = read_bristol(folder / parameters.circuit)
        if circuit.digest.hex() != parameters.digest:
            reason = f"{parameters.circuit} has the digest {circuit.digest.hex()}, not {parameters.digest}"
            raise ConfigError.at("parameters.digest", reason, ConfigCheck.DIFFERS)
    else:
        circuit = find(parameters.circuit).build()
    for field in ("evaluator_inputs", "random_inputs"):
        for index in getattr(parameters, field) or ():
            if index >= len(circuit.inputs):
                reason = f"{index}, but the circuit has {len(circuit.inputs)} input values"
                raise ConfigError.at(f"parameters.{field}", reason, ConfigCheck.RANGE)
    return circuit
