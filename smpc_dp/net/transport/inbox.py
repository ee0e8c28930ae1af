"""Messages that a channel has read and nobody has asked for yet, and the budgets that they count against."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from smpc_dp.errors import SmpcError
from smpc_dp.net.transport.framing import MAX_FRAME, InflightBudget

# While fewer messages and bytes than this wait, one more is read, so that a ping behind them is seen.
INBOX_MESSAGES = 16
INBOX_BYTES = 1 << 16


@dataclass
class Budgets:
    """Bounds on the bytes of messages that all channels of an endpoint hold: above a frame, and others."""

    large: InflightBudget
    small: InflightBudget

    def of(self, size: int) -> InflightBudget:
        """Return the budget that a message of `size` bytes counts against."""
        return self.large if size > MAX_FRAME else self.small


@dataclass
class Message:
    """A message, and what is to be given back to which budget once it is used."""

    content: bytes
    budget: InflightBudget
    amount: int

    def release(self) -> None:
        """Give back what the message holds; a second time there is nothing."""
        amount, self.amount = self.amount, 0
        self.budget.give_back(amount)


class Inbox:
    """A short queue of messages between the task that reads a channel and the one that asks for them."""

    def __init__(self) -> None:
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()
        self._failure: SmpcError | None = None
        self._dropping = False

    @property
    def has_room(self) -> bool:
        """True while one more message is to be read."""
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
        """Let `next` raise `error` once the messages are used up; the first error counts."""
        self._failure = self._failure or error
        self._arrived.set()

    def drop(self) -> None:
        """Drop what is there and what comes."""
        self._dropping = True
        while self._messages:
            self._take().release()

    async def next(self) -> Message:
        """Return the next message; raise what `fail` was given when there is none left."""
        while not self._messages:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            await self._arrived.wait()
        return self._take()

    def _take(self) -> Message:
        message = self._messages.popleft()
        self._bytes -= len(message.content)
        self._taken.set()
        return message
