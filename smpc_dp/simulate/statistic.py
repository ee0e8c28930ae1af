"""A pairwise statistic in one process: through every gate, or the ideal functionality with the same noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any, Literal, cast

import numpy as np

from smpc_dp.capabilities.pairs.garbled.draw import Pairs, bipartite_matchings, matchings
from smpc_dp.capabilities.pairs.garbled.messages import PAIR_COPIES
from smpc_dp.capabilities.pairs.garbled.params import Security, copies_of, refuse_garbling
from smpc_dp.capabilities.pairs.garbled.participant import Participant
from smpc_dp.capabilities.pairs.kernels.fields import Codes, checked_labels
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.named import find_kernel
from smpc_dp.capabilities.pairs.roles import aggregator_role, party_role
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.capabilities.pairs.statistics.compiled import plan_statistic
from smpc_dp.capabilities.pairs.ustatistic.estimate import estimate
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult, result_of
from smpc_dp.capabilities.servers.simulation.shared import run_alone, run_ideal
from smpc_dp.capabilities.servers.statistics.pairs import PAIR_DISTRIBUTIONS
from smpc_dp.capabilities.servers.statistics.plan import read_answer, statistic_program
from smpc_dp.capabilities.servers.statistics.result import statistic_result
from smpc_dp.errors import ConfigCheck, ConfigError, SmpcError
from smpc_dp.executors.shards import run_shards
from smpc_dp.privacy.circuit_noise import NoiseKind, PairDistribution, Raw
from smpc_dp.session.memory.randomness import randomness_of
from smpc_dp.session.memory.simulated_run import draw_signers, public_keys
from smpc_dp.wire.signing import Context

Engine = Literal["garbled", "mpyc"]
Fidelity = Literal["gates", "program", "ideal"]
_TRUE: dict[str, Fidelity] = {"garbled": "gates", "mpyc": "program"}

GARBLER, EVALUATOR, AGGREGATOR = "garbler", "evaluator", "aggregator"
# Pairs of a shard, which are garbled together: bounds the memory.
CHUNK = 1 << 13
# Number of servers that a simulation's claims assume.
SERVERS = 3
OnPairs = Callable[[int], None]


def pairwise(  # noqa: PLR0913 - those of `Session.pairwise`, and what a simulation has beside them
    kernel: str | Kernel,
    data: Any,
    epsilon: float,
    P: int | None = None,  # noqa: N803 - the paper's symbol
    *,
    labels: Any = None,
    delta: float = 0.0,
    noise: NoiseKind | PairDistribution = "laplace",
    zetas: tuple[float, float] | None = None,
    fidelity: Fidelity | None = None,
    engine: Engine = "garbled",
    covert: int | None = None,
    security: Security | None = None,
    level: float = 0.95,
    seed_for_simulation: int | None = None,
    on_pairs: OnPairs = lambda _: None,
    executor: Executor | None = None,
) -> StatisticResult:
    """Simulate a private statistic of pairs of parties (Kendall's tau, AUC...) in this process.

    Args:
        kernel, epsilon, P, delta, noise, zetas, covert, security, level: as in `Session.pairwise`.
        data: one record for each party, shape (n, fields), or a tuple of one array (n,) for each field.
        labels: (n,) of 0 and 1, for a kernel with public labels.
        engine: "garbled", a circuit for each pair; "mpyc", servers that compute on shares with one noise for
            all pairs: then P None is all of them, and `noise` is "laplace" or "gaussian". With the noises
            "pair_laplace", "pair_gaussian" and "randomised_response" they add it to each pair, as "garbled"
            does, P None being 1.
        fidelity: None for what the engine does: "gates" garbles and evaluates every pair, with one setup of
            oblivious transfers for each shard, so that the cost of setups is left out; "program" runs mpyc as
            a single party. "ideal" computes the same noise from the same coins without either.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness, as
            "program" does in any case.
        on_pairs: told how many pairs are done.
        executor: garbles and evaluates shards of 8,192 pairs, or of as many as `covert` allows, whose records
            are sent to it; None: this process does.

    Raises:
        ConfigError: an argument is wrong. PrivacyError: a value is outside its domain.
    """
    if engine not in _TRUE:
        raise ConfigError.at("engine", f"{engine!r} is neither 'garbled' nor 'mpyc'", ConfigCheck.CHOICE)
    if fidelity not in (None, "ideal", _TRUE[engine]):
        reason = f"{fidelity!r} is neither '{_TRUE[engine]}' nor 'ideal', for engine '{engine}'"
        raise ConfigError.at("fidelity", reason, ConfigCheck.CHOICE)
    how: Fidelity = fidelity or _TRUE[engine]
    known = find_kernel(kernel)
    codes = known.codes(data)
    public_labels = checked_public_labels(known, labels, len(codes))
    source = randomness_of(seed_for_simulation, "pairwise")
    if _TRUE[engine] == "program":
        refuse_garbling(covert, security)
        partners = P or (1 if noise in PAIR_DISTRIBUTIONS else 0)
        program = statistic_program(
            known,
            len(codes),
            epsilon,
            delta,
            distribution=noise,
            public_labels=public_labels or (),
            partners=partners,
            design=source.bytes(32) if partners else b"",
        )
        ideal = how == "ideal"
        opened = run_ideal(program, codes, source) if ideal else run_alone(program, codes.tolist())
        answer = read_answer(program, opened, level)
        return statistic_result(program, answer, servers=SERVERS, how=how, level=level, zetas=zetas)
    plan = plan_statistic(
        known,
        len(codes),
        epsilon,
        delta,
        partners=P,
        noise=cast("NoiseKind", noise),
        zetas=zetas,
        covert=copies_of(security, covert, PAIR_COPIES),
        malicious=security == "malicious",
    )
    pairs = draw(plan, source.bytes(32), len(codes), public_labels).reshape(-1, 2)
    if how == "ideal":
        integers = known.integer(codes[pairs[:, 0]], codes[pairs[:, 1]])
        raw = plan.noise.draw(integers.astype(np.int64), source)
    else:
        raw = np.concatenate(list(through_gates(plan, codes, pairs, seed_for_simulation, on_pairs, executor)))
    return result_of(plan, estimate(plan, pairs, raw, level=level), len(codes), how)


def checked_public_labels(kernel: Kernel, labels: Any, parties: int) -> list[int] | None:
    """Return the parties' public labels, or None if the kernel takes none; ConfigError if they are wrong.

    Raises ConfigError unless each is 0 or 1, and both occur.
    """
    if kernel.labels != "public":
        if labels is not None:
            raise ConfigError.at("labels", f"'{kernel.name}' takes no public labels", ConfigCheck.UNSUPPORTED)
        return None
    return [int(public_label) for public_label in checked_labels(labels, parties)]


def draw(plan: StatisticPlan, seed: bytes, parties: int, labels: list[int] | None) -> Pairs:
    """Return the matchings of parties that a seed gives, shape (partners, pairs, 2); across any `labels`."""
    if labels is not None:
        return bipartite_matchings(seed, labels, plan.partners)
    return matchings(seed, parties, plan.partners)


def through_gates(
    plan: StatisticPlan,
    codes: Codes,
    pairs: Pairs,
    seed_for_simulation: int | None = None,
    on_pairs: OnPairs = lambda _: None,
    executor: Executor | None = None,
) -> Iterator[Raw]:
    """Yield the noisy outputs of all pairs, whose circuits are garbled and evaluated in shards."""
    size = min(CHUNK, plan.evaluation(GARBLER, EVALUATOR).most_instances)
    calls = (
        (plan, codes[pairs[start : start + size]], number, seed_for_simulation)
        for number, start in enumerate(range(0, len(pairs), size), 1)
    )
    done = 0
    for raw in run_shards(executor, _evaluate, calls, "shard of pairs"):
        yield raw
        done += len(raw)
        on_pairs(done)


def _evaluate(plan: StatisticPlan, records: Codes, number: int, seed_for_simulation: int | None) -> Raw:
    """Evaluate garbled circuits for one shard of pairs, and return the raw outputs.

    One garbler, one evaluator and one aggregator stand for all.
    """
    source = randomness_of(seed_for_simulation, f"pairs {number}")
    signers = draw_signers(dict.fromkeys((GARBLER, EVALUATOR, AGGREGATOR), source))
    keys, session = public_keys(signers), source.bytes(32)
    engine = plan.evaluation(GARBLER, EVALUATOR, len(records))
    context = Context(*engine.protocol, session, number, (GARBLER, EVALUATOR), AGGREGATOR, keys)
    roles: dict[str, Participant] = {
        name: party_role(context, signers[name], engine, plan.inputs(records[:, side], source), source)
        for side, name in enumerate((GARBLER, EVALUATOR))
    }
    roles[AGGREGATOR] = aggregator_role(context, signers[AGGREGATOR], engine, source)
    ends = evaluate_in_memory(roles)
    for end in ends.values():
        if isinstance(end, SmpcError):
            raise end
    outcome = ends[AGGREGATOR]
    if isinstance(outcome, SmpcError) or outcome.outputs is None:
        raise RuntimeError("the aggregator has no outputs")
    return plan.raw(outcome.outputs[0], len(records))
