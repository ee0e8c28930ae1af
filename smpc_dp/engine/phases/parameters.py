"""Interface of a sum's parameters to the roles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from smpc_dp.crypto.prg import add_masks
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.vector_commitments import MAX_LENGTH
from smpc_dp.encoding import Encoding, RingVector
from smpc_dp.engine.phases.cost import Cost, PlannedAnswer, average_answer
from smpc_dp.engine.phases.messages import (
    ATTEST_TOTAL,
    CERTIFIED,
    CHECKED,
    OPENING_BYTES,
    PARTY_STEPS,
    RESULT,
    UNCHECKED,
    Kinds,
)
from smpc_dp.engine.result import Claim, Noise, Outcome, Privacy, Result
from smpc_dp.errors import LocalError
from smpc_dp.fixed_point import GridTotal
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.privacy.secagg_plan import (
    SecAggPlan,
    checker_bytes,
    commitment_bytes,
    commitment_seconds,
    communication,
)
from smpc_dp.seen import LINE_BYTES, MOST_BEHIND
from smpc_dp.wire.sets import PartySet

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.noise_bounds import Part


MAX_PARTIES = 65_535
# Elements of a checked total, and the parties whose commitments each receiver is shown; of more some check
# for all.
MAX_CHECKED, MOST_SHOWN = MAX_LENGTH, 10_000
# Elements of a total that is checked unless the session says otherwise.
MAX_BY_DEFAULT = 100_000

Total = Literal["checked", "unchecked"]


def add_uniform_terms(
    ring_vector: RingVector, seeds: Sequence[bytes], signs: Sequence[int], threads: int = 1
) -> None:
    """Add the uniform masks of pairs, each from a seed and with a sign, to the vector in place."""
    add_masks(ring_vector, seeds, signs, threads=threads)


class RequestParameters:
    """Base of the checked parameters of a request in every protocol, with defaults for most methods.

    Attributes:
        group_version: of the runs of a group of learners, whose session has a version of its own.
        is_logged: whether a run has a log, and the party stores its state of the session log.
        hides_records: whether parties add noise to sums of their records.
        encoding: of the vectors; None where there are none.
    """

    __slots__ = ()
    protocol: ClassVar[str]
    group_version: ClassVar[int] = 1
    is_logged: ClassVar[bool] = False
    hides_records: ClassVar[bool] = False
    encoding: Any

    @property
    def is_checked(self) -> bool:
        """Whether parties, each or some for all, check totals against commitments; by default False."""
        return False

    @property
    def has_checkers(self) -> bool:
        """Whether a few survivors check the total for all parties; by default False."""
        return False

    @property
    def requests(self) -> tuple[Self, ...]:
        """The parameters of each kind of request of a session; by default these alone."""
        return (self,)

    @property
    def view(self) -> str:
        """Key of a text in `report.roles.VIEWS` on what each member sees; by default "", no text."""
        return ""

    @property
    def sum_encoding(self) -> Encoding:
        """The fixed-point encoding of the vectors; raises ConfigError if the session has none."""
        encoding: Encoding = self.encoding
        return encoding

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations, such as a sum or average, that parties may ask for; the first is default."""
        return self.sum_encoding.operations

    def largest_message(self, servers: int) -> int:
        """Return the most bytes of a message; this base raises NotImplementedError."""
        raise NotImplementedError

    @property
    def keeps_survivors(self) -> bool:
        """Whether all sums of a session must include exactly the same parties; by default False."""
        return False

    @property
    def quorum(self) -> int:
        """The number of parties that must sign a set of parties; 0, as by default, if sets are not signed."""
        return 0

    @property
    def steps(self) -> int:
        """The number of successive requests that one computation takes until its answer; by default 1."""
        return 1

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the answers to print with a plan, besides their errors; by default none."""
        return ()

    @property
    def total_note(self) -> str:
        """The sentence that says who checks a total, and the cost of a check; by default ""."""
        return ""

    @property
    def share_name(self) -> str | None:
        """The name of the distribution of a party's noise; None, the default, without noise or name."""
        return None

    def own_noise(self, source: NoiseSource, count: int) -> NDArray[np.int64]:  # noqa: ARG002
        """Return `count` draws, in grid steps, of one party's noise in a coordinate; by default zeros."""
        return np.zeros(count, dtype=np.int64)

    def planned(self) -> str:
        """Return further planned values, as text, that members compare; by default ""."""
        return ""

    def planned_answers(self, parties: int, error: float = 0.0) -> tuple[list[PlannedAnswer], list[str]]:
        """Return the planned errors of all answers over this many parties, and warnings.

        `error`: of the noise in the sum over the number of parties, in the unit of the vectors.
        """
        return average_answer(self.sum_encoding, parties, error)

    def noise_distributions(self, survivors: int, residual_pairs: int) -> tuple[Part, ...]:  # noqa: ARG002
        """Return the distribution and number of each independent noise term; by default none."""
        return ()

    def following(self, last: Any) -> Self:  # noqa: ARG002
        """Return the parameters of the next request, given the last result: by default unchanged."""
        return self

    def result(self, outcome: Outcome, names: tuple[str, ...]) -> Any:  # noqa: ARG002
        """Return the aggregator's result of a request: by default of the first operation."""
        return Result.of(outcome, self.operations[0], distributions=self.noise_distributions)


