"""The process that runs mpyc for one server: it is given sockets to its parent, and no key.

It gets no ledger, no listening socket, and not its parent's environment. The parent hands down one socket for
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
    """Message of a server to its mpyc child process: a job's terms, shares, limits and sockets.

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
    """Message of the mpyc child process to its server: the opened integers or an error, and the costs.

    `peer`: the server, by its place in the roster from 0, whose messages are the reason; -1 for none.
    """

    values: list[str] = []
    error: str = ""
    peer: int = -1
    sent: int = 0
    cpu: float = 0.0
    wall: float = 0.0


def main() -> None:
    """Run the child process: take jobs from the parent's socket, compute each in mpyc, and answer.

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
    """Make the kernel kill this process when its parent ends, and forbid more privileges (Linux only).

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
    """Return the parent's next message on the control socket; exit the process if the socket ends."""

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
    """Queue of jobs from the parent process, filled by a thread and read in the event loop."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._contents: deque[bytes] = deque()
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def fill(self) -> None:
        """Read jobs from the parent's socket into the queue; when the socket ends, end the process."""
        while True:
            self._contents.append(_read(self._control))
            if self._waiting is not None:
                loop, there = self._waiting
                loop.call_soon_threadsafe(there.set)

    async def next(self) -> Assignment:
        """Wait for the parent's next job and return it, while the event loop serves mpyc's sockets."""
        there = asyncio.Event()
        self._waiting = asyncio.get_running_loop(), there
        while not self._contents:
            await there.wait()
        return decode_json(self._contents.popleft(), Assignment)


def _confine() -> None:
    """Limit the resources of this process: no writes to files, child processes or core dumps; bounded memory.

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
    """Set the process's limit of processor seconds to those used so far, plus the job's, plus 10."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    bound = int(cpu_seconds() + assignment.seconds) + 10
    resource.setrlimit(
        resource.RLIMIT_CPU, (bound if hard == resource.RLIM_INFINITY else min(bound, hard), hard)
    )


def _compute(assignment: Assignment, control: socket.socket, inbox: _Inbox) -> None:
    """Connect mpyc to the other servers, in this confined process, and run jobs until the parent ends."""
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
    """Answer the first job and all later ones in mpyc's event loop, until the parent ends."""
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
    """Send the answer of a job to the parent process."""
    encoded = msgspec.json.encode(answer)
    control.sendall(len(encoded).to_bytes(LENGTH_BYTES, "big") + encoded)


async def _run(mpc: Any, assignment: Assignment) -> Answer:
    """Run one job in mpyc; return the opened integers, or the reason why there are none."""
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
    """Wait until the mpyc processes of the other servers are connected, by opening a shared 0."""
    await mpc.output(mpc.SecInt(terms.bits, p=terms.prime)(0))


async def run_timed_program(
    mpc: Any, terms: ProgramTerms, shares: list[list[int]], way: Way | None = None
) -> Answer:
    """Run a program on shares in mpyc; return the opened integers with processor seconds and bytes."""
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
    """Return the seconds of processor time that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
