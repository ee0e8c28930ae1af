"""AboveThreshold on integers: tells when the first of many queries is above a threshold [DR, Algorithm 1].

Threshold and queries are integers, and the noise is discrete Laplace of scales 2 D/epsilon and 4 D/epsilon,
D the sensitivity: the proof of Dwork and Roth, Theorem 3.23, shifts the noise by D and 2 D, which are
integers here, so nothing is lost by rounding. One instance costs epsilon, however many queries it takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from smpc_dp.errors import PrivacyError
from smpc_dp.privacy.sampling import NoiseSource, discrete_laplace


@dataclass(frozen=True)
class ThresholdPlan:
    """Settings of an AboveThreshold test; one record moves a query by at most `sensitivity` grid steps."""

    epsilon: float
    threshold: float
    sensitivity: int
    bits: int

    def begin(self, source: NoiseSource) -> AboveThreshold:
        """Return a new test with freshly drawn noise, which costs `epsilon` once until its first yes."""
        return AboveThreshold(self, source)


class AboveThreshold:
    """Sparse-vector test: tells, with DP, whether each query exceeds a threshold, up to the first yes."""

    def __init__(self, plan: ThresholdPlan, source: NoiseSource) -> None:
        self._plan, self._source, self._ended = plan, source, False
        level = round(plan.threshold * 2**plan.bits)
        self._level = level + self._draw(2)

    def __call__(self, query: int) -> bool:
        """Return whether the query, in grid steps, is above; raise PrivacyError after a yes."""
        if self._ended:
            raise PrivacyError("this threshold has answered yes: a new window needs a new one")
        self._ended = query + self._draw(4) >= self._level
        return self._ended

    def _draw(self, factor: int) -> int:
        """Draw discrete Laplace noise of scale factor * sensitivity / epsilon, in grid steps."""
        scale = Fraction(factor * self._plan.sensitivity) / Fraction(self._plan.epsilon)
        return int(discrete_laplace(self._source, 1, scale)[0])
