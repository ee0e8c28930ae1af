"""Distributed noise: every party adds a share to the sum, and the honest shares alone make it private."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.guarantee import Relation
from smpc_dp.privacy.mechanisms.additive import AdditiveNoise, DiscreteGaussian
from smpc_dp.privacy.mechanisms.base import Integers, Mechanism, add_noise, checked_integers, search_least
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.privacy.sampling import NoiseSource

MAX_PARTIES = 1 << 30


@dataclass(frozen=True)
class DistributedSum(Mechanism):
    """Mechanism of a sum to which each party adds a share of noise; only honest shares count.

    Attributes:
        share: the noise of one party; its sensitivity is that of the sum.
        parties: the number of parties expected to take part.
        missing: how many of them may drop out with their noise, at most.
        corrupt: how many of the others may be corrupt, at most: they know their own noise, or add none.
    """

    share: AdditiveNoise
    parties: int
    missing: int = 0
    corrupt: int = 0

    def __post_init__(self) -> None:
        checks = ArgumentChecks()
        checks.require_integer("parties", self.parties, 1, MAX_PARTIES)
        checks.require_integer("missing", self.missing, 0, MAX_PARTIES)
        checks.require_integer("corrupt", self.corrupt, 0, MAX_PARTIES)
        if not checks and self.honest < 1:
            checks.add_issue(
                "parties", f"{self.parties} leave no honest share of noise", ConfigCheck.INFEASIBLE
            )
        checks.raise_issues()

    @property
    def honest(self) -> int:
        """Number of noise shares that count for privacy: parties less missing and corrupt ones."""
        return self.parties - self.missing - self.corrupt

    @property
    def name(self) -> str:
        """Words for reports: the number of honest shares, and the noise of each."""
        return f"sum of {self.honest} honest shares, each {self.share.name}"

    @property
    def relation(self) -> Relation:
        """Neighbouring relation for which the sensitivity is stated."""
        return self.share.relation

    @property
    def assumption(self) -> str:
        """Sentence on how many parties may drop out or be corrupt for the guarantee to hold."""
        return (
            f"of {self.parties} parties {self.missing} may vanish and {self.corrupt} collude with whoever "
            f"sees the sum; the other {self.honest} add their noise honestly, and only the sum is seen"
        )

    @property
    def proof(self) -> str:
        """Words on the theorem that the stated epsilon rests on, for reports."""
        if isinstance(self.share, DiscreteGaussian) and self.honest > 1:
            return (
                "near a discrete Gaussian of the summed variance, with an explicit error "
                "(docs/proofs/accounting.md), or [Kairouz, Liu, Steinke 2021, Proposition 14]"
            )
        return self.share.proof

    @property
    def unit(self) -> str:
        """Unit of the sensitivity in `norms`: grid steps or the caller's unit."""
        return self.share.unit

    def norms(self) -> dict[str, float]:
        """Return the norms of the sum's sensitivity by name, for reports."""
        return self.share.norms()

    @functools.cached_property
    def _event(self) -> Event:
        """Release of the sum with honest parties' noise alone as an event, computed once."""
        return Event(self.name, self.relation, self.share.descriptions(self.honest))

    def event(self) -> Event:
        """Return the release of the sum, with honest parties' noise alone, as a ledger's event."""
        return self._event

    def release_many(self, values: ArrayLike, source: NoiseSource, count: int) -> Integers:
        """Return rows of the sum with honest parties' noise: what corrupt parties can see."""
        exact = checked_integers(values, self.share.sensitivity.dimension)
        total = np.zeros((count, len(exact)), dtype=np.int64)
        for _ in range(self.honest):
            total = add_noise(total, self.share.noise(source, total.size).reshape(total.shape))
        return add_noise(exact, total)

    @classmethod
    def calibrate(
        cls,
        kind: type[AdditiveNoise],
        epsilon: float,
        delta: float,
        sensitivity: Sensitivity,
        *,
        parties: int,
        missing: int = 0,
        corrupt: int = 0,
    ) -> DistributedSum:
        """Return the sum with the least noise shares that suffice if honest; raise an error if none.

        Raises ConfigError for invalid arguments, PrivacyError if no noise suffices.
        """
        whole = kind.calibrate(epsilon, delta, sensitivity)
        honest = parties - missing - corrupt
        if honest < 1:
            raise ConfigError.at(
                "parties", f"{parties} leave no honest share of noise", ConfigCheck.INFEASIBLE
            )

        def make(parameter: Fraction) -> DistributedSum:
            return cls(kind.of(sensitivity, parameter), parties, missing, corrupt)

        return search_least(make, whole.distribution.share(honest), epsilon, delta)
