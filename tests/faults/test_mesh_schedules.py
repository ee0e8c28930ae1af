"""The schedules of `test_fault_schedules` for protocols whose members have channels to several others."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.direct_states import PARTY
from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.capabilities.gopa.requests.mesh import Mesh
from smpc_dp.capabilities.servers.requests import computing_server as servers_aggregator
from smpc_dp.capabilities.servers.requests.child import Answer
from smpc_dp.capabilities.servers.requests.computing_server import ComputingServer
from smpc_dp.capabilities.servers.requests.connection import ServersConnection
from smpc_dp.capabilities.servers.secret_sharing.server import Job
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import RingVector, fixed_point_sum
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.deadline import direct_run_seconds, servers_run_seconds
from smpc_dp.session.events import ignore
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from tests.faults.crooks import ACTS, CrookedPipe
from tests.faults.restoring import restored_if_drawn
from tests.faults.test_fault_schedules import BOUNDS, NOISY, TIMEOUTS, Reported, draw_crooks
from tests.faults.virtual import WORK, Pipe, Stream, connect, run_virtually

SECONDS = 5.0


async def no_charge(run_id: bytes, raised: object = None) -> None:
    """Charge nothing."""


def pipe_kind(crooked: bool) -> type[Pipe]:
    return CrookedPipe if crooked else Pipe


def arm(
    pipe: Pipe,
    member: Membership,
    crooks: dict[str, tuple[str, int]],
    seed: str,
    again: Callable[[], None],
) -> None:
    """Tell a crooked pipe what it does."""
    if isinstance(pipe, CrookedPipe):
        pipe.act, pipe.index = crooks[member.name]
        pipe.chooser = random.Random(seed)
        pipe.context, pipe.signer, pipe.reconnect = member.context(1, "sum"), member.identity, again


async def execute_direct(
    members: dict[str, Membership], seed: int, vectors: NDArray[np.float64], reported: Reported
) -> None:
    chooser, loop = random.Random(seed), asyncio.get_running_loop()
    names = tuple(members)
    crooks = reported.crooks = draw_crooks(chooser, names, 6)
    parameters = members[names[0]].parameters
    meshes = {name: Mesh(members[name], ignore) for name in names}

    def join(one: str, two: str) -> None:
        if two in crooks and one not in crooks:
            one, two = two, one
        near, far = connect(one, two, chooser.uniform(0.001, 0.02), pipe_kind(one in crooks))
        arm(near, members[one], crooks, f"{seed} {one} {two}", lambda: join(one, two))
        meshes[one]._welcome(near)  # type: ignore[arg-type]
        meshes[two]._welcome(far)

    for one, two in itertools.combinations(names, 2):
        join(one, two)

    async def take_part(name: str) -> None:
        ring_vector, _ = parameters.encoding.encode(vectors[names.index(name)], party=name)
        try:
            reported.outcomes[name], _ = await meshes[name].run(1, "sum", ring_vector, no_charge)
        except SmpcError as error:
            reported.errors[name] = error
        reported.times[name] = loop.time()

    tasks = {name: loop.create_task(take_part(name)) for name in names}
    await asyncio.wait([tasks[name] for name in names if name not in crooks])
    # Seven phases; a message of each of the others after a deadline.
    assert PARTY.patience == (True, True, True, False, False, True, False)
    stated = direct_run_seconds(PARTY.patience, TIMEOUTS)
    for name in reported.times.keys() - crooks.keys():
        assert reported.times[name] <= stated + 7 * 4 * len(names) ** 2 * WORK, (name, reported.times[name])
    for mesh in meshes.values():
        mesh.connections.abort()


def check_blame(reported: Reported, members: Sequence[str], servers: Collection[str] = ()) -> set[str]:
    """Check that nobody is blamed but guilty members; return the honest ones.

    Parties wait for what all servers say: a guilty server makes them late at the others, who name them as
        late. Without a relay, what a guilty party sends late can reach some in time and others not. Those who
        disagree stop, and are missing to the others.
    """
    honest = set(members) - reported.crooks.keys()
    held_up = bool(reported.crooks.keys() & servers)
    for name, error in reported.errors.items():
        if isinstance(error, PeerFault):
            assert error.culprit in reported.crooks, (name, error)
        elif name in honest:
            assert isinstance(error, TimeoutFault), (name, error)
            # A party that was cut off by a guilty one leaves, and is missing to others.
            # What a guilty coordinator says is told as its word.
            claimed = any(f"said by {crook}" in str(error) for crook in reported.crooks)
            stopped = (
                bool(reported.crooks)
                and not servers
                and error.missing <= reported.errors.keys() | reported.crooks
            )
            assert held_up or claimed or stopped or error.missing & reported.crooks.keys(), (name, error)
    return honest


def test_every_schedule_without_a_relay(
    schedules: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silence(_parameters: GopaParameters, _ring_vector: RingVector, _randomness: Randomness) -> None:
        return

    monkeypatch.setattr(GopaParameters, "add_noise", silence)
    scenes = []
    for parties in (5, 6):
        names = [f"p{number}" for number in range(1, parties + 1)]
        path = create_local_session(
            tmp_path / str(parties), names, NOISY | {"topology": "direct"}, protocol="gopa", timeouts=TIMEOUTS
        )
        scenes.append({name: Membership.load(path, name) for name in names})
    ends: Counter[str] = Counter()
    restored = 0
    for seed in schedules:
        members = scenes[seed % 2]
        monkeypatch.setattr(SystemRandomness, "bytes", partial(Stream.bytes, Stream(seed)))
        vectors = np.random.default_rng(seed).uniform(-5, 5, (len(members), 2))
        reported = Reported()
        try:
            with restored_if_drawn(seed, tmp_path / f"saved {seed}") as processes:
                run_virtually(partial(execute_direct, members, seed, vectors, reported))
            how = " restored" if processes else ""
            restored += sum(each.restored for each in processes)
            honest = check_blame(reported, list(members))
            outcomes = [reported.outcomes[name] for name in sorted(honest & reported.outcomes.keys())]
            for outcome in outcomes:
                assert outcome.survivors == outcomes[0].survivors
                np.testing.assert_array_equal(outcome.total, outcomes[0].total)
                rows = [vectors[list(members).index(name)] for name in outcome.survivors]
                assert outcome.noise is not None
                off = outcome.total - fixed_point_sum(outcome.encoding, rows)
                if not outcome.noise.residual_pairs:
                    assert not off.any()
                assert (np.abs(off) * outcome.encoding.step < 10 * outcome.noise.total).all()
            ends[("exact" if outcomes else "stopped") + how] += 1
        except BaseException as error:
            error.add_note(f"direct, schedule {seed}: {reported.crooks}; {reported.errors}")
            raise
    print(f"direct: {len(schedules)} schedules, {dict(ends)}, {restored} restored")
    assert restored
    assert len(schedules) // 10 < ends["exact"] + ends["exact restored"] < len(schedules)


class Room:
    """In the place of mpyc: opens the sums when all servers have given their shares."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}

    def engine(self, servers: Sequence[str], own: str, _send: object, *, keep: bool = False) -> Room.Engine:  # noqa: ARG002
        return Room.Engine(self, servers, own)

    class Engine:
        def __init__(self, room: Room, servers: Sequence[str], own: str) -> None:
            self._room, self._servers, self._own = room, servers, own

        async def run(self, job: Job, _threshold: int, *, seconds: float, silence: float) -> Answer:  # noqa: ARG002
            jobs = self._room.jobs
            jobs[self._own] = job
            while len(jobs) < len(self._servers):
                await asyncio.sleep(0.05)
            first, second = (np.array(jobs[name].shares, dtype=object) for name in self._servers[:2])
            prime = job.terms.prime
            # Of degree 1, with the servers at 1, 2, 3: f(0) = 2 f(1) - f(2).
            sums = ((2 * first - second) % prime).sum(axis=0) % prime
            return Answer([str(value) for value in sums])

        def silent(self, _silence: float) -> list[str]:
            """Return the other servers whose job has not come."""
            return [name for name in self._servers if name != self._own and name not in self._room.jobs]

        def abandon(self) -> None:
            """End."""

        async def close(self) -> None:
            """End."""


