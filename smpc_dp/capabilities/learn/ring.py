"""Sums and histograms by a token on a ring [Bellet 2021, Algorithms 4.2 and 4.3].

Written over the local parties: all of them in a simulation, where everything is arrays, one between
processes, where the token arrives by messages. Both end with noise that covers the parties after the last
noisy one, which the algorithms as printed leave without (docs/proofs/errata.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import Parties
from smpc_dp.capabilities.learn.tokens import Possible, Token, TokenPassing, Values, check_token
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.network.grid import Grid, check_plan, guarantee
from smpc_dp.privacy.network.plan import NetworkPlan
from smpc_dp.privacy.response import ResponseDistribution
from smpc_dp.privacy.sampling import NoiseSource, uniform

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenSum:
    """Result of summing by a token: the noisy sum, its noise and its privacy guarantee.

    Attributes:
        value: the sum of the contributions plus noise, unbiased, in the caller's unit.
        contributions: how many were summed, or None where a limit hides it.
        deviation: standard deviation of the noise in it, from the plan.
        guarantee: towards any party (or so many colluders as the plan says), of all data of another one.
    """

    value: float
    contributions: int | None
    deviation: float
    guarantee: PrivacyGuarantee


@dataclass(frozen=True, slots=True)
class TokenHistogram:
    """Result of counting by a token: unbiased counts by category, which may be negative."""

    counts: NDArray[np.float64]
    contributions: int
    deviation: float
    guarantee: PrivacyGuarantee


class RingSum:
    """Protocol that sums K real contributions of each of n parties by a token on a ring, with noise.

    With `single` noise every n - 1 hops and at the last one, with `distributed` noise at every hop (Remark
    4.2, corrected). Noise is a discrete Gaussian on a grid of at most sigma / 8,192.
    """

    def __init__(self, plan: NetworkPlan, lower: float, upper: float) -> None:
        """Contributions lie in [lower, upper]; raise ConfigError if the plan is for something else."""
        check_plan(plan, topology="ring", task="sum", parties=plan.parties, rounds=plan.rounds)
        n, rounds = plan.parties, plan.rounds or 0
        self.plan, self.lower, self.upper = plan, lower, upper
        spread = plan.noise == "distributed"
        shares = n - 1 if spread and plan.colluding == 1 else 1
        noises = n * rounds if spread else 2 + n * rounds // (n - 1)
        self.grid = Grid.of(plan, upper - lower, noises=noises, shares=shares)
        self.grid.check_room(n * rounds, max(abs(lower), abs(upper)))

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy of a run's noise, for any observing party."""
        return (self.plan.sensitivity or 0.0) * math.sqrt(self.plan.rounds or 0) / (self.plan.sigma or 0.0)

    def noises(self, hops: Integers) -> tuple[Integers, Integers]:
        """Return the numbers of full noises and of noise shares that are due at these hops of the ring."""
        n, rounds = self.plan.parties, self.plan.rounds or 0
        last = n * rounds - 1
        if self.plan.noise == "distributed":
            ends = (hops == 0) | (hops == last) | (self.plan.colluding > 1)
            return ends.astype(np.int64), (~ends).astype(np.int64)
        # Every n - 1 hops, and the last one has noise too: what follows the last noise would be bare.
        return ((hops % (n - 1) == 0) | (hops == last)).astype(np.int64), np.zeros_like(hops)

    def increments(self, contributions: NDArray[np.float64], here: Parties, source: NoiseSource) -> Integers:
        """Return what local parties add to the token at each visit, noise included, in grid steps.

        Raises PrivacyError for a contribution out of bounds.
        """
        rounds = self.plan.rounds or 0
        contributions = np.asarray(contributions, dtype=np.float64)
        if contributions.shape != (len(here), rounds):
            reason = f"shape must be ({len(here)}, {rounds}), is {contributions.shape}"
            raise ConfigError.at("contributions", reason, ConfigCheck.SHAPE)
        added = self.grid.to_grid(contributions, self.lower, self.upper)
        hops = here[:, None] + self.plan.parties * np.arange(rounds)[None, :]
        full, shares = self.noises(hops)
        added[full > 0] += self.grid.noise(source, int(full.sum()))
        added[shares > 0] += self.grid.noise(source, int(shares.sum()), share=True)
        return added

    async def run(
        self, tokens: TokenPassing, contributions: NDArray[np.float64], source: NoiseSource
    ) -> TokenSum:
        """Add the local parties' contributions to the token, with noise, and return the published sum.

        `source` is `NoiseSource.system()` in a real run. Raises as `increments`, and ConfigError before the
        first step if the plan is for other parties.
        """
        n, rounds = self.plan.parties, self.plan.rounds or 0
        check_plan(self.plan, topology="ring", task="sum", parties=tokens.parties, rounds=rounds)
        added = self.increments(contributions, tokens.here, source)
        if len(tokens.here) == n:
            total = int(added.sum())
        else:
            reach = self.grid.reach(max(abs(self.lower), abs(self.upper)))
            values = await _run_tour(
                tokens,
                rounds,
                np.zeros(1, np.int64),
                lambda value, row, k: value + added[row, k],
                lambda value, hops: bool(abs(int(value[0])) <= hops * reach),
            )
            total = int(values[0])
        claim = guarantee(
            self.plan, self.grid.closeness, f"{self.plan.noise} discrete Gaussian noise on a ring"
        )
        return TokenSum(math.ldexp(total, -self.grid.bits), n * rounds, self.plan.error_std, claim)


