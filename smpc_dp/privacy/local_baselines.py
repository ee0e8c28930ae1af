"""Mean squared errors of local-DP protocols for pairwise statistics, the baselines of the planners."""

from __future__ import annotations

import msgspec
import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.local_auc import published_error_bound
from smpc_dp.privacy.local_pairwise import (
    MAX_BINS,
    Floats,
    exact_variance,
    plan_quantisation,
    variance_bound,
)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of one local-DP protocol for a pairwise statistic, to be compared: bins and mean squared error."""

    protocol: str
    bins: int | None = None
    """Cells or categories, where the protocol has them."""
    bound: float
    """On the mean squared error."""
    exact: float | None = None
    """The mean squared error itself, where the distribution is given."""
    proven: bool = True
    """Whether docs/proofs/planners.md proves the bound."""


def local_baselines(
    parties: int,
    epsilon: float,
    *,
    width: float = 1.0,
    categories: int | None = None,
    model: tuple[Floats, Floats] | None = None,
    lipschitz: float | None = None,
    density_lipschitz: float | None = None,
    auc: tuple[int, int] | None = None,
) -> list[Baseline]:
    """Return plans of local-DP protocols that apply to a pairwise statistic, for comparison.

    categories: discrete records (Theorem 3.3); model: kernel matrix and distribution, which give the exact
    variance; lipschitz, density_lipschitz: records in [0, 1], cells chosen best (Theorem 3.4, Corollary
    3.1); auc: (positives, levels) for Theorem 3.5, kernel of width 1. Raises ConfigError.
    """
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 2, 1_000_000_000)
    checks.require_budget(epsilon)
    if categories is not None:
        checks.require_integer("categories", categories, 1, MAX_BINS)
    checks.require_positive("width", width, 1e9)
    if auc is not None and not checks:
        checks.require_integer("positives", auc[0], 1, parties - 1)
    checks.raise_issues()
    square = width**2
    baselines = []
    if model is not None:
        kernel, distribution = model
        k = len(distribution)
        exact = exact_variance(kernel, distribution, parties, epsilon)
        bound = square * variance_bound(parties, k, epsilon)
        baselines.append(Baseline(protocol="randomised response", bins=k, bound=bound, exact=exact))
    if categories is not None:
        bound = square * variance_bound(parties, categories, epsilon)
        baselines.append(Baseline(protocol="randomised response", bins=categories, bound=bound))
    if lipschitz is not None:
        bins, error = plan_quantisation(parties, epsilon, lipschitz=lipschitz / width)
        baselines.append(Baseline(protocol="rounded, Lipschitz kernel", bins=bins, bound=square * error))
    if density_lipschitz is not None:
        bins, error = plan_quantisation(parties, epsilon, density_lipschitz=density_lipschitz)
        baselines.append(Baseline(protocol="rounded, Lipschitz density", bins=bins, bound=square * error))
    if auc is not None:
        positives, levels = auc
        bound = published_error_bound(positives, parties - positives, levels, epsilon, "users")
        baselines.append(Baseline(protocol="hierarchical histogram, AUC", bound=bound, proven=False))
    return baselines


def read_model(value: object) -> tuple[Floats, Floats]:
    """Parse the kernel matrix and the record distribution in a dict; ConfigError if malformed."""
    if not isinstance(value, dict) or set(value) != {"kernel", "distribution"}:
        raise ConfigError.at(
            "model", 'not an object with the keys "kernel" and "distribution"', ConfigCheck.FORMAT
        )
    try:
        kernel = np.asarray(value["kernel"], dtype=np.float64)
        distribution = np.asarray(value["distribution"], dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError.at(
            "model", "kernel and distribution are not arrays of numbers", ConfigCheck.TYPE
        ) from None
    if distribution.ndim != 1 or not 1 <= len(distribution) <= 2_000:
        raise ConfigError.at("model", "distribution is not a list of 1 to 2,000 numbers", ConfigCheck.TYPE)
    if not np.isfinite(kernel).all() or not np.isfinite(distribution).all():
        raise ConfigError.at("model", "numbers that are not finite", ConfigCheck.RANGE)
    return kernel, distribution
