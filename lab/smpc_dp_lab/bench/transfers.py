"""Oblivious transfer: the time of its setup, and the rate of correlated transfers between two parties.

In memory and over a channel alike, both parties work at the same time, each on a thread of its own, in one
process or in two, with several chunks on their way. Arrays are used again; choices are drawn beforehand, the
same for every chunk; setup is not counted. The clock runs from before the first chunk until the last check.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any, Protocol

import numpy as np

from smpc_dp.crypto import ot
from smpc_dp.crypto.ot import CONTEXT_BYTES, FIELD_SIZES, ROW_BYTES, Octets, Receiver, Rows, Sender
from smpc_dp.errors import LocalError
from smpc_dp_lab.bench.drivers import Trial
from smpc_dp_lab.bench.figures import Figure, Limit, Measure, Target, alternate, cost, rate

# With the block that hides, a chunk is 512 blocks of 128 rows: whole tiles of the core.
CHUNK = 511 * 128
DEPTH = 2
CHUNKS = 128
# A setup's messages, and a chunk's corrections, are below this.
MAX_MESSAGE = 1 << 20


# Multiplications in the group that 128 base transfers need: 256 of points that vary, 1 + 128 of the generator
# and 128 of the sender's point, by tables.
VARYING, FIXED = 256, 257
MOST_TIMES = 1.25
PEER = "malicious, random choices, one check for all"


class Channel(Protocol):
    """Interface of a channel for measurements; a sent buffer stays unchanged until it has arrived."""

    @property
    def peer(self) -> str: ...

    def send(self, buffers: Sequence[bytes | memoryview]) -> None: ...

    def receive(self, limit: int, ahead: int = 0) -> Octets: ...


class _Queues:
    """Channel between two threads of this process, which passes buffers on without a copy."""

    def __init__(
        self, peer: str, out: queue.SimpleQueue[Octets], into: queue.SimpleQueue[Octets], patience: float
    ) -> None:
        self.peer = peer
        self._out, self._into, self._patience = out, into, patience

    def send(self, buffers: Sequence[bytes | memoryview]) -> None:
        (buffer,) = buffers
        self._out.put(buffer)

    def receive(self, limit: int, ahead: int = 0) -> Octets:  # noqa: ARG002 (a channel's)
        try:
            return self._into.get(timeout=self._patience)
        except queue.Empty:
            raise LocalError(f"'{self.peer}' sent nothing for {self._patience} s") from None


class _Party:
    """Base of the measured sender and receiver of oblivious transfers over a channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.rows = np.empty((CHUNK, ROW_BYTES), np.uint8)
        self.processor_seconds = 0.0

    def run(self, chunks: int) -> float:
        """Do `chunks` chunks of transfers; return seconds; `rows` holds the last chunk afterwards."""
        began, busy = time.perf_counter(), time.thread_time()
        self._work(chunks, min(DEPTH, chunks))
        self.processor_seconds = time.thread_time() - busy
        return time.perf_counter() - began

    def _work(self, chunks: int, begun: int) -> None:
        raise NotImplementedError


class SendingParty(_Party):
    """Sender of oblivious transfers over a channel; the constructor runs the setup."""

    def __init__(self, channel: Channel, k: int) -> None:
        """Run the sender's setup of oblivious transfers over the channel, which blocks."""
        super().__init__(channel)
        self.sender = Sender(channel.peer, bytes(CONTEXT_BYTES), secrets.token_bytes(32), k)
        channel.send([self.sender.respond(bytes(channel.receive(MAX_MESSAGE)))])
        self.sender.finish_setup(bytes(channel.receive(MAX_MESSAGE)))

    def _work(self, chunks: int, begun: int) -> None:
        channel = self._channel
        for left in range(begun - 1, -1, -1):
            channel.send([self.sender.challenge(CHUNK, channel.receive(MAX_MESSAGE, left))])
        for chunk in range(chunks):
            # The receiver sends the next corrections right after a response.
            more = chunk + begun < chunks
            response = channel.receive(MAX_MESSAGE, int(more))
            self.sender.correlated(bytes(response), self.rows)
            if more:
                channel.send([self.sender.challenge(CHUNK, channel.receive(MAX_MESSAGE))])


