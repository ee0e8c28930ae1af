"""Block gossip: in each step a random group of s users averages securely, with noise once for the group.

s from 2 to n users: the larger the group, the less noise there is for each member, and the more users must
be there at once [Bellet 2021, chapter 5, the local scale of multi-party computation].
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.errors import Fault
from smpc_dp.learn.needs import Learned, Means, Needs, Table
from smpc_dp.learn.sgd import SgdSettings, descend


class BlockGossip(SgdSettings, frozen=True, kw_only=True):
    """Descent in random groups."""

    group: Annotated[
        Annotated[int, Meta(ge=2, le=65_535)],
        Meta(description="s, members of a group, at most the number of parties"),
    ]

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        faults = self.step_faults()
        if self.group > users:
            faults.append(Fault("group", f"of {self.group} cannot be drawn from {users} users"))
        return faults

    def groups(self, users: int) -> NDArray[np.intp]:
        """Return the drawn groups, shape (steps, s)."""
        # Not at the top: graphs need scipy, and what only knows the learners' names does not.
        from smpc_dp.learn.groups import GroupDraws

        return GroupDraws(users, self.group, self.seed).draw(self.steps)

    def needs(self, users: int) -> Needs:
        """Return what it communicates: in each step an average of models and a private one of gradients."""
        return self.needs_of(users, mix=True)

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Learn; see `needs.Learner`."""
        return await descend("block-gossip", self, means, data)
