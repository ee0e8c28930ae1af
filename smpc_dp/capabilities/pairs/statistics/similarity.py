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

from smpc_dp.capabilities.pairs.active.claims import CHEAT
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
    "the party follows the protocol and draws its random bits honestly{}; all others may collude, and are "
    "computationally bounded"
)
_SEMI_HONEST = ", and garblers are semi-honest"


@dataclass(frozen=True)
class SimilarityPlan:
    """Plan of noisy cosine comparisons between each two parties' vectors: kernel, noise and budget.

    Attributes:
        parties: n. epsilon: of a party's vector, for its n - 1 comparisons together.
        malicious: whether each comparison is secure against a malicious garbler too.
    """

    kernel: Kernel
    noise: Noise
    parties: int
    epsilon: float
    malicious: bool = False

    @cached_property
    def circuit(self) -> Circuit:
        """Circuit of one comparison: two vectors' codes and random bits to a noisy score."""
        return compile_kernel(self.kernel, self.noise)

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in a score."""
        return self.kernel.unit * math.sqrt(self.noise.variance)

    def scores(self, raw: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Convert the circuit's raw outputs to noisy cosines of rounded vectors, maybe not in [-1, 1]."""
        return np.asarray(self.kernel.decode(self.noise.read(raw)))

    @property
    def delta(self) -> float:
        """The delta of a party's vector: with malicious security the sum over its comparisons, else 0."""
        return (self.parties - 1) * CHEAT if self.malicious else 0.0

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """The privacy guarantee of one party's vector over all its comparisons."""
        return PrivacyGuarantee(
            epsilon=self.epsilon,
            delta=self.delta,
            relation="substitution",
            sensitivity={"l1": float(self.kernel.steps)},
            unit="grid step",
            protects="party",
            mechanism=f"{self.noise.name} noise in the circuit of each of {self.parties - 1} comparisons",
            assumption=_ASSUMPTION.format("" if self.malicious else _SEMI_HONEST),
            proof="simple composition: docs/proofs/personalized.md",
        )

    def event(self) -> Event:
        """The privacy event that a party's ledger charges: all its comparisons together."""
        from smpc_dp.privacy.accountant.events import Event, Pure

        claim = self.guarantee
        return Event(claim.mechanism, claim.relation, (Pure(self.epsilon, self.delta),))


@checks_numbers
def plan_similarities(
    length: int, parties: int, epsilon: float, levels: int = 7, *, malicious: bool = False
) -> SimilarityPlan:
    """Return the plan of noisy cosines of all pairs of parties' vectors; or raise ConfigError.

    Args:
        length: entries of a vector.
        epsilon: for a party's vector, all of its comparisons together.
        levels: of the grid of a vector of norm 1: entries are multiples of 1/levels; above sqrt(length).
        malicious: whether each comparison is secure against a malicious garbler too, with a delta of 2^-40.

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
    return SimilarityPlan(kernel, noise, parties, epsilon, malicious)


@dataclass(frozen=True)
class Similarities:
    """Result of one party: noisy cosines of its vector with the vectors of all others.

    Attributes:
        scores: of each other party, by name. failed: why a comparison failed, by name.
        guarantee: for the party's vector. deviation: standard deviation of a score's noise.
    """

    scores: Mapping[str, float]
    failed: Mapping[str, str]
    guarantee: PrivacyGuarantee
    deviation: float

    def nearest(self, neighbours: int = 10) -> tuple[str, ...]:
        """Return the names of `neighbours` parties with the greatest scores, greatest first."""
        return tuple(sorted(self.scores, key=lambda name: -self.scores[name])[:neighbours])
