"""A pairwise statistic in one process: through every gate, or the ideal functionality with the same noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from nacl.signing import SigningKey

from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import ConfigError, Fault, SmpcError
from smpc_dp.privacy.circuit_noise import Raw
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.pairwise.aggregator import AggregatorRole
from smpc_dp.protocols.pairwise.draw import Pairs, bipartite_matchings, matchings
from smpc_dp.protocols.pairwise.estimate import estimate
from smpc_dp.protocols.pairwise.evaluator import EvaluatorRole
from smpc_dp.protocols.pairwise.garbler import GarblerRole
from smpc_dp.protocols.pairwise.params import PROTOCOL, VERSION
from smpc_dp.protocols.pairwise.participant import Participant
from smpc_dp.protocols.pairwise.statistic import StatisticPlan
from smpc_dp.protocols.pairwise.statistic_result import StatisticResult, result_of
from smpc_dp.protocols.pairwise.transfers import Transfers
from smpc_dp.simulate.pairwise import evaluate_in_memory
from smpc_dp.simulate.randomness import SeededRandomnessForSimulation
from smpc_dp.simulate.stage import Signer
from smpc_dp.statistics.compiled import NoiseKind, plan_statistic
from smpc_dp.statistics.kernels import Codes, Kernel, checked_labels
from smpc_dp.statistics.known import find_kernel

Fidelity = Literal["gates", "ideal"]

GARBLER, EVALUATOR, AGGREGATOR = "garbler", "evaluator", "aggregator"
# Pairs that are garbled together: bounds the memory.
CHUNK = 1 << 13
OnPairs = Callable[[int], None]


def pairwise(
    kernel: str | Kernel,
    data: Any,
    epsilon: float,
    P: int | None = None,
    *,
    labels: Any = None,
    delta: float = 0.0,
    noise: NoiseKind = "laplace",
    zetas: tuple[float, float] | None = None,
    fidelity: Fidelity = "gates",
    level: float = 0.95,
    seed_for_simulation: int | None = None,
    on_pairs: OnPairs = lambda _: None,
) -> StatisticResult:
    """Estimate a pairwise statistic as `Session.pairwise` would, all parties being in this process.

    Args:
        kernel, epsilon, P, delta, noise, zetas, level: as in `Session.pairwise`.
        data: one record for each party, shape (n, fields), or a tuple of one array (n,) for each field.
        labels: (n,) of 0 and 1, for a kernel with public labels.
        fidelity: "gates" garbles and evaluates every pair, with one setup of oblivious transfers for all, so
            that the cost of setups is left out; "ideal" computes the same noise from the same coins without
            a circuit.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.
        on_pairs: told how many pairs are done.

    Raises:
        ConfigError: an argument is wrong. PrivacyError: a value is outside its domain.
    """
    known = find_kernel(kernel)
    codes = known.codes(data)
    marks = public_labels(known, labels, len(codes))
    plan = plan_statistic(known, len(codes), epsilon, delta, partners=P, noise=noise, zetas=zetas)
    if fidelity not in ("gates", "ideal"):
        raise ConfigError([Fault("fidelity", f"{fidelity!r} is neither 'gates' nor 'ideal'")])
    source: Randomness = SystemRandomness()
    if seed_for_simulation is not None:
        source = SeededRandomnessForSimulation(seed_for_simulation, "pairwise")
    pairs = draw(plan, source.bytes(32), len(codes), marks).reshape(-1, 2)
    if fidelity == "ideal":
        integers = known.integer(codes[pairs[:, 0]], codes[pairs[:, 1]])
        raw = plan.noise.draw(integers.astype(np.int64), source)
    else:
        raw = np.concatenate(list(through_gates(plan, codes, pairs, source, on_pairs)))
    return result_of(plan, estimate(plan, pairs, raw, level=level), len(codes), fidelity)


def public_labels(kernel: Kernel, labels: Any, parties: int) -> list[int] | None:
    """Return the labels of a kernel with public ones, each 0 or 1, both there; None for another kernel.

    Raises ConfigError.
    """
    if kernel.labels != "public":
        if labels is not None:
            raise ConfigError([Fault("labels", f"'{kernel.name}' takes no public labels")])
        return None
    return [int(mark) for mark in checked_labels(labels, parties)]


def draw(plan: StatisticPlan, seed: bytes, parties: int, labels: list[int] | None) -> Pairs:
    """Return the matchings of a statistic, shape (partners, pairs, 2)."""
    if labels is not None:
        return bipartite_matchings(seed, labels, plan.partners)
    return matchings(seed, parties, plan.partners)


def through_gates(
    plan: StatisticPlan, codes: Codes, pairs: Pairs, source: Randomness, on_pairs: OnPairs = lambda _: None
) -> Iterator[Raw]:
    """Yield raw outputs, chunk after chunk: one garbler, one evaluator and one aggregator stand for all."""
    signers = {name: Signer(name, SigningKey(source.bytes(32))) for name in (GARBLER, EVALUATOR, AGGREGATOR)}
    keys = {name: bytes(signer.key.verify_key) for name, signer in signers.items()}
    session = source.bytes(32)
    transfers = {name: Transfers() for name in (GARBLER, EVALUATOR)}
    for number, start in enumerate(range(0, len(pairs), CHUNK), 1):
        chunk = pairs[start : start + CHUNK]
        engine = plan.evaluation(GARBLER, EVALUATOR, len(chunk))
        context = Context(PROTOCOL, VERSION, session, number, (GARBLER, EVALUATOR), AGGREGATOR, keys)
        roles: dict[str, Participant] = {
            name: kind(
                context,
                signers[name],
                engine,
                plan.inputs(codes[chunk[:, side]], source),
                source,
                transfers[name],
            )
            for side, (name, kind) in enumerate(((GARBLER, GarblerRole), (EVALUATOR, EvaluatorRole)))
        }
        roles[AGGREGATOR] = AggregatorRole(context, signers[AGGREGATOR], engine, source)
        ends = evaluate_in_memory(roles)
        for end in ends.values():
            if isinstance(end, SmpcError):
                raise end
        outcome = ends[AGGREGATOR]
        if isinstance(outcome, SmpcError) or outcome.outputs is None:
            raise RuntimeError("the aggregator has no outputs")
        yield plan.raw(outcome.outputs[0], len(chunk))
        on_pairs(start + len(chunk))
