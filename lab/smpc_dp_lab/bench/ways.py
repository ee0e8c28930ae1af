"""Figures of one work that is done in several ways: the first way is the peer of the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

from smpc_dp_lab.bench.figures import Figure, Peer, Steps, Target, alternate, cost
from smpc_dp_lab.bench.workers import together

# The longest time of a measuring process.
SECONDS = 900.0


class Way(NamedTuple):
    """One of several ways of the same work: description, what its processor time covers, and a target.

    `at_most`: the most processor time beside that of the first way; None: without a target.
    """

    described: str
    note: str
    at_most: float | None = None


def measured_seconds(module: str, arguments: Sequence[str], title: str) -> float:
    """Run a measuring process, and return the processor time that it prints; raise LocalError if it fails."""
    (output,) = together(module, [arguments], title, SECONDS)
    taken: dict[str, Any] = json.loads(output)
    return float(taken["seconds"])


def compare_ways(
    name: str, peer: str, ways: Mapping[str, Way], seconds: Callable[[str], float], runs: int, steps: Steps
) -> list[Figure]:
    """Return the processor time of each way, measured in turns by `seconds`, which is given its key.

    `name`: of the work; `peer`: describes the first way where it is the peer of others.
    """
    taken = alternate(runs, {way: partial(seconds, way) for way in ways}, steps)
    first = next(iter(ways))
    beside = Peer.of(peer, version("smpc-dp"), taken[first])
    return [
        cost(
            f"{name}: {one.described}",
            "s",
            taken[way],
            one.note,
            peer=None if way == first else beside,
            target=None if one.at_most is None else Target("ratio_to_peer", 1 / one.at_most),
        )
        for way, one in ways.items()
    ]
