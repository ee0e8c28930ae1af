"""Block gossip: in each step a random group of s parties averages securely, with noise once for the group.

s is 2 to n: the larger the group, the less noise there is for each member, and the more parties must be
online at once [Bellet 2021, chapter 5, the local scale of multi-party computation].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import ALONE, Groups
from smpc_dp.capabilities.learn.schedule import Ints, PublicDraws
from smpc_dp.capabilities.learn.sgd import SgdSettings
from smpc_dp.errors import ConfigCheck, ConfigIssue


class BlockGossip(SgdSettings, frozen=True, kw_only=True):
    """Settings of gradient descent in which one random group of parties averages in each step."""

    kind: ClassVar[str] = "block-gossip"
    group: Annotated[
        Annotated[int, Meta(ge=2, le=65_535)],
        Meta(description="s, members of a group, at most the number of parties"),
    ]

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of these settings in a network of this many parties."""
        issues = super().issues(parties)
        if self.group > parties:
            issues.append(
                ConfigIssue(
                    "group",
                    f"of {self.group} cannot be drawn from {parties} parties",
                    ConfigCheck.UNSUPPORTED,
                )
            )
        return issues

    def groups(self, parties: int) -> NDArray[np.intp]:
        """Return the members of the random group of each step, shape (steps, s)."""
        return GroupDraws(parties, self.group, self.seed).draw(self.steps)


# The stream of `PublicDraws` that groups are drawn from.
STREAM = 9


@dataclass(frozen=True, slots=True)
class GroupDraws:
    """Public random draws of groups of `size` out of n parties, without repetition within a round.

    A round is a random order of the parties cut into floor(n / size) groups; leftover parties sit it out. So
    every group is a uniformly random one, and no party takes part more than once in a round. Longer schedules
    begin like shorter ones.

    Attributes:
        parties: n, at least `size`.
        size: s, 1 or more.
        seed: public, 0 to 2^63 - 1.
    """

    parties: int
    size: int
    seed: int

    def draw(self, steps: int) -> Ints:
        """Return the groups of the first `steps` steps, shape (steps, size), each ascending."""
        groups = self._orders(-(-steps // self.each)).reshape(-1, self.size)
        return np.sort(groups[:steps], axis=1)

    def participations(self, steps: int) -> Ints:
        """Return the number of the first `steps` groups that each party is in, shape (parties,)."""
        return np.bincount(self.draw(steps).ravel(), minlength=self.parties)

    @property
    def each(self) -> int:
        """The number of disjoint groups that one round has."""
        return self.parties // self.size

    @property
    def share(self) -> float:
        """The probability that a given party is in some group of a round."""
        return self.each * self.size / self.parties

    def rounds(self, rounds: int) -> Iterator[Groups]:
        """Yield, for each round, the number of each party's group, or `ALONE` for a party without one."""
        members = self.draw(rounds * self.each).reshape(rounds, self.each * self.size)
        labels = np.repeat(np.arange(self.each), self.size)
        for order in members:
            group = np.full(self.parties, ALONE)
            group[order] = labels
            yield group

    def senders(self, rounds: int) -> Ints:
        """Return from whom each party receives in its group, shape (rounds, n); itself without a group.

        It is the member drawn before it, of the first the last: so anybody else is as likely as any other.
        In the roster's order neighbours there would be likelier, and with one group of all always the same.
        """
        orders = self._orders(rounds)
        senders = np.tile(np.arange(self.parties), (rounds, 1))
        before = orders[:, :, np.arange(self.size) - 1].reshape(rounds, -1)
        np.put_along_axis(senders, orders.reshape(rounds, -1), before, axis=1)
        return senders

    def _orders(self, rounds: int) -> Ints:
        """Return each group's members in the order drawn, shape (rounds, groups of a round, size)."""
        keys = PublicDraws(self.seed, STREAM).uniform(rounds * self.parties).reshape(rounds, self.parties)
        orders = np.argsort(keys, axis=1, kind="stable")[:, : self.each * self.size]
        return orders.reshape(rounds, self.each, self.size).astype(np.intp)