async def execute_servers(
    parties: dict[str, Membership],
    servers: dict[str, Membership],
    seed: int,
    vectors: NDArray[np.float64],
    reported: Reported,
) -> None:
    chooser, loop = random.Random(seed), asyncio.get_running_loop()
    names = tuple(parties)
    crooks = reported.crooks = draw_crooks(chooser, names, 3)
    if chooser.random() < 0.2:
        crooks |= {chooser.choice(tuple(servers)): (chooser.choice(ACTS), chooser.randint(1, 9))}
    everyone = parties | servers
    aggregators = {name: ComputingServer(member, ignore) for name, member in servers.items()}
    lines = {name: ServersConnection(member, ignore) for name, member in parties.items()}
    connections = {name: computing_server._pool for name, computing_server in aggregators.items()} | {
        n: line.connections for n, line in lines.items()
    }

    def join(one: str, two: str) -> None:
        if two in crooks and one not in crooks:
            one, two = two, one
        near, far = connect(one, two, chooser.uniform(0.001, 0.02), pipe_kind(one in crooks))
        arm(near, everyone[one], crooks, f"{seed} {one} {two}", lambda: join(one, two))
        connections[one].welcome(near)  # type: ignore[arg-type]
        connections[two].welcome(far)

    for one, two in [*itertools.combinations(servers, 2), *itertools.product(parties, servers)]:
        join(one, two)

    async def serve(name: str) -> None:
        opened = await aggregators[name].request(1)
        if isinstance(opened, SmpcError):
            reported.errors[name] = opened
        reported.times[name] = loop.time()

    async def take_part(name: str) -> None:
        encoding = parties[name].parameters.sum_encoding
        ring_vector, _ = encoding.encode(vectors[names.index(name)], party=name)
        try:
            reported.outcomes[name], _ = await lines[name].run(1, "sum", ring_vector, no_charge)
        except SmpcError as error:
            reported.errors[name] = error

    tasks = {name: loop.create_task(serve(name)) for name in servers}
    tasks |= {name: loop.create_task(take_part(name)) for name in parties}
    await asyncio.wait([task for name, task in tasks.items() if name not in crooks])
    stated = servers_run_seconds(SECONDS, TIMEOUTS)
    for name in reported.times.keys() - crooks.keys():
        assert reported.times[name] <= stated + 7 * 4 * len(everyone) ** 2 * WORK, (
            name,
            reported.times[name],
        )
    for connection in connections.values():
        connection.abort()


