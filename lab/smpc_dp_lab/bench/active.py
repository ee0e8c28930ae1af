"""`smpc-dp bench active`: evaluations that are secure against both sides, beside semi-honest ones.

Both roles run in one process, in turns, without channel: processor time is of both together, and bytes are
those of all messages. Semi-honest and active evaluations of one size are measured in turns. Rounds are the
longest chain of messages in which each is sent after the one before has come: half a round trip each.
The peers are emp-ag2pc 0.3.0 and its development branch (`bench.drivers`), in two processes: their processor
time includes that of the connection. Neither is secure against both sides.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from smpc_dp.capabilities.pairs.active.evaluator import ActiveEvaluatorRole
from smpc_dp.capabilities.pairs.active.garbler import ActiveGarblerRole
from smpc_dp.capabilities.pairs.active.messages import ACTIVE
from smpc_dp.capabilities.pairs.active.plan import ActivePlan
from smpc_dp.capabilities.pairs.active.traffic import Traffic
from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, pack
from smpc_dp.capabilities.pairs.garbled.effects import Effects, Send
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole
from smpc_dp.capabilities.pairs.garbled.messages import PAIRWISE
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import Plan, Rows
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.wire.signing import Context
from smpc_dp_lab.bench.drivers import DriverPeers, Trial
from smpc_dp_lab.bench.figures import (
    Figure,
    Limit,
    Peer,
    Progress,
    Report,
    Steps,
    Target,
    alternate,
    cost,
    rate,
    refuse,
    versions,
    within,
)

PAIR, LARGE = "kendall_tau32_laplace", "mul32"
# Places in PAIR of the coins, which are each one's input in a semi-honest evaluation.
COINS = [2, 5]
EVALUATIONS, ANDS = 20_000, 1_000_000
# Fresh pairs of each round: a single one takes too little time for a clock.
FRESH = 5
# Of the targets: a fresh pair, an evaluation of a batch, and ANDs of a large batch.
FRESH_TIMES, FRESH_BYTES = 4.0, 160_000
BATCH_TIMES, BATCH_BYTES = 18.0, 6.0
RATE = 1_000_000
ROUND_TRIP = 0.05
NAMES = ("garbler", "evaluator")
# Each driver of a peer, and how its work and its figures differ from ours.
PEERS = {
    "emp_ag2pc": (
        "its transfers semi-honest, from 3,100 ANDs on repeated setups and a scaled share (a setup for each "
        "filled-up piece, the needed ANDs' share of the figure), in two processes, channel not encrypted"
    ),
    "emp_ag2pc_dev": "neither masked values nor inputs protected, in two processes, channel not encrypted",
}
# Evaluations that a driver makes, each with a new setup, of which the last counts.
PEER_TIMES = {"fresh": 4, "batch": 1, "large": 1}

_SPENT = "processor time of both sides together, in one process without channel"
_SENT = "bytes of all messages of both sides"
_ROUNDS = "messages of the longest chain in which each waits for the one before"


# By sender and receiver, of each message on its way, how many came one after the other, itself included.
Stamps = defaultdict[tuple[str, str], deque[int]]


class _Counted:
    """A role that counts rounds; `depth` is the longest chain of messages that ends with one that came."""

    def __init__(self, role: Participant, stamps: Stamps) -> None:
        self.name, self.depth = role.name, 0
        self.farewell = role.farewell
        self._role, self._stamps = role, stamps

    def run(self) -> Effects[Evaluated]:
        """Run the wrapped role; count the rounds of messages that it sends and receives."""
        effects = self._role.run()
        effect = next(effects)
        while True:
            answer = yield effect
            if isinstance(effect, Send):
                self._stamps[self.name, effect.to].append(self.depth + 1)
            else:
                self.depth = max(self.depth, self._stamps[effect.sender, self.name].popleft())
            try:
                effect = effects.send(answer)
            except StopIteration as stop:
                evaluated: Evaluated = stop.value
                return evaluated


def counted(roles: Mapping[str, Participant]) -> Traffic:
    """Run roles to their ends; return bytes and rounds of all messages. Raises the error of a role."""
    stamps: Stamps = defaultdict(deque)
    watched = {name: _Counted(role, stamps) for name, role in roles.items()}
    sent = 0

    def count(_sender: str, _to: str, data: bytes) -> list[bytes]:
        nonlocal sent
        sent += len(data)
        return [data]

    for end in evaluate_in_memory(watched, count).values():
        if isinstance(end, SmpcError):
            raise end
    return Traffic(sent, max(role.depth for role in watched.values()))


@dataclass(slots=True)
class _Measured:
    """Evaluations of one circuit in one security; lists have the figure of each measurement."""

    circuit: Circuit
    instances: int
    active: bool
    coins: Sequence[int] = ()
    count: int = 1
    seconds: list[float] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """Measure `count` fresh pairs; return the processor time of one."""
        spent = 0.0
        for _ in range(self.count):
            roles = self._roles()
            began = time.process_time()
            traffic = counted(roles)
            spent += time.process_time() - began
        self.seconds.append(spent / self.count)
        self.sizes.append(traffic.sent)
        self.rounds.append(traffic.rounds)
        return spent / self.count

    def clocks(self) -> list[float]:
        """Return half of the processor time of both sides, and the time that messages are on their way."""
        return [
            spent / 2 + rounds * ROUND_TRIP / 2
            for spent, rounds in zip(self.seconds, self.rounds, strict=True)
        ]

    def _roles(self) -> dict[str, Participant]:
        """Return both roles, with random inputs of zeros: the time does not depend on them."""
        fields: dict[str, Any] = {"circuit": "", "garbler": NAMES[0], "evaluator": NAMES[1]}
        if len(self.circuit.inputs) > len(NAMES):
            half = len(self.circuit.inputs) // 2
            fields["evaluator_inputs"] = list(range(half, len(self.circuit.inputs)))
        protocol, plan = PAIRWISE, Plan
        if self.active:
            protocol, plan = ACTIVE, ActivePlan
            fields |= {"mode": "unique", "random_inputs": list(self.coins)}
        planned = plan(self.circuit, PairwiseParameters(**fields, instances=self.instances))
        signers = {name: Identity.generate(name) for name in NAMES}
        keys = {name: signer.public_key for name, signer in signers.items()}
        context = Context(protocol, 1, bytes(32), 1, NAMES, "", keys)
        kinds: Sequence[Callable[..., Participant]] = (GarblerRole, EvaluatorRole)
        if self.active:
            kinds = (ActiveGarblerRole, ActiveEvaluatorRole)
        return {
            name: kind(context, signers[name], planned, self._zeros(planned, values), SystemRandomness())
            for name, kind, values in zip(
                NAMES, kinds, (planned.garbler_values, planned.evaluator_values), strict=True
            )
        }

    def _zeros(self, planned: Plan, values: Sequence[int]) -> list[Rows]:
        """Return, packed, the input value 0 for each of these inputs of a side, for all instances."""
        none = [0] * self.instances
        return [pack(none, self.circuit.inputs[index]) for index in planned.given(values)]

    @property
    def ands(self) -> int:
        """Number of AND gates of all instances together."""
        return self.circuit.and_count * self.instances

    def formula(self) -> float:
        """Return the bytes an AND gate by the formula of the specification, with B of the first group."""
        plan = ActivePlan(
            self.circuit,
            PairwiseParameters("", *NAMES, instances=self.instances, mode="unique"),
        )
        size, k = plan.groups(next(plan.blocks()))[0].size, plan.k
        return size * (96 / k + 32.25) + 0.25 * (size - 1) + 32 / k + 32.75


@dataclass(frozen=True, slots=True)
class _Peers:
    """The peers' evaluations of one size, by driver."""

    trials: Mapping[str, Trial]

    def spent(self, scale: Callable[[float], float]) -> list[Peer | None]:
        """Return each peer by `scale` of the processor time of both sides in seconds."""
        return [self._both(driver, scale) for driver in self.trials]

    def sent(self, scale: Callable[[float], float]) -> list[Peer | None]:
        """Return each peer by `scale` of the bytes of both sides."""
        return [trial.peer("last sent", "B", PEERS[name], scale) for name, trial in self.trials.items()]

    def _both(self, driver: str, scale: Callable[[float], float]) -> Peer | None:
        """Return a peer by the medians of its sides, added up; None without a driver."""
        sides = [self.trials[driver].peer(f"last {name}", "s", PEERS[driver]) for name in NAMES]
        given = [peer for peer in sides if peer is not None]
        return replace(given[0], median=scale(sum(peer.median for peer in given))) if given else None


