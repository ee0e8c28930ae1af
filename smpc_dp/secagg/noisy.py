"""The secure sum with differential privacy: every party adds a share of the noise before masking."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from msgspec import Meta
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.engine.phases.parameters import CheckableParameters, SumParameters, Total
from smpc_dp.engine.result import WHOLE_PARTY, Claim, Noise
from smpc_dp.engine.weighted_encoding import WeightedEncoding
from smpc_dp.errors import Check, ConfigCheck, ConfigError, ConfigIssue, PrivacyError, VerificationError
from smpc_dp.fixed_point import GridTotal
from smpc_dp.privacy.distributions import DiscreteGaussianDistribution, SkellamDistribution
from smpc_dp.privacy.guarantee import LEAST_DELTA
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.privacy.secagg_plan import SMALL_SESSION
from smpc_dp.secagg.claim import noisy_claim
from smpc_dp.secagg.params import OF_GOPA, SAME, CheckedTotal, SumSettings, check_sum, resolve_total
from smpc_dp.secagg.versions import EARLIER_VERSION

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.mechanisms.distributed import DistributedSum
    from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
    from smpc_dp.privacy.noise_bounds import Part
    from smpc_dp.privacy.secagg_plan import SecAggPlan

MechanismName = Literal["discrete-gaussian", "skellam"]
# Of statistics of records too, whose plan draws it.
ShareName = Literal["discrete-gaussian", "skellam", "discrete-laplace", "discrete-gaussian-and-laplace"]
NOISE_IN_WORDS: dict[ShareName, str] = {
    "discrete-gaussian": "discrete Gaussian noise",
    "skellam": "Skellam noise",
    "discrete-laplace": "discrete Laplace noise",
    "discrete-gaussian-and-laplace": "discrete Gaussian noise and of discrete Laplace noise",
}
DISTRIBUTIONS: dict[ShareName, type[DiscreteGaussianDistribution | SkellamDistribution]] = {
    "discrete-gaussian": DiscreteGaussianDistribution,
    "skellam": SkellamDistribution,
}
# Multiple of the standard deviation that noise exceeds with probability below 2^-1000.
TAIL = 40
# A default step of the grid is this fraction of a coordinate's range.
DEFAULT_STEPS = 1 << 20
# Up to so many parties the complete graph is offered, in which every honest share of noise counts.
MOST_COMPLETE = 200
REFUSED = OF_GOPA | {
    SAME: "is for exact sums: with epsilon each request is private by its noise, whoever survives",
}


class NoisySumParameters(CheckableParameters, frozen=True):
    """Checked parameters of a sum with noise, of which each party adds a share of this variance.

    The claim counts on `honest` shares: see `counted_shares`.
    """

    group_version: ClassVar[int] = EARLIER_VERSION
    epsilon: float
    delta: float
    mechanism: ShareName
    variance: Fraction
    honest: int
    curator_deviation: float

    def add_noise(self, ring_vector: RingVector, randomness: Randomness) -> None:
        """Add this party's share of the noise to an encoded vector, in place."""
        source = NoiseSource.keyed(randomness.bytes(32), b"secagg", b"noise")
        ring_vector += self.own_noise(source, len(ring_vector)).view(np.uint64)

    def own_noise(self, source: NoiseSource, count: int) -> NDArray[np.int64]:
        """Return `count` draws of one party's share of the noise, in grid steps."""
        return DISTRIBUTIONS[self.mechanism](self.variance).draw(source, count)

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "secagg-noisy-checked" if self.is_checked else "secagg-noisy"

    @property
    def is_signed(self) -> bool:
        """Whether ring elements are decoded as two's complement: yes, noisy values may be negative."""
        return True

    @property
    def share_name(self) -> str | None:
        """The name of the noise distribution of one party's share; None if it has no name."""
        return self.mechanism

    def planned(self) -> str:
        """Return the variance of a party's share of the noise, as a fraction in hexadecimal."""
        return f"{self.variance.numerator:x}/{self.variance.denominator:x}"

    def decode(self, total: RingVector, contributors: int) -> tuple[GridTotal, int]:
        """Return the noisy sum on the grid, and the number of parties that contributed to it.

        Raises:
            VerificationError: it is further out than the noise explains.
        """
        deviation = math.isqrt(math.ceil(self.encoding.parties * self.variance))
        return decode_noisy(self.encoding, total, contributors, deviation)

    def noise(self, survivors: int, residual_pairs: int) -> Noise:
        """Return the noise in a sum over this many survivors, each of which added a share."""
        return Noise(
            total=math.sqrt(survivors * self.variance) * self.encoding.step,
            curator=self.curator_deviation * self.encoding.step,
            honest=self.honest,
            residual_pairs=residual_pairs,
        )

    def noise_distributions(self, survivors: int, residual_pairs: int) -> tuple[Part, ...]:  # noqa: ARG002
        """Return the distribution of a party's share of the noise, and the number of shares."""
        return ((DISTRIBUTIONS[self.mechanism](self.variance), survivors),)

    def event(self) -> Event:
        """Return the privacy event of one request, to charge to a ledger."""
        return mechanism_of(self).event()

    @property
    def assumption(self) -> str:
        """The sentence that says which parties' noise the guarantee relies on."""
        return (
            f"in every sum at least {self.honest} honest parties, other than those that look at it, "
            f"bring their share of {NOISE_IN_WORDS[self.mechanism]}"
        )

    @property
    def known_noise(self) -> str:
        """The words for noise that observers know: of one party, or of all parties that collude."""
        parties, corrupt = self.plan.parties, self.plan.max_corrupt
        colluding = f"the own noise of up to {corrupt} of {parties} parties that collude"
        return colluding if corrupt else "any one party's own noise"

    def claim(self, survivors: int) -> Claim:
        """Return the privacy claim: that of the secure sum, and (epsilon, delta) of the release."""
        guarantee = replace(
            mechanism_of(self).guarantee(self.delta, units=self.plan.parties),
            epsilon=self.epsilon,
            assumption=self.assumption,
        )
        private = (
            f"each honest party's {protected(self.encoding)} ({self.epsilon:g}, {self.delta:g})-"
            f"differentially private ({WHOLE_PARTY}) in what is released, given {self.known_noise}:"
        )
        inputs = NamedSentences.of(any_value="a corrupt party may add any value of its own, or no noise")
        return noisy_claim(
            self.plan,
            survivors,
            guarantee,
            private,
            inputs,
            checked=self.is_checked,
            by_some=self.has_checkers,
        )


