"""Seeded schedules of parties that flood, stall, replay, reconnect, send junk and crash, in virtual time.

The runtime's own code runs, over channels in memory. In half of the schedules each member whose states can be
saved ends after every event, and the next one is handled by a restored role. Each run is exact, or stops and
names a guilty party. No honest party is convicted, late or left out, and no run takes longer than its stated
time. `make test` runs a slice; `pytest --schedules 10000` runs so many per protocol.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.params import GopaParameters
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.encoding import RingVector, fixed_point_sum
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.result import Outcome
from smpc_dp.errors import PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.aggregator import RequestServer, log_folder
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.connection_pool import ConnectionPool
from smpc_dp.session.deadline import aggregator_run_seconds, party_run_seconds
from smpc_dp.session.events import ignore
from smpc_dp.session.exchange.params import plan_exchange
from smpc_dp.session.exchange.states import Relayed
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.session_file import Timeouts
from smpc_dp.wire.signing import Context
from tests.faults.crooks import ACTS, CrookedPipe
from tests.faults.restoring import restored_if_drawn
from tests.faults.virtual import WORK, Pipe, Stream, Verifier, connect, run_virtually

TIMEOUTS = Timeouts(connect=1.0, step=0.5, gather=1.5)
LENGTH = 2
BOUNDS: dict[str, object] = {"length": LENGTH, "lower": -5.0, "upper": 5.0}
NOISY: dict[str, object] = BOUNDS | {"epsilon": 1.0, "delta": 1e-6, "dropout": 0.3, "corrupt": 0.0}
SESSIONS: dict[str, tuple[str, dict[str, object]]] = {
    "secagg": ("secagg", BOUNDS | {"precision": 1e-3, "dropout": 0.35, "corrupt": 0.0}),
    "gopa": ("gopa", NOISY),
    "verifiable": ("gopa", NOISY | {"verifiable": True}),
    "exchange": ("secagg", BOUNDS | {"precision": 1e-3}),
}


@dataclass
class Reported:
    """What a schedule ended in, for all members."""

    crooks: dict[str, tuple[str, int]] = field(default_factory=dict)
    aggregator: Any = None
    seconds: float = 0.0
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    errors: dict[str, SmpcError] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)


class Scene:
    """The members of one session on this machine, loaded once for all schedules."""

    def __init__(self, folder: Path, protocol: str, parties: int) -> None:
        name, parameters = SESSIONS[protocol]
        self.names = tuple(f"p{number}" for number in range(1, parties + 1))
        self.path = create_local_session(
            folder / f"{protocol}{parties}", self.names, parameters, protocol=name, timeouts=TIMEOUTS
        )
        load = Membership.load
        self.aggregator = load(self.path, AGGREGATOR, role="aggregator")
        self.members = {party: load(self.path, party) for party in self.names}
        self.group: SumParameters | None = None
        if protocol == "exchange":
            self.group = plan_exchange(parties, length=LENGTH, l2_bound=8.0, precision=2**-20, missing=1)
        # What parties of verifiable runs prove is drawn elsewhere than `add_noise`, which tests silence.
        self.noisy = protocol == "verifiable"
        # Messages of a party: the most places where one can misbehave.
        self.messages = 2 if self.group is not None else len(self.aggregator.parameters.party_steps)
        self.board = folder / f"board{protocol}{parties}"

    def of_group(self, membership: Membership) -> Membership:
        return membership if self.group is None else membership.of_group(self.group, self.names)


def draw_crooks(chooser: random.Random, names: tuple[str, ...], indices: int) -> dict[str, tuple[str, int]]:
    """Draw who misbehaves, how, and at which of its messages."""
    many = chooser.choice([0, 1, 1, 1, 2, 2, 3])
    return {name: (chooser.choice(ACTS), chooser.randint(1, indices)) for name in chooser.sample(names, many)}


async def execute(scene: Scene, seed: int, vectors: NDArray[np.float64], reported: Reported) -> None:
    """Play one schedule to the end of all honest members."""
    chooser = random.Random(seed)
    loop = asyncio.get_running_loop()
    crooks = draw_crooks(chooser, scene.names, scene.messages)
    reported.crooks = crooks
    connections = ConnectionPool(scene.aggregator, ignore)
    server = RequestServer(
        scene.aggregator, connections, ignore, None, (), log_folder(scene.aggregator, scene.path, scene.board)
    )
    tasks: dict[str, asyncio.Task[None]] = {}

    async def take_part(name: str, pipe: Pipe) -> None:
        membership = scene.of_group(scene.members[name])
        line = AggregatorConnection(scene.members[name], ignore)
        line.connections.welcome(pipe)  # type: ignore[arg-type]
        encoding = membership.parameters.encoding
        ring_vector, _ = encoding.encode(vectors[scene.names.index(name)], party=name)

        async def charge(run_id: bytes, raised: object = None) -> None:
            return None

        began = loop.time()
        try:
            outcome, _ = await line.run(1, "sum", ring_vector, charge, membership)
            reported.outcomes[name] = outcome
        except SmpcError as error:
            reported.errors[name] = error
        reported.times[name] = loop.time() - began

    def enter(name: str, kind: type[Pipe]) -> None:
        latency = chooser.uniform(0.001, 0.02)
        near, far = connect(name, scene.aggregator.name, latency, kind)
        if isinstance(near, CrookedPipe):
            near.act, near.index = crooks[name]
            near.chooser = random.Random(f"{seed} {name}")
            near.context = scene.of_group(scene.members[name]).context(1, "sum")
            near.signer = scene.members[name].identity
            near.reconnect = lambda: enter(name, Pipe)
        connections.welcome(far)
        if (before := tasks.get(name)) is not None:
            before.cancel()
        tasks[name] = loop.create_task(take_part(name, near))

    for name in scene.names:
        enter(name, CrookedPipe if name in crooks else Pipe)
    reported.aggregator = await server.request(
        1, None if scene.group is None else scene.of_group(scene.aggregator)
    )
    reported.seconds = loop.time()
    steps = server._drive.run.role.most_steps(server._drive.run.member)
    stated = aggregator_run_seconds(steps, 0, TIMEOUTS, first=True)
    # What the aggregator computes: a message of each link after a deadline, and the end of each step.
    computing = (steps + 1) * (2 * len(scene.names) + 4) * WORK
    assert reported.seconds <= stated + computing + 0.1, (reported.seconds, stated)
    honest = [tasks[name] for name in scene.names if name not in crooks]
    if honest:
        await asyncio.wait(honest)
    stated = party_run_seconds(steps, TIMEOUTS)
    for name in reported.times.keys() - crooks.keys():
        assert reported.times[name] <= stated + computing, (name, reported.times[name], stated)
    connections.abort()


def check(scene: Scene, vectors: NDArray[np.float64], reported: Reported) -> str:
    """Check how a schedule ended, and return it in a word."""
    guilty, honest = set(reported.crooks), set(scene.names) - reported.crooks.keys()
    blamed = {
        error.culprit
        for error in [reported.aggregator, *reported.errors.values()]
        if isinstance(error, PeerFault)
    }
    assert blamed <= guilty, (blamed, guilty)  # No party, and not the aggregator, which is honest here.
    for name in honest:
        error = reported.errors.get(name)
        if isinstance(error, TimeoutFault):
            assert error.missing <= guilty, (name, error, guilty)
            assert error.missing
    if isinstance(reported.aggregator, SmpcError):
        if isinstance(reported.aggregator, TimeoutFault):
            assert reported.aggregator.missing, reported.aggregator
            assert reported.aggregator.missing <= guilty, (reported.aggregator, guilty)
        else:
            assert isinstance(reported.aggregator, PeerFault), reported.aggregator
        assert not honest & reported.outcomes.keys()
        return "stopped"
    assert isinstance(reported.aggregator, Outcome | Relayed)
    assert set(reported.aggregator.absent) <= guilty, (reported.aggregator, guilty)
    for name in honest:
        assert name in reported.outcomes, (name, reported.errors.get(name))
    outcomes = [reported.outcomes[name] for name in honest]
    for outcome in [*outcomes, *([reported.aggregator] if isinstance(reported.aggregator, Outcome) else [])]:
        rows = [vectors[scene.names.index(name)] for name in outcome.survivors]
        off = outcome.total - fixed_point_sum(outcome.encoding, rows)
        if outcome.noise is None or (not outcome.noise.residual_pairs and not scene.noisy):
            assert not off.any(), off
        else:
            # Ten standard deviations of the noise that stays, in some 10^5 coordinates: below 1e-17.
            assert (np.abs(off) * outcome.encoding.step < 10 * outcome.noise.total).all()
    return "exact"


@pytest.mark.parametrize("protocol", list(SESSIONS))
def test_every_schedule_is_exact_or_names_a_guilty_party_in_time(
    protocol: str, schedules: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silence(_parameters: GopaParameters, _ring_vector: RingVector, _randomness: Randomness) -> None:
        return

    monkeypatch.setattr(GopaParameters, "add_noise", silence)
    scenes = {parties: Scene(tmp_path, protocol, parties) for parties in (4, 5, 6)}
    ends: Counter[str] = Counter()
    restored = 0
    context_of = Membership.context
    if protocol == "verifiable":
        # Proofs take twenty times as long as all else.
        schedules = schedules[: 1 + len(schedules) // 6] if len(schedules) < 1000 else schedules
    for seed in schedules:
        verifier = Verifier()

        def context(
            self: Membership, request: int, operation: str = "", verifier: Verifier = verifier
        ) -> Context:
            return replace(context_of(self, request, operation), verify=verifier)

        monkeypatch.setattr(Membership, "context", context)
        scene = scenes[4 + seed % 3]
        monkeypatch.setattr(SystemRandomness, "bytes", partial(Stream.bytes, Stream(seed)))
        vectors = np.random.default_rng(seed).uniform(-5, 5, (len(scene.names), LENGTH))
        reported = Reported()
        try:
            with restored_if_drawn(seed, tmp_path / f"saved {seed}") as processes:
                run_virtually(partial(execute, scene, seed, vectors, reported))
            how = " restored" if processes else ""
            restored += sum(each.restored for each in processes)
            ends[check(scene, vectors, reported) + how] += 1
        except BaseException as error:
            error.add_note(
                f"{protocol}, schedule {seed}: {reported.crooks}; {reported.aggregator!r:.600}; "
                f"{reported.errors}"
            )
            raise
    print(f"{protocol}: {len(schedules)} schedules, {dict(ends)}, {restored} restored")
    assert restored
    # Neither "everything fails" nor "nothing ever fails" would be a test.
    exact = ends["exact"] + ends["exact restored"]
    assert max(min(1, len(schedules) - 2), len(schedules) // 10) < exact < len(schedules)
    assert protocol == "verifiable" or ends["exact restored"]
