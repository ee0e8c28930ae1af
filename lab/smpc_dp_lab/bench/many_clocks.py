"""Repetitions of an experiment with gossip, run side by side."""

from __future__ import annotations

import numpy as np

from smpc_dp.capabilities.learn.schedule import Clock, Floats, Ints
from smpc_dp.errors import ConfigCheck, ConfigError


class ManyClocks:
    """Independent clocks on as many copies of one graph; party u of copy r has the number r n + u.

    A learner that is given this runs all copies at once: repetitions of an experiment. A tick is one of every
    copy.
    """

    def __init__(self, clocks: list[Clock]) -> None:
        """Set the clocks; raise ConfigError if their numbers of parties differ."""
        if not clocks or len({clock.topology.parties for clock in clocks}) != 1:
            raise ConfigError.at("clocks", "must be on graphs of one size", ConfigCheck.RANGE)
        self._clocks = clocks
        self.topology = clocks[0].topology

    @property
    def chances(self) -> Floats:
        """The probability that a tick of its own copy concerns each party, shape (copies n,)."""
        return np.concatenate([clock.chances for clock in self._clocks])

    def draw(self, ticks: int) -> Ints:
        """Return the parties of the next ticks, shape (ticks copies, 2), copies next to each other."""
        size = self.topology.parties
        drawn = [clock.draw(ticks) + copy * size for copy, clock in enumerate(self._clocks)]
        return np.stack(drawn, axis=1).reshape(-1, 2)
