"""Private similarities: the cosine of two parties' vectors, with noise inside the circuit that computes it.

Each party is compared with each of the n - 1 others, and both of a pair learn the noisy score. The unit is a
party's whole vector (substitution): the n - 1 comparisons share its epsilon. Nearest neighbours by the
scores, and a graph made of them, cost nothing more. Proofs: docs/proofs/personalized.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.kernels.compiled import compile_kernel
from smpc_dp.capabilities.pairs.kernels.cosine import cosine
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.statistics.compiled import design_noise
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import checks_numbers
from smpc_dp.privacy.circuit_noise import Noise
from smpc_dp.privacy.guarantee import PrivacyGuarantee

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

_ASSUMPTION = (
    "the party follows the protocol and draws its random bits honestly, and garblers are semi-honest; all "
    "others may collude"
)


@dataclass(frozen=True)
class SimilarityPlan:
    """Comparisons of each party with all others.

    Attributes:
        parties: n. epsilon: of a party's vector, for its n - 1 comparisons together.
    """

    kernel: Kernel
    noise: Noise
    parties: int
    epsilon: float

    @cached_property
    def circuit(self) -> Circuit:
        """The circuit of a comparison: codes and random bits of either party to the raw noisy score."""
        return compile_kernel(self.kernel, self.noise)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise of a score, which lies in [-1, 1] without it."""
        return self.kernel.unit * math.sqrt(self.noise.variance)

    def scores(self, raw: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Return the noisy cosines of raw outputs of the circuit; unbiased, so some leave [-1, 1]."""
        return np.asarray(self.kernel.decode(self.noise.read(raw)))

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """What holds for each party's vector."""
        return PrivacyGuarantee(
            epsilon=self.epsilon,
            delta=0.0,
            relation="substitution",
            sensitivity={"l1": float(self.kernel.steps)},
            unit="grid step",
            protects="party",
            mechanism=f"{self.noise.name} noise in the circuit of each of {self.parties - 1} comparisons",
            assumption=_ASSUMPTION,
            proof="simple composition: docs/proofs/personalized.md",
        )

    def event(self) -> Event:
        """Return all comparisons of a party as one event for its ledger."""
        from smpc_dp.privacy.accountant.events import Event, Pure

        claim = self.guarantee
        return Event(claim.mechanism, claim.relation, (Pure(self.epsilon),))


@checks_numbers
def plan_similarities(length: int, parties: int, epsilon: float, levels: int = 7) -> SimilarityPlan:
    """Return the plan of comparisons of all pairs of parties.

    Args:
        length: entries of a vector.
        epsilon: for a party's vector, all of its comparisons together.
        levels: of the grid of a vector of norm 1: entries are multiples of 1/levels; above sqrt(length).

    Raises:
        ConfigError: an argument is out of range, or epsilon is too small for the grid.
    """
    if not isinstance(parties, int) or parties < 2:
        raise ConfigError.at("parties", f"{parties!r} is not an integer of at least 2", ConfigCheck.RANGE)
    kernel = cosine(length, levels)
    if levels * levels <= length:
        reason = (
            f"{levels} for {length} entries: equal ones would become 0; at least {math.isqrt(length) + 1}"
        )
        raise ConfigError.at("levels", reason, ConfigCheck.RANGE)
    noise = design_noise(kernel.steps, epsilon, 0.0, parties - 1, "laplace")
    return SimilarityPlan(kernel, noise, parties, epsilon)


@dataclass(frozen=True)
class Similarities:
    """One party's noisy scores.

    Attributes:
        scores: of each other party, by name. failed: why a comparison failed, by name.
        guarantee: for the party's vector. deviation: standard deviation of a score's noise.
    """

    scores: Mapping[str, float]
    failed: Mapping[str, str]
    guarantee: PrivacyGuarantee
    deviation: float

    def nearest(self, neighbours: int = 10) -> tuple[str, ...]:
        """Return the names of the parties with the greatest scores, greatest first."""
        return tuple(sorted(self.scores, key=lambda name: -self.scores[name])[:neighbours])
