"""Relay of TCP that delays both directions, and records them: `relay.py HOST:PORT TARGET SECONDS [FILE]`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from base64 import b64encode
from pathlib import Path


async def pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float, record: Path | None, side: str
) -> None:
    """Pass on what comes, each piece after `delay` seconds, and the end after all."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(1000)

    async def write() -> None:
        while True:
            at, piece = await pieces.get()
            await asyncio.sleep(at - loop.time())
            if not piece:
                break
            writer.write(piece)
            await writer.drain()

    writing = asyncio.create_task(write())
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            if record is not None:
                with record.open("a") as file:
                    file.write(json.dumps([side, b64encode(piece).decode()]) + "\n")
            await pieces.put((loop.time() + delay, piece))
    await pieces.put((loop.time() + delay, b""))
    with contextlib.suppress(OSError):
        await writing
    writer.close()


async def main() -> None:
    listen, target, delay, *record = sys.argv[1:]
    count = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        count += 1
        number, file = count, Path(record[0]) if record else None
        host, _, port = target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(
            pump(reader, far_writer, float(delay), file, f"{number} up"),
            pump(far_reader, writer, float(delay), file, f"{number} down"),
        )

    host, _, port = listen.rpartition(":")
    async with await asyncio.start_server(relay, host, int(port)) as server:
        await server.serve_forever()


asyncio.run(main())
