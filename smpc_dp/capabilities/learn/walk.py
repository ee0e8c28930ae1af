"""Sums and histograms by a token on a random walk over the complete graph [Bellet 2021, Algorithm 4.4].

In a simulation the whole path is drawn at once and everything is arrays; between processes the token arrives
by messages, and its holder draws the next one from its own noise source. The first step adds noise alone: the
party that starts the walk knows who takes it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Parties
from smpc_dp.capabilities.learn.ring import PlannedHistogram, TokenHistogram, TokenSum
from smpc_dp.capabilities.learn.tokens import Token, TokenPassing, Values, check_token
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.network.grid import Grid, check_plan, guarantee
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.response import ResponseDistribution
from smpc_dp.privacy.sampling import NoiseSource, uniform

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on contributions to a walking token, beyond which its holder adds noise alone.

    On the number of its contributions, and on the uses of the edge that the token takes next.
    """

    contributions: int | None = None
    edge: int | None = None

    def allows(self, step: Any, visit: Any, used: Any, steps: int) -> Any:
        """Tell whether the limits allow a contribution after `visit` visits and `used` uses of the edge.

        `step` is 0 to T - 1, `visit` how often its party has held the token before, `used` how often the edge
        to the next party was taken. A visit spends a contribution even if the edge forbids it. At the last
        step all parties are next, and a limit on edges forbids it.
        """
        allowed = step > 0
        if self.contributions is not None:
            allowed = allowed & (visit < self.contributions)
        if self.edge is not None:
            allowed = allowed & (used < self.edge) & (step < steps - 1)
        return allowed


def check_paths(plan: NetworkPlan, tokens: TokenPassing) -> None:
    """Raise ConfigError if a plan counts on hidden paths and the token's passing shows them.

    A simulation, where all parties are local, has no observers.
    """
    if plan.paths == "hidden" and not tokens.anonymous and len(tokens.here) < tokens.parties:
        reason = (
            "is for a hidden path, and here a receiver knows the sender and a sender the receiver; "
            "plan with --paths neighbours"
        )
        raise ConfigError.at("plan", reason, ConfigCheck.UNSUPPORTED)


def count_earlier(keys: Integers) -> Integers:
    """Return how often each entry of `keys`, shape (T,), has occurred before."""
    order = np.argsort(keys, kind="stable")
    ranked = keys[order]
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    counts = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    result = np.empty_like(counts)
    result[order] = counts
    return result


@dataclass(frozen=True, slots=True)
class Path:
    """A drawn walk of a token: its holder at each step, and which holders contribute.

    `parties`, shape (T,): the holder; `visits`: how often it held the token before; `contributes`: whether
    its step is not noise alone.
    """

    parties: Parties
    visits: Integers
    contributes: Flags

    @classmethod
    def draw(cls, parties: int, steps: int, limits: Limits, source: NoiseSource) -> Path:
        """Return a random walk of `steps` steps over uniformly drawn parties."""
        return cls.along(uniform(source, steps, parties), parties, limits)

    @classmethod
    def along(cls, path: Integers, parties: int, limits: Limits) -> Path:
        """Return the walk that visits these parties in turn, with contributions as the limits allow."""
        steps = len(path)
        # The first holder's noise is no visit: it spends no contribution.
        visits = np.append(0, count_earlier(path[1:])) if steps else np.zeros(0, np.int64)
        used = np.zeros(steps, np.int64)
        if steps > 1:
            edges = path[:-1] * parties + path[1:]
            # A party that keeps the token shows it to no other.
            used[:-1] = np.where(path[:-1] == path[1:], 0, count_earlier(edges))
        return cls(path, visits, np.asarray(limits.allows(np.arange(steps), visits, used, steps)))


class Visit(NamedTuple):
    """One visit of a token at a local party: party, step, earlier visits, and if it may contribute."""

    party: int
    step: int
    before: int
    contributes: bool


class Holder(Protocol):
    """Interface of the holder of a token: changes its values on a visit, and tells possible values."""

    def hold(self, values: Values, visit: Visit) -> Values:
        """Return the token's values after a visit: with noise, and a contribution if allowed."""
        ...

    def possible(self, values: Values, steps: int) -> bool:
        """Whether honest parties can have produced these values of a token in this many steps."""
        ...


@dataclass(slots=True)
class _Visits:
    """Counts, for the local parties in a walk, of visits and of used edges, to apply limits."""

    visits: Counter[int] = field(default_factory=Counter)
    edges: Counter[tuple[int, int]] = field(default_factory=Counter)


