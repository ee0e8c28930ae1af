"""The learner `private-mean`: the average of all parties' means, with differential privacy for each party."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from smpc_dp.capabilities.learn.requirements import (
    FAILURES,
    STEPS,
    Learned,
    LearnerContext,
    PrivateAverages,
    Requirements,
    Table,
)
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError


class PrivateMean(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Its `[parameters]`: bounds of every number, and the budget of each party."""

    lower: float
    upper: float
    epsilon: float
    delta: float

    def issues(self, parties: int) -> list[ConfigIssue]:  # noqa: ARG002
        """Return what is wrong with the settings; epsilon and delta are checked when noise is planned."""
        if math.isfinite(self.upper - self.lower) and self.lower < self.upper:
            return []
        return [
            ConfigIssue(
                "upper", f"must be above lower and both finite: {self.lower}, {self.upper}", ConfigCheck.RANGE
            )
        ]

    def requirements(self, parties: int) -> Requirements:
        """Return what it communicates: one private average of all parties."""
        half, once = (self.upper - self.lower) / 2, np.ones(parties, np.intp)
        return Requirements(
            average=PrivateAverages(1, half, frozenset({parties}), once, self.epsilon, self.delta)
        )

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError unless a party's data are one column of numbers within the bounds."""
        within = (table >= self.lower) & (table <= self.upper)
        if table.shape[1] != 1 or not len(table) or not within.all():
            reason = f"must be one column of numbers from {self.lower:g} to {self.upper:g}"
            raise ConfigError.at(party, reason, ConfigCheck.RANGE)

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Average; see `requirements.Learner`. The aggregator makes the same calls, without `data`."""
        if context.average is None:
            raise LocalError("private-mean needs an average")
        middle = (self.lower + self.upper) / 2
        # Inside the bounds by more than rounding to the grid moves a value.
        own = np.array([[table.mean() - middle] for table in data]).reshape(-1, 1) * (1 - 1 / STEPS)
        steps = np.ones(len(data), np.intp)
        try:
            result = (await context.average.average(own)).values + middle
        except FAILURES as error:
            return Learned("private-mean", own * math.nan, ("mean",), steps, 0 * steps, (str(error),))
        return Learned("private-mean", result, ("mean",), steps, steps, claim=context.average.claim)
