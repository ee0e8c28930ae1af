"""Who may meet, and when, as the `[parameters]` of a session say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

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


def clock_of(name: ClockName, graph: Topology, seed: int) -> Clock:
    """Return a new clock: a random edge at each tick, or users who wake up and turn to a neighbour."""
    return EdgeClock(graph, seed) if name == "synchronous" else PoissonClock(graph, seed)


def meetings_of(clock: Clock, users: int, draws: int) -> NDArray[np.intp]:
    """Return in how many of the next so many draws of the clock each user meets somebody, shape (n,)."""
    return np.bincount(clock.draw(draws).ravel(), minlength=users).astype(np.intp)


def meeting_faults(meetings: Callable[[], NDArray[np.intp]], ticks: int) -> list[Fault]:
    """Return what is wrong with a schedule: its graph, or that a user never meets anybody.

    `meetings` counts those of each user in so many `ticks`, and raises ConfigError for a graph that is none.
    """
    try:
        counted = meetings()
    except ConfigError as error:
        return list(error.faults)
    if counted.all():
        return []
    return [Fault("ticks", f"{ticks} are too few: user {int(counted.argmin())} never meets anybody")]
