"""The area under the ROC curve under local differential privacy, from hierarchical histograms.

[Bellet 2021, 3.3.3], labels public, scores in {0, .., 2^alpha - 1}. The frequency oracle here is one Hadamard
response of each user in each level, with epsilon / alpha: estimates are unbiased and uncorrelated
within a level, and independent between levels.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.privacy.arguments import Arguments

Floats = npt.NDArray[np.float64]


def response_scale(epsilon: float, levels: int) -> float:
    """c = (e^e + 1) / (e^e - 1), e = epsilon / levels: an answer keeps its sign with chance (1 + 1/c) / 2."""
    return 1 / math.tanh(epsilon / levels / 2)


def published_error_bound(positives: int, negatives: int, levels: int, epsilon: float) -> float:
    """Theorem 3.5's bound on the mean squared error of the AUC, for this oracle and the best a > 1.

    C n- n+ alpha^2 (2 n + (4 a + 1) min(n-, n+) + 21 sqrt(2 n C alpha) / (sqrt(a) - 1)) / (n+ n-)^2 with
    C = c^2 / alpha. The paper proves it elsewhere, for a threshold that the thesis does not print; we
    have not derived it, and independence within a level is replaced by lack of correlation. Raises
    ConfigError, also unless alpha <= sqrt(n).
    """
    found = Arguments()
    found.integer("positives", positives, 1, 1_000_000_000)
    found.integer("negatives", negatives, 1, 1_000_000_000)
    found.integer("levels", levels, 1, 64)
    found.budget(epsilon)
    if not found.faults and levels > math.sqrt(positives + negatives):
        found.fault("levels", f"Theorem 3.5 needs levels <= sqrt(n) = {math.sqrt(positives + negatives):.4g}")
    found.done()
    n, alpha = positives + negatives, levels
    constant = response_scale(epsilon, levels) ** 2 / alpha
    least = min(positives, negatives)
    a = 1 + np.geomspace(1e-4, 1e12, 4_000)
    inner = 2 * n + (4 * a + 1) * least + 21 * np.sqrt(2 * n * constant * alpha) / (np.sqrt(a) - 1)
    return float(constant * alpha**2 * inner.min() / (positives * negatives))


def exact_variance(positive: Floats, negative: Floats, epsilon: float) -> float:
    """Variance of the AUC over the answers' randomness, when every node of the trees is used (no threshold).

    `positive` and `negative` count the records with each score, shape (2^alpha,). Raises ConfigError.
    """
    size = len(positive)
    if positive.shape != negative.shape or size < 2 or size & (size - 1):
        raise ConfigError(
            [Fault("positive", f"{size} scores: their number must be a power of 2, at least 2")]
        )
    levels = size.bit_length() - 1
    square = response_scale(epsilon, levels) ** 2
    total, up, down = 0.0, positive.astype(np.float64), negative.astype(np.float64)
    n_up, n_down = float(up.sum()), float(down.sum())
    if n_up == 0 or n_down == 0:
        raise ConfigError([Fault("positive", "there are no records of one of the labels")])
    while len(up) > 1:
        right, left = up[1::2], down[0::2]
        noise_right, noise_left = n_up * square - right, n_down * square - left
        total += float((right**2 * noise_left + noise_right * left**2 + noise_right * noise_left).sum())
        up, down = up[0::2] + up[1::2], down[0::2] + down[1::2]
    return total / (n_up * n_down) ** 2
