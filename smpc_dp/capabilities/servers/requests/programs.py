"""Operations of servers: from an operation to a program, and from opened values to a result."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import numpy as np

from smpc_dp.capabilities.pairs.kernels.described import describe, read_kernel
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.capabilities.servers.secret_sharing.agreement import Opened
from smpc_dp.capabilities.servers.secret_sharing.claims import SharedEvidence, with_servers
from smpc_dp.capabilities.servers.secret_sharing.messages import MAX_OPERATION
from smpc_dp.capabilities.servers.secret_sharing.params import SharedParameters
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramKind, ProgramTerms
from smpc_dp.capabilities.servers.statistics.pairs import PAIR_DISTRIBUTIONS
from smpc_dp.capabilities.servers.statistics.plan import Program, read_answer, statistic_program, sum_program
from smpc_dp.capabilities.servers.statistics.result import claim_of, event_of, statistic_result
from smpc_dp.capabilities.servers.statistics.tables import read_tables
from smpc_dp.capabilities.servers.statistics.vectors import PROGRAMS
from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases.operation import encode_operation
from smpc_dp.engine.result import Evidence, Noise, Outcome
from smpc_dp.errors import Check, ConfigCheck, ConfigError, VerificationError
from smpc_dp.wire.signing import Context

if TYPE_CHECKING:
    from smpc_dp.capabilities.servers.secret_sharing.records import SharedRecordParameters
    from smpc_dp.capabilities.servers.secret_sharing.tables import TableParameters
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.central_pairwise import CentralDistribution

DISTRIBUTIONS = ("laplace", "gaussian", *PAIR_DISTRIBUTIONS)


def compile_operation(
    parameters: SharedParameters, operation: str, parties: int, public_labels: tuple[int, ...], seed: bytes
) -> Program:
    """Return the program on shares for an operation: a sum of the session, or a statistic as JSON.

    Raises ConfigError for an operation that is impossible.
    """
    if not operation.startswith("{"):
        if public_labels:
            raise ConfigError.at("public_label", "sums have no labels", ConfigCheck.UNSUPPORTED)
        kind, known = operation.split(" ", 1)[0], parameters.operations
        if kind not in known:
            reason = f"{kind[:40]!r} is not {' or '.join(known)}"
            raise ConfigError.at("operation", reason, ConfigCheck.CHOICE)
        return PROGRAMS.get(parameters.program, _sum)(parameters, parties)
    try:
        requested: Any = json.loads(operation)
        kernel = read_kernel(requested)
        epsilon, delta, distribution, partners = (
            requested[key] for key in ("epsilon", "delta", "law", "partners")
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError.at("operation", f"not a statistic's ({error})", ConfigCheck.FORMAT) from None
    if (
        distribution not in DISTRIBUTIONS
        or type(partners) is not int
        or not all(type(x) is float for x in (epsilon, delta))
    ):
        raise ConfigError.at("operation", "its noise is none that there is", ConfigCheck.CHOICE)
    if parties < parameters.parties:
        # Some parties are absent, which must not fail an operation that was possible with all.
        partners = min(partners, parties - 1)
    return statistic_program(
        kernel,
        parties,
        epsilon,
        delta,
        distribution=distribution,
        public_labels=public_labels,
        partners=partners,
        design=seed,
    )


def operation_of(
    kernel: Kernel, epsilon: float, delta: float, distribution: str, partners: int | None
) -> str:
    """Return a statistic as JSON text that parties send; ConfigError if invalid or too long."""
    described = describe(kernel)
    if distribution not in DISTRIBUTIONS:
        raise ConfigError.at(
            "noise", f"{distribution!r} is none of {', '.join(DISTRIBUTIONS)}", ConfigCheck.CHOICE
        )
    for name, value in (("epsilon", epsilon), ("delta", delta)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ConfigError.at(name, f"{value!r} is not a finite number", ConfigCheck.RANGE)
    if partners is not None and (type(partners) is not int or partners < 1):
        raise ConfigError.at("P", f"{partners!r} is not a positive integer", ConfigCheck.RANGE)
    requested = {
        **described,
        "epsilon": float(epsilon),
        "delta": float(delta),
        "law": distribution,
        "partners": partners or (1 if distribution in PAIR_DISTRIBUTIONS else 0),
    }
    return encode_operation(requested, MAX_OPERATION)


def sum_record(encoding: Encoding, ring_vector: Sequence[int]) -> list[int]:
    """Return the integers that a party shares for a sum; with weights, its values divided by its weight."""
    values = [int(element) for element in ring_vector]
    if not encoding.max_weight:
        return values
    weight = values[-1]
    # The computation multiplies, so that it can check both; a vector of weight 0 may be any.
    return [*(value // weight if weight else 0 for value in values[:-1]), weight]


def charge_of(program: Program) -> Event:
    """Return the privacy event that one party's ledger charges for a program on shares."""
    if program.epsilon is not None:
        return event_of(program)
    # Not at the top: a session without a ledger needs no accountant.
    from smpc_dp.privacy.accountant.events import exact_release

    return exact_release("sum on shares", "substitution")


