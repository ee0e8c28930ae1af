"""Pairing schedule of gossip: the graph and the clock, as the `[parameters]` of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.capabilities.learn import topology
from smpc_dp.capabilities.learn.averager import PeerExchange, Rows
from smpc_dp.capabilities.learn.requirements import (
    Learned,
    LearnerContext,
    PrivateMessages,
    Requirements,
    Table,
)
from smpc_dp.capabilities.learn.schedule import Clock, EdgeClock, PoissonClock
from smpc_dp.capabilities.learn.topology import Topology
from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.sampling import NoiseSource

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event

CLAIM = "NO PRIVACY between parties: records wander from party to party, and each sees those that it gets"
Party = Annotated[int, Meta(ge=0, le=65_534)]
Graph = Annotated[
    Literal["ring", "complete"] | tuple[tuple[Party, Party], ...],
    Meta(
        description="parties by name, or by number from 0",
        extra={"range": '`"ring"`, `"complete"`, or edges `[["alice", "bob"], ...]`'},
    ),
]
"""A graph of all parties, or its edges: pairs of parties, numbered from 0 in the roster's order or named
(`number_parties`). No other graphs by name: random ones might differ between hosts."""

ClockName = Literal["asynchronous", "synchronous"]
Positive = Annotated[float, Meta(gt=0, le=1e6)]
Ticks = Annotated[int, Meta(ge=1, le=1_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Features = Annotated[
    Annotated[int, Meta(ge=1, le=10_000)], Meta(description="columns of every table without the label")
]
Ridge = Annotated[
    Annotated[float, Meta(ge=0, le=1e6)], Meta(description="of a penalty ridge/2 times the squared norm")
]


def graph_of(graph: Graph, parties: int) -> Topology:
    """Return the graph on which parties meet; raise ConfigError unless it connects exactly these parties."""
    if graph == "ring":
        return topology.ring(parties)
    if graph == "complete":
        return topology.complete(parties)
    try:
        drawn = topology.from_edges(parties, np.array(graph, dtype=np.int64).reshape(-1, 2), "the graph")
    except ConfigError as error:
        raise rename_argument(error, "edges", "topology") from None
    drawn.require_connected()
    return drawn


def number_parties(
    parameters: Mapping[str, object], names: Sequence[str]
) -> tuple[Mapping[str, object], list[ConfigIssue]]:
    """Return parameters with `topology` in party numbers instead of names, and faults for unknown names."""
    edges = parameters.get("topology")
    if not isinstance(edges, list):
        return parameters, []
    number = {name: index for index, name in enumerate(names)}
    result: list[object] = []
    issues: list[ConfigIssue] = []
    for index, edge in enumerate(edges):
        ends = edge if isinstance(edge, list) else []
        unknown = [end for end in ends if isinstance(end, str) and end not in number]
        issues += [
            ConfigIssue(f"topology[{index}]", f"{shown(end)} is no party", ConfigCheck.UNKNOWN_NAME)
            for end in unknown
        ]
        result.append([number.get(end, end) if isinstance(end, str) else end for end in ends] or edge)
    return {**parameters, "topology": result}, issues


def rename_argument(error: ConfigError, argument: str, key: str) -> ConfigError:
    """Return the error with an argument's name replaced by the session key from which the argument comes."""
    return ConfigError(
        [ConfigIssue(issue.where.replace(argument, key), issue.reason, issue.check) for issue in error.issues]
    )


class PairingSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Base of settings of gossip learners: which parties meet in pairs, in what order, and how often."""

    kind: ClassVar[str]
    ticks: Annotated[Ticks, Meta(description="meetings of two parties; each party must have one")]
    clock: Annotated[ClockName, Meta(description='`method = "u2"` needs the synchronous one')] = (
        "asynchronous"
    )
    topology: Graph = "complete"
    seed: Annotated[Seed, Meta(description="public, of who meets when")] = 1

    @property
    def draws(self) -> int:
        """The number of meetings of two parties in the whole schedule."""
        return self.ticks

    def clock_of(self, parties: int) -> Clock:
        """Return a new clock that draws which two parties of n meet at each tick."""
        graph = graph_of(self.topology, parties)
        return EdgeClock(graph, self.seed) if self.clock == "synchronous" else PoissonClock(graph, self.seed)

    def pairings(self, parties: int) -> NDArray[np.intp]:
        """Return the number of messages that each party sends in the schedule, shape (n,)."""
        drawn = self.clock_of(parties).draw(self.draws)
        return np.bincount(drawn.ravel(), minlength=parties).astype(np.intp)

    @property
    def fields(self) -> int:
        """The number of columns of a party's record; subclasses implement this."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values that each party learns; subclasses implement this."""
        raise NotImplementedError

    @property
    def length(self) -> int:
        """The number of values in a message between two parties; subclasses implement this."""
        raise NotImplementedError

    @property
    def protected(self) -> tuple[str, PrivacyGuarantee | None, Event | None]:
        """Return (claim, guarantee, ledger event) of all messages; here that nothing is protected."""
        return f"{CLAIM}; ", None, None

    def setting_issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of the settings that a subclass adds, which must implement this."""
        raise NotImplementedError

    def bound(self, parties: int) -> float:
        """Return a bound on the l2 norm of a message, or ConfigError; subclasses implement this."""
        raise NotImplementedError

    def largest_issues(self, bound: float) -> list[ConfigIssue]:
        """Return a fault if messages this large have too coarse a grid; subclasses implement this."""
        raise NotImplementedError

    async def gossip(self, exchange: PeerExchange, records: Table, source: NoiseSource) -> Rows:
        """Run gossip on local records; return what parties have learned; subclasses implement this."""
        raise NotImplementedError

    def issues(self, parties: int) -> list[ConfigIssue]:
        """Return the faults of these settings in a network of this many parties."""
        try:
            return self.setting_issues(parties) or self.largest_issues(self.bound(parties))
        except ConfigError as error:
            return list(error.issues)

    def requirements(self, parties: int) -> Requirements:
        """Return the learner's messages: one, with a record or report, per party and meeting."""
        messages = PrivateMessages(self.length, self.bound(parties), self.pairings(parties))
        return Requirements(exchange=messages, own=self.protected[2])

    async def run(self, context: LearnerContext, data: list[Table]) -> Learned:
        """Run gossip on the local parties' tables, and return what is learned with its guarantee."""
        exchange, (claim, guarantee, _) = context.peers, self.protected
        records = np.concatenate(data) if data else np.zeros((0, self.fields))
        values = await self.gossip(exchange, records, context.source)
        steps = self.pairings(exchange.parties)[exchange.here]
        claim += exchange.claim
        return Learned(self.kind, values, self.names, steps, steps, (), guarantee, claim)

    def pairing_issues(self, parties: int) -> list[ConfigIssue]:
        """Return a fault if some party meets nobody; raise ConfigError for a wrong graph."""
        counted = self.pairings(parties)
        if counted.all():
            return []
        reason = f"{self.ticks} are too few: party {int(counted.argmin())} never meets anybody"
        return [ConfigIssue("ticks", reason, ConfigCheck.RANGE)]
