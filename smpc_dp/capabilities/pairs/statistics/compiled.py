"""Plan a U-statistic for two-party computation: kernel and noise as one circuit, with its privacy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from smpc_dp.capabilities.pairs.garbled.params import MAX_COPIES, MIN_COPIES
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.named import sealed
from smpc_dp.capabilities.pairs.ustatistic.messages import MAX_OPERATION
from smpc_dp.capabilities.pairs.ustatistic.plan import MAX_PARTNERS, StatisticPlan
from smpc_dp.engine.phases.operation import encode_operation
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, is_number
from smpc_dp.privacy.circuit_gaussian import TableGaussian
from smpc_dp.privacy.circuit_noise import CyclicLaplace, Noise, NoiseKind, RandomisedResponse
from smpc_dp.privacy.pairwise_plan import best_partners, given_zetas

NOISES = ("laplace", "gaussian", "randomised_response")


def plan_statistic(
    kernel: Kernel,
    parties: int,
    epsilon: float,
    delta: float = 0.0,
    *,
    partners: int | None = None,
    noise: NoiseKind = "laplace",
    zetas: tuple[float, float] | None = None,
    covert: int = 0,
) -> StatisticPlan:
    """Return the compiled statistic of `parties` parties with (epsilon, delta) for each party's record.

    Args:
        partners: P, pairs of each party. None chooses: the best for `zetas` = (zeta_1, zeta_2) of Theorem
            3.7, in squared units of the kernel, or without them P = 1, which is best for the greatest
            possible zeta_1.
        noise: "laplace" and "randomised_response" have delta 0; "gaussian" needs one above 0.
        covert: 0, or copies of each evaluation, 2 to 64: a garbler that cheats is caught with probability
            1 - 1/covert, and convicted.

    Raises ConfigError that names the fault; for an epsilon too small for the grid with the smallest.
    """
    if not isinstance(parties, int) or parties < 2:
        raise ConfigError.at("parties", f"{parties!r} is not an integer of at least 2", ConfigCheck.RANGE)
    checks = ArgumentChecks()
    checks.require_budget(epsilon)
    checks.raise_issues()
    if partners is None:
        partners = _choose(kernel, parties, epsilon, zetas)
    checks.require_integer("partners", partners, 1, MAX_PARTNERS)
    # The rest of a Gaussian's is checked where it is designed.
    if not is_number(delta) or not (delta > 0 if noise == "gaussian" else delta == 0):
        checks.add_issue(
            "delta", f"{delta!r}: above 0 for Gaussian noise, and for that alone", ConfigCheck.UNSUPPORTED
        )
    if covert:
        checks.require_integer("covert", covert, MIN_COPIES, MAX_COPIES)
    checks.raise_issues()
    # Noise is scaled to the range, and hides one output.
    kernel = sealed(kernel)
    design = design_noise(kernel.steps, epsilon, delta, partners, noise)
    terms = {
        **kernel.terms(),
        **design.terms(),
        "partners": partners,
        "epsilon": repr(float(epsilon)),
        "delta": repr(float(delta)),
        **({"covert": covert} if covert else {}),
    }
    return StatisticPlan(
        circuit=compile_kernel(kernel, design),
        fields=tuple(field.bits for field in kernel.fields),
        noise=design,
        low=kernel.low,
        unit=kernel.unit,
        partners=partners,
        epsilon=float(epsilon),
        delta=float(delta),
        bipartite=kernel.labels == "public",
        terms=terms,
        covert=covert,
    )


def design_noise(steps: int, epsilon: float, delta: float, partners: int, kind: NoiseKind) -> Noise:
    """Return the noise of one evaluation for a budget of `partners` evaluations. Raises ConfigError."""
    if kind == "gaussian":
        return TableGaussian.design(steps, epsilon, delta, partners)
    share = epsilon / partners
    while partners * Fraction(share) > Fraction(epsilon):
        share = math.nextafter(share, 0.0)
    if kind == "laplace":
        return CyclicLaplace.design(steps, share)
    if kind == "randomised_response":
        return RandomisedResponse.design(steps, share)
    raise ConfigError.at("noise", f"{kind!r} is none of {', '.join(NOISES)}", ConfigCheck.CHOICE)


def _choose(kernel: Kernel, parties: int, epsilon: float, zetas: Sequence[float] | None) -> int:
    """Return the best number of partners for `zetas`, 1 without them."""
    if zetas is None or kernel.labels == "public":
        return 1
    chosen = best_partners(parties, epsilon, *given_zetas(zetas, kernel.width), kernel.width)
    return min(chosen, MAX_PARTNERS)


def operation_of(kernel: Kernel, plan: StatisticPlan, noise: str) -> str:
    """Return the operation, as JSON, from which the aggregator compiles the same plan.

    Raises ConfigError if it does not fit into a message.
    """
    requested = {
        **kernel.terms(),
        "partners": plan.partners,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "noise": noise,
        **({"covert": plan.covert} if plan.covert else {}),
    }
    return encode_operation(requested, MAX_OPERATION)
