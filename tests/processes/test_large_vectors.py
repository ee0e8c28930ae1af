"""Vectors that are longer than a frame, over real sockets: the aggregator stores them in files."""

from __future__ import annotations

import asyncio
import copy
import errno
import gc
import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

import smpc_dp
from smpc_dp.engine.events import Start
from smpc_dp.engine.phases.messages import MASKED
from smpc_dp.engine.registry import make_party
from smpc_dp.engine.result import Result
from smpc_dp.errors import LocalError, PeerFault, TimeoutFault
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.events import Event, ignore
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport import framing
from smpc_dp.transport.framing import MAX_FRAME
from smpc_dp.transport.spool import FileSpool
from smpc_dp.transport.stream_reader import StreamReader
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import Context

PARTIES = ("alice", "bob", "carol", "dave")
LENGTH = 400_000
PARAMETERS: dict[str, object] = {
    "length": LENGTH,
    "lower": -1.0,
    "upper": 1.0,
    "precision": 1e-6,
    "dropout": 0.25,
    "corrupt": 0.0,
    "same_survivors": False,
}
FAST = Timeouts(connect=20.0, step=20.0)


def vector_of(name: str) -> Any:
    return np.random.default_rng(PARTIES.index(name)).uniform(-1, 1, LENGTH)


def stored_messages() -> int:
    """Return the number of files of messages that are mapped into this process."""
    gc.collect()
    folder, maps = tempfile.gettempdir(), Path("/proc/self/maps").read_text().splitlines()
    return sum(f" {folder}/" in line and line.endswith("(deleted)") for line in maps)


async def execute(path: Path, events: list[Event] | None = None) -> tuple[list[Any], Any]:
    """Sum once; return how that ended for each party, and for the aggregator."""

    async def party(name: str) -> Result:
        async with smpc_dp.connect(path, party=name) as session:
            return await session.sum(vector_of(name))

    heard = events if events is not None else []
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1, on_event=heard.append))
    ended = await asyncio.gather(*map(party, PARTIES), return_exceptions=True)
    (served,) = await serving
    return ended, served


async def test_a_sum_of_long_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)
    sizes: list[int] = []
    content = FileSpool.content

    def counted(spool: FileSpool) -> memoryview:
        view = content(spool)
        sizes.append(len(view))
        return view

    monkeypatch.setattr(FileSpool, "content", counted)
    before = len(os.listdir("/proc/self/fd"))
    ended, served = await execute(path)
    # Of each party its vector, and nothing else: the parties receive the result in memory.
    assert len(sizes) == len(PARTIES)
    assert min(sizes) > MAX_FRAME
    expected = np.sum([vector_of(name) for name in PARTIES], axis=0)
    for result in (*ended, served):
        assert isinstance(result, Result), result
        np.testing.assert_allclose(result.value, expected, atol=1e-5)
        np.testing.assert_array_equal(result.fixed_point, served.fixed_point)
    # No file of a message is open any more.
    assert len(os.listdir("/proc/self/fd")) <= before
    [first, *others] = [result.evidence.signed_result for result in ended]
    assert len(first.body) > MAX_FRAME
    assert memoryview(first.body).readonly
    for other in others:
        assert other.body == first.body
    for same in (pickle.loads(pickle.dumps(first)), copy.deepcopy(first)):  # noqa: S301
        assert same == first
        assert hash(same.body) == hash(first.body)
    assert json.loads(json.dumps(first.to_json()))["body"] == bytes(first.body).hex()
    assert pickle.loads(pickle.dumps(ended[0])).evidence == ended[0].evidence  # noqa: S301


def hold(monkeypatch: pytest.MonkeyPatch, is_ready: Callable[[set[str], str], bool]) -> None:
    """Hold large messages after their beginning: one that begins after the request is refused for its size.

    `is_ready`: is given the senders of all messages that have begun, and that of the message.
    """
    read, begun = framing._exactly, set[str]()

    async def held(reader: StreamReader, size: int, peer: str) -> Any:
        content = await read(reader, size, peer)
        if size == framing.PIECE:
            begun.add(peer)
            while not is_ready(begun, peer):
                await asyncio.sleep(0.01)
        return content

    monkeypatch.setattr(framing, "_exactly", held)


