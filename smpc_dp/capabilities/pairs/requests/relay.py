"""Channels of an evaluation over a party's channel to the aggregator: to it, and through it to the partner.

Both are blocking channels to the thread that drives the role; all else happens in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence

from smpc_dp.capabilities.pairs.garbled.effects import RETAINED, Buffer
from smpc_dp.capabilities.pairs.garbled.relay import SealedConnection
from smpc_dp.capabilities.pairs.ustatistic.messages import WINDOW, Relay, RelayEnd
from smpc_dp.errors import Check, PeerFault, SmpcError, TimeoutFault
from smpc_dp.session.threads import run_in_loop

# Most queued messages of a role for the partner: more than the number at which two roles could block each
# other.
DEPTH = RETAINED + 2
# Frames taken before the partner is told, if no other frame is sent.
REPORT_AFTER = WINDOW // 2
# Seconds for sending the last message.
CLOSE_SECONDS = 2.0
# Reasons for the end of a pair before its evaluation ends.
HAS_LEFT = "it has left this pair, says the aggregator"
LOST = "a message of it was lost with a connection"

Give = Callable[[Relay | RelayEnd], Coroutine[None, None, None]]


class Tunnel:
    """Blocking channel of one pair's evaluation to the aggregator's role in it, over the session's link."""

    def __init__(
        self,
        aggregator: str,
        partner: str,
        loop: asyncio.AbstractEventLoop,
        send: Callable[[bytes], Coroutine[None, None, None]],
    ):
        self.peer, self.partner = aggregator, partner
        self._sent = self._received = 0
        self._loop = loop
        self._send = send
        self._inbox: queue.Queue[bytes | None] = queue.Queue()
        self._patience = 0.0

    @property
    def bytes_sent(self) -> int:
        """Number of bytes of messages sent to the aggregator's role so far."""
        return self._sent

    @property
    def bytes_received(self) -> int:
        """Number of bytes of messages received from the aggregator's role so far."""
        return self._received

    def wait(self, seconds: float) -> None:
        """Set how many seconds `receive` waits for each message."""
        self._patience = seconds

    def deliver(self, content: bytes | None) -> None:
        """Queue a message of the aggregator for `receive`; None says that no more will come."""
        self._inbox.put(content)

    def send(self, parts: Sequence[Buffer]) -> None:
        """Send one message to the aggregator's role, from the thread of the evaluation."""
        content = b"".join(parts)
        self._sent += len(content)
        run_in_loop(self._send(content), self._loop)

    def receive(self, limit: int, ahead: int = 0) -> Buffer:  # noqa: ARG002 - a channel's signature
        """Return the aggregator's next message of at most `limit` bytes, or raise TimeoutFault."""
        try:
            content = self._inbox.get(timeout=self._patience)
        except queue.Empty:
            # Its last message waits for a message of the partner.
            reason = f"nothing came from {self.peer} for {self._patience:.3g} s; who is silent is not known"
            raise TimeoutFault({self.peer, self.partner}, "pair", reason) from None
        if content is None:
            raise TimeoutFault({self.peer}, "pair", "the connection is lost")
        if len(content) > limit:
            raise TimeoutFault({self.peer}, "pair", "its message is too long")
        self._received += len(content)
        return content

    def close(self, parts: Sequence[Buffer] | None = None) -> None:
        """Send a last message if one is given; there is nothing to close."""
        if parts is not None:
            self.send(parts)


