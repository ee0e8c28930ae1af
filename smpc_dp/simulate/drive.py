"""Drives machines over the in-memory network until each has a result or an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from smpc_dp.errors import ConfigError, Fault, PeerFault, SmpcError
from smpc_dp.protocols.contract import Envelope, Machine
from smpc_dp.transport.memory import Delivery, MemoryNetwork

Progress = Callable[[str, int], None]

MAX_THREADS = 256
# Deliveries a thread handles in one batch: enough to keep it busy, few enough for their answers to be small.
BATCH_PER_THREAD = 8


def drive(
    machines: Iterable[Machine],
    network: MemoryNetwork,
    hub: str,
    progress: Progress | None = None,
    *,
    threads: int = 1,
) -> dict[str, SmpcError]:
    """Run `machines` to their ends and return the errors of those that failed, by name.

    Deadlines: when nothing is under way, either a held-back message goes on or the deadline of a machine that
    still waits passes, the `hub`'s first; so every run ends. Errors that are not `SmpcError` are bugs and are
    raised.

    Args:
        hub: the name of the machine (the aggregator) whose deadlines are shorter than everybody else's.
        progress: called with the hub's step and the number it waits for, whenever the step changes.
        threads: 1 to 256. With more than one, deliveries to distinct machines other than the hub are handled at
            once and their answers sent in order; on a network that keeps the order, that changes nothing.

    Raises:
        ConfigError: `threads` is out of range.
    """
    if not 1 <= threads <= MAX_THREADS:
        raise ConfigError([Fault("threads", f"must be between 1 and {MAX_THREADS}, is {threads}")])
    run = _Drive({machine.name: machine for machine in machines}, network, hub, progress)
    if threads == 1:
        return run.run()
    with ThreadPoolExecutor(threads) as pool:
        return run.run(pool, threads * BATCH_PER_THREAD)


# What a machine did: the envelopes that it sent, or the error that it ended with.
_Done = Sequence[Envelope] | SmpcError


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
        self._next: Delivery | None = None

    def run(self, pool: ThreadPoolExecutor | None = None, most: int = 1) -> dict[str, SmpcError]:
        for machine in self._machines.values():
            self._send(machine, _attempt(machine.start))
        while True:
            batch = self._batch(most)
            if batch:
                self._deliver(batch, pool)
            elif not self._deadline():
                return self._errors

    def _batch(self, most: int) -> list[Delivery]:
        """Take up to `most` deliveries, to distinct machines; one to the hub stands alone."""
        batch: list[Delivery] = []
        receivers: set[str] = set()
        while len(batch) < most:
            delivery = self._next or self._network.take()
            self._next = None
            if delivery is None:
                break
            to_hub = delivery.receiver == self._hub.name
            if batch and (to_hub or delivery.receiver in receivers):
                self._next = delivery
                break
            batch.append(delivery)
            receivers.add(delivery.receiver)
            if to_hub:
                break
        return batch

    def _deliver(self, batch: list[Delivery], pool: ThreadPoolExecutor | None) -> None:
        live = [delivery for delivery in batch if not self._is_out(delivery.receiver)]
        done = map(self._handle, live) if pool is None or len(live) < 2 else pool.map(self._handle, live)
        for delivery, outcome in zip(live, done, strict=True):
            self._send(self._machines[delivery.receiver], outcome)
        if self._progress is not None and self._hub.step != self._step:
            self._step = self._hub.step
            self._progress(self._step, len(self._hub.waiting_for))

    def _handle(self, delivery: Delivery) -> _Done:
        machine, received = self._machines[delivery.receiver], delivery.envelope
        if not isinstance(received, PeerFault):
            return _attempt(lambda: machine.receive(received))
        if machine is self._hub:
            # What a channel does with a peer whose messages do not decode: it drops the link.
            return _attempt(lambda: machine.lost(delivery.sender))
        return received

    def _is_out(self, name: str) -> bool:
        return name in self._errors or self._network.is_dead(name)

    def _deadline(self) -> bool:
        """Let time pass; return False when nobody waits any more."""
        waiting = [
            machine
            for machine in self._machines.values()
            if not machine.finished and not self._is_out(machine.name)
        ]
        if self._network.choose(2) and self._network.release():
            return True
        if not waiting:
            return self._network.release()
        machine = self._hub if self._hub in waiting else waiting[self._network.choose(len(waiting))]
        self._send(machine, _attempt(machine.expire))
        return True

    def _send(self, machine: Machine, done: _Done) -> None:
        if isinstance(done, SmpcError):
            self._errors[machine.name] = done
            done = machine.farewell(done)
        for envelope in done:
            self._network.send(envelope)


def _attempt(action: Callable[[], Sequence[Envelope]]) -> _Done:
    try:
        return action()
    except SmpcError as error:
        return error