async def test_a_full_disk_ends_the_request_and_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)
    write = FileSpool.write

    class Full:
        """File on a full disk."""

        def write(self, _piece: memoryview) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None: ...

    def full(spool: FileSpool, piece: bytes) -> None:
        file, spool._file = spool._file, spool._file and Full()  # type: ignore[assignment]
        write(spool, piece)
        if file is not None:
            file.close()

    monkeypatch.setattr(FileSpool, "write", full)
    hold(monkeypatch, lambda begun, _: len(begun) >= len(PARTIES))
    events: list[Event] = []
    ended, served = await execute(path, events)
    assert isinstance(served, LocalError)
    assert "cannot store a message of" in str(served)
    assert "No space left on device" in str(served)
    for error in ended:
        assert isinstance(error, PeerFault)
        assert error.culprit == "aggregator"
        assert "its own input, files, settings or machine do not allow it" in str(error)
    assert not any(event.kind == "done" for event in events)


async def test_a_machine_without_the_disk_refuses_before_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=100 << 20))
    with pytest.raises(LocalError, match=r"large messages need \d+ bytes of disk .*, 104857600 are free"):
        await smpc_dp.serve(path, requests=1)
    # Without messages above a frame nothing is stored on disk.
    short = create_local_session(tmp_path / "short", PARTIES, {**PARAMETERS, "length": 3}, timeouts=FAST)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(smpc_dp.serve(short, requests=1), 1.0)


async def test_a_full_disk_ends_one_request_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be stored of one request is no reason to end the next one."""
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)
    content, refused, ended_first = FileSpool.content, list[FileSpool](), set[str]()

    def once(spool: FileSpool) -> memoryview:
        if len(refused) < len(PARTIES):
            refused.append(spool)
            raise LocalError("cannot store a message")
        return content(spool)

    monkeypatch.setattr(FileSpool, "content", once)
    # Dave's message comes before the end of the request, and is complete after it.
    hold(monkeypatch, lambda begun, peer: len(ended_first if peer == "dave" else begun) >= len(PARTIES))

    async def party(name: str) -> list[Any]:
        async with smpc_dp.connect(path, party=name) as session:
            ended = await asyncio.gather(session.sum(vector_of(name)), return_exceptions=True)
            ended_first.add(name)
            while len(ended_first) < len(PARTIES):
                await asyncio.sleep(0.01)
            return [*ended, await session.sum(vector_of(name))]

    serving = asyncio.create_task(smpc_dp.serve(path, requests=2))
    ended = await asyncio.gather(*map(party, PARTIES))
    first, second = await serving
    assert isinstance(first, LocalError)
    assert isinstance(second, Result)
    for error, result in ended:
        assert isinstance(error, PeerFault)
        assert error.culprit == "aggregator"
        assert result.survivors == PARTIES


@pytest.mark.parametrize("forgers", [("dave",), ("carol", "dave")])
async def test_no_refused_message_stays_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgers: tuple[str, ...]
) -> None:
    """The errors of excluded parties, and that of a request which too few are left for, hold no message."""
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)
    write = Context.write

    def forged(context: Context, signer: Any, run_id: bytes, step: str, *rest: Any) -> list[Envelope]:
        envelopes = write(context, signer, run_id, step, *rest)
        if step == MASKED and signer.name in forgers:
            return [structs.replace(envelope, signature=bytes(64)) for envelope in envelopes]
        return envelopes

    monkeypatch.setattr(Context, "write", forged)
    stored: list[int] = []

    class Events(list[Event]):
        """Events that note how many messages are stored at the end of the request."""

        def append(self, event: Event, /) -> None:
            if event.kind == "done":
                stored.append(stored_messages())
            super().append(event)

    events = Events()
    _, served = await execute(path, events)
    if len(forgers) == 1:
        assert isinstance(served, Result)
        assert stored == [0]
        assert served.absent == forgers
    else:
        assert isinstance(served, TimeoutFault)
        assert stored_messages() == 0
    assert any("invalid signature" in event.detail for event in events)


async def test_no_large_hello_stays_on_disk_while_others_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=FAST)
    content, arrived = FileSpool.content, asyncio.Event()

    def noted(spool: FileSpool) -> memoryview:
        arrived.set()
        return content(spool)

    monkeypatch.setattr(FileSpool, "content", noted)
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    member = Membership.load(path, "dave")
    connection = await AggregatorConnection.open(member, member.endpoint(), ignore)
    ring_vector = member.parameters.encoding.zeros()
    party = make_party(member.context(1, "sum"), member.parameters, member.identity, ring_vector)
    [hello] = party.handle(Start())
    await connection.connections.post(1, [structs.replace(hello, body=hello.body + bytes(MAX_FRAME))])
    await asyncio.wait_for(arrived.wait(), 10)
    until = asyncio.get_running_loop().time() + 10
    while stored_messages() and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(0.05)
    assert stored_messages() == 0
    # The others are waited for all the time.
    assert not serving.done()
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    await connection.connections.close()