class SumParameters(RequestParameters, msgspec.Struct, frozen=True):
    """Base of checked parameters of a secure sum: its encoding, its plan, and what hides the vectors."""

    protocol: ClassVar[str] = "secagg"
    encoding: Encoding
    plan: SecAggPlan

    @property
    def tolerated(self) -> tuple[int, int, int]:
        """Three numbers: parties in all, most parties lost, most parties colluding with the aggregator."""
        return self.plan.parties, self.plan.max_dropouts, self.plan.max_corrupt

    @property
    def quorum(self) -> int:
        """The number of parties that must sign a set of parties; 0 if sets are not signed."""
        return self.plan.quorum

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a party's encoded vector, a single length."""
        return (self.encoding.ring_length,)

    def check_ring_vector(self, name: str, ring_vector: RingVector) -> None:
        """Raise LocalError unless an encoded vector has ring elements of the right shape."""
        if ring_vector.shape != self.shape or ring_vector.dtype != self.encoding.dtype:
            many = " x ".join(str(size) for size in self.shape)
            raise LocalError(f"{name}: lanes must be {many} of {self.encoding.dtype.__name__}")

    @property
    def party_steps(self) -> tuple[str, ...]:
        """The names of the protocol steps in which a party sends, in order."""
        return (*PARTY_STEPS, ATTEST_TOTAL) if self.has_checkers else PARTY_STEPS

    @property
    def deals_shares(self) -> bool:
        """Whether parties share secrets by which a lost party's masks are removed; by default True."""
        return True

    @property
    def is_signed(self) -> bool:
        """Whether ring elements are read as two's complement, for negative sums; by default False."""
        return False

    @property
    def kinds(self) -> Kinds:
        """The message types that differ between protocols, by whether totals are checked."""
        if self.has_checkers:
            return CERTIFIED
        return CHECKED if self.is_checked else UNCHECKED

    @property
    def total_step(self) -> str:
        """The name of the step in which the aggregator sends the total."""
        return RESULT

    def survivors_in(self, message: Any) -> bytes | None:  # noqa: ARG002
        """Return the packed survivors listed in a message with the total; None, the default, if certified."""
        return None

    def residual_pairs(self, message: Any, participants: int, survivors: PartySet) -> int:  # noqa: ARG002
        """Return the number of pairs whose noise did not cancel in a message's total; by default 0.

        Raises VerificationError if that is impossible with so many participants and these survivors.
        """
        return 0

    @property
    def traffic(self) -> tuple[int, int]:
        """Expected bytes that one party sends and receives, without frames and TLS records."""
        length, size = self.encoding.ring_length, self.encoding.element_bytes
        traffic = communication(
            self.plan,
            length,
            size,
            shares=self.deals_shares,
            checked=self.is_checked,
            has_checkers=self.has_checkers,
        )
        return traffic["up"]["total"], traffic["down"]["total"]

    def largest_message(self, _servers: int) -> int:
        """Return a bound in bytes that messages exceed with negligible probability.

        To it at most a vector, or the sealed or opened shares of k holders; from it at most a sum, the Merkle
        commitment, a certificate, the advertisements and openings of a party's neighbours, or lines of the
        session log that a party may have missed. In-degrees are binomial with mean k: twice k and 64 more are
        exceeded with negligible probability.
        """
        plan, vector = self.plan, self.encoding.ring_length * self.encoding.element_bytes
        drew = min(plan.parties, 2 * plan.degree + 64)
        neighbours = drew * (2 * plan.degree + 256) + (plan.degree + drew) * 256
        rest = vector + 256 * plan.parties + neighbours + self.extra_bytes
        return (64 << 10) + max(rest, MOST_BEHIND * LINE_BYTES)

    @property
    def extra_bytes(self) -> int:
        """By how many bytes a message may exceed plain secure aggregation's; by default 0."""
        return 0

    def add_pair_terms(
        self, ring_vector: RingVector, seeds: Sequence[bytes], signs: Sequence[int], threads: int = 1
    ) -> None:
        """Add the mask of each pair, expanded from its seed, times its sign, to the vector in place."""
        add_uniform_terms(ring_vector, seeds, signs, threads)

    def check_neighbourhood(self, party: str, own: int, drawn_by: int) -> None:
        """Raise PrivacyError if a party has too few neighbours for the claim; by default do nothing.

        Of the parties that it drew `own` participate, and `drawn_by` drew it.
        """

    def add_noise(self, ring_vector: RingVector, randomness: Randomness) -> None:
        """Add this party's share of the sum's noise to the vector in place; by default do nothing."""

    def decode(self, total: RingVector, contributors: int) -> tuple[GridTotal, int]:
        """Return the sum on the integer grid and its weight; raise VerificationError if impossible.

        `total` must not change any more.
        """
        return self.encoding.decoded(total, contributors)

    def noise(self, survivors: int, residual_pairs: int) -> Noise | None:  # noqa: ARG002
        """Return the noise in a sum over this many survivors; None for an exact sum, the default."""
        return None

    def event(self) -> Event:
        """Return the privacy event of one request, for a ledger; by default that of an exact release."""
        # Not at the top: a session without a ledger needs no accountant.
        from smpc_dp.privacy.accountant.events import exact_release

        return exact_release("secure sum", "substitution")

    def event_without(self, excluded: int) -> Event:  # noqa: ARG002
        """Return a request's event if `excluded` signed falsely; by default that of any request."""
        return self.event()

    def claim(self, survivors: int) -> Claim:
        """Return the privacy claim over so many survivors; this base raises NotImplementedError."""
        raise NotImplementedError

    def privacy(self, survivors: int) -> Privacy:
        """Return the privacy statement, for readers, of a sum over this many survivors."""
        return self.claim(survivors).privacy()

    @property
    def privacy_of_all(self) -> Privacy:
        """The privacy statement of a run over all parties, for readers."""
        return self.privacy(self.plan.parties)