class PlannedHistogram:
    """Base of histograms by a token, in which parties randomise their answers (randomised response).

    Counts are integers, and answers exact: that is their grid.
    """

    grid = Grid(bits=0, variance=Fraction(0), share=Fraction(0), closeness=0.0)

    def __init__(self, plan: NetworkPlan, categories: int, topology: str) -> None:
        """`categories`: d, that of the plan; raise ConfigError if the plan is for something else."""
        check_plan(plan, topology=topology, task="histogram", parties=plan.parties, rounds=plan.rounds)
        if plan.beta is None:
            raise ConfigError.at("plan", "has no beta", ConfigCheck.UNSUPPORTED)
        self.plan, self.categories = plan, categories
        self.distribution = ResponseDistribution.of_beta(categories, Fraction(plan.beta))

    def estimate(self, total: NDArray[Any], answers: int, where: str) -> TokenHistogram:
        """Return unbiased estimates of counts from the token's total of randomised answers.

        The expected count of its random elements is already subtracted.
        """
        mechanism = f"randomised response, beta = {self.plan.beta:.6g}, {where}"
        claim = guarantee(self.plan, 0.0, mechanism)
        return TokenHistogram(self.distribution.unbiased(total, answers), answers, self.plan.error_std, claim)


class RingHistogram(PlannedHistogram):
    """Protocol that counts K answers of each of n parties in d categories, by randomised response.

    The plan has the beta. The first party adds ceil(beta n) uniform elements to the token at the start, the
    last one as many at the end.
    """

    def __init__(self, plan: NetworkPlan, categories: int) -> None:
        """Set the plan and categories; raise ConfigError if the plan is for something else."""
        super().__init__(plan, categories, "ring")
        self.random = math.ceil(self.distribution.beta * plan.parties)

    async def run(self, tokens: TokenPassing, values: Integers, source: NoiseSource) -> TokenHistogram:
        """Add randomised answers for the local `values` to the token, and return the published counts.

        Raises PrivacyError for a value that is no category; ConfigError as `RingSum.run`.
        """
        n, rounds, d = self.plan.parties, self.plan.rounds or 0, self.categories
        check_plan(self.plan, topology="ring", task="histogram", parties=tokens.parties, rounds=rounds)
        here = tokens.here
        if np.shape(values) != (len(here), rounds):
            reason = f"shape must be ({len(here)}, {rounds}), is {np.shape(values)}"
            raise ConfigError.at("values", reason, ConfigCheck.SHAPE)
        answers = self.distribution.answers(values, source)
        ends = {
            party: np.bincount(uniform(source, self.random, d), minlength=d)
            for party in (0, n - 1)
            if party in here
        }
        if len(here) == n:
            total = np.bincount(answers.ravel(), minlength=d) + ends[0] + ends[n - 1]
        else:

            def add(token: Integers, row: int, k: int) -> Integers:
                token = token.copy()
                token[answers[row, k]] += 1
                first, last = (int(here[row]), k) == (0, 0), (int(here[row]), k) == (n - 1, rounds - 1)
                return token + (ends[0] if first else 0) + (ends[n - 1] if last else 0)

            def possible(token: Values, hops: int) -> bool:
                answers = hops + self.random * (1 + (hops == n * rounds))
                return bool(token.min() >= 0 and token.max() <= answers and token.sum() == answers)

            total = await _run_tour(tokens, rounds, np.zeros(d, np.int64), add, possible)
        return self.estimate(total - 2 * self.random / d, n * rounds, "on a ring")


async def _run_tour(
    tokens: TokenPassing,
    rounds: int,
    start: Integers,
    add: Callable[[Integers, int, int], Integers],
    possible: Possible,
) -> Integers:
    """Receive the token K times, add to it, pass it on; return it as published. One party is local."""
    if len(tokens.here) != 1:
        raise ConfigError.at(
            "here", "a token on a ring runs with all parties here, or with one", ConfigCheck.CONFLICT
        )
    party, n = int(tokens.here[0]), tokens.parties
    value = start
    for k in range(rounds):
        hop = k * n + party
        if hop:
            taken = await tokens.take()
            value = check_token(taken, hop, hop, start, possible).astype(np.int64)
        value = add(value, 0, k)
        if hop == n * rounds - 1:
            await tokens.publish(party, Token(n * rounds, value))
            return value
        await tokens.pass_on(party, (party + 1) % n, Token(hop + 1, value))
    taken = await tokens.take()
    return check_token(taken, n * rounds, n * rounds, start, possible).astype(np.int64)
