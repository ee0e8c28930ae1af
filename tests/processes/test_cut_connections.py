"""Connections whose packets are dropped, in a network namespace of their own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from smpc_dp.capabilities.pairs.requests.pairwise import PairwiseMember, create_pairwise_session
from smpc_dp.errors import SmpcError, TimeoutFault
from smpc_dp.session.session_file import Timeouts
from smpc_dp.transport import endpoint as endpoints
from smpc_dp.transport.blocking import BlockingChannel
from smpc_dp.transport.channel import Channel, ChannelClosed
from tests.faults.conftest import Net

INSIDE = ("unshare", "--net", "--map-root-user")
LINK = ("ip", "link", "set", "lo")
SILENCE = 1.5


def has_namespaces() -> bool:
    """Tell whether this user may have a network namespace."""
    try:
        return not subprocess.run([*INSIDE, *LINK, "up"], capture_output=True, check=False).returncode
    except FileNotFoundError:
        return False


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="needs network namespaces")
def test_both_ends_notice_that_the_link_is_gone(tmp_path: Path) -> None:
    """Frames have an hour, keepalive asks after half a minute: neither is what ends the connections."""
    command = [*INSIDE, sys.executable, "-m", "tests.processes.test_cut_connections", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["dialler", "listener", "garbler", "evaluator"]


async def see_both(net: Net) -> tuple[Channel, Channel]:
    """Return a channel's two ends."""
    ends = await net.pair(*(net.endpoint(name, frame_timeout=3600.0) for name in ("alice", "agg")))
    await ends[0].send(b"x")
    await ends[1].receive()
    return ends


async def end_of(name: str, channel: Channel) -> None:
    """Send, and print the name when the channel has ended."""
    await channel.send(b"lost")
    try:
        await channel.receive()
    except (ChannelClosed, TimeoutFault):
        print(name)


def end_of_blocking(name: str, channel: BlockingChannel) -> None:
    """Send, and print the name when the channel has ended."""
    channel.send([b"lost"])
    try:
        channel.receive(1)
    except SmpcError as error:
        if isinstance(error, ChannelClosed):
            print(name)


async def main(folder: Path) -> None:
    """Connect, cut the link, and print the ends that notice it."""
    subprocess.run([*LINK, "up"], check=True)
    endpoints.Endpoint.silence = property(lambda _: SILENCE)  # type: ignore[assignment,method-assign]
    net = Net()
    ends = await see_both(net)
    path = create_pairwise_session(folder, {"circuit": "add32"}, timeouts=Timeouts(connect=60.0, step=3600.0))
    names = ("garbler", "evaluator")
    with ThreadPoolExecutor(2) as pool:
        members = [PairwiseMember.load(path, name) for name in names]
        pair = list(pool.map(lambda member: next(iter(member.connect().values())), members))
        subprocess.run([*LINK, "down"], check=True)
        for name, channel in zip(("dialler", "listener"), ends, strict=True):
            await end_of(name, channel)
        for name, blocking in zip(names, pair, strict=True):
            end_of_blocking(name, blocking)
    await net.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
