"""What a request of a session will be charged, and how exact its answers will be, before anything is sent."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Literal

from msgspec.structs import asdict

from smpc_dp.engine.phases.cost import Cost
from smpc_dp.privacy.guarantee import PlainStruct
from smpc_dp.records.forecast import Forecast
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tolerance import tolerances

# What the time of a plan is stated for: seconds of a round trip, and bits a second of a party's line.
ROUND_TRIP, LINE = 0.05, 10e6
# What the line on shares says of laws other than the Gaussian one.
_OF_NOISE = {
    "discrete-laplace": ", of discrete Laplace noise",
    "discrete-gaussian-and-laplace": ", of Gaussian noise for some answers and discrete Laplace for others",
}


class NoiseWarning(Warning):
    """Python warning, also in JSON output: an answer's noise will be large relative to its range."""


class RowsWarning(Warning):
    """Python warning: a party has more rows than `max_rows` allows, so that answers will be wrong."""


class UnchargedWarning(Warning):
    """Python warning: requests are differentially private, but no ledger is charged for them."""


# Repetitions of a request that are counted at most in a budget.
MOST_REPEATED = 1000


class Changed(PlainStruct, frozen=True, kw_only=True):
    """A forecast of a changed plan: `noise`, `both` and `detected` as of `Forecast`."""

    noise: float | None
    both: float | None
    detected: float | None


class StudiedAnswer(Forecast, frozen=True, kw_only=True):
    """The forecast of one number of an answer.

    Attributes:
        one_more_party: with one party more, that has as many rows as the others have on average; None where
            no such session can be planned.
        twice_epsilon: with twice the epsilon; None as above.
    """

    one_more_party: Changed | None
    twice_epsilon: Changed | None


class Remaining(PlainStruct, frozen=True, kw_only=True):
    """What a budget leaves for later questions about the same rows.

    Attributes:
        epsilon, delta: the budget; composition: the rule by which releases are composed, that of the ledger.
        spent: epsilon of what was charged before; after: with this request too.
        repeated: how many further requests like this one fit, `MOST_REPEATED` at most.
        later_epsilon: the largest epsilon, at the delta of this request, of one later request of Gaussian
            noise alone.
    """

    epsilon: float
    delta: float
    composition: Literal["fixed", "adaptive"]
    spent: float
    after: float
    repeated: int
    later_epsilon: float


class Study(PlainStruct, frozen=True, kw_only=True):
    """The plan of a study; `rows` of all `parties` together."""

    rows: int
    parties: int
    answers: tuple[StudiedAnswer, ...]


class SessionPlan(Cost, frozen=True, kw_only=True):
    """Predicted cost and accuracy of one request of a session; also the JSON output of the plan.

    Attributes:
        protocol: of the session.
        parties, lost, corrupt: how many there are, may be lost, and may collude.
        later: of `lost` those that may be lost from a request after the first one.
        quorum: how many must sign a set of parties; 0 where none is signed.
        step_timeout: the seconds that a step waits for a party that is lost.
        study: what is expected of the answers about records; None without a number of rows, and where it was
            not asked for. remaining: what a budget leaves; None without one.
    """

    protocol: str
    parties: int
    lost: int
    corrupt: int
    later: int
    quorum: int
    step_timeout: float
    study: Study | None = None
    remaining: Remaining | None = None

    @property
    def seconds(self) -> float:
        """Predicted seconds of a party's message exchange, on a network of typical speed."""
        return self.requests * (self.steps * ROUND_TRIP + 8 * (self.sent + self.received) / LINE)

    @property
    def charge(self) -> str:
        """Text on what a ledger is charged for one request, or for those that are charged together."""
        if self.unit is None:
            return "an exact release: no differential privacy"
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g} for one {self.unit} ({self.relation})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the plan as lines of text, warnings last."""
        each = "each request costs" if self.requests == 1 else f"all {self.requests} requests together cost"
        yield f"{each}: {self.charge}"
        if self.factor is not None:
            shares = f"{self.counted} of {self.parties} shares are counted on"
            shares += _OF_NOISE.get(self.noise or "", "")
            drawn = "the servers draw one together" if self.counted is None else shares
            curator = f"a trusted curator of all {self.parties} parties"
            yield f"noise: {drawn}; the error is {self.factor:.3g} times that of {curator}"
        # a study has the same errors as widths of intervals
        yield from (*(() if self.study else map(str, self.answers)), *self.notes)
        traffic = f"{self.sent} bytes sent, {self.received} received, in {self.steps} steps"
        yield f"traffic of a party: {traffic}{'' if self.requests == 1 else ' of each request'}"
        line = f"a line of {1000 * ROUND_TRIP:g} ms and {LINE / 1e6:g} Mbit/s"
        lost = f"a lost party adds up to {self.step_timeout:g} s in its step"
        yield f"time: {self.seconds:.2g} s for a party's messages on {line}, without computing; {lost}"
        yield from (f"WARNING: {line}" for line in self.warnings)


def session_plan(session: SessionFile) -> SessionPlan | None:
    """Return the plan of a session's requests; None where no cost is known, as of learners."""
    cost = session.described.cost(session.checked_parameters, len(session.roster.servers))
    if cost is None:
        return None
    [tolerated] = tolerances(session)
    return SessionPlan(
        **asdict(cost),
        protocol=session.protocol,
        parties=tolerated.parties,
        lost=tolerated.lost,
        corrupt=tolerated.corrupt,
        later=tolerated.later,
        quorum=tolerated.quorum,
        step_timeout=session.timeouts.step,
    )


def version_notes(session: SessionFile) -> tuple[str, ...]:
    """Return a note if the session uses an older protocol version's defaults, else nothing."""
    newest = session.described.version
    if session.version == newest:
        return ()
    return (
        f"Version {session.version} of '{session.protocol}' has the defaults of an earlier release; those of "
        f"this one are of version {newest}, which all members need this release for.",
    )


def tolerance_lines(session: SessionFile) -> list[str]:
    """Return lines of text on how many parties a request may lose, and how many may collude."""
    return [*map(str, tolerances(session)), *version_notes(session)]


def total_notes(session: SessionFile) -> tuple[str, ...]:
    """Return sentences on whether parties verify the totals of the session's requests."""
    noted = [one for one in session.checked_parameters.requests if one.total_note]
    return tuple(dict.fromkeys(f"Total over {one.plan.parties} parties: {one.total_note}." for one in noted))


def warn_of_noise(session: SessionFile) -> None:
    """Issue a Python warning for each warning of a session's plan, as of large noise."""
    plan = session_plan(session)
    for line in () if plan is None else plan.warnings:
        warnings.warn(line, NoiseWarning, stacklevel=5)
