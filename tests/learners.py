"""Learners' averages by roles in one process, and learners by sessions of which parties die."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from smpc_dp.capabilities.learn.averager import Rows
from smpc_dp.capabilities.learn.methods import PlannedAverages
from smpc_dp.capabilities.learn.simulation.averagers import SharesAverager
from smpc_dp.engine.result import Result
from smpc_dp.session.exchange.messages import HELLO, Hello
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import run_members, simulated_session
from smpc_dp.session.memory.one_process import OneProcess
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.session.session import Session
from smpc_dp.transport.memory import MemoryNetwork
from smpc_dp.transport.memory_connections import MemoryConnections
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from smpc_dp_lab.bench.roles import sum_roles


class ProtocolAverager(SharesAverager):
    """Averager that runs the roles of every group over an in-memory network, with all cryptography."""

    @staticmethod
    def average_group(
        averaging: PlannedAverages, vectors: Rows, request: int, seed: int | None
    ) -> tuple[Rows, int]:
        if averaging.on_shares is not None:
            return SharesAverager.average_group(averaging, vectors, request, seed)
        planned = averaging.plan(len(vectors))
        roles, _ = sum_roles(planned, list(vectors), request=request, seed_for_simulation=seed)
        for error in drive(roles.machines, MemoryNetwork(seed=seed or 0), AGGREGATOR).values():
            raise error
        # Of an exchange, only the parties have it.
        result = Result.of(roles.parties[0].result, "average")
        return np.asarray(result.value, dtype=np.float64), int(result.weight)


def learn_apart(
    given: Mapping[str, object], tables: Sequence[Any], seed: int, kill: Mapping[int, int] | None = None
) -> list[Any]:
    """Run the session of each party; return what it has learned, or its error.

    `kill`: by party, from 0, the request in which it dies, before its second message.
    """
    names = [f"party-{number:05d}" for number in range(1, len(tables) + 1)]
    dying = {names[party]: request for party, request in (kill or {}).items()}
    # Later than all their messages.
    kills = dict.fromkeys(dying, 1 << 30)

    def watch(envelope: Envelope, _size: int) -> None:
        dies = dying.get(envelope.sender) if envelope.step == HELLO else None
        if dies is not None and decode(envelope.body, Hello, envelope.sender).request == dies:
            kills[envelope.sender] = 1

    async def learn(session: Session) -> Any:
        return await session.learn(tables[names.index(session.party)])

    connections = MemoryConnections(kill=kills, on_message=watch)
    simulated = simulated_session(
        "learn", given, len(tables), seed_for_simulation=seed, shared=OneProcess(connections)
    )
    ended = run_simulation(lambda: run_members(simulated, learn))
    return list(ended.results.values())
