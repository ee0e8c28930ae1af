"""The trace of a simulated run: computing time of each role by step, bytes, and who is killed."""

from __future__ import annotations

import time
from collections.abc import Sequence

from smpc_dp.engine.driver import Driver
from smpc_dp.engine.events import Event
from smpc_dp.engine.run import RunningRole
from smpc_dp.report.trace import Trace
from smpc_dp.session.memory.drive import MakeDriver
from smpc_dp.transport.memory import Faults, MemoryNetwork
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import encode_envelope


class TracedDriver(Driver):
    """Driver that adds the CPU time of its role to a trace."""

    def __init__(self, run: RunningRole, trace: Trace) -> None:
        super().__init__(run)
        self._trace = trace

    def act(self, event: Event) -> Sequence[Envelope]:
        """Give the role an event, and time it."""
        step, begun = self.run.step, time.process_time()
        try:
            return super().act(event)
        finally:
            self._trace.spend(self.run.name, step, time.process_time() - begun)


class TracedNetwork(MemoryNetwork):
    """Network that adds the encoded bytes of messages, and parties that are killed, to a trace."""

    def __init__(self, faults: Faults, seed: int, trace: Trace) -> None:
        super().__init__(faults, seed)
        self._trace = trace

    def send(self, envelope: Envelope) -> None:
        """Send and count; note the sender's death."""
        before, dead = self.messages, len(self.killed)
        super().send(envelope)
        if self.messages > before:
            size = len(encode_envelope(envelope))
            self._trace.count(envelope.sender, envelope.receiver, size)
        if len(self.killed) > dead:
            text = f"{envelope.sender}: killed before it sent '{envelope.step}'"
            self._trace.lose(text, "the simulation", envelope.step)


def traced(trace: Trace | None, faults: Faults, seed: int) -> tuple[MemoryNetwork, MakeDriver]:
    """Return a network and what makes the drivers of roles: those that fill `trace`, where there is one."""
    if trace is None:
        return MemoryNetwork(faults, seed), Driver
    trace.unit = "seconds of computing in one process, waiting not included"
    return TracedNetwork(faults, seed, trace), lambda machine: TracedDriver(machine, trace)
