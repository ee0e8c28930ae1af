"""The estimate from local reports, and U-statistics of categories computed from their counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.kernels.fields import Codes, Floats
from smpc_dp.engine.result import Claim, Privacy
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.named_sentences import NamedSentences


@dataclass(frozen=True, slots=True)
class LocalEstimate:
    """Result of the analyst: a pairwise statistic estimated from randomised reports, with its error.

    Attributes:
        statistic: its name.
        value: the estimate. Unbiased up to the rounding, so it may lie outside of the statistic's range.
        standard_error: of `value`, estimated; the estimator's docstring says over which randomness.
        standard_error_bound: a proven bound on it, whatever the records; None where there is none.
        bias_bound: on the bias, from rounding or from nodes left out; None where none is known, as of the
            ties that rounding makes in Kendall's tau of bins and in the AUC of fewer leaves than grid points:
            `interval` is about the rounded records then.
        interval: covers the statistic with about the probability `confidence`: normal errors, and a bias of
            `bias_bound` at most (where that is None, from nodes left out alone); cut to the statistic's
            range. From few reports with that probability at least.
        reports: the number of reports; categories: k, or the number of scores.
        visited: the number of nodes of the trees that were visited; None for an estimate without trees.
    """

    statistic: str
    value: float
    standard_error: float
    standard_error_bound: float | None
    bias_bound: float | None
    confidence: float
    interval: tuple[float, float]
    reports: int
    categories: int
    visited: int | None
    privacy: Privacy

    def to_json(self) -> dict[str, object]:
        """Return the estimate with its error and privacy as JSON data."""
        plain: dict[str, object] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**plain, "interval": list(self.interval), "privacy": self.privacy.to_json()}


def all_pairs(values: Floats, counts: Codes) -> tuple[float, float]:
    """Return the mean of a symmetric kernel over all pairs, and the jackknife's standard error.

    `values` (k, k) is the kernel between categories, `counts` (k,) how often each occurs, 3 times or more in
    all. The square of the jackknife's is, in expectation, at least the variance [Efron and Stein 1981].
    """
    n = int(counts.sum())
    sums = values @ counts - values.diagonal()  # of h over the others, for one record of each category
    total = float(counts @ sums)
    without = (total - 2 * sums) / ((n - 1) * (n - 2))
    mean = total / (n * (n - 1))
    variance = (n - 1) / n * float(counts @ (without - mean) ** 2)
    return mean, math.sqrt(variance)


def two_samples(values: Floats, first: Codes, second: Codes) -> tuple[float, float]:
    """Return the mean of a kernel over all pairs of two samples, 2 or more in each, and its standard error.

    The error is the jackknife's over both samples [DeLong, DeLong and Clarke-Pearson 1988]; its square is, in
    expectation, at least the variance.
    """
    n, m = int(first.sum()), int(second.sum())
    rows, columns = values @ second / m, first @ values / n
    mean = float(first @ rows) / n
    variance = sum(
        float(counts @ (means - mean) ** 2) / (size * (size - 1))
        for counts, means, size in ((first, rows, n), (second, columns, m))
    )
    return mean, math.sqrt(variance)


# Of fewer disjoint pairs of reports nothing is estimated that an interval could stand on.
ENOUGH_PAIRS = 50


def interval_of(
    value: float,
    error: float,
    bias: float,
    confidence: float,
    limits: tuple[float, float],
    *,
    pairs: int,
    spread: float,
    bound: float | None,
) -> tuple[float, float]:
    """Return the confidence interval of a mean over pairs: normal, or of few reports a proven one.

    Args:
        pairs: how many pairs of the reports have none in common; below `ENOUGH_PAIRS` the reach is the
            smaller one of Hoeffding's and Chebyshev's [docs/proofs/local-statistics.md].
        spread: the greatest value of a pair less the least one; bound: proven, on the standard error, or
            None.
    """
    if pairs >= ENOUGH_PAIRS:
        return normal_interval(value, error, bias, confidence, limits)
    outside = 1 - confidence
    reach = spread * math.sqrt(math.log(2 / outside) / (2 * pairs))
    if bound is not None:
        reach = min(reach, bound / math.sqrt(outside))
    low, high = (min(max(end, limits[0]), limits[1]) for end in (value - reach - bias, value + reach + bias))
    return low, high


def normal_interval(
    value: float, error: float, bias: float, confidence: float, limits: tuple[float, float]
) -> tuple[float, float]:
    """Return the confidence interval value -+ (z * error + bias), cut to the limits."""
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * error + bias
    low, high = (min(max(end, limits[0]), limits[1]) for end in (value - reach, value + reach))
    return low, high


def local_privacy(guarantee: PrivacyGuarantee) -> Privacy:
    """Return the privacy claim of local reports: what one report guarantees, and what it does not."""
    return Claim(
        guarantee=guarantee,
        clauses=NamedSentences.of(
            report=f"each report is {guarantee.epsilon:.6g}-locally differentially private (delta = 0), "
            "against everybody who sees it, the aggregator and all other parties together included"
        ),
        limits=NamedSentences.of(
            further_reports="further reports on the same data: their epsilons add up",
            visible="who reported, and public labels",
            lies="the estimate against parties who lie: each can move it by more than by its record",
        ),
    ).privacy()


def stack_reports(reports: Sequence[bytes], fingerprint: bytes, size: int) -> NDArray[np.uint8]:
    """Return reports as rows of `size` bytes; raise ConfigError for a wrong size or fingerprint."""
    for index, report in enumerate(reports):
        if not isinstance(report, bytes) or len(report) != size:
            reason = f"{len(report)} bytes" if isinstance(report, bytes) else type(report).__name__
            raise ConfigError.at(f"reports[{index}]", f"{reason}, not {size} bytes", ConfigCheck.FORMAT)
        if not report.startswith(fingerprint):
            reason = "was made with other parameters: its fingerprint is not that of this protocol"
            raise ConfigError.at(f"reports[{index}]", reason, ConfigCheck.FORMAT)
    return np.frombuffer(b"".join(reports), dtype=np.uint8).reshape(-1, size)