async def walk(
    tokens: TokenPassing,
    holder: Holder,
    start: Values,
    steps: int,
    limits: Limits,
    source: NoiseSource,
    shadow: Holder | None = None,
) -> Values:
    """Take, change and pass on the token for `steps` steps; return the values published at the end.

    Party 0 starts it. Each holder draws the next party from `source`, uniformly, itself included: from the
    operating system's randomness in a real run, since privacy needs unpredictable paths. `shadow` holds the
    token of the start at each step in which the local party waits, so that it takes as much time as a holder.
    """
    n, memory = tokens.parties, _Visits()
    here = tokens.here.tolist()

    def wait() -> None:
        """Let `shadow` hold the start token, to take as much time as the holder."""
        if shadow is not None:
            uniform(NoiseSource.system(), 1, n)
            shadow.possible(start, 1)
            shadow.hold(start, Visit(here[0], 1, 0, True))

    if 0 in here:
        await tokens.pass_on(0, int(uniform(source, 1, n)[0]), Token(0, start))
    seen = 0
    while True:
        taken = await tokens.take(wait)
        values = check_token(taken, seen, steps, start, holder.possible)
        party, step = taken.receiver, taken.token.step
        if step == steps:
            return values
        following = int(uniform(source, 1, n)[0])
        allowed = limits.allows(step, memory.visits[party], memory.edges[party, following], steps)
        values = holder.hold(values, Visit(party, step, memory.visits[party], bool(allowed)))
        memory.visits[party] += step > 0
        memory.edges[party, following] += following != party
        seen = step + 1
        if seen == steps:
            await tokens.publish(party, Token(seen, values))
            return values
        await tokens.pass_on(party, following, Token(seen, values))


class WalkSum:
    """Protocol that sums contributions by a token on a random walk of T steps, with planned noise.

    The k-th time that a party contributes, it adds its k-th contribution, if it has more than one.
    """

    def __init__(self, plan: NetworkPlan, lower: float, upper: float) -> None:
        """Contributions lie in [lower, upper]; raise ConfigError if the plan is for something else."""
        check_plan(plan, topology="complete", task="sum", parties=plan.parties)
        self.plan, self.lower, self.upper = plan, lower, upper
        self.steps = plan.steps or 0
        self.limits = Limits(plan.max_contributions, plan.edge_cap)
        self.grid = Grid.of(plan, upper - lower, noises=self.steps)
        self.grid.check_room(self.steps, max(abs(lower), abs(upper)))

    async def run(
        self, tokens: TokenPassing, contributions: NDArray[np.float64], source: NoiseSource
    ) -> TokenSum:
        """Run the walk with the local parties' contributions, and return the published sum.

        Contributions have shape (rows, columns). With one column, a party contributes the same value each
        time. More columns need a plan for known paths; then it contributes at most so often as there are
        columns, or `max_contributions`.

        Raises PrivacyError for a contribution out of bounds; ConfigError before the first step for a plan for
        others or columns that it does not cover, and at a party's visit for which it has no contribution.
        """
        check_plan(self.plan, topology="complete", task="sum", parties=tokens.parties)
        check_paths(self.plan, tokens)
        contributions = np.asarray(contributions, dtype=np.float64)
        if contributions.ndim != 2 or len(contributions) != len(tokens.here) or not contributions.shape[1]:
            reason = f"shape must be ({len(tokens.here)}, columns), is {contributions.shape}"
            raise ConfigError.at("contributions", reason, ConfigCheck.SHAPE)
        if contributions.shape[1] > 1 and self.plan.paths != "known":
            reason = (
                "must be one of each party, the same at each visit: what changes between visits depends on "
                "the hidden path, which is proven for --paths known alone"
            )
            raise ConfigError.at("contributions", reason, ConfigCheck.UNSUPPORTED)
        largest = max(abs(self.lower), abs(self.upper))
        on_grid = self.grid.to_grid(contributions, self.lower, self.upper)
        adder = _Adder(self.grid, on_grid, tokens.here, source, self.grid.reach(largest))
        if len(tokens.here) == tokens.parties:
            path = Path.draw(tokens.parties, self.steps, self.limits, source)
            made = path.contributes
            total = int(
                self.grid.noise(source, self.steps).sum()
                + adder.of(path.parties[made], path.visits[made]).sum()
            )
        else:
            shadow = replace(adder, source=NoiseSource.system())
            start = np.zeros(1, np.int64)
            values = await walk(tokens, adder, start, self.steps, self.limits, source, shadow)
            total = int(values[0])
        limited = self.limits.contributions is not None or self.limits.edge is not None
        claim = guarantee(
            self.plan, self.grid.closeness, "discrete Gaussian noise at each step of a random walk"
        )
        return TokenSum(
            float(np.ldexp(float(total), -self.grid.bits)),
            None if limited else self.steps - 1,
            self.plan.error_std,
            claim,
        )


