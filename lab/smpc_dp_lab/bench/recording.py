"""A simulated run with measurements: CPU time of roles, bytes of messages, and the messages of two roles."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from smpc_dp.engine.driver import Driver
from smpc_dp.engine.events import Deadline, Event, Message
from smpc_dp.engine.phases.messages import MASKED, PARTY_STEPS
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.run import RunningRole
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.drive import drive
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import encode_envelope
from smpc_dp_lab.bench.roles import sum_roles

# A party that is killed before this message has dealt its shares: the most expensive step to drop out.
KILLED_BEFORE = 1 + PARTY_STEPS.index(MASKED)


class TimedDriver(Driver):
    """Driver that adds up its CPU time, and stores the events of its role."""

    def __init__(self, run: RunningRole, *, keep: bool) -> None:
        super().__init__(run)
        self._keep = keep
        self.seconds = 0.0
        # The messages that came in, and the deadlines that passed.
        self.heard: list[Event] = []

    def act(self, event: Event) -> Sequence[Envelope]:
        """Pass an event to the role, add its processor time to `seconds`, and store messages."""
        if self._keep and isinstance(event, Message | Deadline):
            self.heard.append(event)
        begun = time.process_time()
        try:
            return super().act(event)
        finally:
            self.seconds += time.process_time() - begun


class CountingNetwork(MemoryNetwork):
    """Network that counts the encoded bytes sent and received by each role, or by those in `only`."""

    def __init__(self, faults: Faults, only: Collection[str] | None = None) -> None:
        super().__init__(faults)
        self._only = only
        self.up: dict[str, int] = {}
        self.down: dict[str, int] = {}

    def send(self, envelope: Envelope) -> None:
        """Deliver a message, and count its bytes, unless its sender was killed."""
        before = self.messages
        super().send(envelope)
        if self.messages > before and self._counts(envelope):
            size = len(encode_envelope(envelope))
            self.up[envelope.sender] = self.up.get(envelope.sender, 0) + size
            self.down[envelope.receiver] = self.down.get(envelope.receiver, 0) + size

    def _counts(self, envelope: Envelope) -> bool:
        """Return whether a message's bytes are counted: its sender or receiver is among `only`."""
        return self._only is None or envelope.sender in self._only or envelope.receiver in self._only


@dataclass(frozen=True, slots=True)
class Recording:
    """Measurements of one run: processor seconds and bytes by party, events of two roles.

    CPU seconds and bytes by surviving party and of the aggregator, and the events of two roles.
    """

    client_seconds: dict[str, float]
    aggregator_seconds: float
    up: dict[str, int]
    down: dict[str, int]
    client: str
    client_heard: list[Event] = field(repr=False)
    aggregator_heard: list[Event] = field(repr=False)


def vectors(parameters: SumParameters, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return random vectors for benchmarks, shape (parties, length), in [lower, upper]."""
    encoding = parameters.encoding
    shape = (parameters.plan.parties, encoding.length)
    return np.random.default_rng(seed).uniform(float(encoding.lower), float(encoding.upper), shape)


def record(parameters: SecAggParameters, dropouts: int, seed: int) -> Recording:
    """Run the protocol with the last `dropouts` parties killed before their masked vector.

    Every role checks everything itself, as in a process of its own. The first party and the aggregator are
    recorded.

    Raises:
        SmpcError: the run failed.
    """
    roles, _ = sum_roles(
        parameters, list(vectors(parameters, seed)), seed_for_simulation=seed, remember=False
    )
    names = roles.context.names
    killed = names[len(names) - dropouts :]
    retained = {AGGREGATOR, names[0]}
    machines = {
        machine.name: TimedDriver(machine, keep=machine.name in retained) for machine in roles.machines
    }
    network = CountingNetwork(Faults(kill=dict.fromkeys(killed, KILLED_BEFORE)))
    errors = drive(roles.machines, network, AGGREGATOR, make=lambda machine: machines[machine.name])
    for error in errors.values():
        raise error
    survivors = roles.aggregator.result.survivors
    return Recording(
        client_seconds={name: machines[name].seconds for name in survivors},
        aggregator_seconds=machines[AGGREGATOR].seconds,
        up={name: network.up[name] for name in survivors},
        down={name: network.down[name] for name in survivors},
        client=names[0],
        client_heard=machines[names[0]].heard,
        aggregator_heard=machines[AGGREGATOR].heard,
    )


@dataclass(frozen=True, slots=True)
class Sampled:
    """Measurements of a few parties of one run without dropouts: their CPU seconds and bytes.

    `aggregator_seconds` are CPU seconds of the aggregator; `others_per_second` is how many of the others one
    second of CPU time simulates; in one process they check each signature once between them.
    """

    others_per_second: float
    aggregator_seconds: float
    seconds: list[float]
    up: list[int]
    down: list[int]


def record_sample(parameters: SumParameters, party_count: int, seed: int) -> Sampled:
    """Run the protocol and measure `party_count` of its parties, evenly spread, which check everything.

    Raises:
        SmpcError: the run failed.
    """
    parties = parameters.plan.parties
    indices = [number * parties // party_count for number in range(party_count)]
    begun = time.process_time()
    rows = list(vectors(parameters, seed))
    roles, _ = sum_roles(parameters, rows, seed_for_simulation=seed, alone=indices)
    sample = {roles.context.names[index]: TimedDriver(roles.parties[index], keep=False) for index in indices}
    network = CountingNetwork(Faults(), only=sample)
    aggregator = TimedDriver(roles.aggregator, keep=False)

    def make(machine: RunningRole) -> Driver:
        return aggregator if machine.name == AGGREGATOR else sample.get(machine.name) or Driver(machine)

    errors = drive(roles.machines, network, AGGREGATOR, make=make)
    for error in errors.values():
        raise error
    seconds = [machine.seconds for machine in sample.values()]
    spent = time.process_time() - begun - sum(seconds)
    return Sampled(
        others_per_second=(parties - party_count) / spent,
        aggregator_seconds=aggregator.seconds,
        seconds=seconds,
        up=[network.up[name] for name in sample],
        down=[network.down[name] for name in sample],
    )
