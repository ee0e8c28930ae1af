"""Gossip dual averaging: minimise a pairwise objective over a network [Bellet 2021, section 3.2].

A party has its own record, an auxiliary one that moves through the network by swaps, and a sum of gradients
that it averages with its partners. The receiver of a record sees it: see `local_reports` for private
records.

In groups (`dual_averaging_in_groups`) the sums travel in averages of the group, and no record moves
with them.

theta minimises +z'theta + ||theta||^2 / (2 gamma) + t psi(theta): the papers print -z'theta, which ascends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Required, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import (
    ALONE,
    FAILURES,
    Groups,
    Parties,
    PeerExchange,
    PlausibilityCheck,
    Rows,
    check_received,
)
from smpc_dp.capabilities.learn.gosta import check_clocked
from smpc_dp.capabilities.learn.group_steps import GroupOutcome, GroupRun
from smpc_dp.capabilities.learn.pairwise_losses import PairGradient, Prox, no_regulariser
from smpc_dp.capabilities.learn.schedule import Clock, spans
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks

if TYPE_CHECKING:
    from scipy import sparse

Floats = NDArray[np.float64]
StepSize = Callable[[Floats], Floats]
"""gamma: takes times t >= 1, (m,), and returns positive step sizes, (m,), that do not increase."""

# Beyond this norm of theta a run is stopped.
DIVERGED = 1e8


def inverse_root(scale: float = 1.0) -> StepSize:
    """Return the step size gamma(t) = scale / sqrt(t)."""
    return lambda time: scale / np.sqrt(time)


def check_step_size(step_size: StepSize, ticks: int) -> None:
    """Raise ConfigError unless step sizes at up to 50 of the ticks are positive and never increase."""
    sampled = np.asarray(step_size(np.unique(np.geomspace(1, max(ticks, 2), 50).round())))
    if not (np.all(np.isfinite(sampled)) and np.all(sampled > 0) and np.all(np.diff(sampled) <= 0)):
        raise ConfigError.at("step_size", "must be positive and must not increase", ConfigCheck.RANGE)


@dataclass(frozen=True, eq=False, repr=False)
class Models:
    """Result of gossip dual averaging: the local parties' thetas, averages and sums at chosen ticks.

    Attributes:
        ticks: shape (times,), the last is that of the end.
        average: shape (times, rows, p): each party's average of its thetas, which the theory is about.
        current: shape (times, rows, p): each party's last theta.
        dual: shape (times, rows, p): z, each party's sum of gradients.
        auxiliary: shape (times, rows, length): the record that each party holds beside its own.
        claim: the privacy of the messages, in words.
    """

    ticks: NDArray[np.intp]
    average: Floats
    current: Floats
    dual: Floats
    auxiliary: Floats
    claim: str

    @property
    def final(self) -> Floats:
        """The local parties' averaged models at the end, shape (rows, p)."""
        last: Floats = self.average[-1]
        return last


class Settings(TypedDict, total=False):
    """Keyword arguments of both gossip dual averaging algorithms: dimension, step sizes, regulariser."""

    dimension: Required[int]
    step_size: StepSize | None
    prox: Prox
    every: int | None
    is_plausible: PlausibilityCheck | None