class ReceivingParty(_Party):
    """Receiver of oblivious transfers over a channel; the constructor runs the setup."""

    def __init__(self, channel: Channel, k: int) -> None:
        """Run the receiver's setup of oblivious transfers over the channel, which blocks."""
        super().__init__(channel)
        self.receiver = Receiver(channel.peer, bytes(CONTEXT_BYTES), secrets.token_bytes(32), k)
        channel.send([self.receiver.first_message()])
        channel.send([self.receiver.finish_setup(bytes(channel.receive(MAX_MESSAGE)))])
        self.choices = secrets.token_bytes(CHUNK // 8)
        size = self.receiver.corrections_bytes(CHUNK)
        self._corrections = [np.empty(size, np.uint8) for _ in range(DEPTH)]

    def _work(self, chunks: int, begun: int) -> None:
        channel = self._channel
        for chunk in range(begun):
            self._begin(chunk)
        for chunk in range(chunks):
            challenge = channel.receive(MAX_MESSAGE)
            response, _ = self.receiver.correlated(bytes(challenge), self.rows)
            channel.send([response])
            if chunk + begun < chunks:
                # The chunk that was answered has arrived, so its buffer is free.
                self._begin(chunk)

    def _begin(self, chunk: int) -> None:
        corrections = self._corrections[chunk % DEPTH]
        self.receiver.extend_into(CHUNK, self.choices, corrections)
        self._channel.send([corrections.data])


class Pair:
    """Both parties in this process, each with a thread of its own while they work."""

    def __init__(self, k: int, patience: float = 60) -> None:
        """Run the setup; a party that waits longer than `patience` seconds gives up."""
        there: queue.SimpleQueue[Octets] = queue.SimpleQueue()
        back: queue.SimpleQueue[Octets] = queue.SimpleQueue()
        channels = _Queues("receiver", back, there, patience), _Queues("sender", there, back, patience)
        parties: list[SendingParty] = []
        other = threading.Thread(target=lambda: parties.append(SendingParty(channels[0], k)))
        other.start()
        self._receiving = ReceivingParty(channels[1], k)
        other.join()
        (self._sending,) = parties
        # Transfers a second of processor time, of the side that takes more: what both reach with a core each.
        self.by_processor: list[float] = []

    def rate(self, chunks: int = CHUNKS) -> float:
        """Return the correlated transfers per second of `chunks` chunks, until both parties are done.

        Raises LocalError when a party fails, or the rows of the last chunk do not fit.
        """
        other = threading.Thread(target=self._sending.run, args=(chunks,))
        began = time.perf_counter()
        other.start()
        self._receiving.run(chunks)
        other.join()
        seconds = time.perf_counter() - began
        self._check()
        busy = max(self._sending.processor_seconds, self._receiving.processor_seconds)
        self.by_processor.append(chunks * CHUNK / busy)
        return chunks * CHUNK / seconds

    def _check(self) -> None:
        delta = np.frombuffer(self._sending.sender.delta, np.uint8)
        bits = np.unpackbits(np.frombuffer(self._receiving.choices, np.uint8), bitorder="little")
        expected: Rows = self._sending.rows ^ (np.negative(bits)[:, None] & delta)
        if not np.array_equal(self._receiving.rows, expected):
            raise LocalError("the two sides' rows do not fit")


def over(k: int) -> str:
    """Return the name that a measuring process gives its rate over the channel."""
    return f"transfers, k = {k}"


def setup_figures(runs: int, peer: Trial) -> list[Figure]:
    """Measure a setup, and its base transfers beside the multiplications that they need.

    In processor time, of all threads. `peer` has had its turns.
    """
    seed = secrets.token_bytes(32)
    measures: dict[str, Measure] = {
        "setup": lambda: _seconds(_set_up),
        "base": lambda: _seconds(lambda: ot.base_transfers(seed)),
        "same": lambda: _seconds(lambda: ot.group_multiplications(seed, VARYING + FIXED, 0)),
        "made": lambda: _seconds(lambda: ot.group_multiplications(seed, VARYING, FIXED)),
    }
    alternate(1, measures)
    # A setup takes hundredths of a second: more runs cost little.
    taken = alternate(max(runs, 21), measures)
    how = "both sides in turn, processor time"
    # The same number of multiplications, which the target is about; and those really made, which are cheaper.
    of_same = f"{VARYING + FIXED} multiplications of a varying point"
    of_made = f"{VARYING} multiplications of a varying point, {FIXED} by a table"
    bound = f"{how}; bound by ristretto255, above the limit by maps to the group, decodings and hashing"
    beside = peer.peer("setup", "s", "transfers on P-256, processor time of both sides")
    name, least = "128 base transfers", Target("ratio_to_limit", 1 / MOST_TIMES)
    same, made = Limit.of(of_same, taken["same"]), Limit.of(of_made, taken["made"])
    return [
        cost("setup", "s", taken["setup"], f"128 base transfers and trees of k = 2, {how}", peer=beside),
        cost(name, "s", taken["base"], bound, limit=same, target=least),
        cost(f"{name}, of those made", "s", taken["base"], bound, limit=made),
    ]


def transfer_figures(
    take: Callable[[dict[str, Measure]], dict[str, list[float]]],
    between: Callable[[], Mapping[str, Any]],
    peers: Mapping[int, Trial],
) -> list[Figure]:
    """Measure transfers in memory, between processes and by the peer of each k, in turns.

    `take` takes all measurements, `between` one between processes. Raises LocalError as `Pair.rate`.
    """
    over_channel: list[Mapping[str, Any]] = []

    def channel_rates() -> None:
        over_channel.append(between())

    pairs = {str(k): Pair(k) for k in FIELD_SIZES}
    measures: dict[str, Measure] = {k: pair.rate for k, pair in pairs.items()}
    alternate(1, measures)
    for pair in pairs.values():
        pair.by_processor.clear()
    between()
    peer_trials: dict[str, Measure] = {f"peer {k}": trial for k, trial in peers.items()}
    taken = take(measures | {"channel": channel_rates} | peer_trials)
    how = f"SoftSpoken with its check, {CHUNKS} chunks of {CHUNK}, {DEPTH} on their way, sender and receiver"
    note = f"{how} on a thread each in one process, until both are done; bound by AES and the caches"
    memory = [
        rate(
            f"correlated transfers in memory, k = {k}",
            "OT/s",
            taken[str(k)],
            note,
            peer=peers[k].peer("random, memory", "OT/s", f"{PEER}, a thread each"),
            target=Target("ratio_to_peer", 1.0),
        )
        for k in FIELD_SIZES
    ]
    note = f"{how} as above, by the processor time of the side that takes more"
    memory += [
        rate(f"correlated transfers in memory, k = {k}, processor time", "OT/s", pair.by_processor, note)
        for k, pair in pairs.items()
    ]
    channel = median(run["channel"] for run in over_channel)
    floors = {
        k: 1 / (ROW_BYTES / k / channel + 1 / median(pair.by_processor))
        for k, pair in zip(FIELD_SIZES, pairs.values(), strict=True)
    }
    note = f"{how} in two processes, mutual TLS on loopback; bound by TLS, beside AES on the same cores"
    return (
        memory
        + [
            rate(
                f"correlated transfers over the channel, k = {k}",
                "OT/s",
                [run[over(k)] for run in over_channel],
                note,
                peer=peers[k].peer("random, loopback", "OT/s", f"{PEER}, channel not encrypted"),
                limit=Limit(f"channel, {ROW_BYTES // k} bytes a transfer", channel * k / ROW_BYTES),
                target=Target("ratio_to_limit", 0.5),
            )
            for k in FIELD_SIZES
        ]
        + [
            rate(
                f"correlated transfers over the channel, k = {k}, of the counted floor",
                "OT/s",
                [run[over(k)] for run in over_channel],
                f"{note}; the floor has the bytes over the channel and the transfers of one side, in turn",
                limit=Limit("counted floor: bytes over the channel, and transfers", floors[k]),
                target=Target("ratio_to_limit", 1 / MOST_TIMES),
            )
            for k in FIELD_SIZES
        ]
    )


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _set_up() -> None:
    context = bytes(CONTEXT_BYTES)
    sender = Sender("receiver", context, secrets.token_bytes(32))
    receiver = Receiver("sender", context, secrets.token_bytes(32))
    sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
