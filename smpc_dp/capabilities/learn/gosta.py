"""Gossip estimation of U-statistics: GoSta [Bellet 2021, section 3.1] and the baseline U2-gossip.

A party has its own record and an auxiliary one, which moves through the network by swaps. The receiver of a
record sees it: see `local_reports` for records that are reports under local differential privacy.

Where a round of the papers has all parties add h(x_u, a_u) although two of them meet, here they add what has
accumulated when they meet the next time: the same numbers, from a step that costs 2 and not n evaluations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import (
    PeerExchange,
    PlausibilityCheck,
    Rows,
    check_received,
    check_rows,
)
from smpc_dp.capabilities.learn.schedule import Clock, spans
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks

Floats = NDArray[np.float64]
PairKernel = Callable[[Rows, Rows], Floats]
"""h on rows: takes (m, length) and (m, length), own and auxiliary records, and returns (m,)."""

MAX_TICKS = 1_000_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Estimates:
    """Result of gossip estimation: the local parties' estimates at chosen ticks.

    Attributes:
        ticks: shape (times,), the last is that of the end.
        values: shape (times, rows): each party's estimate of (1/n^2) sum over all u, v of h(x_u, x_v).
        claim: the privacy of the messages, in words.
    """

    ticks: NDArray[np.intp]
    values: Floats
    claim: str

    @property
    def final(self) -> Floats:
        """The local parties' estimates at the end, shape (rows,)."""
        last: Floats = self.values[-1]
        return last


async def gosta(
    exchange: PeerExchange,
    records: Rows,
    kernel: PairKernel,
    clock: Clock,
    ticks: int,
    *,
    every: int | None = None,
    is_plausible: PlausibilityCheck | None = None,
) -> Estimates:
    """Return gossip estimates of a kernel's mean over all pairs, with a global clock (Algorithm 3.1).

    At tick t every party takes h(x_u, a_u) into its running average; then two parties average their estimates
    and swap their auxiliary records. The expectation of each estimate tends to the statistic as 1/t
    (`gossip_bounds.gosta_bound`).

    Args:
        records: shape (rows, length), the record of each local party.
        kernel: 0 for a record with itself. Between processes records are rounded to a fine grid: a kernel
            that jumps there should round back.
        clock: the pairing schedule, the same at every party. It has at least two parties on each connected
            graph.
        ticks: T, 1 to 1e9.
        every: estimates are stored each so many ticks, and at the end; None: at the end only.
        is_plausible: the plausibility check of received rows: an estimate, times t here, nothing in
            `u2_gossip`, and a record.

    Raises:
        ConfigError: an argument is refused. PeerFault, TimeoutFault: an exchange failed, or a party sent
            an implausible row.
    """
    records, every = _checked(exchange, records, kernel, clock, ticks, every)
    here = exchange.here
    # A message: t times the estimate, brought up to date when parties meet, and the auxiliary record.
    state = np.column_stack([np.zeros(len(here)), records])
    value = np.zeros(len(here))
    since = np.zeros(len(here), dtype=np.intp)
    recorded: list[Floats] = []
    times: list[int] = []
    for span in spans(clock, exchange.parties, ticks, every):
        for step in span.rounds:
            met = np.flatnonzero(step.pairing[here] >= 0)
            at = span.tick(step.pairing[here[met]])
            own = state[met, 0] + (at - since[met]) * value[met]
            state[met, 0] = own
            since[met] = at
            state = await exchange.exchange(state, step.partner)
            received = state[met]
            check_received(exchange, received, step.partner[here[met]], at, is_plausible)
            state[met, 0] = (own + received[:, 0]) / 2
            value[met] = _evaluate_kernel(kernel, records[met], received[:, 1:])
        recorded.append((state[:, 0] + (span.end - since) * value) / span.end)
        times.append(span.end)
    return Estimates(np.array(times, dtype=np.intp), np.array(recorded), exchange.claim)


