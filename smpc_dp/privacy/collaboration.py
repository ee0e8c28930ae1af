"""Forecast whether data owners gain by learning together under differential privacy.

[Farokhi, Wu, Smith, Kaafar: The Cost of Privacy in Asynchronous Differentially-Private Machine Learning]
bounds the error of its Algorithm 1 by (8) to (11). They are evaluated here as published, not claimed: their
proof drops the distance from the start, which Algorithm 1's step size keeps (docs/proofs/errata.md). What is
exact is the noise, and the forecast for a mean, which is what one gradient is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec

from smpc_dp.errors import ConfigCheck
from smpc_dp.privacy.arguments import GREATEST_EPSILON, ArgumentChecks, checks_numbers

# Of integers, and of numbers from 1e-100 on, so that no square overflows; others are in [0, 1e12].
_GREATEST_INTEGER = {"steps": 10**9, "size": 10**12, "sizes": 10**12, "total": 10**16, "owners": 10_000}
_GREATEST = dict.fromkeys(("epsilon", "epsilons"), GREATEST_EPSILON) | {
    "width": 1e9,
    "constants": 1e12,
    "gradient_bound": 1e12,
    "convexity": 1e12,
    "rho": 1e12,
}


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Forecast for one data owner: variance of its mean estimate alone and in collaboration, with DP."""

    size: int
    """n_i."""
    epsilon: float
    """epsilon_i, for the substitution of one record in all its answers."""
    laplace_scale: float
    """Of the noise on each answer: width T / (n_i epsilon_i)."""
    alone: float
    """Its own records without noise: v / n_i."""
    alone_private: float
    """Its own records with its noise."""
    together: float
    """All records, every owner's answers noisy: v / n + 2 (width T / n)^2 sum of 1/epsilon_j^2."""
    pays: bool
    """Whether `together` is less than `alone`."""
    pays_if_private: bool
    """Whether `together` is less than `alone_private`."""


class CollaborationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Forecast of collaborative estimation: for each data owner, and published error bounds."""

    steps: int
    """T, queries to each owner at most; its budget is split evenly."""
    width: float
    """How far a record's entry moves by substitution; 2 Xi for gradients of l1 norm at most Xi."""
    variance: float
    """v, of one record's entry."""
    total: int
    """n, records of all owners."""
    noise: float
    """Variance of the noise in the mean over all records of one query."""
    owners: list[Owner]
    constants: list[float]
    """c_1, c_2 of the bounds below."""
    bound_8: float
    """(8), and (9) with its own constants: c_1 sqrt(B) + c_2 B."""
    bound_10: float
    """(10), and (11) with its own constants: the same for T to infinity."""
    bounds_proven: bool
    """False: see docs/proofs/errata.md."""
    relation: str
    assumption: str


def _checked(**given: Any) -> ArgumentChecks:
    """Check named arguments, sequences element by element, and return the collected faults."""
    checks = ArgumentChecks()
    for name, value in given.items():
        for one in value if name in ("sizes", "epsilons", "constants") else [value]:
            if name in _GREATEST_INTEGER:
                checks.require_integer(name, one, 1, _GREATEST_INTEGER[name])
            elif name in _GREATEST:
                checks.require_within(name, one, 1e-100, _GREATEST[name])
            else:
                checks.require_within(name, one, 0, 1e12)
    return checks


@checks_numbers
def laplace_scale(width: float, steps: int, size: int, epsilon: float) -> float:
    """Return the scale of a data owner's Laplace noise for T answers: width T / (n_i epsilon_i).

    The l1 sensitivity is width / n_i, and the T queries compose by simple composition [Theorem 1].
    Raises ConfigError.
    """
    _checked(width=width, steps=steps, size=size, epsilon=epsilon).raise_issues()
    return width * steps / (size * epsilon)


@checks_numbers
def pooled_noise(width: float, steps: int, total: int, epsilons: Sequence[float]) -> float:
    """Return the noise variance of all owners' mean answer, 2 (width T / n)^2 sum_j 1/epsilon_j^2.

    It is the variance of sum_j (n_j / n) w_j for Laplace w_j. Raises ConfigError.
    """
    _checked(width=width, steps=steps, total=total, epsilons=epsilons).raise_issues()
    return 2 * (width * steps / total) ** 2 * sum(1 / e**2 for e in epsilons)


