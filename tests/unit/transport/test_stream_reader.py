"""Bytes that a reader passes on as they come: which, when, and what ends it."""

from __future__ import annotations

import asyncio

import pytest

from smpc_dp.decoding import Buffer
from smpc_dp.transport.stream_reader import StreamReader


class Taken:
    """Bytes that were passed on; `full`: after how many of them the next piece is an error."""

    def __init__(self, full: int = 1 << 20) -> None:
        self.content, self.full = bytearray(), full

    def __call__(self, piece: Buffer) -> None:
        if len(self.content) >= self.full:
            raise TimeoutError("full")
        self.content += piece


async def started(reader: StreamReader, count: int, taken: Taken) -> asyncio.Task[int]:
    task = asyncio.create_task(reader.pass_on(count, taken))
    await asyncio.sleep(0)
    return task


async def ended(task: asyncio.Task[int]) -> int:
    """Return the result of a task that has nothing to wait for."""
    for _ in range(3):
        await asyncio.sleep(0)
    assert task.done()
    return await task


async def test_bytes_are_passed_on_when_they_come_and_the_rest_is_read() -> None:
    reader, taken, buffer = StreamReader(), Taken(), bytearray(b"cdef")
    reader.feed_data(b"ab")
    task = await started(reader, 5, taken)
    assert taken.content == b"ab"
    reader.feed_data(memoryview(buffer))
    # In the same call: the buffer belongs to its owner again.
    assert taken.content == b"abcde"
    buffer[:] = b"????"
    assert await task == 5
    reader.feed_data(b"g")
    assert await reader.readexactly(2) == b"fg"


async def test_bytes_that_are_there_already_are_passed_on_without_those_behind_them() -> None:
    reader, taken = StreamReader(), Taken()
    reader.feed_data(b"abcdef")
    assert await reader.pass_on(4, taken) == 4
    assert taken.content == b"abcd"
    assert await reader.readexactly(2) == b"ef"


@pytest.mark.parametrize("before", [b"", b"a"])
async def test_a_stream_that_ends_says_how_many_bytes_came(before: bytes) -> None:
    reader, taken = StreamReader(), Taken()
    reader.feed_data(before)
    task = await started(reader, 5, taken)
    reader.feed_eof()
    assert await task == len(before)
    assert await reader.pass_on(5, taken) == 0


@pytest.mark.parametrize("waits", [True, False])
async def test_a_stream_that_has_ended_before_its_last_bytes_are_taken_is_not_waited_for(waits: bool) -> None:
    reader, taken = StreamReader(), Taken()
    task = await started(reader, 5, taken) if waits else None
    reader.feed_data(b"ab")
    reader.feed_eof()
    assert await ended(task or await started(reader, 5, taken)) == 2
    assert taken.content == b"ab"

    reader = StreamReader()
    task = await started(reader, 5, Taken())
    reader.feed_data(b"ab")
    reader.set_exception(ConnectionResetError("cut"))
    with pytest.raises(ConnectionResetError, match="cut"):
        await ended(task)


async def test_an_error_of_the_connection_or_of_the_taker_ends_it() -> None:
    reader = StreamReader()
    reader.feed_data(b"a")
    task = await started(reader, 5, Taken())
    reader.set_exception(ConnectionResetError("cut"))
    with pytest.raises(ConnectionResetError, match="cut"):
        await task

    reader, taken = StreamReader(), Taken(full=2)
    reader.feed_data(b"a")
    task = await started(reader, 5, taken)
    for piece in (b"b", b"c", b"d"):
        reader.feed_data(piece)
    with pytest.raises(TimeoutError, match="full"):
        await task
    assert taken.content == b"ab"


async def test_nothing_is_passed_on_after_a_cancellation() -> None:
    reader, taken = StreamReader(), Taken()
    reader.feed_data(b"a")
    task = await started(reader, 5, taken)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    reader.feed_data(b"b")
    assert taken.content == b"a"
    assert await reader.readexactly(1) == b"b"
