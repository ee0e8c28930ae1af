"""Published theorems of network DP with their conditions, corrected where docs/proofs/errata.md says so.

Each function refuses arguments beyond its theorem, naming the condition that fails.
"""

from __future__ import annotations

import math

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.theorems import advanced_composition
from smpc_dp.privacy.search import bisect


def _refusal(theorem: str, condition: str) -> ConfigError:
    """Return the ConfigError that says that a theorem's condition does not hold."""
    return ConfigError.at(
        "method", f"{theorem} needs {condition}; use --method exact", ConfigCheck.UNSUPPORTED
    )


def epsilon_of_each(total: float, times: int, slack: float) -> float:
    """Return the greatest epsilon of each of `times` releases with this total, by advanced composition.

    Rounded down.
    """

    def affordable(each: float) -> bool:
        """Return whether so much for each release is within the total."""
        return advanced_composition(each, 0.0, times, slack)[0] <= total

    return total if affordable(total) else bisect(affordable, 0.0, total)[0]


def classical_gaussian(epsilon: float, delta: float, sensitivity: float) -> float:
    """Return sigma of the classical Gaussian mechanism [Bellet 2021, A.5]; ConfigError if epsilon >= 1."""
    if epsilon >= 1:
        raise _refusal("Theorem A.5 (classical Gaussian)", f"epsilon < 1 for one release, not {epsilon:.4g}")
    return math.sqrt(2 * math.log(1.25 / delta)) * sensitivity / epsilon


def ring_sum_sigma(epsilon: float, delta: float, rounds: int, sensitivity: float) -> float:
    """Return sigma for a private sum by a token on a ring, by a published theorem [Bellet 2021, 4.3]."""
    each = epsilon_of_each(epsilon, rounds, delta / 2)
    return classical_gaussian(each, delta / (2 * rounds), sensitivity)


def shuffled_local_epsilon(epsilon: float, delta: float, parties: int) -> float:
    """Return the local epsilon that shuffling amplifies to `epsilon`; ConfigError where unproven.

    epsilon = 12 epsilon_0 sqrt(ln(1/delta) / n), which docs/proofs/errata.md solves for epsilon_0.
    """
    local = epsilon * math.sqrt(parties / math.log(1 / delta)) / 12
    if parties <= 1000:
        raise _refusal("Theorem 4.4", f"more than 1000 parties, not {parties}")
    if delta >= 0.01:
        raise _refusal("Theorem 4.4", f"delta < 1/100 in each round, not {delta:.4g}")
    if local >= 0.5:
        raise _refusal("Theorem 4.4", f"a local epsilon_0 < 1/2, not {local:.4g}")
    return local


def clones_epsilon(local: float, delta: float, parties: int) -> float:
    """Return the central epsilon of shuffled answers by the clones bound; ConfigError where it fails.

    [Feldman, McMillan, Talwar 2021, Theorem 3.1]. Raises ConfigError unless
    epsilon_0 <= ln(n / (16 ln(2/delta))).
    """
    condition = parties / (16 * math.log(2 / delta))
    if condition <= 1 or local > math.log(condition):
        most = math.log(condition) if condition > 1 else 0.0
        raise _refusal("the bound by clones", f"a local epsilon_0 <= {most:.4g}, not {local:.4g}")
    grown = math.exp(local)
    inner = 8 * math.sqrt(grown * math.log(4 / delta) / parties) + 8 * grown / parties
    return math.log1p((grown - 1) / (grown + 1) * inner)


def clones_local_epsilon(epsilon: float, delta: float, parties: int) -> float:
    """Return the greatest local epsilon that shuffles to `epsilon` by the clones bound, or ConfigError."""
    condition = parties / (16 * math.log(2 / delta))
    if condition <= 1:
        raise _refusal(
            "the bound by clones", f"more than 16 ln(2/delta) = {parties / condition:.0f} other parties"
        )
    return bisect(lambda local: clones_epsilon(local, delta, parties) <= epsilon, 0.0, math.log(condition))[0]


def contributions_bound(steps: int, parties: int, slack: float) -> float:
    """Return a bound on a party's contributions to a random walk: T/n + sqrt(3 T ln(1/slack) / n).

    Exceeded with probability at most slack [T, Theorem 4.5].
    """
    return steps / parties + math.sqrt(3 * steps * math.log(1 / slack) / parties)


def sgd_sigma(epsilon: float, delta: float, steps: int, parties: int, lipschitz: float) -> float:
    """Return sigma for SGD on a random walk [Bellet 2021, Theorem 4.6]; ConfigError where it fails.

    The theorem gives epsilon' = sqrt(2 q ln(1/d) / ln(1.25/d)) e for noise sqrt(8 L^2 ln(1.25/d)) / e, e < 1.
    """
    half = delta / 2
    contributions = contributions_bound(steps, parties, half)
    q = max(2 * contributions * math.log(parties) / parties, 2 * math.log(1 / half))
    each = epsilon * math.sqrt(math.log(1.25 / half) / (2 * q * math.log(1 / half)))
    if each >= 1:
        raise _refusal("Theorem 4.6", f"a local epsilon < 1, not {each:.4g}")
    if delta >= 0.5:
        raise _refusal("Theorem 4.6", f"delta < 1/2, not {delta:g}")
    return math.sqrt(8 * math.log(1.25 / half)) * lipschitz / each
