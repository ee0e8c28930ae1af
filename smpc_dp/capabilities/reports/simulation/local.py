"""Local differential privacy in one process: all parties' reports, and the aggregator's estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

if TYPE_CHECKING:
    from smpc_dp.capabilities.pairs.kernels.fields import Field
    from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
    from smpc_dp.capabilities.reports.local_estimate import LocalEstimate
    from smpc_dp.capabilities.reports.local_tree import Oracle
    from smpc_dp.capabilities.reports.quantiser import Rounding
    from smpc_dp.privacy.local_auc import Split


def local_pairwise(
    kernel: str | Kernel,
    data: ArrayLike | Sequence[ArrayLike],
    epsilon: float,
    *,
    labels: ArrayLike | None = None,
    bins: int | Sequence[int] | None = None,
    rounding: Rounding = "simple",
    density_lipschitz: float | None = None,
    confidence: float = 0.95,
    seed_for_simulation: int | None = None,
) -> LocalEstimate:
    """Simulate local reports of all records in one process; return the estimated pairwise statistic.

    Args:
        kernel: from `smpc_dp.capabilities.pairs.kernels`, its fields have the bounds and grids of a record;
            or a name of `kernels.named` there, on integers of 32 bits, which are too many categories
            without `bins`.
        data: one record for each party, shape (n, fields), or a tuple of one array (n,) for each field.
        epsilon: of each report, above 0, at most 100.
        labels: (n,) of 0 and 1, for a kernel with public labels.
        bins, rounding, density_lipschitz: see `LocalPairwise.plan`.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.

    Raises:
        ConfigError: an argument is wrong. PrivacyError: a value is outside its domain.
    """
    # Not at the top: scipy.
    from smpc_dp.capabilities.pairs.kernels.named import find_kernel
    from smpc_dp.capabilities.reports.local import LocalPairwise

    kernel = find_kernel(kernel)
    codes = kernel.codes(data)
    parties = max(2, len(codes))
    plan = LocalPairwise.plan(
        kernel, epsilon, parties=parties, bins=bins, rounding=rounding, density_lipschitz=density_lipschitz
    )
    answers = plan.randomise_many(kernel.values(codes), _randomness(seed_for_simulation, "local pairwise"))
    return plan.estimate(answers, labels=labels, confidence=confidence)


def local_auc(
    score: Field,
    scores: ArrayLike,
    labels: ArrayLike,
    epsilon: float,
    *,
    levels: int,
    oracle: Oracle = "hadamard",
    split: Split = "users",
    ties: float = 0.5,
    threshold: float | None = None,
    confidence: float = 0.95,
    seed_for_simulation: int | None = None,
) -> LocalEstimate:
    """Simulate local reports of all scores in one process; return the estimated area under the ROC curve.

    Args:
        score: bounds and grid of a score; scores and labels: shape (n,); labels are public, 0 or 1.
        epsilon, levels, oracle, split: see `LocalAuc.plan`; ties, threshold: see `LocalAuc.estimate`.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.

    Raises:
        ConfigError: an argument is wrong. PrivacyError: a score is outside its domain.
    """
    # Not at the top: scipy.
    from smpc_dp.capabilities.reports.local_auc import LocalAuc

    randomness = _randomness(seed_for_simulation, "local auc")
    coins = None if randomness is None else randomness.bytes(32)
    plan = LocalAuc.plan(score, epsilon, levels=levels, oracle=oracle, split=split, coins=coins)
    answers = plan.randomise_many(scores, randomness=randomness)
    return plan.estimate(answers, labels, ties=ties, threshold=threshold, confidence=confidence)


def _randomness(seed: int | None, name: str) -> SeededRandomnessForSimulation | None:
    """Return randomness seeded for a named purpose; None, for real randomness, without a seed."""
    return None if seed is None else SeededRandomnessForSimulation(seed, name)
