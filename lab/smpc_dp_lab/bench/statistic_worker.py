"""One process of `smpc-dp bench pairwise`: `python -m smpc_dp_lab.bench.statistic_worker`.

As a member of a session it evaluates the noisy kernel with fresh setups, then several times with the cached
setup, and measures the floor of its side; alone it computes a whole statistic through every gate.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from smpc_dp.capabilities.pairs.garbled.effects import Buffer
from smpc_dp.capabilities.pairs.garbled.transfers import Transfers
from smpc_dp.capabilities.pairs.kernels import Field, kendall_tau
from smpc_dp.capabilities.pairs.requests.pairwise import Conduit, PairwiseMember, drive
from smpc_dp.simulate.statistic import pairwise
from smpc_dp_lab.bench.covert_floor import floor_seconds
from smpc_dp_lab.bench.pair_floor import side_floors
from smpc_dp_lab.bench.pairwise_worker import random_inputs
from smpc_dp_lab.bench.resident import peak_bytes

CACHED = 20
# Evaluations of a process before those that count.
COLD = 2
# Measurements of a floor after as many that do not count.
FLOORS = 5


class Flights:
    """Wrapper of a channel that counts rounds: how often a receive follows a send."""

    def __init__(self, channel: Conduit, shared: list[bool], count: list[int]) -> None:
        self._channel = channel
        self._sent = shared
        self._count = count

    @property
    def bytes_sent(self) -> int:
        """The number of bytes that the wrapped channel has sent."""
        return self._channel.bytes_sent

    @property
    def bytes_received(self) -> int:
        """The number of bytes that the wrapped channel has received."""
        return self._channel.bytes_received

    def send(self, parts: Sequence[Buffer], /) -> None:
        """Send the parts over the wrapped channel, and note that something was sent."""
        self._sent[0] = True
        self._channel.send(parts)

    def receive(self, limit: int, ahead: int = 0, /) -> Buffer:
        """Receive, and count a round if something was sent since the last receive."""
        self._count[0] += self._sent[0]
        self._sent[0] = False
        return self._channel.receive(limit, ahead)

    def close(self, parts: Sequence[Buffer], /) -> None:
        """Close the wrapped channel, after sending the last parts."""
        self._channel.close(parts)


def member(session: str, name: str, times: int) -> Mapping[str, object]:
    """Run a member of `session`: `times` fresh evaluations over new channels, and CACHED after the last.

    Times are medians of those after the first COLD. The evaluator of a covert session measures the floor
    after each; otherwise both sides measure it after the last, at the same time, as the sides of a batch
    work: processors that share a core slow each other.
    """
    loaded = PairwiseMember.load(session, name)
    inputs, parameters = random_inputs(loaded), loaded.plan.parameters
    taken: list[dict[str, float]] = []
    reported: dict[str, object] = {}
    for trial in range(times):
        transfers = Transfers()
        began, clock = time.process_time(), time.perf_counter()
        opened = loaded.connect()
        connected = time.process_time()
        sent, rounds = [False], [0]
        channels = {peer: Flights(channel, sent, rounds) for peer, channel in opened.items()}
        try:
            first = drive(loaded.role(inputs, 1, transfers), channels)
            fresh, wall, flights = time.process_time(), time.perf_counter(), rounds[0]
            taken.append(
                {
                    "fresh": fresh - began,
                    "connect": connected - began,
                    "open": fresh - connected,
                    "wall": wall - clock,
                }
            )
            reported |= {"bytes": first.bytes_sent, "rounds": flights}
            if trial == times - 1 and parameters.instances == 1 and not parameters.covert:
                for request in range(2, CACHED + 2):
                    last = drive(loaded.role(inputs, request, transfers), channels)
                reported |= {
                    "cached": (time.process_time() - fresh) / CACHED,
                    "cached_bytes": (last.bytes_sent - first.bytes_sent) / CACHED,
                    "cached_rounds": (rounds[0] - flights) / CACHED,
                }
        finally:
            for channel in opened.values():
                channel.close()
        if parameters.covert and name == parameters.evaluator:
            # The others wait for the next connection meanwhile.
            taken[-1]["floor"] = sum(floor_seconds(loaded.plan).values())
    warm = taken[COLD:]
    medians = {key: median(trial[key] for trial in warm) for key in taken[0]}
    sides = {parameters.garbler: "garbler", parameters.evaluator: "evaluator"}
    if not parameters.covert and name in sides:
        floors = [side_floors(loaded.plan)[sides[name]] for _ in range(COLD + FLOORS)]
        medians["floor"] = median(floors[COLD:])
    return {**reported, **medians, "first": taken[0]["fresh"]}


def whole(parties: int) -> Mapping[str, object]:
    """Estimate tau of so many parties through every gate, in this process."""
    rng = np.random.default_rng(1)
    field = Field(-(1 << 31), (1 << 31) - 1)
    first = rng.integers(-(1 << 31), 1 << 31, parties)
    began, clock = time.process_time(), time.perf_counter()
    result = pairwise(kendall_tau(field, field), (first, first[::-1]), 1.0, 1, covert=0)
    return {
        "pairs": result.pairs,
        "wall": time.perf_counter() - clock,
        "cpu": time.process_time() - began,
        "memory": peak_bytes(),
    }


def called(arguments: Sequence[str]) -> Mapping[str, object]:
    """Run a whole statistic, or one member, as the arguments say; return the measurements."""
    if arguments[0] == "whole":
        return whole(int(arguments[1]))
    return member(arguments[0], arguments[1], int(arguments[2]))


if __name__ == "__main__":
    reported = called(sys.argv[1:])
    sys.stdout.write(json.dumps(reported) + "\n")
