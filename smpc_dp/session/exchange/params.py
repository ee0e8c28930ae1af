"""Parameters of an exchange: the grid, each party's noise, and the edges."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.ball import TOLERANCE
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.result import WHOLE_PARTY, Claim, Noise
from smpc_dp.errors import Check, ConfigCheck, ConfigError, Issues, VerificationError
from smpc_dp.fixed_point import GridTotal
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.secagg.noisy import check_room, decode_noisy, sensitivity_of
from smpc_dp.session.exchange.messages import PARTY_STEPS

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.mechanisms.distributed import DistributedSum


# For each party, in the order of the names, the numbers (from 1) of its receivers.
Edges = tuple[tuple[int, ...], ...]

_OUTSIDERS = "against everybody who is not in the exchange"


class ExchangeParameters(SumParameters, frozen=True):
    """Parameters of an exchange in which parties send each other vectors, noisy or exact, encrypted.

    Attributes:
        variance: of the discrete Gaussian noise on each vector, in squared grid steps; 0: none.
        epsilon, delta: of one vector, or where `honest` is 2 of the sum of two; None without noise.
        honest: 1: each vector is private by itself; 2: two parties add half the noise each.
        edges: each party's receivers; None: all parties.
        apart: each party has another vector for each receiver, without noise: shape (parties,
            encoding.ring_length), its own row being the one that it keeps.
    """

    protocol: ClassVar[str] = "exchange"
    variance: Fraction
    epsilon: float | None
    delta: float | None
    honest: int
    edges: Edges | None = None
    apart: bool = False

    @property
    def view(self) -> str:
        """The name, "exchange", of the explanation of roles that a report shows."""
        return "exchange"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a party's input: (ring_length,), where `apart` (parties, ring_length)."""
        return (self.plan.parties, self.encoding.ring_length) if self.apart else (self.encoding.ring_length,)

    @property
    def party_steps(self) -> tuple[str, ...]:
        """Names of the steps that a party goes through in a run, in order."""
        return PARTY_STEPS

    @property
    def extra_bytes(self) -> int:
        """How many bytes more than a vector the largest message may have."""
        return self.plan.parties * (self.encoding.ring_length * self.encoding.element_bytes + 2048)

    def own_noise(self, source: NoiseSource, count: int) -> NDArray[np.int64]:
        """Return `count` random draws of the noise that is added to a vector, in grid steps."""
        if not self.variance:
            return np.zeros(count, dtype=np.int64)
        return discrete_gaussian(source, count, self.variance)

    def add_noise(self, ring_vector: RingVector, randomness: Randomness) -> None:
        """Add this party's noise to its vector in place, one draw for all receivers."""
        source = NoiseSource.keyed(randomness.bytes(32), b"exchange", b"noise")
        ring_vector += self.own_noise(source, len(ring_vector)).view(np.uint64)

    def decode(self, total: RingVector, contributors: int) -> tuple[GridTotal, int]:
        """Return (sum as grid integers, number of contributors); VerificationError if out of range.

        Raises:
            VerificationError: it is further out than the noise explains.
        """
        deviation = math.isqrt(math.ceil(self.encoding.parties * self.variance))
        return decode_noisy(self.encoding, total, contributors, deviation)

    def between(self, edges: Edges) -> ExchangeParameters:
        """Return a copy with messages along these edges only, none of which may be missing."""
        parties = len(edges)
        others = parties - 1
        plan = replace(
            self.plan,
            parties=parties,
            degree=others,
            max_dropouts=others,
            max_corrupt=others,
            min_survivors=1,
        )
        return replace(self, plan=plan, edges=edges)

    def to_each(self) -> ExchangeParameters:
        """Return a copy in which each receiver gets another vector; ConfigError if vectors have noise.

        Raises ConfigError where vectors have noise: it would be drawn again for each receiver.
        """
        if self.variance:
            raise ConfigError.at(
                "variance", "vectors that differ by receiver have no noise", ConfigCheck.UNSUPPORTED
            )
        return replace(self, apart=True)

    def check_vector(self, ring_vector: RingVector) -> None:
        """Raise VerificationError if a received vector is out of any possible range.

        Without noise its norm is checked too, where that is bounded: a sum does not show whose vector exceeds
        it.
        """
        encoding, deviation = self.encoding, math.isqrt(math.ceil(self.variance))
        grid = decode_noisy(encoding, ring_vector, 1, deviation)[0].values.astype(np.float64)
        if self.variance or encoding.l2_bound is None:
            return
        norm = float(np.linalg.norm(grid)) * encoding.step
        if norm > encoding.l2_bound * (1 + TOLERANCE):
            raise VerificationError(
                f"its L2 norm {norm:g} is above {encoding.l2_bound:g}", Check.OUT_OF_BOUNDS
            )

    def real(self, ring_vector: RingVector) -> NDArray[np.float64]:
        """Convert a received vector to real numbers, its noise included."""
        return self.encoding.real(ring_vector.view(np.int64) + np.int64(self.encoding.lowest))

    def receivers(self, number: int) -> frozenset[int]:
        """Return the numbers, from 1, of the parties to which party `number` sends its vector."""
        if self.edges is None:
            return frozenset(range(1, self.plan.parties + 1)) - {number}
        return frozenset(self.edges[number - 1])

    def senders(self, number: int) -> frozenset[int]:
        """Return the numbers, from 1, of the parties from which party `number` receives vectors."""
        if self.edges is None:
            return self.receivers(number)
        return frozenset(index for index, sent in enumerate(self.edges, 1) if number in sent)

    def planned(self) -> str:
        """Return text that members compare: the noise's variance, and a hash of the edges."""
        edges = b"" if self.edges is None else repr(self.edges).encode()
        described = f"{self.variance.numerator:x}/{self.variance.denominator:x}"
        return f"{described} {hashlib.sha256(edges).hexdigest()[:32]}" + (" apart" if self.apart else "")

    def noise(self, survivors: int, residual_pairs: int) -> Noise | None:  # noqa: ARG002
        """Return the noise deviations in the sum of so many parties' vectors; None for exact vectors."""
        if not self.variance:
            return None
        curator = math.sqrt(self.honest * self.variance) * self.encoding.step
        return Noise(math.sqrt(survivors * self.variance) * self.encoding.step, curator, self.honest, 0)

    def event(self) -> Event:
        """Return the privacy event that a ledger charges for one party's vector."""
        return self.mechanism.event() if self.variance else super().event()

    @property
    def mechanism(self) -> DistributedSum:
        """The noise mechanism of one party's vector, or of the sum of two."""
        from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
        from smpc_dp.privacy.mechanisms.distributed import DistributedSum

        return DistributedSum(
            DiscreteGaussian(sensitivity_of(self.encoding), self.variance), self.honest, 0, 0
        )

    def claim(self, survivors: int) -> Claim:
        """Return the privacy claim of an exchange: each vector's differential privacy, or none."""
        del survivors
        seen = "whoever is in the exchange sees its vectors; the hub sees who sends to whom, and no vector"
        if self.epsilon is None or self.delta is None:
            return Claim(
                clauses=NamedSentences.of(none="NO PRIVACY against receivers:", seen=seen),
                limits=NamedSentences.of(sent="what is sent"),
            )
        guarantee = replace(
            self.mechanism.guarantee(self.delta, units=self.plan.parties),
            epsilon=self.epsilon,
            assumption=(
                "none: each party adds all of its noise itself"
                if self.honest == 1
                else f"{_OUTSIDERS}: of each other the two see a vector with half of the noise"
            ),
        )
        return Claim(
            guarantee=guarantee,
            clauses=NamedSentences.of(
                private=f"each party's vector is ({self.epsilon:g}, {self.delta:g})-differentially private "
                f"({WHOLE_PARTY}) " + ("against everybody" if self.honest == 1 else _OUTSIDERS),
                seen=seen,
            ),
            premises=NamedSentences.of(
                computational="computational: X25519, HKDF-SHA256, XChaCha20-Poly1305, Ed25519"
            ),
            limits=NamedSentences.of(
                any_vector="a party may send any vector, and differing ones to different parties",
                samplers="samplers do not run in constant time",
            ),
        )


