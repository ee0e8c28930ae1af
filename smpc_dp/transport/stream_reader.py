"""Stream reader that passes bytes on as they come, without copies of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import SupportsIndex, cast

from smpc_dp.decoding import Buffer


class StreamReader(asyncio.StreamReader):
    """asyncio stream reader that can also pass received bytes directly to a function, to save copies."""

    def __init__(self, limit: int = 1 << 16) -> None:
        """`limit`: as of asyncio's."""
        super().__init__(limit=limit)
        self._take: Callable[[Buffer], object] | None = None
        # Bytes that are still to be passed on, and the end of that.
        self._missing = 0
        self._passed: asyncio.Future[None] | None = None

    async def pass_on(self, count: int, take: Callable[[Buffer], object]) -> int:
        """Pass the next `count` bytes to `take` in pieces; return how many came, or raise the stream's error.

        A piece is valid until the call returns. Raises the OSError that `take` raises, or that of the
        connection. After either, and when it is cancelled, what comes next is at no certain place.
        """
        # So many as have come; less than `count` are all of them.
        first = await self.read(count)
        if first:
            take(first)
        self._missing = count - len(first)
        # What has ended the stream meanwhile does not come again.
        if (error := self.exception()) is not None:
            raise error
        if self._missing and not self.at_eof():
            self._take, self._passed = take, asyncio.get_running_loop().create_future()
            try:
                await self._passed
            finally:
                self._take = None
        return count - self._missing

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Give received bytes to a waiting `pass_on`, and keep the rest for `read`."""
        rest = cast("Buffer", data)
        if self._take is not None:
            piece, rest = rest[: self._missing], rest[self._missing :]
            try:
                self._take(piece)
            except OSError as error:
                self._end(error)
                return
            self._missing -= len(piece)
            if not self._missing:
                self._end()
        super().feed_data(rest)

    def feed_eof(self) -> None:
        """Mark the end of the stream, and wake readers and `pass_on`."""
        super().feed_eof()
        self._end()

    def set_exception(self, exc: Exception) -> None:
        """End the stream with an error, also for a waiting `pass_on`."""
        super().set_exception(exc)
        self._end(exc)

    def _end(self, error: Exception | None = None) -> None:
        """Wake a waiting `pass_on` at the end of the stream, with an error if given."""
        self._take = None
        if self._passed is None or self._passed.done():
            return
        if error is None:
            self._passed.set_result(None)
        else:
            self._passed.set_exception(error)
