"""Drives machines over the in-memory network until each has a result or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from smpc_dp.errors import PeerFault, SmpcError
from smpc_dp.protocols.engine.events import Cancellation, Deadline, Event, Message, PeersLost, Start
from smpc_dp.protocols.engine.run import Machine, Run
from smpc_dp.transport.memory import Delivery, MemoryNetwork

Progress = Callable[[str, int], None]


def drive(
    machines: Iterable[Machine],
    network: MemoryNetwork,
    hub: str,
    progress: Progress | None = None,
    *,
    mesh: bool = False,
) -> dict[str, SmpcError]:
    """Run `machines` to their ends and return the errors of those that failed, by name.

    Deadlines: when nothing is under way, either a held-back message goes on or the deadline of a machine that
    still waits passes, the `hub`'s first; so every run ends. Errors that are not `SmpcError` are bugs and are
    raised.

    Args:
        hub: the name of the machine (the aggregator) whose deadlines are shorter than everybody else's.
        progress: called with the hub's step and the number it waits for, whenever the step changes.
        mesh: everyone has a link to everyone, and the deadlines of those who are furthest behind pass first;
            every machine is a `Run`.
    """
    kind = _MeshDrive if mesh else _Drive
    return kind({machine.name: machine for machine in machines}, network, hub, progress).run()


class _Drive:
    def __init__(
        self, machines: Mapping[str, Machine], network: MemoryNetwork, hub: str, progress: Progress | None
    ) -> None:
        self._machines = machines
        self._network = network
        self._hub = machines[hub]
        self._progress = progress
        self._step = ""
        self._errors: dict[str, SmpcError] = {}

    def run(self) -> dict[str, SmpcError]:
        for machine in self._machines.values():
            self._act(machine, Start())
        while True:
            delivery = self._network.take()
            if delivery is not None:
                self._deliver(delivery)
            elif not self._deadline():
                return self._errors

    def _deliver(self, delivery: Delivery) -> None:
        machine = self._machines[delivery.receiver]
        if self._is_out(machine):
            return
        received = delivery.envelope
        if not isinstance(received, PeerFault):
            self._act(machine, Message(received))
        elif self._has_link(machine):
            # What a channel does with a peer whose messages do not decode: it drops the link.
            self._act(machine, PeersLost((delivery.sender,)))
        else:
            self._fail(machine, received)
        if self._progress is not None and self._hub.step != self._step:
            self._step = self._hub.step
            self._progress(self._step, len(self._hub.waiting_for))

    def _has_link(self, machine: Machine) -> bool:
        """Tell whether a machine outlives the link to the sender of what it is given."""
        return machine is self._hub

    def _is_out(self, machine: Machine) -> bool:
        return machine.name in self._errors or self._network.is_dead(machine.name)

    def _deadline(self) -> bool:
        """Let time pass; return False when nobody waits any more."""
        waiting = [
            machine
            for machine in self._machines.values()
            if not machine.finished and not self._is_out(machine)
        ]
        if self._network.choose(2) and self._network.release():
            return True
        if not waiting:
            return self._network.release()
        machine = self._latest(waiting)
        self._act(machine, Deadline())
        return True

    def _latest(self, waiting: Sequence[Machine]) -> Machine:
        """Return whose deadline passes."""
        return self._hub if self._hub in waiting else waiting[self._network.choose(len(waiting))]

    def _act(self, machine: Machine, event: Event) -> None:
        try:
            sent = machine.handle(event)
        except SmpcError as error:
            self._fail(machine, error)
            return
        for envelope in sent:
            self._network.send(envelope)

    def _fail(self, machine: Machine, error: SmpcError) -> None:
        self._errors[machine.name] = error
        for envelope in machine.handle(Cancellation(error)):
            self._network.send(envelope)


class _MeshDrive(_Drive):
    def _has_link(self, machine: Machine) -> bool:  # noqa: ARG002
        return True

    def _latest(self, waiting: Sequence[Machine]) -> Machine:
        # All have the same time for a step, and begin it at about the same time.
        states = [run.state for run in cast("Sequence[Run[Any]]", waiting)]
        first = min((state.patient, state.place) for state in states)
        latest = [
            machine
            for machine, state in zip(waiting, states, strict=True)
            if (state.patient, state.place) == first
        ]
        return latest[self._network.choose(len(latest))]