@checks_numbers
def bound_8(steps: int, total: int, epsilons: Sequence[float], c_1: float, c_2: float) -> float:
    """Return the published, unproven bound (8) on the error of private collaborative learning after T steps.

    c_1 sqrt(B) + c_2 B, B = 1/T^2 + N sum_i (1/T + 2 sqrt(2) / (n epsilon_i))^2 [(8), (9)]. Raises
    ConfigError.
    """
    _checked(steps=steps, total=total, epsilons=epsilons, c_1=c_1, c_2=c_2).raise_issues()
    noises = sum((1 / steps + 2 * math.sqrt(2) / (total * e)) ** 2 for e in epsilons)
    inner = 1 / steps**2 + len(epsilons) * noises
    return c_1 * math.sqrt(inner) + c_2 * inner


@checks_numbers
def bound_10(total: int, epsilons: Sequence[float], c_1: float, c_2: float) -> float:
    """Return the published, unproven bound (10) on the learning error: (8) for unlimited queries.

    With c_1 sqrt(8 N) / n and c_2 8 N / n^2 [(10), (11)]. Raises ConfigError.
    """
    _checked(total=total, epsilons=epsilons, c_1=c_1, c_2=c_2).raise_issues()
    squares, owners = sum(1 / e**2 for e in epsilons), len(epsilons)
    return math.sqrt(8 * owners) * c_1 / total * math.sqrt(squares) + 8 * owners * c_2 / total**2 * squares


@checks_numbers
def proof_constants(owners: int, gradient_bound: float, convexity: float, rho: float) -> tuple[float, float]:
    """Return the constants c_1, c_2 of bound (8), for gradients up to a bound and strongly convex losses.

    The proof names them the other way round. Its lambda is taken in expectation, 1 - 1/(2N), the second
    eigenvalue of the mean of its averaging matrices; for a single matrix it is 1 and the bound
    infinite. Its root has another 1/T, which (8) drops. Raises ConfigError.
    """
    _checked(owners=owners, gradient_bound=gradient_bound, convexity=convexity, rho=rho).raise_issues()
    second = 1 - 1 / (2 * owners)
    common = rho * owners * (gradient_bound / convexity) ** 2
    return common * 2 * owners * math.sqrt(owners + 1) / (1 - math.sqrt(second)), common


@checks_numbers
def plan_collaboration(
    sizes: Sequence[int],
    epsilons: Sequence[float],
    *,
    steps: int = 1,
    width: float = 1.0,
    variance: float | None = None,
    constants: tuple[float, float] = (1.0, 1.0),
) -> CollaborationPlan:
    """Forecast the errors of data owners who estimate a mean together, each with its own epsilon.

    `variance` of a record is (width^2)/12 unless given, at most width^2 / 4. Raises ConfigError.
    """
    checks = _checked(sizes=sizes, epsilons=epsilons, steps=steps, width=width, constants=constants)
    if len(sizes) != len(epsilons) or not 1 <= len(sizes) <= 10_000:
        checks.add_issue(
            "sizes",
            f"{len(sizes)} sizes and {len(epsilons)} epsilons: as many of both, 1 to 10,000",
            ConfigCheck.SHAPE,
        )
    if not checks and variance is not None:
        checks.require_within("variance", variance, 0, width**2 / 4)
    checks.raise_issues()
    spread = width**2 / 12 if variance is None else variance
    total = sum(sizes)
    noise = pooled_noise(width, steps, total, epsilons)
    together = spread / total + noise
    owners = []
    for size, epsilon in zip(sizes, epsilons, strict=True):
        scale = laplace_scale(width, steps, size, epsilon)
        alone, private = spread / size, spread / size + 2 * scale**2
        owners.append(
            Owner(
                size=size,
                epsilon=epsilon,
                laplace_scale=scale,
                alone=alone,
                alone_private=private,
                together=together,
                pays=together < alone,
                pays_if_private=together < private,
            )
        )
    return CollaborationPlan(
        steps=steps,
        width=width,
        variance=spread,
        total=total,
        noise=noise,
        owners=owners,
        constants=list(constants),
        bound_8=bound_8(steps, total, epsilons, *constants),
        bound_10=bound_10(total, epsilons, *constants),
        bounds_proven=False,
        relation="substitution of one record of one owner",
        assumption=(
            "the learner and the other owners may all be curious and collude; an owner adds its own Laplace "
            "noise and answers at most `steps` queries; records of all owners are independent and of one "
            "distribution for the forecast"
        ),
    )
