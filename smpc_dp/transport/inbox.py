"""Messages that a channel has read before they were asked for, and the budgets that they count against."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from smpc_dp.decoding import Buffer
from smpc_dp.errors import LocalError, SmpcError
from smpc_dp.transport.framing import MAX_FRAME, InflightBudget, Share

# While fewer messages and bytes than this wait, one more is read, so that a ping behind them is seen.
INBOX_MESSAGES = 16
INBOX_BYTES = 1 << 16


@dataclass
class Budgets:
    """Memory budgets of an endpoint for received messages: one for large and one for small messages."""

    large: InflightBudget
    small: InflightBudget

    def of(self, size: int) -> InflightBudget:
        """Return the memory budget for a message of `size` bytes."""
        return self.large if size > MAX_FRAME else self.small


@dataclass
class Message:
    """Received message with its share of the memory budget, which is released after use.

    `failure`: why its content could not be stored.
    """

    content: Buffer = b""
    failure: LocalError | None = None
    share: Share | None = None

    def release(self) -> None:
        """Give the message's bytes back to the memory budget; a second call does nothing."""
        if self.share is not None:
            self.share.release()


class Inbox:
    """Short queue of received messages between a channel's reading task and its user."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._failure: SmpcError | None = None
        self._dropping = False

    @property
    def has_room(self) -> bool:
        """Whether one more message fits in the queue."""
        return len(self._messages) < INBOX_MESSAGES and self._bytes < INBOX_BYTES

    async def room(self) -> None:
        """Wait until one more message fits in the queue."""
        while not self.has_room:
            self._taken.clear()
            await self._taken.wait()

    def put(self, message: Message) -> None:
        """Append a received message to the queue, or discard it after `drop`."""
        if self._dropping:
            message.release()
            return
        self._messages.append(message)
        self._bytes += len(message.content)
        self._arrived.set()

    def fail(self, error: SmpcError) -> None:
        """Set the error that `next` raises after the queued messages; only the first is kept."""
        self._failure = self._failure or error
        self._arrived.set()

    def drop(self) -> None:
        """Discard all queued and future messages."""
        self._dropping = True
        while self._messages:
            self._take().release()

    async def next(self) -> Message:
        """Wait for and return the next message; after the last one, raise the error set by `fail`."""
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        return self._take()

    def _take(self) -> Message:
        """Remove and return the first message."""
        message = self._messages.popleft()
        self._bytes -= len(message.content)
        self._taken.set()
        return message
