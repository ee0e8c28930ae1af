"""Block gossip: in each step a random group of s users averages securely, with noise once for the group.

s from 2 to n users: the larger the group, the less noise there is for each member, and the more users must
be there at once [Bellet 2021, chapter 5, the local scale of multi-party computation].
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.errors import Fault
from smpc_dp.learn.groups import GroupDraws
from smpc_dp.learn.sgd import SgdSettings


class BlockGossip(SgdSettings, frozen=True, kw_only=True):
    """Descent in random groups."""

    kind: ClassVar[str] = "block-gossip"
    group: Annotated[
        Annotated[int, Meta(ge=2, le=65_535)],
        Meta(description="s, members of a group, at most the number of parties"),
    ]

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings for so many users."""
        faults = super().faults(users)
        if self.group > users:
            faults.append(Fault("group", f"of {self.group} cannot be drawn from {users} users"))
        return faults

    def groups(self, users: int) -> NDArray[np.intp]:
        """Return the drawn groups, shape (steps, s)."""
        return GroupDraws(users, self.group, self.seed).draw(self.steps)
