"""Averages by parties and servers in one process: their roles, and the true program on shares.

Every message of parties and servers is there. The joint computation of their mpyc is done by one mpyc party,
on the reconstructed records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.servers.secret_sharing.params import MPYC, VectorParameters, threshold_of
from smpc_dp.capabilities.servers.secret_sharing.party import PartyRun
from smpc_dp.capabilities.servers.secret_sharing.server import ServerRun
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.simulation.shared import run_alone
from smpc_dp.capabilities.servers.statistics.vectors import vector_program
from smpc_dp.engine.events import Event, Report
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.randomness import randomness_of
from smpc_dp.session.memory.simulated_run import draw_signers, public_keys, simulated_run
from smpc_dp.transport.memory import MemoryNetwork
from smpc_dp.wire.envelope import EVERYONE, Envelope

SERVERS = ("server1", "server2", "server3")


class _Room:
    """Simulated computation of all servers of a run in one place, once each server has its shares."""

    def __init__(self, parameters: VectorParameters) -> None:
        self._parameters = parameters
        self.servers: list[_Server] = []

    def terms(
        self, _operation: str, parties: int, _public_labels: tuple[int, ...], _seed: bytes
    ) -> ProgramTerms:
        """Return the terms of the program that the simulated servers compute; ignores most arguments."""
        return vector_program(self._parameters, parties).terms

    def compute(self) -> list[Envelope]:
        """Compute for all servers once all are ready, and return their messages; [] before that."""
        jobs = [server.job for server in self.servers]
        there = [job for job in jobs if job is not None]
        if len(there) < len(jobs):
            return []
        terms = there[0].terms
        first, second = (np.array(job.shares, dtype=object) for job in there[:2])
        # Of degree 1, with the servers at 1, 2, 3: f(0) = 2 f(1) - f(2).
        records = (2 * first - second) % terms.prime
        planned = vector_program(self._parameters, terms.parties)
        opened = run_alone(planned, records.tolist())
        return [envelope for server in self.servers for envelope in server.report(opened)]


class _Server(ServerRun):
    """Role of a simulated server, whose computation is done for all servers together."""

    room: _Room

    def handle(self, event: Event) -> Sequence[Envelope]:
        """Take an event and return messages; also compute for all servers if this was the last."""
        sent = super().handle(event)
        return [*sent, *self.room.compute()] if self.job is not None else sent

    def report(self, opened: list[int]) -> Sequence[Envelope]:
        """Take the opened integers of the simulated computation; return this server's messages."""
        return super().handle(Report(opened))


def average_on_shares(
    parameters: VectorParameters,
    vectors: NDArray[np.float64],
    *,
    request: int = 1,
    seed_for_simulation: int | None = None,
) -> tuple[NDArray[np.float64], int]:
    """Simulate an average that servers compute on shares; return (average, number of survivors).

    Raises the error that ended the run. The noise is mpyc's own, and never reproducible.
    """
    simulated = simulated_run(
        len(vectors),
        request=request,
        seed_for_simulation=seed_for_simulation,
        protocol=MPYC,
        operation=" ".join(part for part in ("average", parameters.planned()) if part),
    )
    signers = draw_signers({name: randomness_of(seed_for_simulation, name) for name in SERVERS})
    keys = {**simulated.context.keys, **public_keys(signers)}
    context = replace(simulated.context, aggregator=EVERYONE, keys=keys)
    room = _Room(parameters)
    for name in SERVERS:
        server = _Server(context, SERVERS, signers[name], room.terms, fewest=parameters.fewest)
        server.room = room
        room.servers.append(server)
    encoding = parameters.sum_encoding
    parties = [
        PartyRun(
            context,
            SERVERS,
            simulated.signers[name],
            room.terms,
            [int(element) for element in encoding.encode(vector, party=name)[0]],
            threshold=threshold_of(len(SERVERS)),
            fewest=parameters.fewest,
            randomness=simulated.sources[name],
        )
        for name, vector in zip(context.names, vectors, strict=True)
    ]
    network = MemoryNetwork(seed=seed_for_simulation or 0)
    for error in drive([*room.servers, *parties], network, SERVERS[0]).values():
        raise error
    opened = parties[0].result
    count = len(opened.included)
    total = np.array(opened.values[: encoding.length], np.int64) + count * encoding.lowest
    return encoding.average(total, count, noisy=parameters.noise is not None), count
