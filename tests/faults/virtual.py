"""Virtual time, and channels in memory, for the runtime's own code: a run of minutes takes milliseconds."""

from __future__ import annotations

import asyncio
import hashlib
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from smpc_dp.errors import Check, VerificationError
from smpc_dp.identity.keys import verify
from smpc_dp.transport.channel import ChannelClosed

# Seconds that whatever works in a thread takes, and that a message takes on a link at least.
WORK = 0.01
SPACING = 0.001


class _Selector(selectors.DefaultSelector):
    """Waits for no file: time goes on to the next timer at once."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("everything waits, and no timer is set: a deadlock")
        self.time += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while it works; what is for a thread takes `WORK` seconds."""

    def __init__(self) -> None:
        self._clock = _Selector()
        self.errors: list[dict[str, Any]] = []
        # A connection lives until it is cut, as the system's do, though nobody refers to it.
        self.connections: list[tuple[Pipe, Pipe]] = []
        super().__init__(self._clock)
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._clock.time

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]  # noqa: ARG002
        self._clock.time += WORK
        future: asyncio.Future[Any] = self.create_future()

        def end(act: Callable[[], None]) -> None:
            self.call_soon(lambda: None if future.done() else act())

        try:
            result = func(*args)
        except Exception as error:  # an executor gives any error to who waits
            raised = error
            end(lambda: future.set_exception(raised))
        else:
            end(lambda: future.set_result(result))
        return future


def run_virtually(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine in virtual time; an error that nobody has awaited is raised too."""
    loop = VirtualLoop()
    try:
        try:
            loop.run_until_complete(main())
        finally:
            pending = asyncio.all_tasks(loop)
            for task in pending:
                task.cancel()
            if pending:
                loop.run_until_complete(asyncio.wait(pending))
        for context in loop.errors:
            raise context.get("exception") or RuntimeError(context["message"])
    finally:
        loop.close()


class Pipe:
    """One end of a channel in memory: what a `Channel` is to the runtime. Made by `connect`."""

    def __init__(self, peer: str, latency: float) -> None:
        self.peer = peer
        self.max_message = self.max_received = 1 << 30
        self.bytes_sent = self.bytes_received = 0
        self.live = True
        self._other: Pipe = self
        self._latency = latency
        self._inbox: deque[bytes | None] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._last = 0.0

    async def send(self, *buffers: bytes | memoryview) -> None:
        """Send one message; wait while the other end does not read."""
        data = b"".join(buffers)
        while self.live and len(self._other._inbox) > 4:
            self._other._room.clear()
            await self._other._room.wait()
        if not self.live:
            raise ChannelClosed(self.peer, clean=False)
        loop = asyncio.get_running_loop()
        self._last = max(self._last + SPACING, loop.time() + self._latency)
        loop.call_at(self._last, self._other._arrive, data)
        await asyncio.sleep(SPACING)

    def _arrive(self, data: bytes | None) -> None:
        self._inbox.append(data)
        self._wake.set()

    async def receive(self) -> bytes:
        """Return the next message."""
        while not self._inbox:
            if not self.live:
                raise ChannelClosed(self.peer, clean=False)
            self._wake.clear()
            await self._wake.wait()
        data = self._inbox.popleft()
        self._room.set()
        if data is None or len(data) > min(self.max_message, self.max_received):
            self.abort()
            raise ChannelClosed(self.peer, clean=False)
        return data

    def abort(self) -> None:
        """Cut both ends."""
        for end in (self, self._other):
            if end.live:
                end.live = False
                end._wake.set()
                end._room.set()

    async def close(self) -> None:
        """Cut; what was sent has arrived."""
        await asyncio.sleep(2 * self._latency)
        self.abort()


def connect(one: str, two: str, latency: float, kind: type[Pipe] = Pipe) -> tuple[Pipe, Any]:
    """Return the end of `one`, of this kind, and that of `two`."""
    near, far = kind(two, latency), Pipe(one, latency)
    near._other, far._other = far, near
    loop = asyncio.get_running_loop()
    if isinstance(loop, VirtualLoop):
        loop.connections.append((near, far))
    return near, far


class Verifier:
    """Checks each signature once, however often it is repeated."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes, bytes], bool] = {}

    def __call__(self, public_key: bytes, message: bytes, signature: bytes) -> None:
        """Raise VerificationError unless the signature is good."""
        entry = public_key, message, signature
        if entry not in self._known:
            try:
                verify(*entry)
                self._known[entry] = True
            except VerificationError:
                self._known[entry] = False
        if not self._known[entry]:
            raise VerificationError("the signature is not valid", Check.BAD_SIGNATURE)


class Stream:
    """Deterministic bytes in the place of the operating system's."""

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def bytes(self, n: int) -> bytes:
        self._count += 1
        return hashlib.shake_256(f"schedule {self._seed} {self._count}".encode()).digest(n)
