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
    """Bounds on the bytes of messages in all channels of an endpoint: those above a frame, and others."""

    large: InflightBudget
    small: InflightBudget

    def of(self, size: int) -> InflightBudget:
        """Return the budget that a message of `size` bytes counts against."""
        return self.large if size > MAX_FRAME else self.small


@dataclass
class Message:
    """Message, and its share of a budget, once it has one, which it releases when it is used.

    `failure`: why its content could not be stored.
    """

    content: Buffer = b""
    failure: LocalError | None = None
    share: Share | None = None

    def release(self) -> None:
        """Release the message's share; a second call does nothing."""
        if self.share is not None:
            self.share.release()


class Inbox:
    """Short queue of messages between the task that reads a channel and its caller."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._failure: SmpcError | None = None
        self._dropping = False

    @property
    def has_room(self) -> bool:
        """Whether one more message is to be read."""
        return len(self._messages) < INBOX_MESSAGES and self._bytes < INBOX_BYTES

    async def room(self) -> None:
        """Wait until there is room."""
        while not self.has_room:
            self._taken.clear()
            await self._taken.wait()

    def put(self, message: Message) -> None:
        """Add a message."""
        if self._dropping:
            message.release()
            return
        self._messages.append(message)
        self._bytes += len(message.content)
        self._arrived.set()

    def fail(self, error: SmpcError) -> None:
        """Let `next` raise `error` after the queued messages; the first error counts."""
        self._failure = self._failure or error
        self._arrived.set()

    def drop(self) -> None:
        """Drop queued and further messages."""
        self._dropping = True
        while self._messages:
            self._take().release()

    async def next(self) -> Message:
        """Return the next message; raise the error of `fail` when none is left."""
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        return self._take()

    def _take(self) -> Message:
        """Remove the first message."""
        message = self._messages.popleft()
        self._bytes -= len(message.content)
        self._taken.set()
        return message
