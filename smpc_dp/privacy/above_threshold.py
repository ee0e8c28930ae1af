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
    """Settings of an instance: `sensitivity` is how far one record moves any query, in steps of 2^-bits."""

    epsilon: float
    threshold: float
    sensitivity: int
    bits: int

    def begin(self, source: NoiseSource) -> AboveThreshold:
        """Return a fresh instance; it is charged `epsilon`."""
        return AboveThreshold(self, source)


class AboveThreshold:
    """One instance: it answers until the first answer is yes."""

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
        scale = Fraction(factor * self._plan.sensitivity) / Fraction(self._plan.epsilon)
        return int(discrete_laplace(self._source, 1, scale)[0])