class _State:
    """Variables of the local parties in gossip dual averaging, with the steps of both algorithms."""

    def __init__(
        self,
        exchange: PeerExchange,
        records: Rows,
        gradient: PairGradient,
        clock: Clock,
        ticks: int,
        *,
        dimension: int,
        step_size: StepSize | None = None,
        prox: Prox = no_regulariser,
        every: int | None = None,
        is_plausible: PlausibilityCheck | None = None,
    ) -> None:
        """Set the start; raise ConfigError for invalid arguments."""
        self.records = check_clocked(exchange, records, clock, ticks, every)
        checks = ArgumentChecks()
        checks.require_integer("dimension", dimension, 1, 1_000_000)
        checks.raise_issues()
        self.step_size = step_size or inverse_root()
        check_step_size(self.step_size, ticks)
        self.exchange, self.gradient, self.prox, self.is_plausible = exchange, gradient, prox, is_plausible
        self.spans = spans(clock, exchange.parties, ticks, ticks if every is None else every)
        self.auxiliary = self.records.copy()
        self.dual, self.theta, self.average = (np.zeros((len(self.records), dimension)) for _ in range(3))
        self.ticks: list[int] = []
        self.recorded: tuple[list[Floats], ...] = ([], [], [], [])

    async def meet(self, met: NDArray[np.intp], partner: NDArray[np.intp], at: NDArray[np.intp]) -> None:
        """Let parties that meet average their gradient sums and swap their auxiliary records."""
        p = self.dual.shape[1]
        received = await self.exchange.exchange(np.hstack([self.dual, self.auxiliary]), partner)
        check_received(self.exchange, received[met], partner[self.exchange.here[met]], at, self.is_plausible)
        self.dual[met] = (self.dual[met] + received[met, :p]) / 2
        self.auxiliary[met] = received[met, p:]

    def advance(
        self, who: NDArray[np.intp] | slice, weight: Floats | float, time: Floats, tick: NDArray[np.intp]
    ) -> None:
        """Let the local rows `who` take a weighted gradient and a proximal step at clock time `time`."""
        slope = np.asarray(self.gradient(self.theta[who], self.records[who], self.auxiliary[who]))
        if slope.shape != self.theta[who].shape:
            raise ConfigError.at(
                "gradient",
                f"gives shape {slope.shape}, not {self.theta[who].shape}: (parties, p)",
                ConfigCheck.SHAPE,
            )
        self.dual[who] += weight * slope
        step = self.step_size(time)
        theta = self.prox(-step[:, None] * self.dual[who], time * step)
        # Written so that NaN is caught.
        wrong = np.flatnonzero(~(np.linalg.norm(theta, axis=1) <= DIVERGED))
        if len(wrong):
            party = self.exchange.name_of(int(self.exchange.here[who][wrong[0]]))
            reason = (
                f"the run diverges: theta of {party} exceeds {DIVERGED:g} at tick {tick[wrong[0]]}; "
                "take smaller steps, a regulariser or scaled records"
            )
            raise ConfigError.at("step_size", reason, ConfigCheck.INFEASIBLE)
        self.theta[who] = theta

    def keep(self, tick: int) -> None:
        """Store copies of the models and sums of gradients at this tick, for the result."""
        self.ticks.append(tick)
        for recorded, value in zip(
            self.recorded, (self.average, self.theta, self.dual, self.auxiliary), strict=True
        ):
            recorded.append(value.copy())

    def models(self) -> Models:
        """Return the result of the run: the models stored at chosen ticks."""
        average, current, dual, auxiliary = (np.array(recorded) for recorded in self.recorded)
        ticks = np.array(self.ticks, dtype=np.intp)
        return Models(ticks, average, current, dual, auxiliary, self.exchange.claim)


async def dual_averaging(
    exchange: PeerExchange,
    records: Rows,
    gradient: PairGradient,
    clock: Clock,
    ticks: int,
    **settings: Unpack[Settings],
) -> Models:
    """Minimise a sum over pairs of records by gossip (Algorithm 3.2); return the local parties' models.

    At each tick two parties average their sums of gradients and swap their auxiliary records; then every
    party adds its gradient at (x_u, a_u) and takes a proximal step. `gossip_bounds.dual_averaging_terms`
    bounds the error.

    Args:
        records: shape (rows, length), the record of each local party.
        gradient: of the loss in theta.
        clock: the pairing schedule, the same at every party.
        ticks: T, 1 to 1e9.
        dimension: p, 1 to 1e6.
        step_size: gamma(t), the same at every party; None: 1/sqrt(t).
        prox: of the regulariser psi.
        every: models are stored each so many ticks, and at the end; None: at the end only.
        is_plausible: the plausibility check of received rows: a sum of gradients and a record.

    Raises:
        ConfigError: an argument is refused, or the run diverges. PeerFault, TimeoutFault: an exchange failed,
            or a party sent an implausible row.
    """
    state = _State(exchange, records, gradient, clock, ticks, **settings)
    rows = len(exchange.here)
    for span in state.spans:
        if span.copies * 2 > exchange.parties:
            raise ConfigError.at(
                "clock", "has more meetings in a tick than there are pairs", ConfigCheck.RANGE
            )
        pairs = span.pairs
        for tick in range(span.start + 1, span.end + 1):
            held = pairs[(tick - span.start - 1) * span.copies :][: span.copies]
            partner = np.arange(exchange.parties)
            partner[held] = held[:, ::-1]
            met = np.flatnonzero(partner[exchange.here] != exchange.here)
            await state.meet(met, partner, np.full(len(met), tick))
            state.advance(slice(None), 1.0, np.full(rows, float(tick)), np.full(rows, tick))
            state.average += (state.theta - state.average) / tick
        state.keep(span.end)
    return state.models()


async def dual_averaging_asynchronous(
    exchange: PeerExchange,
    records: Rows,
    gradient: PairGradient,
    clock: Clock,
    ticks: int,
    **settings: Unpack[Settings],
) -> Models:
    """Minimise a sum over pairs of records by asynchronous gossip (Remark 3.4); return local models.

    Only the two parties that meet take a step. Party u meets another with probability p_u in each tick: its
    gradient has the weight 1/p_u, and its number of meetings over p_u is its unbiased estimate of t.

    Arguments, result and errors as of `dual_averaging`.
    """
    state = _State(exchange, records, gradient, clock, ticks, **settings)
    here = exchange.here
    weight = 1.0 / clock.chances[here]
    pairings = np.zeros(len(here))
    for span in state.spans:
        for step in span.rounds:
            met = np.flatnonzero(step.pairing[here] >= 0)
            at = span.tick(step.pairing[here[met]])
            await state.meet(met, step.partner, at)
            pairings[met] += 1
            state.advance(met, weight[met, None], pairings[met] * weight[met], at)
            state.average[met] += (state.theta[met] - state.average[met]) / pairings[met, None]
        state.keep(span.end)
    return state.models()


