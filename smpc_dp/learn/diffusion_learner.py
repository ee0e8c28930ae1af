"""Diffusion as a learner of a session: each user keeps a model of its own, and mixes with its neighbours.

With i.i.d. noise only: what a learner ends with is public, and graph-homomorphic noise does not cover that.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta

from smpc_dp.errors import ConfigError, Fault, LocalError
from smpc_dp.learn import topology
from smpc_dp.learn.averager import Rows
from smpc_dp.learn.diffusion import diffuse
from smpc_dp.learn.models import Model, ModelName
from smpc_dp.learn.needs import Learned, Means, Needs, PrivateMessages, Table
from smpc_dp.privacy.diffusion import DiffusionNoise
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from scipy import sparse

Positive = Annotated[float, Meta(gt=0, le=1e6)]

# Grid steps of the messages' encoding in its bound; `exchanges.EXACT_STEPS`.
_ROOM = 40


class Diffusion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Adapt, then combine, with noise of one's own: see `learn.diffusion`. Every message is needed.

    Attributes:
        features: d, columns of every user's table without the label.
        steps: i. rate: mu. ridge: rho.
        clip: G, the l1 norm that a user's gradient is clipped to.
        epsilon: for each user, all of its steps together.
        topology: "ring" or "complete", of all parties in the roster's order.
        model, classes: the loss and, for "softmax", the number of labels.
    """

    features: Annotated[int, Meta(ge=1, le=1_000_000)]
    steps: Annotated[int, Meta(ge=1, le=100_000)]
    epsilon: Positive
    rate: Positive = 0.1
    clip: Positive = 1.0
    ridge: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    topology: Literal["ring", "complete"] = "ring"
    model: ModelName = "logistic"
    classes: Annotated[int, Meta(ge=2, le=10_000)] = 2

    @property
    def loss(self) -> Model:
        """The model."""
        return Model(self.model, self.features, self.classes)

    @cached_property
    def planned(self) -> DiffusionNoise:
        """The noise; raises ConfigError where none suffices."""
        length = self.loss.length
        return DiffusionNoise.plan("iid", self.epsilon, self.steps, self.rate, self.clip, length)

    def weights(self, users: int) -> sparse.csr_array:
        """Return Metropolis weights of the graph."""
        drawn = topology.complete(users) if self.topology == "complete" else topology.ring(users)
        return drawn.metropolis()

    def check_data(self, table: Table, user: str) -> None:
        """Raise ConfigError, naming the user, unless its data fit."""
        self.loss.check(table, user)

    def faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the settings."""
        found = []
        if self.rate * self.ridge > 1:
            found.append(Fault("rate", f"{self.rate:g} times ridge = {self.ridge:g} must be at most 1"))
        if users < 3:
            found.append(Fault("topology", f"needs 3 users, has {users}"))
        try:
            if float(self.planned.scale) > 2.0 ** (_ROOM - 6):
                found.append(
                    Fault("epsilon", f"{self.epsilon:g} for {self.steps} steps needs too much noise")
                )
        except ConfigError as error:
            found += error.faults
        return found

    def needs(self, users: int) -> Needs:
        """Return what it communicates: a message of each user to its neighbours in each step."""
        # Not at the top: scipy.
        from smpc_dp.privacy.accountant.events import Event, Pure

        bound = 2.0 ** (_ROOM - self.planned.bits)
        messages = PrivateMessages(self.loss.length, bound, np.full(users, self.steps), None, None)
        claim = self.planned.guarantee(self.steps)
        return Needs(
            exchange=messages, own=Event(claim.mechanism, claim.relation, (Pure(epsilon=claim.epsilon),))
        )

    async def run(self, means: Means, data: list[Table]) -> Learned:
        """Learn; see `needs.Learner`. Noise is the system's, in simulations too."""
        exchange = means.exchange
        if exchange is None:
            raise LocalError("diffusion needs messages")
        model, points = self.loss, self.loss.points(data)
        rows = np.arange(len(data))
        start: Rows = np.zeros((len(data), model.length))
        found = await diffuse(
            exchange,
            self.weights(exchange.users),
            lambda models, _step: model.gradient(models, points, rows) if len(data) else models,
            start,
            self.steps,
            self.rate,
            ridge=self.ridge,
            noise=self.planned,
            source=NoiseSource.system(),
            budget=self.epsilon,
        )
        steps = np.full(len(data), self.steps)
        claim = (
            f"by the noise on each message: {self.planned.assumption}; the line by itself: {exchange.claim}"
        )
        return Learned("diffusion", found.models, model.names, steps, steps, (), found.guarantee, claim)
