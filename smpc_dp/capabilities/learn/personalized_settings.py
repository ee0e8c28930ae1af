"""Settings of every learner of personalised models over a graph, and their checks.

The graph and the number of records of each party are public. `epsilon` is for ONE RECORD of a party.
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
from smpc_dp.capabilities.learn.coordinate_descent import PersonalizedObjective
from smpc_dp.capabilities.learn.learned_graph import LearnedGraph, LearnGraph, no_graph
from smpc_dp.capabilities.learn.pairing_schedule import Features, Graph, Positive, Seed, Ticks, graph_of
from smpc_dp.capabilities.learn.requirements import Table
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.record_gradients import Mechanism

if TYPE_CHECKING:
    from scipy import sparse

NoiseMechanism = Annotated[
    Mechanism,
    Meta(
        description="of the noise; `k-norm` (for the L2 norm) and `laplace` (L1) take no `delta`: their "
        "epsilons add up"
    ),
]


def check_sizes(exchange: PeerExchange, data: list[Table], sizes: tuple[int, ...]) -> None:
    """Raise ConfigError, naming the party, unless local tables have the agreed numbers of records."""
    for party, table in zip(exchange.here, data, strict=True):
        if len(table) != sizes[party]:
            reason = f"{exchange.name_of(int(party))} has {len(table)} records, not {sizes[party]}"
            raise ConfigError.at("sizes", reason, ConfigCheck.DIFFERS)


def norm_order(mechanism: Mechanism) -> Literal[1, 2]:
    """Return 1 or 2: the norm by which a mechanism's noise measures sensitivity."""
    return 1 if mechanism == "laplace" else 2


def norm_ratio(mechanism: Mechanism, length: int) -> float:
    """Return the greatest ratio of the norm that a mechanism's noise bounds to the L2 norm of a vector."""
    return math.sqrt(length) if norm_order(mechanism) == 1 else 1.0


def delta_issues(
    epsilon: float | None, delta: float | None, mechanism: Mechanism = "gaussian"
) -> list[ConfigIssue]:
    """Return the fault that delta is missing, or given for a mechanism that uses none; or no fault."""
    if epsilon is not None and mechanism != "gaussian":
        reason = f"is not for {mechanism!r}, whose epsilon is pure"
        return [] if delta is None else [ConfigIssue("delta", reason, ConfigCheck.UNSUPPORTED)]
    if (epsilon is None) == (delta is None):
        return []
    return [ConfigIssue("delta", "goes with epsilon", ConfigCheck.MISSING)]


def weights_of(topology: Graph, weights: tuple[float, ...], parties: int) -> sparse.csr_array:
    """Return the symmetric weights of a graph's edges, shape (n, n), 1 each by default; or ConfigError."""
    from scipy import sparse

    graph = graph_of(topology, parties)
    if not weights:
        return graph.adjacency
    if isinstance(topology, str) or len(weights) != len(topology):
        reason = f"{len(weights)} for {len(topology)} edges: give `topology` as a list of edges"
        raise ConfigError.at("weights", reason, ConfigCheck.SHAPE)
    ends = np.array(topology, dtype=np.intp)
    edges, counts = np.unique(np.sort(ends, axis=1), axis=0, return_counts=True)
    if counts.max() > 1:
        reason = f"has the edge {edges[counts.argmax()].tolist()} twice"
        raise ConfigError.at("topology", reason, ConfigCheck.DUPLICATE)
    both = np.concatenate([ends, ends[:, ::-1]])
    return sparse.csr_array((np.tile(weights, 2), (both[:, 0], both[:, 1])), shape=(parties, parties))


class PersonalizedSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Base of settings of learners of a model per party, drawn towards neighbours' models.

    Attributes:
        kind: the learner's name.
    """

    kind: ClassVar[str]
    features: Features
    sizes: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=1_000_000)], ...],
        Meta(description="m_u: records of each party, in roster order, public"),
    ]
    ticks: Annotated[Ticks, Meta(description="T: updates of one party each")]
    topology: Graph = "complete"
    weights: Annotated[
        tuple[Positive, ...],
        Meta(
            description="w, of the edges of `topology` in their order; public",
            extra={"default": "1 for each edge"},
        ),
    ] = ()
    coupling: Annotated[
        Positive, Meta(description="λ₁, of the squared distance between neighbours' models")
    ] = 1.0
    epsilon: Annotated[
        Positive | None,
        Meta(
            description="for one record of a party, of all its messages",
            extra={"default": "none: no privacy"},
        ),
    ] = None
    delta: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(description="with `epsilon`", extra={"default": "none"}),
    ] = None
    seed: Annotated[Seed, Meta(description="public, of who updates when")] = 1
    graph: LearnGraph = None

    @cached_property
    def wakes(self) -> NDArray[np.intp]:
        """The party that updates its model at each tick, (T,), with those before the first graph."""
        alone = 0 if self.graph is None else self.graph.alone
        return PublicDraws(self.seed).below(len(self.sizes), alone + self.ticks)

    @property
    def updates(self) -> NDArray[np.intp]:
        """The number of updates of each party, shape (n,)."""
        return np.bincount(self.wakes, minlength=len(self.sizes)).astype(np.intp)

    @property
    def objective(self) -> PersonalizedObjective:
        """The objective that all models minimise together; subclasses implement this."""
        raise NotImplementedError

    @property
    def message_length(self) -> int:
        """The number of values that a party sends at each of its ticks; subclasses implement this."""
        raise NotImplementedError

    def setting_issues(self) -> list[ConfigIssue]:
        """Return the faults of the settings that a learner adds; subclasses implement this."""
        raise NotImplementedError

    def check_plan(self) -> None:
        """Raise ConfigError if the noise cannot be planned; subclasses implement this."""
        raise NotImplementedError

    def objective_of(self, ridges: NDArray[np.float64], smoothness: float) -> PersonalizedObjective:
        """Return the objective with one ridge penalty for each party and a loss of this smoothness."""
        sizes = np.array(self.sizes, dtype=np.intp)
        weights = weights_of(self.topology, self.weights, len(sizes))
        return PersonalizedObjective(weights, sizes, self.coupling, ridges, smoothness)

    def new_graph(self) -> LearnedGraph | None:
        """Return a new graph without edges that the learner is to learn; None if the graph is given."""
        if self.graph is None:
            return None
        return LearnedGraph(self.graph, self.objective.confidence, self.coupling, self.seed)

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of these settings in a network of this many parties."""
        if len(self.sizes) != parties:
            reason = f"{len(self.sizes)} for {parties} parties"
            return [ConfigIssue("sizes", reason, ConfigCheck.SHAPE)]
        result = self.setting_issues()
        if self.graph is not None:
            result += no_graph(self.topology, self.weights)
            result += self.graph.issues(parties, self.message_length)
        updates = self.updates
        if not updates.all():
            reason = f"{updates.sum()} are too few: party {int(updates.argmin())} never updates"
            result.append(ConfigIssue("ticks", reason, ConfigCheck.RANGE))
        if result:
            return result
        try:
            # Its weights are checked, with noise or without.
            _ = self.objective
            self.check_plan()
        except ConfigError as error:
            return list(error.issues)
        return []
