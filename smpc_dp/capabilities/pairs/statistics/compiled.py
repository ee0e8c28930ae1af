"""Plan a U-statistic for two-party computation: kernel and noise as one circuit, with its privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    malicious: bool = False,
) -> StatisticPlan:
    """Return a pairwise statistic's plan, with noise for (epsilon, delta) in a circuit; or ConfigError.

    Args:
        partners: P, pairs of each party. None chooses: the best for `zetas` = (zeta_1, zeta_2) of Theorem
            3.7, in squared units of the kernel, or without them P = 1, which is best for the greatest
            possible zeta_1.
        noise: "laplace" and "randomised_response" have delta 0; "gaussian" needs one above 0.
        covert: 0, or copies of each evaluation, 2 to 64: a garbler that cheats is caught with probability
            1 - 1/covert, and convicted.
        malicious: whether each evaluation is secure against a malicious garbler too, without copies; each
            has a delta of 2^-40 beside `delta`.

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
    if covert and malicious:
        checks.add_issue("covert", "copies are not for security 'malicious'", ConfigCheck.CONFLICT)
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
        **_security(covert, malicious),
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
        malicious=malicious,
    )


def _security(covert: int, malicious: bool) -> dict[str, object]:
    """Return the security settings as plain terms: empty for semi-honest garblers."""
    return ({"covert": covert} if covert else {}) | ({"security": "malicious"} if malicious else {})


def is_malicious(terms: Mapping[str, object]) -> bool:
    """Return whether a statistic's terms ask for malicious security; raise ValueError if unknown."""
    if (security := terms.get("security")) not in (None, "malicious"):
        raise ValueError(f"security {str(security)[:80]!r}")
    return security is not None


def design_noise(steps: int, epsilon: float, delta: float, partners: int, kind: NoiseKind) -> Noise:
    """Return the noise of one of the `partners` evaluations that share a budget; or raise ConfigError."""
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
    """Return the number of partners of least predicted error; 1 without `zetas` or with public labels."""
    if zetas is None or kernel.labels == "public":
        return 1
    chosen = best_partners(parties, epsilon, *given_zetas(zetas, kernel.width), kernel.width)
    return min(chosen, MAX_PARTNERS)


def operation_of(kernel: Kernel, plan: StatisticPlan, noise: str) -> str:
    """Return the request as JSON, from which the aggregator compiles an equal plan.

    Raises ConfigError if it does not fit into a message.
    """
    requested = {
        **kernel.terms(),
        "partners": plan.partners,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "noise": noise,
        **_security(plan.covert, plan.malicious),
    }
    return encode_operation(requested, MAX_OPERATION)
