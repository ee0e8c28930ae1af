"""Parameters of GOPA, as in a session file, and the noise planned from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from msgspec import Meta
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.messages import AVERAGE, PARTY_STEPS, Average
from smpc_dp.capabilities.gopa.plan import SessionNoise, plan_session
from smpc_dp.capabilities.gopa.versions import EARLIER_VERSION, GOPA
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases.messages import UNCHECKED, Kinds
from smpc_dp.engine.phases.parameters import MAX_PARTIES, CheckableParameters, SumParameters
from smpc_dp.engine.result import WHOLE_PARTY, Claim, Noise
from smpc_dp.engine.weighted_encoding import WeightedEncoding
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    ConfigIssue,
    PrivacyError,
    VerificationError,
)
from smpc_dp.fixed_point import GridTotal
from smpc_dp.privacy.distributions import BinomialDistribution, DiscreteGaussianDistribution
from smpc_dp.privacy.guarantee import PrivacyGuarantee, delta_warnings
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.sampling import NoiseSource, discrete_gaussian
from smpc_dp.secagg.claim import FRESH_NOISE, with_check
from smpc_dp.secagg.noisy import PrivateSettings, check_room, decode_noisy, protected, with_precision
from smpc_dp.secagg.params import SAME, CheckedTotal, check_sum, resolve_total
from smpc_dp.wire.sets import PartySet

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.noise_bounds import Part


OnDropout = Literal["keep", "roll-back"]
# In squared steps; the operation that parties compare has both variances.
MAX_VARIANCE = 1 << 88


class GopaParameters(CheckableParameters, frozen=True):
    """Checked settings of a GOPA session: encoding, graph, quorum, both noises, handling of lost parties.

    On dropout "keep" leaves them in the average; "roll-back" has x_hat travel under a self-mask, and opens of
    each party either that or its pairwise terms. With roll-back each receiver may check the total: what a
    party commits to has its own noise, and no pairwise terms.
    """

    protocol: ClassVar[str] = GOPA
    group_version: ClassVar[int] = EARLIER_VERSION
    # Who sees what in a run, and what the noise shared with lost parties stays in.
    seen_by: ClassVar[str] = (
        "the aggregator, up to {corrupt} colluding parties, or any single curious party see"
    )
    left_in: ClassVar[str] = "the average"
    session: SessionNoise
    on_dropout: OnDropout

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return f"gopa-{self.on_dropout}" + ("-checked" if self.is_checked else "")

    @property
    def is_signed(self) -> bool:
        """Whether ring elements are decoded as two's complement, since noisy values may be negative."""
        return True

    @property
    def party_steps(self) -> tuple[str, ...]:
        """The names of the protocol steps in which a party sends, in order."""
        return PARTY_STEPS if self.on_dropout == "keep" else super().party_steps

    @property
    def kinds(self) -> Kinds:
        """The message types of GOPA where protocols of sums differ."""
        return UNCHECKED._replace(result=Average) if self.on_dropout == "keep" else super().kinds

    @property
    def total_step(self) -> str:
        """The name of the step in which the aggregator sends the total."""
        return AVERAGE if self.on_dropout == "keep" else super().total_step

    def survivors_in(self, message: Any) -> bytes | None:
        """Return the packed set of parties counted in an average message; None for another message."""
        return message.published if isinstance(message, Average) else None

    def residual_pairs(self, message: Any, participants: int, survivors: PartySet) -> int:
        """Return how many pairs an average says left noise, 0 for others; VerificationError if impossible."""
        if not isinstance(message, Average):
            return 0
        lost, counted = participants - len(survivors), message.residual_pairs
        if not 0 <= counted <= lost * len(survivors):
            reason = f"counts {counted} residual pairs with {lost} parties lost"
            raise VerificationError(reason, Check.WRONG_COUNT)
        return counted

    @property
    def deals_shares(self) -> bool:
        """Whether parties share secrets so that a lost party's noise can be taken out of the sum."""
        return self.on_dropout != "keep"

    def add_pair_terms(
        self, ring_vector: RingVector, seeds: Sequence[bytes], signs: Sequence[int], threads: int = 1
    ) -> None:
        """Add in place the pairwise noise of each seed shared with a neighbour, times its sign (1 or -1)."""
        del threads
        for seed, sign in zip(seeds, signs, strict=True):
            source = NoiseSource.keyed(seed, b"gopa", b"pair")
            terms = discrete_gaussian(source, len(ring_vector), self.session.pair_variance).view(np.uint64)
            if sign > 0:
                ring_vector += terms
            else:
                ring_vector -= terms

    def add_noise(self, ring_vector: RingVector, randomness: Randomness) -> None:
        """Add this party's independent noise (eta) in place [Bellet 2021, Alg. 4.1, line 4]."""
        source = NoiseSource.keyed(randomness.bytes(32), b"gopa", b"own")
        ring_vector += self.own_noise(source, len(ring_vector)).view(np.uint64)

    @property
    def own_distribution(self) -> DiscreteGaussianDistribution | BinomialDistribution:
        """The distribution of a party's independent noise in a coordinate, in grid steps."""
        return DiscreteGaussianDistribution(Fraction(self.session.own_variance))

    def own_noise(self, source: NoiseSource, count: int) -> NDArray[np.int64]:
        """Return `count` draws of a party's independent noise, in grid steps."""
        return discrete_gaussian(source, count, self.session.own_variance)

    def check_neighbourhood(self, party: str, own: int, drawn_by: int) -> None:
        """Raise PrivacyError if too few parties that a party drew take part, or too many parties drew it.

        The aggregator may choose the lost parties; here the number of a party's own draws that it may lose is
        bounded, and with it every assumption of the plan about this party that does not hold for all graphs.
        """
        neighbourhood, plan = self.session.neighbourhood, self.plan
        if own < neighbourhood.least_own:
            raise PrivacyError(
                f"{party}: {own} of the {plan.degree} parties that it drew take part, its epsilon counts on "
                f"{neighbourhood.least_own}: somebody picked who is lost, or too many are",
                code=Code.NEIGHBOURHOOD,
            )
        if drawn_by > neighbourhood.most_drawn_by:
            raise PrivacyError(
                f"{party}: {drawn_by} parties drew it, at most {neighbourhood.most_drawn_by} would with "
                f"{plan.max_corrupt} corrupt ones: more are corrupt",
                code=Code.NEIGHBOURHOOD,
            )

    def decode(self, total: RingVector, contributors: int) -> tuple[GridTotal, int]:
        """Return the noisy sum on the grid, and its number of parties; VerificationError if out of reach.

        Raises:
            VerificationError: it is further out than any noise of the plan explains.
        """
        return decode_noisy(self.encoding, total, contributors, self.greatest_deviation)

    @property
    def greatest_deviation(self) -> int:
        """Standard deviation of all noise that may be in a total; in steps, rounded down.

        No pairwise term need cancel if noise of lost parties stays in; otherwise none is left.
        """
        parties, session = self.encoding.parties, self.session
        pairs = parties * session.pair_variance if self.on_dropout == "keep" else 0
        return math.isqrt(parties * (session.own_variance + pairs))

    def planned(self) -> str:
        """Return the planned variances of own and of pairwise noise, as hexadecimal integers."""
        return f"{self.session.own_variance:x}/{self.session.pair_variance:x}"

    def noise(self, survivors: int, residual_pairs: int) -> Noise:
        """Return the noise in a sum over `survivors` parties with `residual_pairs` uncancelled pairs."""
        variance = survivors * self.session.own_variance + residual_pairs * self.session.pair_variance
        return Noise(
            total=math.sqrt(variance) * self.encoding.step,
            curator=self.session.curator_deviation * self.encoding.step,
            honest=self.session.honest,
            residual_pairs=residual_pairs,
        )

    def noise_distributions(self, survivors: int, residual_pairs: int) -> tuple[Part, ...]:
        """Return (own noise, survivors) and (pairwise noise, residual_pairs): distributions, counts."""
        pairs = DiscreteGaussianDistribution(Fraction(self.session.pair_variance))
        return ((self.own_distribution, survivors), (pairs, residual_pairs))

    def event(self) -> Event:
        """Return the privacy event of one request: a Gaussian mechanism, in the plan's worst case."""
        from smpc_dp.privacy.accountant.events import Event, Gaussian

        description = Gaussian(self.session.mu, self.session.closeness)
        return Event("GOPA", "substitution", (description,), slack=self.session.slack)

    def claim(self, survivors: int) -> Claim:
        """Return the claim of the plan: epsilon and delta of each party, the adversary, and the limits."""
        claim = self._unchecked_claim(survivors)
        if not self.is_checked:
            return claim
        return with_check(
            claim,
            self.plan,
            "vectors with their own noise",
            fresh=FRESH_NOISE,
            word="other_sum",
            by_some=self.has_checkers,
        )

    def _unchecked_claim(self, survivors: int) -> Claim:
        """Return the privacy claim of sessions where parties cannot check the aggregator's total."""
        session, plan = self.session, self.plan
        return Claim(
            guarantee=PrivacyGuarantee(
                epsilon=session.epsilon,
                delta=session.delta,
                relation="substitution",
                sensitivity={"l2": self.encoding.diameter, "linf": float(max(self.encoding.widths))},
                unit="grid step",
                mechanism=(
                    f"GOPA: discrete Gaussian noise of variance {session.own_variance}, pairwise noise of "
                    f"{session.pair_variance}"
                ),
                assumption=session.assumption,
                proof="the covariance of what is seen, exact on the complete graph "
                "(docs/proofs/gopa-plan.md)",
                warnings=delta_warnings(session.delta, plan.parties),
            ),
            clauses=NamedSentences.of(
                private=self.private_clause(session.epsilon),
                lost="noise shared with parties who were lost after the certificate stays in " + self.left_in
                if self.on_dropout == "keep"
                else "of a party, either the self-mask or the pairwise noise is opened, never both",
            ),
            premises=NamedSentences.of(
                computational="computational: X25519, HKDF-SHA256, AES-256-CTR, Ed25519, TupleHash256"
            ),
            limits=NamedSentences.of(
                any_value="a corrupt party may add any value of its own, or no noise: the standard error "
                f"counts on {survivors} honest ones",
                other_sum="the aggregator may report another sum than that of what was published",
                visible="who takes part, when, and the length of the vectors are visible",
                samplers="samplers do not run in constant time",
            ),
        )

    def private_clause(self, epsilon: float) -> str:
        """Return the clause of the claim on whose data epsilon protects, and against whom."""
        return (
            f"each honest party's {protected(self.encoding)} ({epsilon:g}, {self.session.delta:g})-"
            f"differentially private ({WHOLE_PARTY}) in all that "
            + self.seen_by.format(corrupt=self.plan.max_corrupt)
        )