@dataclass(frozen=True, slots=True)
class _Adder:
    """Holder of a token that is a sum: adds noise at each visit and, if allowed, the party's contribution."""

    grid: Grid
    contributions: Integers
    here: Parties
    source: NoiseSource
    reach: float

    def possible(self, values: Values, steps: int) -> bool:
        """Tell whether a sum is in the range that this many steps can reach."""
        return bool(abs(int(values[0])) <= steps * self.reach)

    def of(self, parties: Parties, visits: Integers) -> Integers:
        """Return the contribution that each party makes at each visit, as integers of grid steps."""
        columns = self.contributions.shape[1]
        if columns == 1:
            visits = np.zeros_like(visits)
        late = np.flatnonzero(visits >= columns)
        if len(late):
            reason = (
                f"party {parties[late[0]]} has {columns} and is to contribute once more: "
                "plan with --max-contributions"
            )
            raise ConfigError.at("contributions", reason, ConfigCheck.INFEASIBLE)
        return np.asarray(self.contributions[np.searchsorted(self.here, parties), visits])

    def hold(self, values: Values, visit: Visit) -> Values:
        """Return the sum after a visit: with fresh noise, and with the party's value if it contributes."""
        added = values.astype(np.int64) + self.grid.noise(self.source, 1)
        if not visit.contributes:
            return added
        return added + self.of(np.array([visit.party]), np.array([visit.before]))


class WalkHistogram(PlannedHistogram):
    """Protocol that counts categories by a token on a random walk of T steps, by randomised response.

    The plan is `plan_walk_histogram`'s. The first step adds a uniform element.
    """

    def __init__(self, plan: NetworkPlan, categories: int) -> None:
        """Set the plan and categories; raise ConfigError if the plan is for something else."""
        super().__init__(plan, categories, "complete")
        self.steps = plan.steps or 0

    async def run(self, tokens: TokenPassing, values: Integers, source: NoiseSource) -> TokenHistogram:
        """Run the walk with the local parties' categories; return counts. Each visit answers anew.

        Raises PrivacyError for a value that is no category, ConfigError for a plan for others.
        """
        check_plan(self.plan, topology="complete", task="histogram", parties=tokens.parties)
        check_paths(self.plan, tokens)
        here, d = tokens.here, self.categories
        if np.shape(values) != (len(here),):
            raise ConfigError.at(
                "values", f"shape must be ({len(here)},), is {np.shape(values)}", ConfigCheck.SHAPE
            )
        values = self.distribution.checked(values)
        counter = _Counter(values, here, self.distribution, source)
        if len(here) == tokens.parties:
            path = Path.draw(tokens.parties, self.steps, Limits(), source)
            answers = self.distribution.answers(values[path.parties[1:]], source)
            total = np.bincount(answers, minlength=d) + np.bincount(uniform(source, 1, d), minlength=d)
        else:
            shadow, start = replace(counter, source=NoiseSource.system()), np.zeros(d, np.int64)
            result = await walk(tokens, counter, start, self.steps, Limits(), source, shadow)
            total = result.astype(np.int64)
        return self.estimate(total - 1 / d, self.steps - 1, "at each step of a random walk")


@dataclass(frozen=True, slots=True)
class _Counter:
    """Holder of a token of counts: adds its randomised answer, or if it may not a random element."""

    values: Integers
    here: Parties
    distribution: ResponseDistribution[Fraction]
    source: NoiseSource

    def possible(self, values: Values, steps: int) -> bool:
        """Tell whether the token's counts add up to the number of steps, and none is negative."""
        return bool(values.min() >= 0 and values.max() <= steps and values.sum() == steps)

    def hold(self, values: Values, visit: Visit) -> Values:
        """Return the counts after a visit: one more answer, or random category if it does not contribute."""
        counts, d = values.astype(np.int64), len(values)
        row = int(np.searchsorted(self.here, visit.party))
        distribution = (
            self.distribution if visit.contributes else ResponseDistribution.of_beta(d, Fraction(1))
        )
        own = distribution.answers(self.values[row : row + 1], self.source)
        counts[own] += 1
        return counts