def test_every_schedule_of_servers(schedules: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"p{number}" for number in range(1, 6)]
    parameters = BOUNDS | {"precision": 1e-3, "dropout": 0.4, "seconds": SECONDS}
    path = create_local_session(tmp_path, names, parameters, protocol="mpyc", timeouts=TIMEOUTS)
    parties = {name: Membership.load(path, name) for name in names}
    servers = {name: Membership.load(path, name, role="server") for name in parties["p1"].servers}
    ends: Counter[str] = Counter()
    for seed in schedules:
        monkeypatch.setattr(servers_aggregator, "Engine", Room().engine)
        monkeypatch.setattr(SystemRandomness, "bytes", partial(Stream.bytes, Stream(seed)))
        vectors = np.random.default_rng(seed).uniform(-5, 5, (len(parties), 2))
        reported = Reported()
        try:
            run_virtually(partial(execute_servers, parties, servers, seed, vectors, reported))
            honest = check_blame(reported, [*parties, *servers], servers)
            outcomes = [reported.outcomes[name] for name in sorted(honest & reported.outcomes.keys())]
            for outcome in outcomes:
                rows = [vectors[names.index(name)] for name in outcome.survivors]
                np.testing.assert_array_equal(outcome.total, fixed_point_sum(outcome.encoding, rows))
            ends["exact" if outcomes else "stopped"] += 1
        except BaseException as error:
            error.add_note(f"servers, schedule {seed}: {reported.crooks}; {reported.errors}")
            raise
    print(f"servers: {len(schedules)} schedules, {dict(ends)}")
    assert len(schedules) // 10 < ends["exact"] < len(schedules)
