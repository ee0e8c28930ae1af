"""What a request of a session will be charged, and how exact its answers will be, before anything is sent."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

from msgspec.structs import asdict

from smpc_dp.engine.phases.cost import Cost
from smpc_dp.session.session_file import SessionFile
from smpc_dp.session.tolerance import tolerances

# What the time of a plan is stated for: seconds of a round trip, and bits a second of a party's line.
ROUND_TRIP, LINE = 0.05, 10e6


class NoiseWarning(Warning):
    """The noise of an answer will be large beside its range."""


class RowsWarning(Warning):
    """More rows of this party than `max_rows` count in a request of an open session: answers are wrong."""


class UnchargedWarning(Warning):
    """A session's requests have differential privacy, and no ledger is charged for them."""


class SessionPlan(Cost, frozen=True, kw_only=True):
    """One request of a session, as planned.

    Attributes:
        protocol: of the session.
        parties, lost, corrupt: how many there are, may be lost, and may collude.
        later: of `lost` those that may be lost from a request after the first one.
        quorum: how many must sign a set of parties; 0 where none is signed.
        step_timeout: the seconds that a step waits for a party that is lost.
    """

    protocol: str
    parties: int
    lost: int
    corrupt: int
    later: int
    quorum: int
    step_timeout: float

    @property
    def seconds(self) -> float:
        """The time of a party's messages with nobody lost, on a line of `ROUND_TRIP` and `LINE`."""
        return self.requests * (self.steps * ROUND_TRIP + 8 * (self.sent + self.received) / LINE)

    @property
    def charge(self) -> str:
        """What one request costs a ledger, in words."""
        if self.unit is None:
            return "an exact release: no differential privacy"
        return f"epsilon = {self.epsilon:g}, delta = {self.delta:g} for one {self.unit} ({self.relation})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the plan in lines, the warnings last."""
        each = "each request costs" if self.requests == 1 else f"all {self.requests} requests together cost"
        yield f"{each}: {self.charge}"
        if self.factor is not None:
            shares = f"{self.counted} of {self.parties} shares are counted on"
            shares += ", of discrete Laplace noise" if self.noise == "discrete-laplace" else ""
            drawn = "the servers draw one together" if self.counted is None else shares
            curator = f"a trusted curator of all {self.parties} parties"
            yield f"noise: {drawn}; the error is {self.factor:.3g} times that of {curator}"
        yield from (*map(str, self.answers), *self.notes)
        traffic = f"{self.sent} bytes sent, {self.received} received, in {self.steps} steps"
        yield f"traffic of a party: {traffic}{'' if self.requests == 1 else ' of each request'}"
        line = f"a line of {1000 * ROUND_TRIP:g} ms and {LINE / 1e6:g} Mbit/s"
        lost = f"a lost party adds up to {self.step_timeout:g} s in its step"
        yield f"time: {self.seconds:.2g} s for a party's messages on {line}, without computing; {lost}"
        yield from (f"WARNING: {line}" for line in self.warnings)


def session_plan(session: SessionFile) -> SessionPlan | None:
    """Return the plan of a session's requests; None for one that learns, or has servers and sums."""
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
    """Return whether a session has the defaults of an earlier release; empty for the newest version."""
    newest = session.described.version
    if session.version == newest:
        return ()
    return (
        f"Version {session.version} of '{session.protocol}' has the defaults of an earlier release; those of "
        f"this one are of version {newest}, which all members need this release for.",
    )


def tolerance_lines(session: SessionFile) -> list[str]:
    """Return what a session's requests tolerate, and whether by the defaults of an earlier release."""
    return [*map(str, tolerances(session)), *version_notes(session)]


def total_notes(session: SessionFile) -> tuple[str, ...]:
    """Return whether parties check the totals of a session's requests, one sentence for each kind."""
    noted = [one for one in session.checked_parameters.requests if one.total_note]
    return tuple(dict.fromkeys(f"Total over {one.plan.parties} parties: {one.total_note}." for one in noted))


def warn_of_noise(session: SessionFile) -> None:
    """Give a `NoiseWarning` for each warning of the plan of a session's requests."""
    plan = session_plan(session)
    for line in () if plan is None else plan.warnings:
        warnings.warn(line, NoiseWarning, stacklevel=5)
