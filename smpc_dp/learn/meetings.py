"""Who may meet, and when, as the `[parameters]` of a session say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigError, Fault
from smpc_dp.learn import topology
from smpc_dp.learn.schedule import Clock, EdgeClock, PoissonClock
from smpc_dp.learn.topology import Topology

User = Annotated[int, Meta(ge=0, le=65_534)]
Graph = Literal["ring", "complete"] | tuple[tuple[User, User], ...]
"""A graph of all parties, or its edges: pairs of users, who are numbered from 0 in the roster's order; a
session may name them (`numbered`). No other graphs by name: random ones might differ between machines."""

ClockName = Literal["asynchronous", "synchronous"]
Ticks = Annotated[int, Meta(ge=1, le=1_000_000)]
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


def graph_of(graph: Graph, users: int) -> Topology:
    """Return a session's graph; raise ConfigError unless it is connected and leads to its users alone."""
    if graph == "ring":
        return topology.ring(users)
    if graph == "complete":
        return topology.complete(users)
    try:
        drawn = topology.from_edges(users, np.array(graph, dtype=np.int64).reshape(-1, 2), "the graph")
    except ConfigError as error:
        raise renamed(error, "edges", "topology") from None
    drawn.require_connected()
    return drawn


def numbered(
    parameters: Mapping[str, object], names: Sequence[str]
) -> tuple[Mapping[str, object], list[Fault]]:
    """Return parameters of a session with parties that `topology` names as their numbers, and who is none."""
    edges = parameters.get("topology")
    if not isinstance(edges, list):
        return parameters, []
    number = {name: place for place, name in enumerate(names)}
    found: list[object] = []
    faults: list[Fault] = []
    for place, edge in enumerate(edges):
        ends = edge if isinstance(edge, list) else []
        unknown = [end for end in ends if isinstance(end, str) and end not in number]
        faults += [Fault(f"topology[{place}]", f"{shown(end)} is no party") for end in unknown]
        found.append([number.get(end, end) if isinstance(end, str) else end for end in ends] or edge)
    return {**parameters, "topology": found}, faults


def renamed(error: ConfigError, argument: str, key: str) -> ConfigError:
    """Return the error with an argument's name replaced by the key that a session has for it."""
    return ConfigError([Fault(fault.where.replace(argument, key), fault.what) for fault in error.faults])


class Meetings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """Settings of learners whose users meet in pairs."""

    ticks: Annotated[Ticks, Meta(description="meetings of two users; each user must have one")]
    clock: Annotated[ClockName, Meta(description='`method = "u2"` needs the synchronous one')] = (
        "asynchronous"
    )
    topology: Annotated[
        Graph,
        Meta(
            description="edges of parties by name or by number from 0 in the roster's order",
            extra={"range": '`"ring"`, `"complete"`, or edges `[["alice", "bob"], ...]`'},
        ),
    ] = "complete"
    seed: Annotated[Seed, Meta(description="public, of who meets when")] = 1

    @property
    def draws(self) -> int:
        """Meetings in all."""
        return self.ticks

    def clock_of(self, users: int) -> Clock:
        """Return a new clock for so many users."""
        graph = graph_of(self.topology, users)
        return EdgeClock(graph, self.seed) if self.clock == "synchronous" else PoissonClock(graph, self.seed)

    def meetings(self, users: int) -> NDArray[np.intp]:
        """Return how many messages each user sends, shape (n,)."""
        drawn = self.clock_of(users).draw(self.draws)
        return np.bincount(drawn.ravel(), minlength=users).astype(np.intp)

    def meeting_faults(self, users: int) -> list[Fault]:
        """Return what is wrong with the schedule: its graph, or that a user never meets anybody."""
        try:
            counted = self.meetings(users)
        except ConfigError as error:
            return list(error.faults)
        if counted.all():
            return []
        what = f"{self.ticks} are too few: user {int(counted.argmin())} never meets anybody"
        return [Fault("ticks", what)]
