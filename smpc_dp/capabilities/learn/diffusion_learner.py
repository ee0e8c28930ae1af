"""Diffusion as a learner of a session: each party keeps a model of its own, and mixes with its neighbours.

With i.i.d. or correlated noise, or none, a party's final model is public. With graph-homomorphic noise it is
the party's own and confidential, unless it is published with noise of its own.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange
from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.diffusion import (
    Diffused,
    diffuse,
    diffuse_in_groups,
    diffuse_records,
    publish_models,
    retained_part,
)
from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS
from smpc_dp.capabilities.learn.group_steps import Group, GroupRun, group_issues, group_requirements
from smpc_dp.capabilities.learn.models import Model, ModelName, RecordGradients
from smpc_dp.capabilities.learn.pairing_schedule import (
    Graph,
    Positive,
    Ridge,
    Seed,
    graph_of,
    rename_argument,
)
from smpc_dp.capabilities.learn.personalized_settings import check_sizes
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateMessages,
    Requirements,
    Table,
    run_event,
)
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.diffusion import DiffusionNoise
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from scipy import sparse

    from smpc_dp.capabilities.learn.step_progress import StepProgress
    from smpc_dp.privacy.factorisation import CorrelatedNoise

CLAIM = "NO PRIVACY between neighbours: each sees the others' models, and from them their gradients"
OWN = "a model is its party's own and NOT covered: with it, or with the average of all, the noise is gone"


MessageNoise = Literal["iid", "homomorphic", "correlated", "none"]


class Diffusion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Settings of diffusion learning: each step every party adapts its model, then combines neighbours'."""

    kind: ClassVar[str] = "diffusion"
    features: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)], Meta(description="columns of every table without the label")
    ]
    steps: Annotated[Annotated[int, Meta(ge=1, le=100_000)], Meta(description="T")]
    noise: Annotated[
        MessageNoise | None,
        Meta(
            description="on messages: Laplace, or Gaussian correlated over the steps",
            extra={"default": '`"iid"`; not with `group`, where noise is the averager\'s'},
        ),
    ] = None
    epsilon: Annotated[
        Positive | None,
        Meta(
            description="of all messages, or averages, of a party; of correlated noise for ONE RECORD; not "
            "without noise",
            extra={"default": "needed with noise; of groups none: exact, **no differential privacy**"},
        ),
    ] = None
    delta: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(
            description="of correlated noise, and of `group` with `epsilon`",
            extra={"default": "needed there"},
        ),
    ] = None
    sizes: Annotated[
        tuple[Annotated[int, Meta(ge=1, le=1_000_000)], ...],
        Meta(
            description="of correlated noise: public records of each party, in roster order",
            extra={"default": "needed there"},
        ),
    ] = ()
    batches: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)],
        Meta(description="of correlated noise: step t uses every b-th record of a party, from the t-th on"),
    ] = 1
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
            description="**l1** norm that a gradient is clipped to, of correlated noise the L2 norm of a "
            "record's, with `group` the L2 norm of a gradient; not without noise or groups",
            extra={"default": "1; of exact groups none"},
        ),
    ] = None
    ridge: Ridge = 0.0
    radius: Annotated[
        Positive,
        Meta(description="without noise, or with `group`: a coordinate beyond it means divergence"),
    ] = 1_000.0
    group: Annotated[
        Group | None,
        Meta(extra={"default": "none: parties send models to their neighbours in `topology`"}),
    ] = None
    seed: Annotated[Seed, Meta(description="public, of the groups")] = 0
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
        """The predictive model (such as linear or logistic) with its loss."""
        return Model(self.model, self.features, self.classes)

    @property
    def message_noise(self) -> MessageNoise:
        """The kind of noise on messages to neighbours; "none" in groups, whose averages may have noise."""
        return self.noise or ("iid" if self.group is None else "none")

    @cached_property
    def planned(self) -> DiffusionNoise | None:
        """Return the planned noise; None for "none" or "correlated"; ConfigError where none suffices."""
        if self.epsilon is None or self.message_noise == "none" or self.message_noise == "correlated":  # noqa: PLR1714 - for mypy
            return None
        length, clip = self.loss.length, 1.0 if self.clip is None else self.clip
        return DiffusionNoise.plan(self.message_noise, self.epsilon, self.steps, self.rate, clip, length)

    @cached_property
    def correlated(self) -> tuple[CorrelatedNoise, ...]:
        """Return each party's planned noise that is correlated over steps; () for other noise."""
        if self.message_noise != "correlated" or self.epsilon is None or self.delta is None:
            return ()
        from smpc_dp.privacy.factorisation import factorise, fine_bits, plan_correlated_noise

        weights, length = self.combination(len(self.sizes)), self.loss.length
        chosen = factorise(weights, self.steps, self.batches, retained_part(self.rate, self.ridge))
        reaches = self.factors * (1.0 if self.clip is None else self.clip)
        bits = fine_bits(reaches)
        planned = {
            reach: plan_correlated_noise(self.epsilon, self.delta, chosen, reach, bits, length)
            for reach in set(reaches.tolist())
        }
        return tuple(planned[reach] for reach in reaches.tolist())

    @property
    def factors(self) -> NDArray[np.float64]:
        """Factor by which a step multiplies the gradient of one record, for each party."""
        return self.rate * self.batches / np.array(self.sizes, dtype=np.float64)

    def guarantee(self, noise: DiffusionNoise) -> PrivacyGuarantee:
        """Return the privacy of a party's data after all steps with this noise, and a publication if set."""
        return noise.guarantee(self.steps, self.epsilon, publish=self.publish)

    def combination(self, parties: int) -> sparse.csr_array:
        """Return the matrix of weights by which parties combine neighbours' models; may raise ConfigError."""
        drawn = graph_of(self.topology, parties)
        return drawn.metropolis() if self.weights == "metropolis" else drawn.max_degree()

    def check_data(self, table: Table, party: str) -> None:
        """Raise ConfigError with the party's name if its table does not fit the settings."""
        self.loss.check(table, party)

    def draws(self, parties: int) -> GroupDraws | None:
        """Return the random groups of each step; None if parties have neighbours instead."""
        return None if self.group is None else GroupDraws(parties, self.group, self.seed)

    def groups(self, parties: int) -> NDArray[np.intp] | None:
        """Return all groups in order, shape (steps times groups of a step, s); None without groups."""
        draws = self.draws(parties)
        return None if draws is None else draws.draw(self.steps * draws.each)

    def groups_at_once(self, parties: int) -> int:
        """Return the number of groups that average in one step; 0 without groups."""
        draws = self.draws(parties)
        return 0 if draws is None else draws.each

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of these settings in a network of this many parties."""
        result = []
        if self.rate * self.ridge > 1:
            result.append(
                ConfigIssue(
                    "rate", f"{self.rate:g} times ridge = {self.ridge:g} must be at most 1", ConfigCheck.RANGE
                )
            )
        if self.group is not None:
            return result + self._group_issues(self.group, parties)
        if self.seed:
            result.append(ConfigIssue("seed", "is of groups: there is no `group`", ConfigCheck.UNSUPPORTED))
        result += self._noise_issues()
        result += self._correlated_issues(parties)
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
            if self.message_noise == "correlated" and not result:
                result += self._room_issues()
        except ConfigError as error:
            for argument, key in (
                ("step_size", "rate"),
                ("l1_bound", "clip"),
                ("scale", "epsilon"),
                ("retained", "rate"),
            ):
                error = rename_argument(error, argument, key)
            result += error.issues
        return result

    def _noise_issues(self) -> list[ConfigIssue]:
        """Return the faults of the settings of noise on messages to neighbours."""
        result = []
        if self.message_noise == "none":
            for name in ("epsilon", "publish", "clip"):
                if getattr(self, name) is not None:
                    result.append(ConfigIssue(name, 'is of noise, which is "none"', ConfigCheck.UNSUPPORTED))
        elif self.epsilon is None:
            result.append(ConfigIssue("epsilon", "is missing", ConfigCheck.MISSING))
        if self.message_noise in ("iid", "correlated") and self.publish is not None:
            kind = "i.i.d." if self.message_noise == "iid" else "correlated"
            reason = f"is of homomorphic noise: with {kind} noise models are public"
            result.append(ConfigIssue("publish", reason, ConfigCheck.UNSUPPORTED))
        return result

    def _group_issues(self, group: int, parties: int) -> list[ConfigIssue]:
        """Return the faults of the settings of groups, and settings that groups do not allow."""
        given = {
            "noise": self.noise is not None,
            "publish": self.publish is not None,
            "sizes": bool(self.sizes),
            "batches": self.batches != 1,
            "topology": self.topology != "ring",
            "weights": self.weights != "metropolis",
        }
        reason = "is of messages to neighbours: there is `group`"
        result = [ConfigIssue(name, reason, ConfigCheck.CONFLICT) for name, there in given.items() if there]
        return result + group_issues(group, parties, self.epsilon, self.delta)

    def _correlated_issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of correlated noise's settings, and of those given without such noise."""
        if self.message_noise != "correlated":
            names = [name for name in ("delta", "sizes") if getattr(self, name)]
            names += ["batches"] if self.batches != 1 else []
            reason = "is of correlated noise, and `noise` is another"
            return [ConfigIssue(name, reason, ConfigCheck.UNSUPPORTED) for name in names]
        result = []
        if self.delta is None:
            result.append(ConfigIssue("delta", "is missing", ConfigCheck.MISSING))
        if len(self.sizes) != parties:
            reason = f"{len(self.sizes)} for {parties} parties"
            result.append(ConfigIssue("sizes", reason, ConfigCheck.SHAPE))
        if self.batches > min((*self.sizes, self.steps)):
            reason = f"{self.batches} need as many steps, and records of each party"
            result.append(ConfigIssue("batches", reason, ConfigCheck.RANGE))
        if self.model == "softmax":
            result.append(
                ConfigIssue("model", "with correlated noise 'logistic' or 'linear'", ConfigCheck.CHOICE)
            )
        return result

    def _room_issues(self) -> list[ConfigIssue]:
        """Return the fault of correlated noise that is too large for the grid of the messages."""
        deviation = max(noise.reach for noise in self.correlated)
        most = max(
            noise.bound * -(-size // self.batches)
            for noise, size in zip(self.correlated, self.sizes, strict=True)
        )
        if self.steps * most + 8 * deviation * math.sqrt(self.loss.length) <= EXACT_STEPS:
            return []
        reason = f"{self.epsilon:g} for {self.steps} steps needs too much noise for the grid of the messages"
        return [ConfigIssue("epsilon", reason, ConfigCheck.INFEASIBLE)]

    def _largest(self, noise: DiffusionNoise) -> float:
        """Return a bound on a message's l2 norm in grid steps: all updates, and eight deviations of noise."""
        deviation = float(noise.scale) * math.sqrt(2 * self.steps * self.loss.length)
        return self.steps * noise.update + 8 * deviation

    @property
    def _bound(self) -> float:
        """Return a bound on the l2 norm of a message to a neighbour."""
        if self.correlated:
            return math.ldexp(EXACT_STEPS, -self.correlated[0].bits)
        if self.planned is None:
            return self.radius * math.sqrt(self.loss.length) * (1 + 1e-9)
        return math.ldexp(EXACT_STEPS, -self.planned.bits)

    def requirements(self, parties: int) -> Requirements:
        """Return what the learner needs: messages between neighbours in each step, or group averages."""
        if (draws := self.draws(parties)) is not None:
            clip, budget = 1.0 if self.clip is None else self.clip, (self.epsilon, self.delta)
            return group_requirements(draws, self.steps, self.loss.length, clip, self.radius, budget)
        messages = PrivateMessages(self.loss.length, self._bound, np.full(parties, self.steps), None, None)
        if self.correlated:
            return Requirements(exchange=messages, own=self.correlated[0].event())
        if self.planned is None:
            return Requirements(exchange=messages)
        return Requirements(exchange=messages, own=run_event(self.guarantee(self.planned)))

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run diffusion on the local tables; return the models, with the guarantee unless in groups."""
        if self.group is not None:
            return await self._run_in_groups(context, data)
        exchange, noise = context.peers, self.planned
        if self.correlated:
            return await self._run_correlated(context, data)
        source = None if noise is None else context.source
        result = await self._descend(exchange, data, source, context.progress)
        steps = np.full(len(data), self.steps)
        values, guarantee, claim = result.models, None, f"{CLAIM}; {exchange.claim}"
        if noise is not None and source is not None:
            guarantee = self.guarantee(noise)
            if self.publish is not None:
                values = publish_models(values, noise, self.steps, self.publish, source)
            claim = (
                f"by the noise on each message: {guarantee.assumption}; the line by itself: {exchange.claim}"
            )
        confidential = self.message_noise == "homomorphic" and self.publish is None
        if confidential:
            claim = f"{OWN}; {claim}"
        return Learned(self.kind, values, self.loss.names, steps, steps, (), guarantee, claim, confidential)

    async def _run_in_groups(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run diffusion in which random groups average models; return the models, without guarantee."""
        averager, model = context.average, self.loss
        draws = None if averager is None else self.draws(averager.parties)
        if averager is None or draws is None:
            raise ConfigError.at("averager", "is needed for groups", ConfigCheck.MISSING)
        points, rows = model.points(data), np.arange(len(data))
        run = GroupRun(
            averager,
            context.mix,
            draws,
            self.steps,
            self.radius,
            retained=1 - self.rate * self.ridge,
            factor=-self.rate,
            clip=1.0 if self.clip is None and self.epsilon is not None else self.clip,
            scales=True,
            on_step=context.on_step,
            progress=context.progress,
        )
        outcome = await diffuse_in_groups(
            run,
            lambda models, _step: model.gradient(models, points, rows),
            np.zeros((len(data), model.length)),
        )
        return Learned(
            self.kind,
            outcome.states,
            model.names,
            outcome.planned,
            outcome.done,
            outcome.failures,
            claim=averager.claim,
        )

    async def _run_correlated(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run diffusion on batches with noise correlated over steps; return models and guarantee."""
        exchange, model, here = context.peers, self.loss, context.peers.here
        check_sizes(exchange, data, self.sizes)
        clip = 1.0 if self.clip is None else self.clip
        batches = [
            RecordGradients(model, model.points([table[first :: self.batches] for table in data]), clip)
            for first in range(self.batches)
        ]
        try:
            values = await diffuse_records(
                exchange,
                self.combination(exchange.parties),
                batches,
                self.factors[here],
                self.steps,
                retained_part(self.rate, self.ridge),
                [self.correlated[party] for party in here],
                source=context.source,
                room=(model.length, self._bound / math.sqrt(model.length)),
            )
        except ConfigError as error:
            raise rename_argument(error, "step_size", "rate") from None
        guarantee, steps = self.correlated[0].guarantee, np.full(len(data), self.steps)
        most = 2.0 * max(noise.bound for noise in self.correlated)
        guarantee = msgspec.structs.replace(guarantee, sensitivity={"l2": most})
        claim = f"by the noise on each message: {guarantee.assumption}; the line by itself: {exchange.claim}"
        return Learned(self.kind, values, model.names, steps, steps, (), guarantee, claim)

    async def _descend(
        self, exchange: PeerExchange, data: list[Table], source: NoiseSource | None, progress: StepProgress
    ) -> Diffused:
        """Run all steps of diffusion between neighbours from zero; return models and guarantee."""
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
                progress=progress,
            )
        except ConfigError as error:
            raise rename_argument(error, "step_size", "rate") from None