def protected(encoding: Encoding) -> str:
    """Return the words for which data of a party epsilon protects: its vector, or also its weight."""
    return "vector and weight together are" if encoding.max_weight else "vector is"


def decode_noisy(
    encoding: Encoding, total: RingVector, contributors: int, deviation: int
) -> tuple[GridTotal, int]:
    """Return a noisy sum on the grid and the number of contributors; raise if it is out of range.

    `total` must not change any more. `deviation` is the standard deviation of all noise that may be in it, in
    steps, rounded down.

    Raises:
        VerificationError: the sum is further out than the noise explains.
    """
    offset = total.view(np.int64)
    width = contributors * (encoding.highest - encoding.lowest)
    slack = TAIL * (1 + deviation)
    if int(offset.max()) > width + slack or int(offset.min()) < -slack:
        raise VerificationError(
            f"no {contributors} vectors within the bounds and their noise have this sum: somebody lies",
            Check.OUT_OF_BOUNDS,
        )
    return GridTotal(total, contributors * encoding.lowest), contributors


def check_room(encoding: Encoding, deviation: int) -> None:
    """Raise ConfigError unless every sum with noise of this deviation, in steps, stays below 2^62.

    That is counted from the lowest values; counted from 0 it stays below 2^63.
    """
    widths = encoding.parties * (encoding.highest - encoding.lowest)
    farthest = encoding.parties * max(abs(encoding.lowest), abs(encoding.highest))
    if widths + 2 * TAIL * deviation >= 1 << 62 or farthest + TAIL * (1 + deviation) >= 1 << 63:
        raise ConfigError.at(
            "precision", "sum and noise need over 63 bits: widen the precision", ConfigCheck.TOO_LARGE
        )


def mechanism_of(parameters: NoisySumParameters) -> DistributedSum:
    """Return the privacy mechanism of a sum of parties' shares of noise, for the accountant."""
    from smpc_dp.privacy.mechanisms import distributed
    from smpc_dp.privacy.mechanisms.additive import FAMILIES

    share = FAMILIES[parameters.mechanism].of(sensitivity_of(parameters.encoding), parameters.variance)
    return distributed.DistributedSum(share, *noise_counts(parameters.plan))


def counted_shares(plan: SecAggPlan) -> int:
    """Return the number of noise shares that the privacy guarantee counts on, unknown to the adversary.

    Every party sees the sum and knows its own share. A curious one is among the c corrupt parties; if c = 0
    it is one of the honest parties, whose share then does not count.
    """
    return plan.min_honest_in_sum - (plan.max_corrupt == 0)


def noise_counts(plan: SecAggPlan) -> tuple[int, int, int]:
    """Return numbers of parties for noise plans: all, most missing, and those that look (at least 1)."""
    looking = max(plan.max_corrupt, 1)
    return plan.parties, plan.parties - looking - counted_shares(plan), looking


