"""The process that runs mpyc for one server: it has sockets to its parent, and nothing else.

It is given no key, no ledger, no environment and no listening socket. The parent hands down one socket for
each other server, for mpyc's messages, and one for the job and the answer; the process ends with the parent.
It unpickles nothing. That is no sandbox: it runs as the same user of the operating system.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import socket
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from smpc_dp.decoding import decode_json

if TYPE_CHECKING:
    from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
    from smpc_dp.capabilities.servers.statistics.kernels import Way

# Limits on bytes of addresses and on open files.
MAX_MEMORY = 4 << 30
MAX_FILES = 256
LENGTH_BYTES = 8
READY = b"\1"
# prctl(2) of Linux.
PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38


class Assignment(msgspec.Struct, frozen=True):
    """Job from the parent. `sockets` has a file descriptor for each server, -1 for its own one.

    Later jobs of the same process repeat index, sockets and threshold of the first. `terms` is the canonical
    JSON of ProgramTerms; `shares` are in hex, shape (parties, length).
    """

    index: int
    sockets: list[int]
    threshold: int
    security: int
    seconds: float
    terms: str
    shares: list[list[str]]


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Opened integers, in decimal, or the reason for none; costs: bytes of mpyc's messages, seconds.

    `peer`: the server, by its place in the roster from 0, whose messages are the reason; -1 for none.
    """

    values: list[str] = []
    error: str = ""
    peer: int = -1
    sent: int = 0
    cpu: float = 0.0
    wall: float = 0.0


def main() -> None:
    """Run the jobs that come over standard input's socket, in turn, to its end.

    The only argument is the process id of the parent.
    """
    _tie_to(int(sys.argv[1]))
    control = socket.socket(fileno=os.dup(0))
    assignment = decode_json(_read(control), Assignment)
    inbox = _Inbox(control)
    # Before threads are forbidden. The reader notices the parent's end, whatever is computed meanwhile.
    threading.Thread(target=inbox.fill, daemon=True).start()
    _confine()
    _compute(assignment, control, inbox)


def _tie_to(parent: int) -> None:
    """Let the kernel kill this process when the parent ends, and forbid it to gain privileges.

    Without that system call the end of the control socket ends it.
    """
    if sys.platform != "linux":
        return
    call = ctypes.CDLL(None).prctl
    call.argtypes = (ctypes.c_int, *(ctypes.c_ulong,) * 4)
    call(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    call(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # The parent may have ended before the first call.
    if os.getppid() != parent:
        os._exit(1)


def _read(control: socket.socket) -> bytes:
    """Read one message from the control socket."""

    def exactly(size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = control.recv(min(size - len(parts), 1 << 20))
            if not part:
                os._exit(0)
            parts += part
        return bytes(parts)

    return exactly(int.from_bytes(exactly(LENGTH_BYTES), "big"))


class _Inbox:
    """Jobs of the parent after the first one, read by a thread."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._contents: deque[bytes] = deque()
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def fill(self) -> None:
        """Read to the end of the socket, then end the process."""
        while True:
            self._contents.append(_read(self._control))
            if self._waiting is not None:
                loop, there = self._waiting
                loop.call_soon_threadsafe(there.set)

    async def next(self) -> Assignment:
        """Return the next job; the event loop, and so mpyc's sockets, are served meanwhile."""
        there = asyncio.Event()
        self._waiting = asyncio.get_running_loop(), there
        while not self._contents:
            await there.wait()
        return decode_json(self._contents.popleft(), Assignment)


def _confine() -> None:
    """Restrict the process: no files, processes or core dumps, and bounded memory.

    The superuser may start processes all the same.
    """
    for reason, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, MAX_FILES),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_AS, MAX_MEMORY),
    ):
        hard = resource.getrlimit(reason)[1]
        bound = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(reason, (bound, bound))


def _give_time(assignment: Assignment) -> None:
    """Extend the process's limit of processor time; the parent counts by the clock."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    bound = int(cpu_seconds() + assignment.seconds) + 10
    resource.setrlimit(
        resource.RLIMIT_CPU, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard)
    )


def _compute(assignment: Assignment, control: socket.socket, inbox: _Inbox) -> None:
    """Import mpyc, connect it, and run jobs."""
    from smpc_dp.capabilities.servers.secret_sharing.sharing import mpyc_arguments, refuse_pickle

    # Before any byte of another server is read.
    refuse_pickle()
    _give_time(assignment)
    parties, index = len(assignment.sockets), assignment.index
    options = (f"-M{parties}", f"-I{index}", f"-T{assignment.threshold}", f"-K{assignment.security}")
    with mpyc_arguments(*options):
        from mpyc.runtime import mpc
    control.sendall(READY)
    mpc.run(_serve(mpc, assignment, control, inbox))


async def _serve(mpc: Any, assignment: Assignment, control: socket.socket, inbox: _Inbox) -> None:
    """Run jobs in mpyc's event loop."""
    from smpc_dp.capabilities.servers.requests.wiring import connect_peers

    def blame(peer: int, reason: str) -> NoReturn:
        _answer(control, Answer(error=reason, peer=peer))
        os._exit(1)

    await connect_peers(mpc, assignment.sockets, blame)
    while True:
        _answer(control, await _run(mpc, assignment))
        assignment = await inbox.next()
        _give_time(assignment)


def _answer(control: socket.socket, answer: Answer) -> None:
    """Send an answer to the parent."""
    encoded = msgspec.json.encode(answer)
    control.sendall(len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded)


async def _run(mpc: Any, assignment: Assignment) -> Answer:
    """Run one job and return its answer."""
    from smpc_dp.capabilities.servers.requests.wiring import drain
    from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
    from smpc_dp.errors import ConfigError

    terms = decode_json(assignment.terms, ProgramTerms)
    shares = [[int(share, 16) for share in row] for row in assignment.shares]
    mpc.options.sec_param = assignment.security
    try:
        await wait_for_peers(mpc, terms)
        answer = await run_timed_program(mpc, terms, shares)
    except ConfigError as error:
        return Answer(error=str(error))
    await drain(mpc)
    return answer


async def wait_for_peers(mpc: Any, terms: ProgramTerms) -> None:
    """Wait until the other servers are connected."""
    await mpc.output(mpc.SecInt(terms.bits, p=terms.prime)(0))


async def run_timed_program(
    mpc: Any, terms: ProgramTerms, shares: list[list[int]], way: Way | None = None
) -> Answer:
    """Run a program and return its answer with costs; `way` as of `run_program`."""
    from smpc_dp.capabilities.servers.requests.wiring import bytes_sent
    from smpc_dp.capabilities.servers.statistics.program import run_program

    loop = asyncio.get_running_loop()
    began, busy, before = loop.time(), cpu_seconds(), bytes_sent(mpc)
    values = await run_program(mpc, terms, shares, way)
    return Answer(
        [str(value) for value in values],
        sent=bytes_sent(mpc) - before,
        cpu=cpu_seconds() - busy,
        wall=loop.time() - began,
    )


def cpu_seconds() -> float:
    """Return the processor time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
