"""Public schedules: who acts in which step, the same wherever they are drawn from the same seed.

They hide nothing and are no secret, so a predictable generator is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class GroupDraws:
    """Random groups of `size` out of n users, drawn without replacement within a round.

    A round is a random order of the users cut into floor(n / size) groups; who is left over sits it out. So
    every group is a uniformly random one, and no user takes part more than once in a round.

    Attributes:
        users: n, at least `size`.
        size: s, 1 or more.
        seed: public, a non-negative integer.
    """

    users: int
    size: int
    seed: int

    def draw(self, steps: int) -> NDArray[np.intp]:
        """Return the groups of the first `steps` steps, shape (steps, size), each ascending."""
        generator = np.random.default_rng([self.seed, self.users, self.size])
        each = self.users // self.size
        rounds = -(-steps // each)
        # One permutation for each round: longer schedules begin like shorter ones.
        orders = np.array([generator.permutation(self.users) for _ in range(rounds)], dtype=np.intp)
        groups = orders.reshape(rounds, self.users)[:, : each * self.size].reshape(-1, self.size)
        return np.sort(groups[:steps], axis=1)

    def participations(self, steps: int) -> NDArray[np.intp]:
        """Return in how many of the first `steps` groups each user is, shape (users,)."""
        return np.bincount(self.draw(steps).ravel(), minlength=self.users)
