"""Diffusion as a learner of a session: each party keeps a model of its own, and mixes with its neighbours.

With i.i.d. noise, or none, a party's final model is public. With graph-homomorphic noise it is the party's
own and confidential, unless it is published with noise of its own.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.learn.averager import PeerExchange
from smpc_dp.learn.diffusion import Diffused, diffuse, publish_models
from smpc_dp.learn.exchanges import EXACT_STEPS
from smpc_dp.learn.models import Model, ModelName
from smpc_dp.learn.pairing_schedule import Graph, Positive, graph_of, rename_argument
from smpc_dp.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateMessages,
    Requirements,
    Table,
    run_event,
)
from smpc_dp.privacy.diffusion import DiffusionNoise
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from scipy import sparse

CLAIM = "NO PRIVACY between neighbours: each sees the others' models, and from them their gradients"
OWN = "a model is its party's own and NOT covered: with it, or with the average of all, the noise is gone"


class Diffusion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Settings of diffusion, adapt then combine: see `learn.diffusion`. Every message is needed."""

    kind: ClassVar[str] = "diffusion"
    features: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)], Meta(description="columns of every table without the label")
    ]
    steps: Annotated[Annotated[int, Meta(ge=1, le=100_000)], Meta(description="T")]
    noise: Annotated[Literal["iid", "homomorphic", "none"], Meta(description="on the messages")] = "iid"
    epsilon: Annotated[
        Positive | None,
        Meta(
            description="of all messages of a party; not without noise; there is no `delta`",
            extra={"default": "needed with noise"},
        ),
    ] = None
    publish: Annotated[
        Positive | None,
        Meta(
            description="of homomorphic noise: epsilon, beside the other, of a party's last model",
            extra={"default": "none: models are confidential"},
        ),
    ] = None
    rate: Annotated[Positive, Meta(description="the step size")] = 0.1
    clip: Annotated[
        Positive | None,
        Meta(
            description="**l1** norm that a gradient is clipped to; not without noise", extra={"default": "1"}
        ),
    ] = None
    ridge: Annotated[
        Annotated[float, Meta(ge=0, le=1e6)], Meta(description="of a penalty ridge/2 times the squared norm")
    ] = 0.0
    radius: Annotated[
        Positive, Meta(description="without noise: a coordinate beyond it means divergence")
    ] = 1_000.0
    topology: Graph = "ring"
    weights: Annotated[Literal["metropolis", "max-degree"], Meta(description="of the neighbours' models")] = (
        "metropolis"
    )
    model: Annotated[
        ModelName, Meta(description="labels are 0 and 1 for logistic, 0 to `classes` - 1 for softmax")
    ] = "logistic"
    classes: Annotated[Annotated[int, Meta(ge=2, le=10_000)], Meta(description="labels of softmax")] = 2

    @property
    def loss(self) -> Model:
        """The model with its loss."""
        return Model(self.model, self.features, self.classes)

    @cached_property
    def planned(self) -> DiffusionNoise | None:
        """Return the planned noise, None without; raise ConfigError where none suffices."""
        if self.noise == "none" or self.epsilon is None:
            return None
        length, clip = self.loss.length, 1.0 if self.clip is None else self.clip
        return DiffusionNoise.plan(self.noise, self.epsilon, self.steps, self.rate, clip, length)

    def guarantee(self, noise: DiffusionNoise) -> PrivacyGuarantee:
        """Return the guarantee after all steps."""
        return noise.guarantee(self.steps, self.epsilon, publish=self.publish)

    def combination(self, parties: int) -> sparse.csr_array:
        """Return the combination matrix A; raise ConfigError unless the graph is connected."""
        drawn = graph_of(self.topology, parties)
        return drawn.metropolis() if self.weights == "metropolis" else drawn.max_degree()

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError, naming the party, unless its data fit."""
        self.loss.check(table, party)

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of the settings."""
        result = []
        if self.rate * self.ridge > 1:
            result.append(
                ConfigIssue(
                    "rate", f"{self.rate:g} times ridge = {self.ridge:g} must be at most 1", ConfigCheck.RANGE
                )
            )
        if self.noise == "none":
            for name in ("epsilon", "publish", "clip"):
                if getattr(self, name) is not None:
                    result.append(ConfigIssue(name, 'is of noise, which is "none"', ConfigCheck.UNSUPPORTED))
        elif self.epsilon is None:
            result.append(ConfigIssue("epsilon", "is missing", ConfigCheck.MISSING))
        if self.noise == "iid" and self.publish is not None:
            result.append(
                ConfigIssue(
                    "publish",
                    "is of homomorphic noise: with i.i.d. noise models are public",
                    ConfigCheck.UNSUPPORTED,
                )
            )
        try:
            self.combination(parties)
            noise = self.planned
            if noise is not None and not result:
                if self._largest(noise) > EXACT_STEPS:
                    reason = f"{self.epsilon:g} for {self.steps} steps needs too much noise"
                    result.append(
                        ConfigIssue(
                            "epsilon", f"{reason} for the grid of the messages", ConfigCheck.INFEASIBLE
                        )
                    )
                self.guarantee(noise)
        except ConfigError as error:
            for argument, key in (("step_size", "rate"), ("l1_bound", "clip"), ("scale", "epsilon")):
                error = rename_argument(error, argument, key)
            result += error.issues
        return result

    def _largest(self, noise: DiffusionNoise) -> float:
        """Return a bound on a message's l2 norm in grid steps: all updates, eight deviations of all noise."""
        deviation = float(noise.scale) * math.sqrt(2 * self.steps * self.loss.length)
        return self.steps * noise.update + 8 * deviation

    @property
    def _bound(self) -> float:
        """Return a bound on a message's l2 norm. With noise the messages' grid is the noise's."""
        if self.planned is None:
            return self.radius * math.sqrt(self.loss.length) * (1 + 1e-9)
        return math.ldexp(EXACT_STEPS, -self.planned.bits)

    def requirements(self, parties: int) -> Requirements:
        """Return the requirements: a message of each party to its neighbours in each step."""
        messages = PrivateMessages(self.loss.length, self._bound, np.full(parties, self.steps), None, None)
        if self.planned is None:
            return Requirements(exchange=messages)
        return Requirements(exchange=messages, own=run_event(self.guarantee(self.planned)))

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run diffusion; see `requirements.Learner`."""
        exchange, noise = context.peers, self.planned
        source = None if noise is None else context.source
        result = await self._descend(exchange, data, source)
        steps = np.full(len(data), self.steps)
        values, guarantee, claim = result.models, None, f"{CLAIM}; {exchange.claim}"
        if noise is not None and source is not None:
            guarantee = self.guarantee(noise)
            if self.publish is not None:
                values = publish_models(values, noise, self.steps, self.publish, source)
            claim = (
                f"by the noise on each message: {guarantee.assumption}; the line by itself: {exchange.claim}"
            )
        confidential = self.noise == "homomorphic" and self.publish is None
        if confidential:
            claim = f"{OWN}; {claim}"
        return Learned(self.kind, values, self.loss.names, steps, steps, (), guarantee, claim, confidential)

    async def _descend(
        self, exchange: PeerExchange, data: list[Table], source: NoiseSource | None
    ) -> Diffused:
        """Run all steps from zeros."""
        model, points, rows = self.loss, self.loss.points(data), np.arange(len(data))
        try:
            return await diffuse(
                exchange,
                self.combination(exchange.parties),
                lambda models, _step: model.gradient(models, points, rows) if len(data) else models,
                np.zeros((len(data), model.length)),
                self.steps,
                self.rate,
                ridge=self.ridge,
                noise=self.planned,
                source=source,
                budget=self.epsilon,
                radius=self._bound / math.sqrt(model.length),
            )
        except ConfigError as error:
            raise rename_argument(error, "step_size", "rate") from None