def plan_exchange(
    parties: int,
    *,
    length: int,
    l2_bound: float,
    precision: float,
    epsilon: float | None = None,
    delta: float | None = None,
    honest: int = 1,
    missing: int = 0,
) -> ExchangeParameters:
    """Return checked parameters of an exchange, with noise if epsilon and delta are given; or raise an error.

    Args:
        length, l2_bound, precision: of the vectors.
        epsilon, delta: of each vector; None: exact vectors.
        honest: 2: between two parties, who share the noise, and are not protected from each other.
        missing: of how many parties an average of all may do without.

    Raises:
        ConfigError, PrivacyError: an argument is impossible.
    """
    issues = Issues()
    if not 2 <= parties <= 65_535:
        issues.add_issue("parties", f"must be 2 to 65535, is {parties}", ConfigCheck.RANGE)
    if honest not in (1, 2) or (honest == 2 and parties != 2):
        issues.add_issue(
            "honest", f"must be 1, or 2 between two parties, is {honest} of {parties}", ConfigCheck.RANGE
        )
    if not 0 <= missing < parties:
        issues.add_issue("missing", f"must be below {parties}, is {missing}", ConfigCheck.RANGE)
    issues.raise_issues()
    plan = SecAggPlan(
        parties=parties,
        dropout=missing / parties,
        corrupt=(parties - honest) / parties,
        security=128.0,
        degree=parties - 1,
        threshold=1,
        quorum=1,
        corrupt_holders=0,
        max_dropouts=missing,
        max_corrupt=parties - honest,
        min_survivors=parties - missing,
        min_honest_in_sum=honest,
        complete=True,
        mask_degree=0.0,
        holders_log2=None,
        shares_log2=None,
        graph_log2=None,
        failure_bits=None,
    )
    encoding = replace(
        Encoding.plan(length=length, l2_bound=l2_bound, precision=precision, parties=parties), element_bytes=8
    )
    variance = Fraction(0)
    if epsilon is not None and delta is not None:
        from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
        from smpc_dp.privacy.mechanisms.distributed import DistributedSum

        result = DistributedSum.calibrate(
            DiscreteGaussian, epsilon, delta, sensitivity_of(encoding), parties=honest
        )
        variance = Fraction(math.ceil(result.share.distribution.variance))
        check_room(encoding, math.isqrt(math.ceil(parties * variance)) + 1)
    return ExchangeParameters(
        encoding=encoding, plan=plan, variance=variance, epsilon=epsilon, delta=delta, honest=honest
    )