class RelayedChannel:
    """Blocking encrypted channel to the partner of a pair, whose frames the aggregator relays.

    Only the partner's first frame may come before `open` is called. Both queues are bounded: DEPTH messages
    of this role, and WINDOW frames of the partner.
    """

    def __init__(
        self,
        peer: str,
        aggregator: str,
        matching: int,
        connection: SealedConnection,
        give: Give,
        *,
        is_lossy: bool = False,
    ) -> None:
        """`is_lossy`: as of `PairWire`."""
        self.peer = peer
        self._is_lossy = is_lossy
        self._aggregator = aggregator
        self._matching = matching
        self._connection = connection
        self._give = give
        self._loop = asyncio.get_running_loop()
        self._inbound = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._patience = self._later = 0.0
        self._bytes_sent = self._bytes_received = 0
        # Counted in frames, as in `Relay`: sent by this party, taken by the partner, received, and taken
        # here.
        self._sent = self._used = self._come = self._taken = self._reported = 0
        self._met = False
        self._outbox: deque[bytes] = deque()
        self._room = threading.Semaphore(DEPTH)
        self._inbox: queue.Queue[bytes | SmpcError] = queue.Queue()
        self._error: SmpcError | None = None

    def __repr__(self) -> str:
        return f"RelayedChannel({self.peer!r}, matching {self._matching})"

    @property
    def bytes_sent(self) -> int:
        """Number of bytes of messages sent to the partner so far, before encryption."""
        return self._bytes_sent

    @property
    def bytes_received(self) -> int:
        """Number of bytes of messages received from the partner so far, after decryption."""
        return self._bytes_received

    # In the loop

    def open(self, first: float, later: float) -> None:
        """Start sending; set how long to wait for the partner's first message, and for later ones."""
        self._patience, self._later = first, later
        self._pump = self._loop.create_task(self._work())

    def deliver(self, message: Relay) -> None:
        """Check and queue a relayed frame of the partner; a wrong frame ends the channel."""
        if self._error is not None:
            return
        try:
            self._take(message)
        except SmpcError as error:
            self.fail(error)
        self._inbound.set()

    async def finish(self, failed: bool) -> None:
        """Send messages still queued, within a time limit, then stop; tell the partner if `failed`."""
        pump, self._pump = self._pump, None
        try:
            if pump is not None and self._error is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS if failed else self._later):
                        while self._outbox and self._error is None:
                            await asyncio.sleep(0.005)
        finally:
            if pump is not None:
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)
        if failed:
            with contextlib.suppress(SmpcError):
                await self._give(RelayEnd(self._matching))

    def _take(self, message: Relay) -> None:
        """Check a relayed frame and store its content; PeerFault or TimeoutFault if out of order."""
        if self._is_lossy and message.number > self._come:
            raise TimeoutFault({self.peer}, "pair", LOST)
        if not self._used <= message.taken <= self._sent or message.number != self._come:
            raise PeerFault(
                self._aggregator,
                f"lost, repeated or exchanged a frame of '{self.peer}'",
                Check.OUT_OF_SEQUENCE,
            )
        self._used = message.taken
        if not message.content:
            return
        self._come += 1
        if self._come - self._taken > WINDOW:
            raise PeerFault(
                self._aggregator,
                f"relayed more frames of '{self.peer}' than there is room for",
                Check.TOO_MANY,
            )
        if self._met:
            self._inbox.put(message.content)
        else:
            self._connection.meet(message.content)
            self._met, self._taken = True, 1

    async def _work(self) -> None:
        """Background task: send this party's key, then queued messages as the partner has room."""
        try:
            await self._frame(self._connection.first())
            while True:
                if self._met:
                    await self._send_waiting()
                await self._inbound.wait()
                self._inbound.clear()
        except SmpcError as error:
            self.fail(error)

    async def _send_waiting(self) -> None:
        """Send queued messages, in encrypted frames, while the partner has room."""
        while self._outbox:
            for frame in self._connection.seal(self._outbox[0]):
                while self._sent - self._used >= WINDOW:
                    await self._inbound.wait()
                    self._inbound.clear()
                    await self._notify_taken()
                await self._frame(frame)
            self._outbox.popleft()
            self._room.release()
        await self._notify_taken()

    async def _notify_taken(self) -> None:
        """Tell the partner how many of its frames are used, if REPORT_AFTER or more were not told."""
        if self._taken - self._reported >= REPORT_AFTER:
            await self._frame(b"")

    async def _frame(self, content: bytes) -> None:
        """Send one encrypted frame, or an empty one, with how many of the partner's frames are used."""
        number, self._reported = self._sent, self._taken
        self._sent += bool(content)
        # Not cut off when this channel ends: half a message would end the session.
        await asyncio.shield(self._give(Relay(self._matching, number, self._reported, content)))

    def fail(self, error: SmpcError) -> None:
        """End the channel: calls raise the first such error, after messages that have come are used."""
        if self._error is None:
            self._error = error
            self._inbox.put(error)
            self._room.release(DEPTH)

    # In the thread of the role

    def send(self, parts: Sequence[Buffer]) -> None:
        """Queue one message for the partner; blocks while the queue is full, raises if the channel ended."""
        content = b"".join(parts)
        if not self._room.acquire(timeout=self._patience):
            reason = f"nothing was read through {self._aggregator} for {self._patience:.3g} s"
            raise self._silence("send", reason)
        if self._error is not None:
            raise self._error
        self._bytes_sent += len(content)
        self._outbox.append(content)
        self._loop.call_soon_threadsafe(self._inbound.set)

    def receive(self, limit: int, ahead: int = 0) -> Buffer:  # noqa: ARG002 - a channel's signature
        """Wait for and return the partner's next message; raise an error if too long or none comes.

        Raises VerificationError for a frame that is not the partner's next one, TimeoutFault when none comes.
        """
        chunks: list[bytes] = []
        size, last = 0, False
        while not last:
            chunk, last = self._connection.open(self._next())
            size += len(chunk)
            if size > limit:
                raise PeerFault(self.peer, f"sent a message of more than {limit} bytes", Check.TOO_LONG)
            chunks.append(chunk)
            self._loop.call_soon_threadsafe(self._take_one)
        self._patience = self._later
        self._bytes_received += size
        return b"".join(chunks)

    def close(self, parts: Sequence[Buffer]) -> None:
        """Queue the last message to the partner; drop it if the queue is full or the channel has ended."""
        if self._error is None and self._room.acquire(blocking=False):
            self._outbox.append(b"".join(parts))
            self._loop.call_soon_threadsafe(self._inbound.set)

    def _take_one(self) -> None:
        """Count a frame of the partner as used, and wake the task that reports the count."""
        self._taken += 1
        self._inbound.set()

    def _silence(self, step: str, reason: str) -> TimeoutFault:
        """Return the timeout error that names both partner and aggregator, as either may be silent."""
        who = {self.peer, self._aggregator}
        return TimeoutFault(who, step, f"{reason}; who is silent is not known")

    def _next(self) -> bytes:
        """Return the partner's next frame, still encrypted; raise the error that has ended the channel."""
        try:
            frame = self._inbox.get(timeout=self._patience)
        except queue.Empty:
            reason = f"nothing came through {self._aggregator} for {self._patience:.3g} s"
            raise self._silence("pair", reason) from None
        if isinstance(frame, SmpcError):
            self._inbox.put(frame)
            raise frame
        return frame
