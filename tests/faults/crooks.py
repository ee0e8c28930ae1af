"""Parties that flood, stall, replay, reconnect, send junk or crash: honest code behind a crooked channel."""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable
from typing import ClassVar

import msgspec

from smpc_dp.capabilities.pairs.ustatistic.messages import PAIR, RELAY
from smpc_dp.session.member import from_wire, to_wire
from smpc_dp.transport.channel import ChannelClosed
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context, Signer
from tests.faults.virtual import Pipe

ACTS = (
    "crash",
    "stall",
    "delay",
    "flood",
    "flood junk",
    "flood pairs",
    "replay",
    "vary",
    "forge",
    "drop",
    "reconnect",
)


class CrookedPipe(Pipe):
    """The end of a party that does `act` instead of, or beside, sending its message number `index`."""

    act: str = ""
    index: int = 0
    chooser: random.Random
    context: Context
    signer: Signer
    reconnect: Callable[[], None]
    _tasks: ClassVar[set[asyncio.Task[None]]] = set()

    def __init__(self, peer: str, latency: float) -> None:
        super().__init__(peer, latency)
        self._sent: list[bytes] = []

    async def send(self, *buffers: bytes | memoryview) -> None:
        """Send a message, or do what the party does in its place."""
        data = b"".join(buffers)
        self._sent.append(data)
        if len(self._sent) < self.index or (len(self._sent) > self.index and self.act != "stall"):
            await super().send(data)
            return
        act, chooser = self.act, self.chooser
        if act in ("crash", "reconnect"):
            self.abort()
            if act == "reconnect":
                # A handshake takes round trips. Two that did this at no time would never get further.
                await asyncio.sleep(4 * self._latency)
                self.reconnect()
            raise ChannelClosed(self.peer, clean=False)
        if act in ("stall", "drop"):
            return
        if act == "delay":
            await asyncio.sleep(chooser.choice([0.1, 0.4, 0.6, 1.5, 4.0]))
        if act == "replay":
            for earlier in chooser.choices(self._sent, k=3):
                await super().send(earlier)
        if act == "forge":
            await super().send(self._flipped(data))
            return
        if act.startswith("flood"):
            task = asyncio.get_running_loop().create_task(self._flood(act, data))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await super().send(data)
        if act == "vary":
            await super().send(self._varied(data))

    async def _flood(self, act: str, data: bytes) -> None:
        request, envelope = from_wire(data, self.signer.name)
        steps = (PAIR,) if act == "flood pairs" else (PAIR, RELAY, envelope.step, "abort", "x", "quit")
        while self.live:
            if act != "flood":
                junk = msgspec.structs.replace(envelope, step=self.chooser.choice(steps), signature=bytes(64))
                data = b"".join(
                    to_wire(request + self.chooser.choice([0, 0, 0, 1, -1]) * (request > 1), junk)
                )
            try:
                await super().send(data)
            except ChannelClosed:
                return

    def _flipped(self, data: bytes) -> bytes:
        flipped = bytearray(data)
        flipped[self.chooser.randrange(4, len(data))] ^= 1 << self.chooser.randrange(8)
        return bytes(flipped)

    def _varied(self, data: bytes) -> bytes:
        """Return another message for the same step, signed as this one is."""
        request, envelope = from_wire(data, self.signer.name)
        body = self._flipped(bytes(4) + envelope.body)[4:]
        return b"".join(to_wire(request, self._signed(envelope, body)))

    def _signed(self, envelope: Envelope, body: bytes) -> Envelope:
        sha = hashlib.sha256(body).digest()
        statement = self.context.statement(
            envelope.run_id, envelope.step, envelope.sender, envelope.receiver, sha
        )
        return msgspec.structs.replace(envelope, body=body, signature=self.signer.sign(statement))