def sensitivity_of(encoding: Encoding) -> Sensitivity:
    """Return the sensitivity by substitution: greatest L1, L2 and Linf distances of encoded vectors."""
    from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity

    widths, length = encoding.widths, encoding.ring_length
    l1 = float(sum(widths) * (length // len(widths)))
    return Sensitivity.on_integers(
        "substitution", dimension=length, l1=l1, l2=encoding.diameter, linf=float(max(widths))
    )


class PrivateSettings(SumSettings, frozen=True, kw_only=True):
    """The `[parameters]` of a session file that all sums with differential privacy have."""

    epsilon: Annotated[float, Meta(gt=0, lt=1000, description="of each honest party in one request")]
    delta: Annotated[float, Meta(gt=0, lt=1)]
    l2_bound: Annotated[
        float | int | None,
        Meta(
            description="largest L2 norm of a vector; in the place of `lower` and `upper`",
            extra={"range": "above 0"},
        ),
    ] = None


class NoisySettings(PrivateSettings, frozen=True, kw_only=True):
    """The `[parameters]` of a session file for a secure sum with differential privacy."""

    delta: Annotated[float, Meta(ge=LEAST_DELTA, lt=1)]
    mechanism: Annotated[MechanismName, Meta(description="the law of a share")] = "discrete-gaussian"
    complete_graph: Annotated[
        bool,
        Meta(
            description="everyone is everyone's neighbour, so that the noise of every honest party that "
            f"stays counts, and each share is smaller; up to {SMALL_SESSION} parties that holds anyway",
            extra={"range": f"with at most {MOST_COMPLETE} parties"},
        ),
    ] = False
    total: CheckedTotal = None


def check_noisy(
    parameters: Mapping[str, object], parties: int, *, complete: bool = False
) -> tuple[NoisySumParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of a private sum, and plan its noise; return parameters, or None and all faults.

    `precision` is a 2^20th of the range by default. With the `complete` graph the noise of all honest parties
    that stay is counted on, whatever the aggregator does.
    """
    given = with_precision(parameters)
    complete = complete or given.get("complete_graph") is True
    base, good, issues = check_sum(NoisySettings, given, parties, refused=REFUSED, complete=complete)
    if good.get("complete_graph") and parties > MOST_COMPLETE:
        reason = f"is for at most {MOST_COMPLETE} parties, the roster has {parties}"
        issues.append(ConfigIssue("complete_graph", reason, ConfigCheck.TOO_LARGE))
    if issues or base is None:
        return None, issues
    try:
        total = resolve_total(
            good["total"], base.encoding.ring_length, parties, least=base.plan.least_to_check
        )
        return _planned(base, good["epsilon"], good["delta"], good["mechanism"], total), []
    except ConfigError as error:
        norms = {"l1", "l2", "linf"}
        if norms & {issue.where for issue in error.issues}:
            return None, [
                ConfigIssue(
                    "precision",
                    "vectors have more than 1e15 steps: make the grid coarser",
                    ConfigCheck.TOO_LARGE,
                )
            ]
        return None, list(error.issues) or [ConfigIssue("epsilon", str(error), ConfigCheck.INFEASIBLE)]
    except PrivacyError as error:
        return None, [ConfigIssue("epsilon", str(error), ConfigCheck.INFEASIBLE)]


def with_precision(parameters: Mapping[str, object]) -> dict[str, object]:
    """Return a copy of `[parameters]` with a default `precision`, where one can be derived."""
    given = dict(parameters)
    if given.get("kind", "real") == "real" and "precision" not in given:
        width = _range(given)
        if 0 < width < math.inf:
            given["precision"] = max(width / DEFAULT_STEPS, 2.0**-900)
    return given


def _range(given: Mapping[str, object]) -> float:
    """Return the widest distance of upper and lower bound of a coordinate in `[parameters]`; 0 if invalid."""
    if "l2_bound" in given:
        bound = given["l2_bound"]
        return 2 * bound if isinstance(bound, int | float) else 0.0
    sides = [given.get(name) for name in ("lower", "upper")]
    low, high = (side if isinstance(side, list) else [side] for side in sides)
    if not all(isinstance(value, int | float) for value in (*low, *high)):
        return 0.0
    most = max(len(low), len(high))
    pairs = zip(*(side * most if len(side) == 1 else side for side in (low, high)), strict=False)
    return float(max((abs(top - bottom) for bottom, top in pairs), default=0.0))


def _planned(
    base: SumParameters, epsilon: float, delta: float, mechanism: MechanismName, total: Total
) -> NoisySumParameters:
    """Return the parameters of a checked sum with noise planned for epsilon and delta."""
    from smpc_dp.privacy.mechanisms.additive import FAMILIES, DiscreteGaussian
    from smpc_dp.privacy.mechanisms.distributed import DistributedSum

    plan, encoding = base.plan, WeightedEncoding.of(replace(base.encoding, element_bytes=8))
    sensitivity = sensitivity_of(encoding)
    parties, missing, looking = noise_counts(plan)
    result = DistributedSum.calibrate(
        FAMILIES[mechanism], epsilon, delta, sensitivity, parties=parties, missing=missing, corrupt=looking
    )
    curator = DiscreteGaussian.calibrate(epsilon, delta, sensitivity)
    variance = Fraction(math.ceil(result.share.distribution.variance))
    check_room(encoding, math.isqrt(math.ceil(plan.parties * variance)) + 1)
    return NoisySumParameters(
        encoding=encoding,
        plan=plan,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        variance=variance,
        honest=counted_shares(plan),
        curator_deviation=math.sqrt(curator.variance),
        total=total,
    )
