"""Parameters of verifiable GOPA: those of GOPA, with independent noise from coin flips."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.messages import PARTY_STEPS
from smpc_dp.capabilities.gopa.params import GopaParameters, OnDropout, check_and_plan
from smpc_dp.capabilities.gopa.plan import (
    Neighbourhood,
    SessionNoise,
    assumption,
    complete_neighbourhood,
    with_degree,
)
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.planned import BITS_STEP, planned_noise
from smpc_dp.capabilities.gopa.verifiable.precision import bound_squared_of, box_of, steps_of, with_precision
from smpc_dp.crypto import commit, proofs
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Encoding, RingVector, shown
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.result import Claim, Noise, Privacy
from smpc_dp.errors import (
    Check,
    Code,
    ConfigCheck,
    ConfigError,
    ConfigIssue,
    Issues,
    LocalError,
    PrivacyError,
    VerificationError,
)
from smpc_dp.fixed_point import GridTotal
from smpc_dp.logs.log import MAX_PAYLOAD_BYTES
from smpc_dp.privacy.certificates import certificate_bytes
from smpc_dp.privacy.distributions import BinomialDistribution
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.sampling import MAX_VARIANCE, NoiseSource
from smpc_dp.privacy.secagg_plan import ENVELOPE, SecAggPlan, mask_degree
from smpc_dp.secagg.noisy import TAIL

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.gopa.verifiable import VerifiablePlan

# Every party follows the board: a hash of each entry, and the coin of each party.
MAX_PARTIES = 10_000


class Apart(NamedTuple):
    """Distance of two neighbouring vectors in grid steps, used to plan noise.

    `length` coordinates differ, each by `steps`, one number for all or one for each; or the squares of the
    differences sum to at most four times `bound_squared`.
    """

    length: int
    steps: int | tuple[int, ...] | None
    bound_squared: int | None

    @classmethod
    def of(cls, encoding: Encoding) -> Apart:
        """Return the greatest distance of any two vectors of an encoding, in grid steps."""
        squared = bound_squared_of(encoding)
        return cls(encoding.length, None if squared is not None else steps_of(encoding), squared)


class VerifiableParameters(GopaParameters, frozen=True):
    """Checked parameters of verifiable GOPA: each coordinate's noise is a number of coin flips.

    `box`: the least and greatest values of each coordinate on the grid, if they have bounds of their own.
    """

    is_logged: ClassVar[bool] = True
    bits: int
    box: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "verifiable"

    @property
    def total_note(self) -> str:
        """The sentence that says who checks that the total is right."""
        return "each party adds up what all have published with proofs, and so does an audit of the log"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for reports: who checks the total, and if exclusions may leave no quorum."""
        return (*super().notes, *self._quorum_notes)

    @property
    def _quorum_notes(self) -> tuple[str, ...]:
        """Sentence on how many exclusions leave no quorum; empty if that many are not tolerated."""
        plan = self.plan
        excluded = plan.parties - plan.max_dropouts - plan.quorum + 1
        if excluded > max(plan.max_corrupt, 1):
            return ()
        gone = "one party is" if excluded == 1 else f"{excluded} parties are"
        more = f" and {plan.max_dropouts} lost" if plan.max_dropouts else ""
        return (
            f"exclusions: a request fails where {gone} excluded for a false statement{more}: "
            f"{plan.quorum - 1} of {plan.parties} are left, and {plan.quorum} must sign",
        )

    @property
    def party_steps(self) -> tuple[str, ...]:
        """The names of a party's steps, in their order in a run."""
        return v.PARTY_STEPS

    @property
    def bounds(self) -> tuple[int, int] | tuple[tuple[int, ...], tuple[int, ...]]:
        """Least and greatest grid value of a coordinate, one for all or one for each."""
        return self.box or (0, self.highest)

    @property
    def apart(self) -> Apart:
        """Distance of two neighbouring vectors in grid steps, for which the noise is planned."""
        return Apart.of(self.encoding)

    @property
    def highest(self) -> int:
        """Greatest value of any coordinate of a vector on the grid, in steps from the lowest."""
        return self.encoding.highest - self.encoding.lowest

    @property
    def bound_squared(self) -> int | None:
        """Bound on the sum of squares of a vector's grid values; None without a bound on the norm."""
        return bound_squared_of(self.encoding)

    @property
    def centre(self) -> int:
        """Number subtracted from a ring element to get the committed value; 0 without a bound on the norm.

        A bound on the norm is about the values themselves; ring elements count from the lowest one.
        """
        return 0 if self.encoding.l2_bound is None else -self.encoding.lowest

    @property
    def value_proof_bytes(self) -> int:
        """Size in bytes of the proof that a committed vector is within the bounds."""
        length, bound = self.encoding.length, self.bound_squared
        if bound is not None:
            return proofs.norm_proof_bytes(length, bound)
        return proofs.range_proof_bytes(length, *self.bounds)

    @property
    def greatest_delta(self) -> int:
        """Bound on the pairwise noise of an edge whose noise counts, in steps.

        Both ends leave out an edge with a larger one. A random term is larger with probability below 2^-1000,
        so no search for keys finds one.
        """
        return TAIL * (1 + math.isqrt(self.session.pair_variance))

    @property
    def greatest_published(self) -> int:
        """Bound on an honest party's noisy coordinate, in steps, for any keys of neighbours."""
        return self.highest + self.bits + (self.encoding.parties - 1) * self.greatest_delta

    @property
    def greatest_published_before(self) -> int:
        """Bound on noisy coordinates in protocol version 2, which honest parties may exceed."""
        pairs = self.encoding.parties * self.session.pair_variance
        return self.highest + self.bits + TAIL * (1 + math.isqrt(pairs))

    @property
    def published_bytes(self) -> int:
        """Bytes of one published noisy coordinate within its bound, in two's complement."""
        return (self.greatest_published.bit_length() + 8) // 8

    @property
    def traffic(self) -> tuple[int, int]:
        """Expected bytes that one party sends and receives in a run, with neighbours' proofs."""
        sent, received = super().traffic
        vector = self.encoding.ring_length * self.encoding.element_bytes
        length, neighbours = self.encoding.length, mask_degree(self.plan.parties, self.plan.degree)
        publication = self.published_bytes * length + proofs.noise_proof_bytes(length, self.bits)
        proven = self.value_proof_bytes + math.ceil(34 * neighbours) + publication
        more = len(v.PARTY_STEPS) - len(PARTY_STEPS)
        # Five sets are certified, not one. Commitments, coins and publications come as they were sent.
        certificates = 4 * math.ceil(certificate_bytes(self.plan.parties, self.plan.quorum) + ENVELOPE)
        seen = math.ceil(neighbours * (proven + 3 * ENVELOPE)) + 3 * ENVELOPE
        return sent - vector + proven + more * ENVELOPE, received + seen + certificates

    def decode(self, total: RingVector, contributors: int) -> tuple[GridTotal, int]:
        """Return the noisy sum on the grid, checked against no bound, and the given number of parties.

        Where pairwise terms are left in it no bound holds but that of what was published: corrupt parties can
        choose large terms, and fall silent.
        """
        return GridTotal(total, contributors * self.encoding.lowest), contributors

    def check_total(self, total: Sequence[int], contributors: int, residual_pairs: int) -> None:
        """Raise VerificationError if no bounded values and noise give a total; skip if pairs left noise."""
        if residual_pairs:
            return
        most = contributors * self.bits // 2
        lows, highs = self.box or ((0,) * len(total), (self.highest,) * len(total))
        if any(
            not contributors * low - most <= value <= contributors * high + most
            for value, low, high in zip(total, lows, highs, strict=True)
        ):
            raise VerificationError(
                f"no {contributors} vectors within the bounds and their noise have this sum: somebody lies",
                Check.OUT_OF_BOUNDS,
            )

    @property
    def most_neighbours(self) -> int:
        """The greatest number of neighbours that a party accepts; given more, it stops."""
        return min(self.plan.degree + self.session.neighbourhood.most_drawn_by, self.plan.parties - 1)

    def least_left(self, false: int) -> int:
        """Return the number of parties needed when `false` others were shown to have signed false statements.

        The claim counts neither on the D that may be lost nor on the corrupt ones, so these may be missing as
        well.
        """
        return self.plan.min_survivors - min(false, max(self.plan.max_corrupt, 1))

    @property
    def lost_draws(self) -> int:
        """Number of parties that a party drew as neighbours and that may be lost."""
        return self.plan.degree - self.session.neighbourhood.least_own

    @property
    def most_false(self) -> int:
        """Greatest number of parties excluded for false statements, and of rounds of openings."""
        return self.plan.max_dropouts + max(self.plan.max_corrupt, 1)

    @property
    def longest_bytes(self) -> int:
        """Bound in bytes on the body of any valid log entry of a party."""
        length, neighbours = self.encoding.length, self.most_neighbours
        publication = 8 * length + proofs.noise_proof_bytes(length, self.bits)
        # Edges are opened to parties shown false, of which there are not more.
        opening = (34 + 8 * length) * min(neighbours, self.most_false)
        commits = self.value_proof_bytes + 34 * neighbours
        return (1 << 10) + max(publication, opening, commits)

    @property
    def most_heard_bytes(self) -> int:
        """Size in bytes of the longest message that is accepted from a party and fits the log."""
        return min((1 << 14) + 2 * self.longest_bytes, MAX_PAYLOAD_BYTES)

    def longest_entry(self, kind: str) -> int:
        """Return the greatest length, in bytes, that a log entry of this kind may have."""
        if not v.is_of_the_relay(kind):
            return self.most_heard_bytes
        if kind == v.TALLY:
            return m.longest_set(self.plan.parties) + 8 * self.encoding.ring_length + 64
        return m.longest_certificate(self.plan.parties)

    @property
    def extra_bytes(self) -> int:
        """Allowance in bytes for an aggregator's message besides a vector: digests, coins, statements."""
        length, neighbours = self.encoding.length, self.most_neighbours
        proven = self.value_proof_bytes + proofs.noise_proof_bytes(length, self.bits)
        claimed = self.plan.parties * (512 + proven + 8 * length)
        # With publications come commitments, with the tally openings: of each false party all its edges.
        commits = 34 * neighbours * self.plan.parties
        opened = self.most_false * neighbours * (256 + 8 * length)
        return claimed + max(commits, opened) + self.most_false * (128 + self.most_heard_bytes)

    def check_counted_edges(self, party: str, own: int) -> None:
        """Raise PrivacyError if too few drawn neighbours share counted edges; a complete graph always passes.

        On the complete graph an edge that does not count has an end that deviates, and nothing hangs on it.
        """
        least = self.session.neighbourhood.least_own
        if not self.plan.complete and own < least:
            raise PrivacyError(
                f"{party}: edges to {own} of the {self.plan.degree} parties that it drew count, its epsilon "
                f"counts on {least}: somebody voids them, or too many parties are lost",
                code=Code.NEIGHBOURHOOD,
            )

    def check_sizes(self) -> None:
        """Raise ConfigError if noise, a published vector's sum, or a message may be too large."""
        # What is published counts from the lowest value, the total from 0.
        farthest = max(abs(self.encoding.lowest), abs(self.encoding.highest))
        widest = self.encoding.parties * (self.greatest_published + farthest)
        if widest >= 1 << 63 or self.session.pair_variance > MAX_VARIANCE:
            values = f"{self.encoding.parties} published values of up to {self.greatest_published} steps"
            reason = f"{values} have a sum of over 63 bits: widen the precision"
            raise ConfigError.at("precision", reason, ConfigCheck.TOO_LARGE)
        if self.longest_bytes > MAX_PAYLOAD_BYTES:
            reason = f"to open up to {self.most_false} edges a party may send {self.longest_bytes} bytes"
            raise ConfigError.at(
                "length",
                f"{reason}, a line of the log has room for {MAX_PAYLOAD_BYTES}",
                ConfigCheck.TOO_LARGE,
            )

    def add_noise(self, ring_vector: RingVector, randomness: Randomness) -> None:  # noqa: ARG002
        """Raise LocalError: verifiable noise comes from committed bits and coins, added elsewhere."""
        raise LocalError("the noise of verifiable GOPA is not drawn by one party")

    @property
    def own_distribution(self) -> BinomialDistribution:
        """The centred binomial distribution of a party's noise per coordinate, in steps."""
        return BinomialDistribution(self.bits)

    def own_noise(self, source: NoiseSource, count: int) -> NDArray[np.int64]:
        """Return `count` draws of one party's centred binomial noise, in grid steps."""
        return self.own_distribution.draw(source, count)

    def event(self) -> Event:
        """Return the privacy event of one request: binomial noise of the honest parties' total."""
        return self._noise_of(self.session.honest).release()

    def event_without(self, excluded: int) -> Event:
        """Return the privacy event if `excluded` parties are corrupt; without DP if too few are honest.

        Up to the planned number it is `event()`. It is that of an exact release where too few parties are
        left whose noise could count.
        """
        from smpc_dp.privacy.accountant.events import exact_release

        if not math.isfinite(self.epsilon_without(excluded)):
            return exact_release("GOPA with too little honest noise", "substitution")
        more = max(0, excluded - self.plan.max_corrupt)
        return self._noise_of(self.session.honest - more).release()

    def _noise_of(self, honest: int) -> VerifiablePlan:
        """Return the plan of this noise, with its privacy, if only `honest` parties' noise counts."""
        from smpc_dp.privacy.gopa.verifiable import plan_verifiable

        return plan_verifiable(
            parties=self.plan.parties,
            honest=honest,
            epsilon=self.session.epsilon,
            delta=self.session.delta,
            **self.apart._asdict(),
            bits=self.bits,
            sigma_delta=math.sqrt(self.session.pair_variance),
            rounding="nearest",
            degree=None if self.plan.complete else self.plan.degree,
            lost=0 if self.plan.complete else self.lost_draws,
            corrupt=self.plan.parties - self.plan.max_dropouts - honest,
        )

    def noise(self, survivors: int, residual_pairs: int, excluded: int = 0, tries: int = 0) -> Noise:
        """Return the noise in the sum, and the bias that corrupt parties can add to it.

        They see their own noise first. The bias is of c parties, or of the excluded ones if they are more;
        `tries` 0: the assumed number.
        """
        from smpc_dp.privacy.gopa.verifiable import TRIES, greatest_bias

        steps = greatest_bias(self.bits, max(self.plan.max_corrupt, excluded, 1), tries or TRIES)
        return dataclasses.replace(super().noise(survivors, residual_pairs), bias=steps * self.encoding.step)

    def epsilon_without(self, excluded: int) -> float:
        """Return epsilon at the planned delta if `excluded` parties are corrupt; infinity if too many.

        The plan counts on the noise of n - D - max(c, 1) parties; it differs only where more were corrupt. If
        c = 0 one party may be curious, and an excluded party may be another one.
        """
        more = excluded - self.plan.max_corrupt
        if more <= 0:
            return self.session.epsilon
        if self.session.honest - more < 2:
            return math.inf
        from smpc_dp.privacy.accountant.compose import Composition

        try:
            noise = self._noise_of(self.session.honest - more)
            left = self.session.delta - noise.disconnected - noise.delta_pairwise
            if left <= 0:
                return math.inf
            total = Composition([noise.reach.event("total", noise.honest, self.bits)]).epsilon(left)
            return max(self.session.epsilon, total + noise.epsilon_pairwise)
        except ConfigError:
            # A delta that the accountant does not resolve, or too few coins for any bound.
            return math.inf

    def claim(self, survivors: int, excluded: int = 0) -> Claim:
        """Return the privacy claim of a run over this many survivors, with its public log."""
        plain = super().claim(survivors)
        guarantee, session = plain.guarantee, self.session
        if guarantee is None:
            raise LocalError("GOPA has a guarantee")
        limits = plain.limits.replaced(
            any_value="a corrupt party may give any value within the bounds, and leave after it has seen its "
            "noise",
            other_sum="beyond c corrupt parties the aggregator may report another total: an audit of the log "
            "shows it",
        )
        epsilon = self.epsilon_without(excluded)
        if not math.isfinite(epsilon):
            none = f"none: {excluded} parties were corrupt, and too few are left whose noise could count"
            return Claim(clauses=NamedSentences.of(none=none), limits=limits)
        guarantee = replace(
            guarantee,
            epsilon=epsilon,
            mechanism=(
                f"verifiable GOPA: the sum of {self.bits} fair bits (variance {session.own_variance}), "
                f"discrete Gaussian pairwise noise of variance {session.pair_variance}"
            ),
            proof="the honest total's binomial, and next to nothing for the rest "
            "(docs/proofs/verifiable-plan.md)",
        )
        board = (
            "computational, for what the board shows: discrete logarithms in ristretto255, SHAKE256 as a "
            "random oracle; commitments to pairwise terms hide as far as X25519 does, others always"
        )
        return Claim(
            guarantee=guarantee,
            clauses=plain.clauses.replaced(private=self.private_clause(epsilon)),
            premises=plain.premises + NamedSentences.of(board=board),
            limits=limits,
        )

    def privacy(self, survivors: int, excluded: int = 0) -> Privacy:
        """Return the privacy guarantee of a run to show to readers, after this many exclusions."""
        return self.claim(survivors, excluded).privacy()

    def audited_answers(
        self,
        grid: NDArray[np.int64],  # noqa: ARG002
        numbers: Sequence[int],  # noqa: ARG002
        residual_pairs: int,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        """Return None: from the total of an average an auditor derives nothing besides the average."""
        return None


def check_parameters(
    parameters: Mapping[str, object], parties: int
) -> tuple[GopaParameters | None, list[ConfigIssue]]:
    """Check `[parameters]` of verifiable GOPA, plan its noise; return them, or None with every fault.

    Keys: as of GOPA, with `on_dropout` "keep". The default `precision` is coarse: as fine as about
    `precision.DEFAULT_BITS` coin flips for each coordinate allow.
    """
    return check_and_plan(with_precision(parameters, parties), parties, plan_session_noise)


def plan_session_noise(
    base: SumParameters, epsilon: float, delta: float, on_dropout: OnDropout
) -> VerifiableParameters:
    """Return verifiable parameters with the fewest neighbours, and a session's least noise on that graph.

    Raises:
        ConfigError: naming the parameter that asks for too much, or leaves too few honest parties.
    """
    encoding: Encoding = replace(base.encoding, element_bytes=8)
    if encoding.max_weight:
        reason = "cannot be combined with verifiable = true: what is proven is about vectors without weights"
        raise ConfigError.at("max_weight", reason, ConfigCheck.UNSUPPORTED)
    if on_dropout != "keep":
        raise ConfigError.at("on_dropout", "a verifiable run has 'keep' alone", ConfigCheck.UNSUPPORTED)
    plan, session, bits = plan_flips(encoding, base.plan, Apart.of(encoding), epsilon, delta)
    parameters = VerifiableParameters(
        encoding=encoding,
        plan=plan,
        session=session,
        on_dropout=on_dropout,
        bits=bits,
        box=box_of(encoding),
    )
    parameters.check_sizes()
    return parameters


def plan_flips(
    encoding: Encoding,
    plan: SecAggPlan,
    apart: Apart,
    epsilon: float,
    delta: float,
    hiding: float = 0.0,
) -> tuple[SecAggPlan, SessionNoise, int]:
    """Return the graph's plan, the noise on it, coin flips per party and coordinate; or ConfigError.

    `hiding`: the least deviation of a pairwise term, in steps.

    Raises:
        ConfigError: naming the parameter that asks for too much, or leaves too few honest parties.
    """
    issues = Issues()
    if plan.parties > MAX_PARTIES:
        issues.add_issue(
            "roster", f"a verifiable run has at most {MAX_PARTIES} parties", ConfigCheck.TOO_LARGE
        )
    if encoding.length > commit.MAX_LENGTH:
        issues.add_issue(
            "length",
            f"a verifiable run has at most {commit.MAX_LENGTH}, is {shown(encoding.length)}",
            ConfigCheck.UNSUPPORTED,
        )
    honest = plan.parties - plan.max_dropouts - max(plan.max_corrupt, 1)
    if honest < 2:
        gone = f"{plan.max_dropouts} may drop out and {max(plan.max_corrupt, 1)} be curious"
        issues.add_issue(
            "roster",
            f"of {plan.parties} parties {gone}: {honest} bring noise that counts",
            ConfigCheck.INFEASIBLE,
        )
    squared = bound_squared_of(encoding)
    # The proof of a norm also has the bits of the difference between the bound and the squares.
    widths = encoding.widths
    bits = sum(width.bit_length() for width in widths) * (encoding.length // len(widths))
    if bits + (squared or 0).bit_length() > proofs.MAX_BITS:
        reason = f"{encoding.length} values of up to {max(widths)} steps take too long a proof"
        issues.add_issue("precision", reason, ConfigCheck.TOO_LARGE)
    issues.raise_issues()
    neighbourhood, degree = complete_neighbourhood(plan), plan.parties - 1
    lost, corrupt = 0, max(plan.max_corrupt, 1)
    if not plan.complete:
        # Not at the top: every session imports this module, few need scipy.
        from smpc_dp.privacy.gopa.connected import plan_draws

        draws = plan_draws(plan.parties, corrupt=corrupt, dropouts=plan.max_dropouts, delta=delta)
        if draws is not None:
            degree, lost = draws.degree, draws.lost
            neighbourhood = Neighbourhood(degree - lost, draws.drawn_by)
    plan = with_degree(plan, degree, roll_back=False)
    planned = planned_noise(
        plan.parties,
        honest,
        epsilon,
        delta,
        **apart._asdict(),
        degree=None if plan.complete else degree,
        lost=lost,
        corrupt=corrupt,
    )
    if planned.bits * encoding.length > proofs.MAX_BITS:
        reason = f"{planned.bits} coin flips in each of {encoding.length} coordinates take too long a proof"
        raise ConfigError.at("precision", reason, ConfigCheck.TOO_LARGE)
    luck = "" if plan.complete else f"; delta includes {planned.disconnected:.1g} for bad draws"
    session = SessionNoise(
        epsilon=epsilon,
        delta=delta,
        mu=gaussian_mu(epsilon, delta),
        closeness=0.0,
        slack=planned.disconnected,
        own_variance=planned.bits // BITS_STEP,
        pair_variance=math.ceil(max(planned.sigma_delta, hiding) ** 2),
        honest=honest,
        curator_deviation=math.sqrt(planned.variance_gaussian),
        neighbourhood=neighbourhood,
        assumption=assumption(plan, honest, luck),
    )
    return plan, session, planned.bits
