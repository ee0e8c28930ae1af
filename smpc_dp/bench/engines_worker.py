"""One server of the measurement of our bridge: `python -m smpc_dp.bench.engines_worker`.

"bridged" computes behind pinned channels, as in a session; "plain" lets mpyc connect by itself, over TCP on
127.0.0.1 and without TLS. Both get the same terms and shares on standard input, as JSON, compute in a process
that has computed nothing before, and print one answer.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from typing import Any

import msgspec

from smpc_dp.errors import LocalError
from smpc_dp.protocols.mpyc.params import threshold_of
from smpc_dp.protocols.mpyc.server import Job
from smpc_dp.protocols.mpyc.sharing import mpyc_arguments
from smpc_dp.protocols.mpyc.terms import ProgramTerms
from smpc_dp.runtime.events import ignore
from smpc_dp.runtime.servers.child import Answer, timed_program
from smpc_dp.runtime.servers.hub import ServerHub
from smpc_dp.runtime.servers.member import SharedMembership


class Work(msgspec.Struct, frozen=True):
    """What one server computes: terms, and its shares in hex."""

    terms: ProgramTerms
    shares: list[list[str]]

    @property
    def job(self) -> Job:
        """The terms with the shares."""
        return Job(self.terms, [[int(share, 16) for share in row] for row in self.shares])


async def bridged(session: str, name: str, work: Work) -> Answer:
    """Compute behind the channels of a session."""
    membership = SharedMembership.load(session, name, role="server")
    hub = await ServerHub.open(membership, ignore)
    try:
        answer = await hub.compute(work.job)
        await hub.close()
    finally:
        await hub.stop()
    return answer


def plain(place: int, servers: int, port: int, work: Work) -> Answer:
    """Compute over mpyc's own connections."""
    security = work.terms.security
    with mpyc_arguments(
        f"-M{servers}", f"-I{place}", f"-B{port}", f"-K{security}", f"-T{threshold_of(servers)}"
    ):
        from mpyc.runtime import mpc
    answer: Answer = mpc.run(_plain(mpc, work))
    return answer


async def _plain(mpc: Any, work: Work) -> Answer:
    loop: Any = asyncio.get_running_loop()
    # mpyc would listen on every interface.
    loop.create_server = functools.partial(loop.create_server, host="127.0.0.1")
    await mpc.start()
    answer = await timed_program(mpc, work.terms, work.job.shares)
    await mpc.shutdown()
    return answer


def main() -> None:
    """Compute what standard input says, in the way that the arguments say."""
    way, *arguments = sys.argv[1:]
    work = msgspec.json.decode(sys.stdin.buffer.read(), type=Work)
    if way == "bridged":
        answer = asyncio.run(bridged(arguments[0], arguments[1], work))
    elif way == "plain":
        place, servers, port = map(int, arguments)
        answer = plain(place, servers, port, work)
    else:
        raise LocalError(f"no way {way!r}")
    sys.stdout.buffer.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
