"""The public schedule of block gossip: which group of users averages in each step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smpc_dp.learn.schedule import Ints, PublicDraws

# The stream of `PublicDraws` that groups are drawn from.
STREAM = 9


@dataclass(frozen=True, slots=True)
class GroupDraws:
    """Random groups of `size` out of n users, drawn without replacement within a round.

    A round is a random order of the users cut into floor(n / size) groups; who is left over sits it out. So
    every group is a uniformly random one, and no user takes part more than once in a round. Longer schedules
    begin like shorter ones.

    Attributes:
        users: n, at least `size`.
        size: s, 1 or more.
        seed: public, 0 to 2^63 - 1.
    """

    users: int
    size: int
    seed: int

    def draw(self, steps: int) -> Ints:
        """Return the groups of the first `steps` steps, shape (steps, size), each ascending."""
        each = self.users // self.size
        rounds = -(-steps // each)
        keys = PublicDraws(self.seed, STREAM).uniform(rounds * self.users).reshape(rounds, self.users)
        orders = np.argsort(keys, axis=1, kind="stable")
        groups = orders[:, : each * self.size].reshape(-1, self.size)
        return np.sort(groups[:steps], axis=1).astype(np.intp)

    def participations(self, steps: int) -> Ints:
        """Return in how many of the first `steps` groups each user is, shape (users,)."""
        return np.bincount(self.draw(steps).ravel(), minlength=self.users)