def sum_outcome(
    context: Context, parameters: SharedParameters, servers: int, planned: Program, opened: Opened
) -> Outcome:
    """Convert the opened integers of a sum to its result; raise VerificationError if impossible."""
    encoding = parameters.sum_encoding
    program = _of(planned, opened.terms)
    if parameters.program == "tables":
        return _tables_outcome(context, cast("TableParameters", parameters), servers, program, opened)
    sums = opened.values[: encoding.ring_length]
    if len(sums) < encoding.ring_length:
        raise VerificationError("the servers opened fewer values than vectors have", Check.WRONG_LENGTH)
    noises = program.noises
    if noises:
        # Laplace noise has a mean between two grid points.
        sums = tuple(round(noise.read(value)) for noise, value in zip(noises, sums, strict=True))
    if not all(abs(value) < 1 << 62 for value in sums):
        raise VerificationError(
            "the servers opened a value that no vectors and no noise explain", Check.OUT_OF_BOUNDS
        )
    parties = len(opened.included)
    if noises:
        weight = sums[-1] if encoding.max_weight else parties
        total = np.array(sums[: encoding.length], np.int64) + np.int64(weight * encoding.lowest)
    elif min(sums) < 0:
        raise VerificationError(
            "the servers opened a negative sum of values that are not", Check.OUT_OF_BOUNDS
        )
    else:
        total, weight = encoding.decode(np.array(sums, np.uint64), parties)
    error = math.sqrt(max((noise.variance for noise in noises), default=0.0)) * encoding.step
    return Outcome(
        total=total,
        weight=weight,
        encoding=encoding,
        survivors=opened.included,
        absent=_absent(context, opened),
        faults=(*opened.faults, *_refused(opened, encoding.ring_length)),
        privacy=cast("SharedRecordParameters", parameters).privacy(servers)
        if parameters.program == "records"
        else with_servers(claim_of(program, servers)),
        evidence=_evidence(context, opened),
        noise=Noise(total=error, curator=error, honest=parties, residual_pairs=0) if noises else None,
    )


def _tables_outcome(
    context: Context, parameters: TableParameters, servers: int, program: Program, opened: Opened
) -> Outcome:
    """Convert the opened integers of exact tables to cells; raise VerificationError if impossible."""
    cells = read_tables(program.terms, opened.values)
    if cells is None:
        raise VerificationError("the servers opened counts that the rule does not allow", Check.OUT_OF_BOUNDS)
    return Outcome(
        total=np.array(cells, np.int64),
        weight=len(opened.included),
        encoding=parameters.encoding,
        survivors=opened.included,
        absent=_absent(context, opened),
        faults=(*opened.faults, *_refused(opened, 2 * parameters.request.length)),
        privacy=parameters.privacy(servers),
        evidence=_evidence(context, opened),
        noise=None,
    )


def statistic_outcome(
    context: Context,
    servers: int,
    planned: Program,
    opened: Opened,
    zetas: tuple[float, float] | None = None,
) -> StatisticResult:
    """Convert the opened integers of a pairwise statistic to its result."""
    program = _of(planned, opened.terms)
    answer = read_answer(program, opened.values)
    made = statistic_result(program, answer, servers=servers, zetas=zetas, names=opened.included)
    evidence = SharedEvidence(
        session_digest=context.session_digest,
        run_id=opened.run_id,
        plan=opened.terms.digest,
        beacon=opened.included_by.set_digest,
        log=None,
        included_by=opened.included_by,
        opened_by=opened.opened_by,
    )
    return replace(
        made,
        privacy=with_servers(claim_of(program, servers)),
        evidence=evidence,
        survivors=opened.included,
        absent=_absent(context, opened),
        faults=(*opened.faults, *made.faults),
    )


@functools.lru_cache(maxsize=16)
def _sum(parameters: SharedParameters, parties: int) -> Program:
    """Return the program of a sum or average of vectors whose coordinates are bounded."""
    encoding = parameters.sum_encoding
    kind: ProgramKind = "weighted-mean" if encoding.max_weight else "sum"
    width = max(encoding.highest - encoding.lowest, 1)
    bounds = [(0, width)] * encoding.length
    if encoding.max_weight:
        bounds.append((0, encoding.max_weight))
    return sum_program(
        kind,
        parties,
        bounds,
        parameters.epsilon,
        parameters.delta,
        distribution=cast("CentralDistribution", parameters.mechanism),
    )


def _evidence(context: Context, opened: Opened) -> Evidence:
    """Return the evidence of a result on shares: all servers' signatures on the included, and on values."""
    return Evidence(
        protocol=context.protocol,
        version=context.version,
        session_digest=context.session_digest,
        run_id=opened.run_id,
        merkle_commitment=opened.terms.digest,
        participating=opened.present,
        participants=opened.included_by,
        survivors=opened.opened_by,
    )


def _of(planned: Program, terms: ProgramTerms) -> Program:
    """Return the program with its terms replaced by those that the servers used."""
    return msgspec.structs.replace(planned, terms=terms)


def _refused(opened: Opened, count: int) -> tuple[str, ...]:
    """Return error texts that name the parties whose records were found out of bounds."""
    names = opened.included
    return tuple(
        f"{names[party]}: a value out of bounds; its record counts as the least one"
        for party in opened.values[count:]
        if 0 <= party < len(names)
    )


def _absent(context: Context, opened: Opened) -> tuple[str, ...]:
    """Return the names of the parties whose records are not included in the result."""
    there = set(opened.included)
    return tuple(name for name in context.names if name not in there)