def run_active_bench(
    runs: int = 3,
    progress: Progress | None = None,
    emp: str | None = None,
    *,
    evaluations: int = EVALUATIONS,
    ands: int = ANDS,
) -> Report:
    """Measure a fresh pair, a batch of `evaluations`, and a large batch of about `ands` AND gates.

    `emp` is a folder with the drivers of emp-ag2pc; None for no peers.

    Raises ConfigError for a number out of range, LocalError when a peer's driver fails.
    """
    refuse(
        within("runs", runs, 1),
        within("evaluations", evaluations, 1, 1 << 20),
        within("ands", ands, 1_000, 1 << 26),
    )
    pair, large = find(PAIR).build(), find(LARGE).build()
    sizes = {
        "fresh": (pair, 1, COINS, FRESH),
        "batch": (pair, evaluations, COINS, 1),
        "large": (large, max(1, ands // large.and_count), (), 1),
    }
    measured = {
        (name, active): _Measured(circuit, instances, active, coins, count)
        for name, (circuit, instances, coins, count) in sizes.items()
        for active in (False, True)
    }
    drivers = DriverPeers(emp, list(PEERS))
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        peers = {
            name: _Peers(
                {driver: drivers.trial(driver, path, instances, PEER_TIMES[name]) for driver in PEERS}
            )
            for name, (circuit, instances, *_) in sizes.items()
            for path in [_write(Path(folder) / f"{name}.txt", circuit)]
        }
        measures: dict[str, Callable[[], float | None]] = {
            f"{name} {active}": one for (name, active), one in measured.items()
        }
        for name, of in peers.items():
            measures |= {f"{name} {driver}": trial for driver, trial in of.trials.items()}
        alternate(runs, measures, Steps(progress, "rounds", runs))
    figures = [
        *_fresh(measured["fresh", False], measured["fresh", True], peers["fresh"]),
        *_batch(measured["batch", False], measured["batch", True], peers["batch"]),
        *_large(measured["large", False], measured["large", True], peers["large"]),
    ]
    known = versions("numpy", **drivers.versions)
    return Report("active", figures, known, {"evaluations": evaluations, "ands": ands})


def _write(path: Path, circuit: Circuit) -> str:
    """Write a circuit in Bristol Fashion; return the path."""
    path.write_bytes(format_bristol(circuit))
    return str(path)


def _beside_development(figure: Figure, peer: Peer | None) -> Figure:
    """Return a figure beside the development branch, which is not measured against a limit."""
    name = f"{figure.name}, beside the development branch"
    return replace(figure, name=name, peer=peer, limit=None, target=None)


def _with_peers(figure: Figure, peers: Sequence[Peer | None]) -> list[Figure]:
    """Return a figure beside emp-ag2pc 0.3.0, and again beside its development branch."""
    released, development = peers
    return [replace(figure, peer=released), _beside_development(figure, development)]


def _fresh(plain: _Measured, active: _Measured, peers: _Peers) -> list[Figure]:
    """Return the figures of a fresh pair."""
    semi, bound = Limit.of("semi-honest", plain.seconds), Limit("bound", FRESH_BYTES)
    name = f"fresh pair, {plain.ands} ANDs"
    spent = cost(name, "s", active.seconds, _SPENT, limit=semi, target=_times(FRESH_TIMES))
    sent = cost(f"{name}, sent", "B", active.sizes, _SENT, limit=bound, target=_times(1))
    return [
        *_with_peers(spent, peers.spent(lambda value: value)),
        *_with_peers(sent, peers.sent(lambda value: value)),
        cost(f"{name}, semi-honest, sent", "B", plain.sizes, _SENT),
        *_waits(name, active),
    ]


def _batch(plain: _Measured, active: _Measured, peers: _Peers) -> list[Figure]:
    """Return the figures of a batch of evaluations between two parties, an evaluation's share of each."""
    count = plain.instances
    seconds, sizes = ([value / count for value in values] for values in (active.seconds, active.sizes))
    semi = Limit.of("semi-honest", [value / count for value in plain.seconds])
    sent = Limit.of("semi-honest", [value / count for value in plain.sizes])
    name = f"an evaluation of {count:,}"
    spent = cost(name, "s", seconds, _SPENT, limit=semi, target=_times(BATCH_TIMES))
    bytes_sent = cost(f"{name}, sent", "B", sizes, _SENT, limit=sent, target=_times(BATCH_BYTES))
    return [
        *_with_peers(spent, peers.spent(lambda value: value / count)),
        *_with_peers(bytes_sent, peers.sent(lambda value: value / count)),
        *_waits(f"{count:,} evaluations", active),
    ]


def _large(plain: _Measured, active: _Measured, peers: _Peers) -> list[Figure]:
    """Return the figures of a large batch."""
    note = (
        "AND gates by half of the processor time of both sides: the rate of two cores of which none waits "
        "for the other"
    )
    name = f"{plain.ands:,} ANDs"
    rates = [2 * active.ands / seconds for seconds in active.seconds]
    formula = Limit("formula", active.formula())
    reached = rate(name, "AND/s", rates, note, limit=Limit("bound", RATE), target=_times(1))
    sizes = [size / active.ands for size in active.sizes]
    return [
        *_with_peers(reached, peers.spent(lambda value: 2 * active.ands / value)),
        rate(f"{name}, semi-honest", "AND/s", [2 * plain.ands / seconds for seconds in plain.seconds], note),
        *_with_peers(
            cost(f"{name}, sent", "B", sizes, _SENT + ", an AND", limit=formula),
            peers.sent(lambda value: value / active.ands),
        ),
        *_waits(name, active),
    ]


def _waits(name: str, active: _Measured) -> list[Figure]:
    """Return the rounds of an evaluation, and its time where a round trip takes ROUND_TRIP."""
    trip = f"{1000 * ROUND_TRIP:.0f} ms"
    note = "half of the processor time of both sides, and half a round trip for each round"
    return [
        cost(f"{name}, rounds", "half round trips", active.rounds, _ROUNDS),
        cost(f"{name}, round trip of {trip}", "s", active.clocks(), note),
    ]


def _times(most: float) -> Target:
    """Return a target: the figure is at most `most` times its limit."""
    return Target("ratio_to_limit", 1 / most)