class CheckableParameters(SumParameters, frozen=True, kw_only=True):
    """Base of parameters of sums whose total parties may check; `total` says whether they do.

    `most_shown`: with more parties some survivors check for all; no session file says another number.
    """

    total: Total = "unchecked"
    most_shown: int = MOST_SHOWN

    @property
    def is_checked(self) -> bool:
        """Whether parties, each or some for all, check the total against commitments."""
        return self.total == "checked"

    @property
    def has_checkers(self) -> bool:
        """Whether some survivors check the total for all parties."""
        return self.is_checked and self.plan.parties > self.most_shown

    @property
    def extra_bytes(self) -> int:
        """Bytes by which commitments lengthen a message; 0 if totals are unchecked."""
        return OPENING_BYTES * self.plan.parties if self.is_checked else 0

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentence on who checks the total, in a tuple of one; () without such a sentence."""
        return (f"total: {self.total_note}",) if self.total_note else ()

    @property
    def total_note(self) -> str:
        """The sentence that says which parties check the total, and its cost in bytes and time."""
        if not self.is_checked:
            return (
                "the aggregator's word: it may report any total within the bounds, and another one to each "
                "party, which is found when the next request begins, or never"
            )
        sent, received = commitment_bytes(self.plan, self.has_checkers)
        length, size = self.encoding.ring_length, self.encoding.element_bytes
        seconds = commitment_seconds(self.plan.parties, length, size)
        cost = f"with {sent} of the bytes sent and {received} of those received"
        time = f"some {seconds:.1g} s of processor time"
        if not self.has_checkers:
            return f"each party checks it against commitments to all vectors, {cost}, and {time}"
        plan = self.plan
        return (
            f"{plan.checkers()} survivors check it for all against commitments to all vectors, and "
            f"{plan.check_quorum} of them must attest it, {cost}; a checker receives "
            f"{checker_bytes(plan)[1]} more, and the total twice, and needs {time}"
        )


def cost_of_sum(parameters: SumParameters, _servers: int = 0) -> Cost:
    """Return the predicted cost of a secure sum in which no party is lost."""
    plan = parameters.plan
    privacy, noise = parameters.privacy(plan.parties), parameters.noise(plan.parties, 0)
    guarantee = privacy.guarantee
    error = 0.0 if noise is None else noise.total / plan.parties
    answers, warnings = parameters.planned_answers(plan.parties, error)
    sent, received = parameters.traffic
    return Cost(
        unit=privacy.unit,
        relation=None if guarantee is None else guarantee.relation,
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        counted=None if noise is None else noise.honest,
        factor=None if noise is None else noise.total / noise.curator,
        answers=tuple(answers),
        sent=sent,
        received=received,
        steps=len(parameters.party_steps),
        warnings=tuple(warnings),
        noise=parameters.share_name,
        requests=parameters.steps,
        notes=parameters.notes,
    )
