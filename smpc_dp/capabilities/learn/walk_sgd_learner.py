"""Gradient descent by a walking token as a learner of a session."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from msgspec import Meta

from smpc_dp.capabilities.learn.averager import Parties, Rows
from smpc_dp.capabilities.learn.models import Model, ModelName
from smpc_dp.capabilities.learn.pairing_schedule import Features, Positive
from smpc_dp.capabilities.learn.requirements import Table
from smpc_dp.capabilities.learn.token_learners import EdgeCap, MaxContributions, Paths, WalkLearner, walk_plan
from smpc_dp.capabilities.learn.tokens import TokenPassing, Values
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue

if TYPE_CHECKING:
    from smpc_dp.capabilities.learn.walk_known import KnownWalkSgd
    from smpc_dp.capabilities.learn.walk_sgd import WalkSgd
    from smpc_dp.privacy.guarantee import PrivacyGuarantee
    from smpc_dp.privacy.sampling import NoiseSource

# Of clip over the largest gradient of a known path: none is as much as rounded there.
_ABOVE = 1 + 2e-6


class WalkSgdLearner(WalkLearner, frozen=True, kw_only=True):
    """Settings of a learner that fits a model by T noisy gradient steps on a walking token."""

    kind: ClassVar[str] = "walk-sgd"
    features: Features
    rate: Annotated[Positive, Meta(description="the step size; with known paths at most 8/(B² + 1)")] = 0.1
    clip: Annotated[
        Positive, Meta(description="L2 norm that a gradient is clipped to; with known paths above √(B² + 1)")
    ] = 1.0
    radius: Annotated[Positive, Meta(description="of the ball that the model is projected to")] = 100.0
    model: Annotated[
        ModelName,
        Meta(description="labels: 0, 1, for softmax 0 to `classes` - 1; logistic with known paths"),
    ] = "logistic"
    classes: Annotated[Annotated[int, Meta(ge=2, le=1_000)], Meta(description="labels of softmax")] = 2
    paths: Paths = "neighbours"
    record_bound: Annotated[
        Positive | None,
        Meta(
            description="B, of the L2 norm of a record's features",
            extra={"default": "needed with known paths"},
        ),
    ] = None
    max_contributions: MaxContributions = None
    edge_cap: EdgeCap = None

    @property
    def reach(self) -> float:
        """The bound on the norm of a record with its intercept, for known paths."""
        return math.hypot(self.record_bound or 0.0, 1.0)

    def settings_issues(self) -> list[ConfigIssue]:
        """Return the faults of the settings that do not depend on the number of parties."""
        if self.paths != "known":
            reason = "is of known paths only"
            return (
                []
                if self.record_bound is None
                else [ConfigIssue("record_bound", reason, ConfigCheck.UNSUPPORTED)]
            )
        if self.record_bound is None:
            return [
                ConfigIssue(
                    "record_bound",
                    "is missing: known paths need a bound on the norm of records",
                    ConfigCheck.MISSING,
                )
            ]
        result = []
        if self.model != "logistic":
            result.append(ConfigIssue("model", "must be 'logistic' for known paths", ConfigCheck.CHOICE))
        if self.clip < self.reach * _ABOVE:
            reason = (
                f"must be above {self.reach:g} for known paths, is {self.clip:g}: no gradient may be clipped"
            )
            result.append(ConfigIssue("clip", reason, ConfigCheck.RANGE))
        if self.rate > 8 / self.reach**2:
            reason = (
                f"must be at most {8 / self.reach**2:g} for known paths, is {self.rate:g}: steps would expand"
            )
            result.append(ConfigIssue("rate", reason, ConfigCheck.RANGE))
        return result

    @property
    def loss(self) -> Model:
        """The predictive model (such as linear or logistic) with its loss."""
        return Model(self.model, self.features, self.classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the model's coordinates, in their order."""
        return self.loss.names

    @property
    def start(self) -> Values:
        """The token's values at the start: the zero model, in lattice units on a known path."""
        zeros: Values = np.zeros(self.loss.length)
        return zeros.astype(np.int64) if self.paths == "known" else zeros

    def planned(self, parties: int) -> WalkSgd | KnownWalkSgd:
        """Return the walk with its noise planned; raise ConfigError for impossible settings."""
        from smpc_dp.capabilities.learn.walk_known import KnownWalkSgd
        from smpc_dp.capabilities.learn.walk_sgd import SgdNoise, WalkSgd

        plan = walk_plan(self, "sgd", parties, 2 * self.clip)
        if self.paths == "known":
            length = self.loss.length
            return KnownWalkSgd(plan, self.clip, length=length, rate=self.rate, radius=self.radius)
        return WalkSgd(SgdNoise.of(plan, self.clip), self.rate, radius=self.radius)

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError with the party's name if its table does not fit the settings."""
        self.loss.check(table, party)
        if self.record_bound is None:
            return
        norms = np.linalg.norm(table[:, :-1], axis=1)
        if not float(norms.max()) <= self.record_bound:
            reason = (
                f"point {int(norms.argmax())} has norm {norms.max():g}, record_bound is {self.record_bound:g}"
            )
            raise ConfigError.at(party, reason, ConfigCheck.RANGE)

    async def run_protocol(
        self, protocol: WalkSgd | KnownWalkSgd, tokens: TokenPassing, data: list[Table], source: NoiseSource
    ) -> tuple[Values, PrivacyGuarantee | None]:
        """Run the walk's gradient descent; return the published model, and its guarantee or None.

        Raises ConfigError for so many points that float64 is too coarse for known paths.
        """
        # Not at the top: scipy.
        from smpc_dp.capabilities.learn.walk_known import KnownWalkSgd

        model, here = self.loss, tokens.here
        points = model.points(data)

        def gradient(weights: Rows, parties: Parties) -> Rows:
            return model.gradient(weights, points, np.searchsorted(here, parties))

        if isinstance(protocol, KnownWalkSgd):
            terms = model.length + points.labels.shape[1] + 8
            error = self.reach * terms * (1 + self.reach * self.radius) * 2.0**-50
            if not protocol.precise(error):
                count = points.labels.shape[1]
                reason = f"{count} of a party are too many for the steps and radius of known paths"
                raise ConfigError.at("points", reason, ConfigCheck.INFEASIBLE)
            result = await protocol.run(tokens, gradient, source)
        else:
            result = await protocol.run(tokens, gradient, np.zeros(model.length), source)
        return result.token, result.guarantee
