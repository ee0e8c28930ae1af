"""Effects of a role: it yields each message that it sends or waits for, and does no I/O.

A role is a generator that follows the specification. Its driver delivers each `Send` in order, and answers
each `Receive` with the next message of that sender. No role waits while it sends, so a driver may compute
ahead of a slow connection, and may read ahead as far as `Receive.ahead` allows. A driver accepts at least
RETAINED - 1 messages for a peer that does not read: no two roles wait for each other to read more than that.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TypeVar

RETAINED = 6
Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Send:
    """Effect that a role yields so that its driver sends one message, made of `parts`, to member `to`.

    They stay as they are until RETAINED more messages to the same receiver have been asked for.
    """

    to: str
    parts: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class Receive:
    """Effect that a role yields so that its driver waits for a message of at most `limit` bytes.

    After it `ahead` more come from the same sender, of at most `limit` bytes each, whose turn does not end
    before: unless the run fails, nothing but what we send meanwhile is needed for them. A message is used
    before the next one is asked for.

    `rounds`: the others may first exchange as many messages one after the other, each with the time limit of
    one, before any of them sends this member something. `awaited`: members whose messages the sender itself
    waits for; if it is silent they may be.
    """

    sender: str
    limit: int
    ahead: int = 0
    rounds: int = 0
    awaited: tuple[str, ...] = ()


Effect = Send | Receive
T = TypeVar("T")
Effects = Generator[Effect, Buffer, T]