REFUSED = {
    SAME: "cannot be combined with protocol 'gopa': it is for exact sums, and each request here has noise",
    "mechanism": "cannot be combined with protocol 'gopa': it is of protocol 'secagg' with epsilon",
}


class GopaSettings(PrivateSettings, frozen=True, kw_only=True):
    """The `[parameters]` table of a GOPA session file, with or without aggregator, verifiable or not."""

    on_dropout: Annotated[
        OnDropout,
        Meta(
            description="the noise shared with a lost party stays in, or is taken out",
        ),
    ] = "keep"
    topology: Annotated[
        Literal["relay", "direct"],
        Meta(
            description='through an aggregator, or with `"direct"` over channels between all parties: no '
            "aggregator in the roster, an address for every party, at most 256 parties, `on_dropout` "
            '`"keep"`'
        ),
    ] = "relay"
    verifiable: Annotated[
        bool,
        Meta(description="parties commit and prove, on a logged board (experimental)"),
    ] = False
    total: CheckedTotal = None


# (a secure sum over as many parties, epsilon, delta, on_dropout) -> the parameters; raises ConfigError.
Planner = Callable[[SumParameters, float, float, OnDropout], GopaParameters]


def check_parameters(
    parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of GOPA for this number of parties; return them, or None with every fault.

    `precision` is a 2^20th of the range by default. The graph and the quorum are those of the secure sum.
    """
    return check_and_plan(with_precision(parameters), parties, _planned)


def check_and_plan(
    parameters: Mapping[str, object], parties: int, planner: Planner
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check parameters and plan their noise by `planner`; return them, or None with every fault."""
    base, good, issues = check_sum(GopaSettings, parameters, parties, protocol=GOPA, refused=REFUSED)
    elements, least = (0, 0) if base is None else (base.encoding.ring_length, base.plan.least_to_check)
    try:
        form = _form_without_check(good)
        total = resolve_total(good.get("total"), elements, parties, form, least=least)
        if issues or base is None or parties > MAX_PARTIES:
            return None, issues
        planned = planner(base, good["epsilon"], good["delta"], good["on_dropout"])
        return replace(planned, total=total), []
    except ConfigError as error:
        return None, [*issues, *error.issues]


def _form_without_check(good: Mapping[str, Any]) -> str | None:
    """Return text on the setting that rules out checked totals, and why; None if no setting does."""
    for key, needed, reason in (
        ("verifiable", False, "verifiable = true: parties commit and prove already"),
        ("topology", "relay", "topology = 'direct': each party adds up what it holds: it needs no check"),
        ("on_dropout", "roll-back", "on_dropout = 'keep': terms of lost parties stay in the total"),
    ):
        if good.get(key, needed) != needed:
            return reason
    return None


def _planned(base: SumParameters, epsilon: float, delta: float, on_dropout: OnDropout) -> GopaParameters:
    """Return the parameters of a checked GOPA session with own and pairwise noise planned."""
    encoding = WeightedEncoding.of(replace(base.encoding, element_bytes=8))
    plan, session = plan_session(
        base.plan,
        diameter=encoding.diameter,
        length=encoding.ring_length,
        epsilon=epsilon,
        delta=delta,
        roll_back=on_dropout == "roll-back",
    )
    parameters = GopaParameters(encoding=encoding, plan=plan, session=session, on_dropout=on_dropout)
    if max(session.own_variance, session.pair_variance) >= MAX_VARIANCE:
        raise ConfigError.at(
            "precision", "the noise has more than 2^44 steps: make the grid coarser", ConfigCheck.TOO_LARGE
        )
    check_room(encoding, parameters.greatest_deviation)
    return parameters
