"""Area under the ROC curve (AUC) under local differential privacy, from hierarchical histograms.

[Bellet 2021, 3.3.3], labels public, scores in {0, .., 2^alpha - 1}, frequencies by Hadamard response. Either
the budget is split, each party answering in each of the alpha levels with epsilon / alpha, and levels are
independent. Or the parties are, each answering in one level, drawn for it, with epsilon. Both ways estimates
are unbiased and uncorrelated within a level.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers
from smpc_dp.privacy.response import ResponseDistribution

Floats = npt.NDArray[np.float64]
Split = Literal["users", "budget"]


@checks_numbers
def node_variance(parties: float, levels: int, epsilon: float, split: Split = "budget") -> float:
    """Return a paper's bound on the variance of a tree node's estimate in a locally private AUC."""
    repeat, each = (levels, epsilon) if split == "users" else (1, epsilon / levels)
    return parties * repeat / ResponseDistribution.of_epsilon(2, each).retained ** 2


@checks_numbers
def published_error_bound(
    positives: int, negatives: int, levels: int, epsilon: float, split: Split = "budget"
) -> float:
    """Return a paper's bound (Theorem 3.5) on the mean squared error of a locally private AUC.

    For this oracle and the best a > 1:
    C n- n+ alpha^2 (2 n + (4 a + 1) min(n-, n+) + 21 sqrt(2 n C alpha) / (sqrt(a) - 1)) / (n+ n-)^2 with
    C = V / (n alpha). The paper proves it elsewhere, for a threshold that the thesis does not print; we
    have not derived it, independence within a level is replaced by lack of correlation, and levels are
    independent for a split budget alone. Raises ConfigError, also unless alpha <= sqrt(n).
    """
    checks = ArgumentChecks()
    checks.require_integer("positives", positives, 1, 1_000_000_000)
    checks.require_integer("negatives", negatives, 1, 1_000_000_000)
    checks.require_integer("levels", levels, 1, 64)
    checks.require_budget(epsilon)
    if not checks and levels > math.sqrt(positives + negatives):
        checks.add_issue(
            "levels",
            f"Theorem 3.5 needs levels <= sqrt(n) = {math.sqrt(positives + negatives):.4g}",
            ConfigCheck.INFEASIBLE,
        )
    checks.raise_issues()
    n, alpha = positives + negatives, levels
    constant = node_variance(1, levels, epsilon, split) / alpha
    least = min(positives, negatives)
    a = 1 + np.geomspace(1e-4, 1e12, 4_000)
    inner = 2 * n + (4 * a + 1) * least + 21 * np.sqrt(2 * n * constant * alpha) / (np.sqrt(a) - 1)
    return float(constant * alpha**2 * inner.min() / (positives * negatives))


def exact_variance(
    positive: Floats, negative: Floats, epsilon: float, *, split: Split = "budget", ties: float = 0.0
) -> float:
    """Return the exact variance of a locally private AUC for these score counts; ConfigError if unfit.

    `positive` and `negative` count the records with each score, shape (2^alpha,); a pair of equal scores
    counts `ties`. Proof in docs/proofs/local-statistics.md. Raises ConfigError.
    """
    size = len(positive)
    if positive.shape != negative.shape or size < 2 or size & (size - 1):
        raise ConfigError.at(
            "positive", f"{size} scores: their number must be a power of 2, at least 2", ConfigCheck.SHAPE
        )
    levels = size.bit_length() - 1
    up, down = positive.astype(np.float64), negative.astype(np.float64)
    n_up, n_down = float(up.sum()), float(down.sum())
    if n_up == 0 or n_down == 0:
        raise ConfigError.at("positive", "there are no records of one of the labels", ConfigCheck.MISSING)
    square_up, square_down = (node_variance(n, levels, epsilon, split) for n in (n_up, n_down))
    # What a node is multiplied by: at the leaves its sibling and, for ties, its counterpart.
    weight_up, weight_down = ties * down, ties * up
    weight_up[1::2] += down[0::2]
    weight_down[0::2] += up[1::2]
    total = float(ties**2 * ((square_up - up) * (square_down - down)).sum())
    below_up = below_down = 0.0
    first, second = up, down
    while True:
        total += square_up * float((weight_up**2).sum()) + square_down * float((weight_down**2).sum())
        below_up += float(first @ weight_up**2)
        below_down += float(second @ weight_down**2)
        total += float(((square_up - first[1::2]) * (square_down - second[0::2])).sum())
        first, second = first[0::2] + first[1::2], second[0::2] + second[1::2]
        if len(first) == 1:
            break
        weight_up, weight_down = np.zeros_like(first), np.zeros_like(second)
        weight_up[1::2], weight_down[0::2] = second[0::2], first[1::2]
    if split == "users":
        # A party who answers in one level answers in no other: the levels' answers are correlated.
        worse = np.cumsum(down) - down + ties * down
        better = up.sum() - np.cumsum(up) + ties * up
        below_up, below_down = float(up @ worse**2), float(down @ better**2)
    return (total - below_up - below_down) / (n_up * n_down) ** 2
