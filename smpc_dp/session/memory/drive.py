"""Drives roles over the in-memory network until each has a result or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from smpc_dp.engine.driver import Driver
from smpc_dp.engine.events import Deadline, Message, PeersLost, Start
from smpc_dp.engine.run import Run, RunningRole
from smpc_dp.errors import PeerFault, SmpcError
from smpc_dp.transport.memory import Delivery, MemoryNetwork
from smpc_dp.wire.envelope import Envelope

# Makes the driver of a role: for example one that measures.
MakeDriver = Callable[[RunningRole], Driver]


def drive(
    machines: Iterable[RunningRole],
    network: MemoryNetwork,
    aggregator: str,
    *,
    mesh: bool = False,
    make: MakeDriver = Driver,
) -> dict[str, SmpcError]:
    """Run roles against each other in memory to their ends; return the errors of those that failed, by name.

    Deadlines: when no message is under way, either a held-back message goes on or the deadline of a role that
    still waits passes, the `aggregator`'s first; so every run ends. Errors that are not `SmpcError` are bugs
    and are raised.

    Args:
        aggregator: the name of the role (the aggregator) whose deadlines are shorter than all others'.
        mesh: every role has a connection to every other, and the deadlines of those that are furthest behind
            pass first; every role is a `Run`.
        make: makes the driver of each role.
    """
    drivers = {machine.name: make(machine) for machine in machines}
    return _Drive(drivers, network, aggregator, mesh).run()


class _Drive:
    """State of a simulation that delivers messages between runs in memory, and lets deadlines pass."""

    def __init__(
        self,
        drivers: Mapping[str, Driver],
        network: MemoryNetwork,
        aggregator: str,
        mesh: bool,
    ) -> None:
        self._drivers = drivers
        self._network = network
        self._aggregator = drivers[aggregator]
        self._mesh = mesh
        self._errors: dict[str, SmpcError] = {}

    def run(self) -> dict[str, SmpcError]:
        """Deliver messages and pass deadlines until all runs have ended; return errors by name."""
        for driver in self._drivers.values():
            self._send(driver, driver.act(Start()))
        while True:
            delivery = self._network.take()
            if delivery is not None:
                self._deliver(delivery)
            elif not self._deadline():
                return self._errors

    def _deliver(self, delivery: Delivery) -> None:
        """Pass a message (if damaged: its sender's loss) to a run, unless it is out; queue the answers."""
        driver, received = self._drivers[delivery.receiver], delivery.envelope
        if self._is_out(driver):
            return
        if not isinstance(received, PeerFault):
            self._send(driver, driver.act(Message(received)))
        elif self._mesh or driver is self._aggregator:
            # As a channel does with a peer whose messages do not decode: drop the connection.
            self._send(driver, driver.act(PeersLost((delivery.sender,))))
        else:
            self._send(driver, driver.cancel(received))

    def _is_out(self, driver: Driver) -> bool:
        """Return whether a run has failed or was killed by the simulation."""
        return driver.error is not None or self._network.is_dead(driver.run.name)

    def _deadline(self) -> bool:
        """Put a held message under way, or let one run's deadline pass; return False if neither is left."""
        waiting = [
            driver
            for driver in self._drivers.values()
            if not driver.run.finished and not self._is_out(driver)
        ]
        if self._network.choose(2) and self._network.release():
            return True
        if not waiting:
            return self._network.release()
        driver = self._latest(waiting)
        self._send(driver, driver.act(Deadline()))
        return True

    def _latest(self, waiting: Sequence[Driver]) -> Driver:
        """Return a waiting run whose deadline is first: the aggregator's, or in a mesh one least advanced."""
        if self._aggregator in waiting and not self._mesh:
            return self._aggregator
        if self._mesh:
            # All have the same time for a step, and begin it at about the same time.
            states = [cast("Run[Any]", driver.run).state for driver in waiting]
            indices = [(state.patient, state.phase) for state in states]
            first = min(indices)
            waiting = [driver for driver, phase in zip(waiting, indices, strict=True) if phase == first]
        return waiting[self._network.choose(len(waiting))]

    def _send(self, driver: Driver, messages: Sequence[Envelope]) -> None:
        """Record the run's error, if it has failed, and put its messages on the simulated network."""
        if driver.error is not None:
            self._errors[driver.run.name] = driver.error
        for envelope in messages:
            self._network.send(envelope)
