"""Learning the graph of personalised models, alternating with the models [Bellet 2021, Algorithm 2.1].

Every party gets all models and losses, so the steps of Algorithm 2.4, whose parties and peers a public seed
draws, are the same computation at each, without a message. Who sends to whom never depends on the graph.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn.averager import PeerExchange, Rows
from smpc_dp.capabilities.learn.graph_descent import (
    GraphObjective,
    Regulariser,
    descend_graph,
    draw_steps,
    pair_costs,
)
from smpc_dp.capabilities.learn.pairing_schedule import Positive, Ticks
from smpc_dp.capabilities.learn.schedule import PublicDraws
from smpc_dp.errors import ConfigCheck, ConfigIssue

if TYPE_CHECKING:
    from scipy import sparse

Floats = NDArray[np.float64]

# Of the public draws that are not of the models' ticks.
_STREAM = 1
# Numbers that one exchange of losses takes: a vector from each party to each.
_MOST_NUMBERS = 100_000_000


class GraphLearning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of how a learner of personalised models also learns the graph between parties."""

    alone: Annotated[Ticks, Meta(description="updates before the first graph")]
    every: Annotated[Ticks, Meta(description="updates between two graphs")]
    steps: Annotated[Ticks, Meta(description="T of Algorithm 2.4 at each update of the graph")]
    peers: Annotated[
        Annotated[int, Meta(ge=1, le=1_000)], Meta(description="ρ, other parties in a step, drawn by `seed`")
    ] = 5
    density: Annotated[
        Positive, Meta(description="λ₃, of the squared weights: the smaller, the fewer neighbours")
    ] = 1.0
    regulariser: Annotated[
        Regulariser,
        Meta(description="of degrees: `log`: −log(d + 0.01); `square`: (d − 1)²/2"),
    ] = "log"
    loss_bound: Annotated[
        Positive | None,
        Meta(
            description="B, that a record's loss is clipped to; needed by `personalized`, and of it alone",
            extra={"default": "none"},
        ),
    ] = None
    loss_share: Annotated[
        Annotated[float, Meta(gt=0, lt=1)],
        Meta(description="with `epsilon`: of the budget, for all losses of a party; models have the rest"),
    ] = 0.1

    def rounds(self, ticks: int) -> int:
        """Return the number of graph updates in `ticks` model updates after `alone`, rounded up."""
        return -(-ticks // self.every)

    def is_update(self, tick: int) -> bool:
        """Tell whether the graph's weights are learned again before this model update (from 0)."""
        return tick >= self.alone and (tick - self.alone) % self.every == 0

    def issues(self, parties: int, length: int) -> list[ConfigIssue]:
        """Return the faults of the graph settings for messages of this length."""
        if self.peers >= parties:
            reason = f"{self.peers} must be below the number of parties, {parties}"
            return [ConfigIssue("graph.peers", reason, ConfigCheck.RANGE)]
        if parties**2 * length > _MOST_NUMBERS:
            reason = (
                f"is for {_MOST_NUMBERS:,} numbers in all messages of losses, here {parties**2 * length:,}"
            )
            return [ConfigIssue("graph", reason, ConfigCheck.TOO_LARGE)]
        return []


LearnGraph = Annotated[
    GraphLearning | None,
    Meta(
        description="how the graph is learned; then `topology` and `weights` are left out",
        extra={"default": "none: the graph is known"},
    ),
]


class LearnedGraph:
    """Edge weights that a run has learned so far; none at first, so that each party learns alone.

    `weights`: shape (n, n); `degrees`: (n,).
    """

    def __init__(self, settings: GraphLearning, confidence: Floats, coupling: float, seed: int) -> None:
        n = len(confidence)
        self._settings, self._confidence, self._coupling = settings, confidence, coupling
        self._draws = PublicDraws(seed, _STREAM)
        self._set(np.zeros((n, n)))

    def _set(self, weights: Floats) -> None:
        """Store new weights of all edges, and the parties' degrees that follow from these weights."""
        self.weights, self.degrees = weights, weights.sum(axis=1)

    def learn(self, models: Rows, losses: Floats) -> None:
        """Store edge weights learned from all parties' models, shape (n, length), and losses, shape (n,)."""
        costs = pair_costs(models, self._confidence * losses, self._coupling)
        settings = self._settings
        objective = GraphObjective(costs, self._coupling, settings.density, settings.regulariser)
        start = self.weights if self.weights.any() else objective.uniform()
        steps = draw_steps(self._draws, len(costs), settings.peers, settings.steps)
        self._set(descend_graph(objective, start, steps))

    def around(self, models: Rows, party: int) -> Rows:
        """Return the weighted mean of a party's neighbours' models; its own model without neighbours."""
        if not self.degrees[party] > 0:
            return np.asarray(models[party])
        return np.asarray(self.weights[party] @ models / self.degrees[party])


def others(party: int, parties: int) -> NDArray[np.intp]:
    """Return the numbers of all parties but `party`, in ascending order."""
    return np.delete(np.arange(parties), party)


@lru_cache(maxsize=1024)
def sent_by(party: int, receivers: bytes, parties: int) -> sparse.csr_array:
    """Return the sparse weight matrix by which a party sends to receivers, given as bytes of numbers."""
    from scipy import sparse

    near = np.frombuffer(receivers, dtype=np.intp)
    entries = (np.ones(len(near)), (near, np.full(len(near), party)))
    return sparse.csr_array(entries, shape=(parties, parties))


async def losses_of_all(exchange: PeerExchange, own: Floats, length: int) -> Floats:
    """Send the local parties' losses to all; return those of all, (n,), or zeros if no party is local."""
    boxes = np.zeros((len(exchange.here), exchange.parties, length))
    boxes[..., 0] = own[:, None]
    received = await exchange.all_to_all(boxes)
    return np.asarray(received[0, :, 0]) if len(received) else np.zeros(exchange.parties)


def no_graph(topology: object, weights: tuple[float, ...]) -> list[ConfigIssue]:
    """Return the faults of `topology` or `weights` that are given although the graph is to be learned."""
    if topology == "complete" and not weights:
        return []
    where = "weights" if weights else "topology"
    return [ConfigIssue(where, "is of a known graph: here `graph` learns one", ConfigCheck.CONFLICT)]