async def gosta_asynchronous(
    exchange: PeerExchange,
    records: Rows,
    kernel: PairKernel,
    clock: Clock,
    ticks: int,
    *,
    every: int | None = None,
    is_plausible: PlausibilityCheck | None = None,
) -> Estimates:
    """Return gossip estimates of a kernel's mean over all pairs of records, without a global clock.

    Parties that meet average their estimates, take h(x_u, a_u) into them and swap. A party's weight is one
    over the number of its meetings: that number over the probability p_u of a meeting is its unbiased
    estimate of t, and p_u cancels. The expectation tends to the statistic as log(t)/t.

    Arguments, result and errors as of `gosta`.
    """
    records, every = _checked(exchange, records, kernel, clock, ticks, every)
    here = exchange.here
    # A message: the estimate and the auxiliary record.
    state = np.column_stack([np.zeros(len(here)), records])
    pairings = np.zeros(len(here))
    recorded: list[Floats] = []
    times: list[int] = []
    for span in spans(clock, exchange.parties, ticks, every):
        for step in span.rounds:
            met = np.flatnonzero(step.pairing[here] >= 0)
            own = state[met]
            state = await exchange.exchange(state, step.partner)
            at = span.tick(step.pairing[here[met]])
            check_received(exchange, state[met], step.partner[here[met]], at, is_plausible)
            count = pairings[met] + 1
            pairings[met] = count
            mean = (own[:, 0] + state[met, 0]) / 2
            state[met, 0] = mean + (_evaluate_kernel(kernel, records[met], own[:, 1:]) - mean) / count
        recorded.append(state[:, 0].copy())
        times.append(span.end)
    return Estimates(np.array(times, dtype=np.intp), np.array(recorded), exchange.claim)


async def u2_gossip(
    exchange: PeerExchange,
    records: Rows,
    kernel: PairKernel,
    clock: Clock,
    ticks: int,
    *,
    every: int | None = None,
    is_plausible: PlausibilityCheck | None = None,
) -> Estimates:
    """Return estimates of a kernel's mean over pairs, by two wandering records per party (U2-gossip).

    At each tick, two parties swap their first records and two parties swap their second ones; then every
    party takes h of its two records into its running average.

    Arguments, result and errors as of `gosta`.
    """
    records, every = _checked(exchange, records, kernel, clock, ticks, every)
    here = exchange.here
    # Axis 1: which of the two records.
    pair = np.repeat(records[:, None, :], 2, axis=1)
    total, value = np.zeros(len(here)), np.zeros(len(here))
    since = np.zeros(len(here), dtype=np.intp)
    recorded: list[Floats] = []
    times: list[int] = []
    own = np.arange(len(here))
    for span in spans(clock, exchange.parties, ticks, every, pairings=2):
        single = span.copies // 2
        for step in span.rounds:
            met = np.flatnonzero(step.pairing[here] >= 0)
            # Draws go alternately to the first and to the second records.
            draw = np.where(step.pairing >= 0, step.pairing, 0)[here] // single
            which, before = draw % 2, span.start + draw[met] // 2
            total[met] += (before - since[met]) * value[met]
            since[met] = before
            received = await exchange.exchange(pair[own, which], step.partner)
            check_received(exchange, received[met], step.partner[here[met]], before + 1, is_plausible)
            pair[met, which[met]] = received[met]
            value[met] = _evaluate_kernel(kernel, pair[met, 0], pair[met, 1])
        recorded.append((total + (span.end - since) * value) / span.end)
        times.append(span.end)
    return Estimates(np.array(times, dtype=np.intp), np.array(recorded), exchange.claim)


def _evaluate_kernel(kernel: PairKernel, own: Rows, auxiliary: Rows) -> Floats:
    """Return the kernel of each own and auxiliary record; raise ConfigError unless it is finite."""
    values = np.asarray(kernel(own, auxiliary), dtype=np.float64)
    if values.shape != (len(own),):
        raise ConfigError.at("kernel", f"gives shape {values.shape} for {len(own)} pairs", ConfigCheck.SHAPE)
    if not np.isfinite(values).all():
        raise ConfigError.at("kernel", "gives a value that is not finite", ConfigCheck.RANGE)
    return values


def _checked(
    exchange: PeerExchange, records: Rows, kernel: PairKernel, clock: Clock, ticks: int, every: int | None
) -> tuple[Rows, int]:
    """Return the checked records, and how often estimates are stored; raise ConfigError if invalid.

    The kernel must be 0 for a record with itself.
    """
    records = check_clocked(exchange, records, clock, ticks, every)
    if np.any(_evaluate_kernel(kernel, records, records) != 0):
        reason = "must be 0 for a record with itself: all parties start with h(x_u, x_u)"
        raise ConfigError.at("kernel", reason, ConfigCheck.RANGE)
    return records, ticks if every is None else every


def check_clocked(exchange: PeerExchange, records: Rows, clock: Clock, ticks: int, every: int | None) -> Rows:
    """Return the records as float64; raise ConfigError unless they fit the exchange, clock and ticks."""
    checks = ArgumentChecks()
    checks.require_integer("ticks", ticks, 1, MAX_TICKS)
    if every is not None:
        checks.require_integer("every", every, 1, MAX_TICKS)
    if len(clock.chances) != exchange.parties:
        checks.add_issue(
            "clock",
            f"is for {len(clock.chances)} parties, the network has {exchange.parties}",
            ConfigCheck.DIFFERS,
        )
    checks.raise_issues()
    return check_rows(exchange, records)
