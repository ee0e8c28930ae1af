"""The result of a statistic that servers computed on shares: estimate, error and privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult, simulation
from smpc_dp.capabilities.servers.secret_sharing.claims import HONEST_SERVERS
from smpc_dp.capabilities.servers.statistics.plan import Answer, Program
from smpc_dp.capabilities.servers.statistics.program import count_pairs, kernel_in
from smpc_dp.engine.result import Claim
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.central_gaussian import WideGaussian
from smpc_dp.privacy.central_pairwise import auc_sampling_error
from smpc_dp.privacy.guarantee import PrivacyGuarantee, Relation, delta_warnings
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.pairwise_plan import complete_error, given_zetas, sampling_error

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

RELATION: Relation = "substitution"


def event_of(program: Program) -> Event:
    """Return the privacy event that each party's ledger charges; raise ConfigError for an exact program."""
    if program.noise and isinstance(program.noise[0], WideGaussian):
        return program.noise[0].event()
    # Not at the top: the accountant takes a while to load.
    from smpc_dp.privacy.accountant.events import Event, Pure

    if program.epsilon is None:
        raise ConfigError.at("epsilon", "an exact result has no budget to charge", ConfigCheck.UNSUPPORTED)
    return Event(mechanism_of(program)[:200], RELATION, (Pure(program.epsilon, program.delta),))


def statistic_result(
    program: Program,
    answer: Answer,
    *,
    servers: int,
    how: str = "protocol",
    level: float = 0.95,
    zetas: Sequence[float] | None = None,
    names: Sequence[str] = (),
) -> StatisticResult:
    """Return the user's result of a pairwise statistic on shares: estimate, errors, privacy.

    The noise's part of the error is exact. Pairs that were opened one by one show their own spread; else that
    of the data cannot be read from one noisy number: it is taken from `zetas` = (zeta_1, zeta_2), or is the
    greatest possible. `names` are the parties', for the faults. Raises ConfigError for a level outside (0,
    1).
    """
    if not 0 < level < 1:
        raise ConfigError.at("level", f"{level!r} is not a number in (0, 1)", ConfigCheck.RANGE)
    terms = program.terms
    kernel = kernel_in(terms)
    value, result = answer.values[0], answer.result
    if result is None:
        error = math.hypot(answer.noise_error[0], math.sqrt(_sampling(program, zetas)))
        reach = NormalDist().inv_cdf((1 + level) / 2) * error
        spread: tuple[float | None, tuple[float, float] | None] = error, (value - reach, value + reach)
    else:
        spread = result.standard_error, result.interval
    called = [names[party] if names else f"party {party}" for party in answer.refused]
    return StatisticResult(
        kernel=kernel.name,
        value=value,
        standard_error=spread[0],
        interval=spread[1],
        level=level,
        noise_error=answer.noise_error[0],
        pairs=count_pairs(terms),
        failed=0,
        parties=terms.parties,
        partners=terms.partners or terms.parties - 1,
        privacy=claim_of(program, servers, how).privacy(),
        faults=tuple(f"{name}: a value out of bounds; its record counts as the least one" for name in called),
        positives=answer.positives,
        auc=answer.auc,
    )


def claim_of(program: Program, servers: int, how: str = "protocol") -> Claim:
    """Return the claim of a program's result: its privacy, correctness, and which servers must be honest."""
    clauses = NamedSentences.of(
        shared=f"records are shared among {servers} servers",
        learned=f"any {(servers - 1) // 2} of them learn nothing but what is opened",
    )
    premises = NamedSentences.of(
        random_bits="shared random bits come from SHAKE128 as a pseudorandom function; bits of records are "
        "masked with a statistical distance below 2^-40 for all of them together"
    )
    limits = NamedSentences.of(
        servers="against half of the servers together, or one that is malicious, nothing is claimed",
        result="the result itself: a party may give any record in bounds; which records were out of bounds "
        "is shown",
        labels="the labels of parties are public" if program.terms.public_labels else None,
        simulation=simulation(how),
    )
    if program.epsilon is None:
        return Claim(
            clauses=clauses,
            premises=NamedSentences.of(honest_servers=HONEST_SERVERS) + premises,
            limits=NamedSentences.of(exact="what the exact result itself gives away") + limits,
        )
    if program.plan is not None:
        limits += NamedSentences.of(pairs="which pairs there are, and the noisy output of each, are public")
        moved = float(program.plan.noise.steps)
    else:
        moved = float(max(noise.sensitivity for noise in program.noise))
    guarantee = PrivacyGuarantee(
        epsilon=program.epsilon,
        delta=program.delta,
        relation=RELATION,
        sensitivity={_norm_of(program): moved},
        unit="1 of the opened integer",
        mechanism=mechanism_of(program),
        assumption=HONEST_SERVERS,
        proof="docs/proofs/servers.md: from the coins as they are",
        warnings=delta_warnings(program.delta, program.terms.parties),
    )
    return Claim(guarantee=guarantee, clauses=clauses, premises=premises, limits=limits)


def _norm_of(program: Program) -> str:
    """Return the norm in which the program's sensitivity is stated."""
    return "l2" if program.noise and isinstance(program.noise[0], WideGaussian) else "linf"


def mechanism_of(program: Program) -> str:
    """Return text that describes what a program opens, and with which noise."""
    terms = program.terms
    reason = f"{terms.kernel} of {count_pairs(terms)} pairs" if terms.kernel else terms.kind
    if program.plan is not None:
        noise = program.plan.noise
        return f"{reason}, {noise.name} noise in each on shares, variance {noise.variance:.6g} grid steps^2"
    if not program.noise:
        return f"{reason}, exact, on shares"
    errors = ", ".join(f"{math.sqrt(noise.variance):.6g}" for noise in program.noise)
    return f"{reason}, {program.noise[0].name} noise on shares of standard deviation {errors} in integers"


def _sampling(program: Program, zetas: Sequence[float] | None) -> float:
    """Return the part of the squared standard error that comes from sampling pairs and records."""
    terms = program.terms
    kernel = kernel_in(terms)
    if terms.public_labels:
        high = sum(terms.public_labels)
        return auc_sampling_error(high, terms.parties - high)
    greatest = kernel.width**2 / 4
    first, second = (greatest / 2, greatest) if zetas is None else given_zetas(zetas, kernel.width)
    if terms.partners and terms.parties > 2:
        return sampling_error(terms.parties, terms.partners, first, second)
    return complete_error(terms.parties, first, second)