# Gradients of the members at their thetas: takes the thetas of the local parties, shape (rows, p), the rows
# that are members, the groups and the step, from 1; returns shape (members, p).
Slopes = Callable[[Rows, NDArray[np.intp], Groups, int], Awaitable[Rows]]
# Called after each step with its number, the averages of the thetas, and the sums of gradients.
GroupWatch = Callable[[int, Rows, Rows], None]


class PassedRecords:
    """Records that the members of each group pass on round a ring, to compute gradients of pairs.

    Where they cannot be passed on to one member alone it keeps its own, which another has too, and the one
    that was sent to it is lost.

    Attributes:
        auxiliary: shape (rows, length): the record that each local party holds beside its own.
        failures: why records were not passed on. The members of such a group take no gradient in that step:
            what a ledger is charged for records is charged when they are passed on.
    """

    def __init__(
        self,
        exchange: PeerExchange,
        records: Rows,
        gradient: PairGradient,
        is_plausible: PlausibilityCheck | None = None,
        *,
        senders: NDArray[np.intp],
    ) -> None:
        """Start with each party's own record; `senders`: of `GroupDraws.senders`, a row for each step."""
        self._exchange, self._records, self._gradient = exchange, records, gradient
        self._is_plausible, self._senders = is_plausible, senders
        self.auxiliary = records.copy()
        self.failures: list[str] = []

    async def slopes(self, thetas: Rows, rows: NDArray[np.intp], group: Groups, step: int) -> Rows:
        """Pass records on round each group's ring; return the members' gradients, 0 where that failed."""
        here = self._exchange.here
        passed = np.zeros(len(here), bool)
        # Where all parties are here none can be lost, and one exchange serves all groups.
        labels = (
            [group]
            if len(here) == len(group)
            else [np.where(group == label, 0, ALONE) for label in np.unique(group[group > ALONE])]
        )
        for one in labels:
            members = np.flatnonzero(one[here] > ALONE)
            senders = np.where(one > ALONE, self._senders[step - 1], np.arange(len(group)))
            try:
                received = await self._exchange.mix(self.auxiliary, sending_matrix(senders))
                at = np.full(len(members), step)
                from_whom = senders[here[members]]
                check_received(self._exchange, received[members], from_whom, at, self._is_plausible)
            except FAILURES as error:
                self.failures.append(str(error))
                continue
            self.auxiliary[members] = received[members]
            passed[members] = True
        slope = self._gradient(thetas[rows], self._records[rows], self.auxiliary[rows])
        return np.where(passed[rows, None], slope, 0.0)


def sending_matrix(senders: Parties) -> sparse.csr_array:
    """Return the sparse matrix (n, n) by which each party gets its sender's vector, none from itself."""
    from scipy import sparse

    parties = len(senders)
    moved = np.flatnonzero(senders != np.arange(parties))
    return sparse.csr_array((np.ones(len(moved)), (moved, senders[moved])), shape=(parties, parties))


async def dual_averaging_in_groups(
    run: GroupRun,
    slopes: Slopes,
    *,
    dimension: int,
    step_size: StepSize | None = None,
    prox: Prox = no_regulariser,
    watch: GroupWatch | None = None,
) -> tuple[Rows, GroupOutcome]:
    """Minimise the parties' mean objective by group averages; return mean thetas, and the outcome.

    In each step every member of a group adds its gradient times `run.factor`, and all take the group's
    average of the sums; then every party takes a proximal step. `gossip_bounds.group_terms` bounds the error.

    Args:
        run: the averages and the groups.
        dimension, step_size, prox: as of `dual_averaging`.
        watch: for studies, in a simulation.

    Returns:
        The average of each local party's thetas, shape (rows, p), and what became of its steps.

    Raises:
        ConfigError: a step size is refused, or the run diverges.
    """
    step_size = step_size or inverse_root()
    check_step_size(step_size, run.steps)
    thetas, averages = (np.zeros((len(run.averager.here), dimension)) for _ in range(2))

    async def changes(_duals: Rows, rows: NDArray[np.intp], group: Groups, step: int) -> Rows:
        return await slopes(thetas, rows, group, step)

    def moved(duals: Rows, step: int) -> None:
        # The time is everybody's, also of those who sat out.
        time = np.full(len(duals), float(step))
        gamma = step_size(time)
        thetas[:] = prox(-gamma[:, None] * duals, time * gamma)
        averages[:] += (thetas - averages) / step
        if watch is not None:
            watch(step, averages, duals)

    outcome = await run.run(np.zeros_like(thetas), changes, moved)
    return averages, outcome
