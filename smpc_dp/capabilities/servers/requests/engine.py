"""A server's mpyc: a child process without a key, connected to the other servers' through channels."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from smpc_dp.capabilities.servers.requests.child import LENGTH_BYTES, READY, Answer, Assignment
from smpc_dp.capabilities.servers.secret_sharing.messages import COMPUTE
from smpc_dp.capabilities.servers.secret_sharing.params import PIECE
from smpc_dp.capabilities.servers.secret_sharing.server import Job
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.statistics.program import output_spans
from smpc_dp.decoding import decode_json
from smpc_dp.errors import Check, LocalError, PeerFault, SmpcError, TimeoutFault

# The path is an argument: the child's environment is empty.
_BOOT = (
    "import os, sys; sys.path[:] = sys.argv.pop(1).split(os.pathsep); "
    "from smpc_dp.capabilities.servers.requests.child import main; main()"
)
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# Bytes of an answer besides its integers: its keys, costs, or an error.
ANSWER_REST = 1 << 16
STDERR_LIMIT = 2000
STOP_SECONDS = 2.0
START_SECONDS = 60.0
# Signals by which this machine ends a process. Of a crash the cause may be bytes of another server.
_KILLS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
# Seconds between two checks of the time of the last message.
LOOK_SECONDS = 0.5

# Sends bytes of this server's mpyc to that of another server.
Send = Callable[[str, bytes], Awaitable[None]]


@dataclass(slots=True)
class _Child:
    """Child process that runs mpyc, with this process's ends of its sockets and the tasks that serve them."""

    process: asyncio.subprocess.Process
    control: socket.socket
    handed: list[int]
    ours: list[socket.socket]
    errors: asyncio.Task[None]
    pumps: list[asyncio.Task[None]] = field(default_factory=list)
    loaded: bool = False


class Engine:
    """Runner of a server's computations in an mpyc child process, whose bytes go through this server.

    `feed` may be called from the beginning: early bytes wait for the child.
    """

    def __init__(self, servers: Sequence[str], own: str, send: Send, *, keep: bool = False) -> None:
        self._servers = tuple(servers)
        self._own = own
        self._send = send
        self._keep = keep
        self._child: _Child | None = None
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._ready = asyncio.Event()
        self._over = False
        self._killed = False
        self._last = 0.0
        # When another server's bytes came last.
        self._heard: dict[str, float] = {}
        self.bytes_sent = 0

    async def feed(self, peer: str, content: bytes | memoryview) -> None:
        """Pass another server's mpyc bytes to the child once it runs; return when there is room for more."""
        await self._ready.wait()
        writer = self._writers.get(peer)
        if self._over or writer is None:
            return
        self._heard[peer] = asyncio.get_running_loop().time()
        self._last = max(self._last, self._heard[peer])
        # A child that has ended reads no more: its end is reported elsewhere.
        with contextlib.suppress(OSError):
            writer.write(content)
            await writer.drain()

    def abandon(self) -> None:
        """Drop all bytes for the child process, queued ones and later ones."""
        self._over = True
        self._ready.set()

    async def run(self, job: Job, threshold: int, *, seconds: float, silence: float) -> Answer:
        """Run a job in the mpyc child within time limits; return its answer; end the child unless it is kept.

        Args:
            job: terms and shares.
            threshold: t.
            seconds: the time limit; silence: the time limit without a byte to or from another server.

        Raises:
            PeerFault: another server sent what mpyc never sends.
            TimeoutFault: the child ended by itself without an answer, or took too long, and was killed: this
                may be due to another server, and nothing shows which. Names what did not come; see `silent`.
            LocalError: this machine ended the child, or cannot start it.
        """
        retained = False
        try:
            child = self._child or await self._open()
            assignment = Assignment(
                index=self._servers.index(self._own),
                sockets=child.handed,
                threshold=threshold,
                security=job.terms.security,
                seconds=seconds,
                terms=job.terms.canonical().decode("ascii"),
                shares=[[f"{share:x}" for share in row] for row in job.shares],
            )
            encoded = await self._drive(child, assignment, largest_answer(job.terms), seconds, silence)
            answer = read_reply(encoded, job.terms, self._servers, self._own)
            if not self._keep:
                # The others may still need bytes that are queued for them.
                await self._flush(child, silence)
            retained = self._keep
            return answer
        finally:
            if not retained:
                await self.close()

    def silent(self, silence: float) -> list[str]:
        """Return the other servers that have sent nothing for half of `silence` seconds.

        Half: they do not fall silent for all servers at the same moment.
        """
        since = asyncio.get_running_loop().time() - silence / 2
        return [
            name for name in self._servers if name != self._own and self._heard.get(name, -math.inf) < since
        ]

    async def close(self) -> None:
        """End the mpyc process, if one runs, and the tasks that pass its bytes on."""
        self.abandon()
        child, self._child = self._child, None
        if child is None:
            return
        tasks = [*child.pumps, child.errors]
        for task in tasks:
            task.cancel()
        self._kill(child.process)
        await asyncio.shield(self._closed(child, tasks))

    async def _closed(self, child: _Child, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for the ended mpyc process and its tasks, and close its sockets."""
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in self._writers.values():
            writer.close()
        await child.process.wait()
        for end in child.ours:
            end.close()

    async def _open(self) -> _Child:
        """Start the mpyc child and the tasks that pass bytes between it and servers; return the child."""
        loop = asyncio.get_running_loop()
        pairs = _socket_pairs(len(self._servers))
        own = self._servers.index(self._own)
        handed = [-1 if index == own else pair[1].fileno() for index, pair in enumerate(pairs)]
        try:
            process = await self._start(pairs[own][1], [number for number in handed if number >= 0])
        except BaseException:
            for ours, _ in pairs:
                ours.close()
            raise
        finally:
            for _, theirs in pairs:
                theirs.close()
        errors = loop.create_task(_tail(process))
        ends = [ours for ours, _ in pairs]
        child = self._child = _Child(process, pairs[own][0], handed, ends, errors)
        for name, ours in zip(self._servers, ends, strict=True):
            if name != self._own:
                reader, self._writers[name] = await asyncio.open_connection(sock=ours, limit=PIECE)
                child.pumps.append(loop.create_task(self._pump(name, reader)))
        return child

    async def _start(self, control: socket.socket, handed: Sequence[int]) -> asyncio.subprocess.Process:
        """Start the mpyc child process, which inherits these sockets."""
        path = os.pathsep.join(os.path.abspath(entry or ".") for entry in sys.path)
        try:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                "-c",
                _BOOT,
                path,
                str(os.getpid()),
                stdin=control.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=ENVIRONMENT,
                cwd="/",
                pass_fds=handed,
                start_new_session=True,
            )
        except OSError as error:
            raise LocalError(f"{self._own}: cannot start mpyc's process ({error.strerror})") from None

    async def _drive(
        self, child: _Child, assignment: Assignment, largest: int, seconds: float, silence: float
    ) -> bytes:
        """Send a job to the child process and return its answer; raise when a time limit passes."""
        loop = asyncio.get_running_loop()
        # The child loads mpyc until it reports that it is ready.
        self._last = loop.time() + (0.0 if child.loaded else START_SECONDS)
        self._ready.set()
        answering = loop.create_task(_ask(child, assignment, largest, self._touch))
        latest = loop.time() + seconds
        try:
            while not answering.done():
                until = min(latest, self._last + silence)
                if until <= loop.time():
                    raise self._late(latest, seconds, silence)
                await asyncio.wait([answering], timeout=min(until - loop.time(), LOOK_SECONDS))
            encoded = answering.result()
        finally:
            answering.cancel()
        if encoded is None:
            raise await self._ended(child)
        return encoded

    def _touch(self) -> None:
        """Record that bytes have just gone to or come from another server."""
        self._last = asyncio.get_running_loop().time()

    async def _pump(self, name: str, reader: asyncio.StreamReader) -> None:
        """Send the output of this server's mpyc process to one other server, until it ends."""
        with contextlib.suppress(ConnectionError):
            while content := await reader.read(PIECE):
                self._touch()
                self.bytes_sent += len(content)
                await self._send(name, content)

    async def _flush(self, child: _Child, silence: float) -> None:
        """End the child process, and wait, `silence` seconds at most, until all its output is sent."""
        self._kill(child.process)
        await asyncio.wait([*child.pumps, child.errors], timeout=silence)

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        """Kill the child process with all processes of its group, once.

        A second time could be too late: the number might be another process's by then.
        """
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def _ended(self, child: _Child) -> SmpcError:
        """Return the error for a child process that ended without an answer, with its exit code."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                code: int | None = await child.process.wait()
                await child.errors
        except TimeoutError:
            code = None
        how = "has closed its socket" if code is None else f"ended ({_how(code)})"
        reason = f"mpyc's process {how} without an answer"
        if code is not None and -code in _KILLS:
            return LocalError(f"{self._own}: {reason}")
        return _no_answer(self._own, reason)

    def _late(self, latest: float, seconds: float, silence: float) -> TimeoutFault:
        """Return the error for a child process that was too slow, or heard nothing from others."""
        if asyncio.get_running_loop().time() >= latest:
            reason = f"mpyc took more than {seconds:g} s and was stopped"
        else:
            reason = f"mpyc neither sent nor received anything for {silence:g} s and was stopped"
        return TimeoutFault(self.silent(silence) or [self._own], COMPUTE, f"{self._own}: {reason}")


def largest_answer(terms: ProgramTerms) -> int:
    """Return an upper bound in bytes on a child process's answer for these terms."""
    digits = terms.prime.bit_length() // 3 + 8
    return ANSWER_REST + (terms.parties + len(output_spans(terms))) * digits


def read_reply(encoded: bytes, terms: ProgramTerms, servers: Sequence[str], own: str) -> Answer:
    """Decode the answer of the mpyc child process; raise the error that it reports.

    Raises PeerFault for a server whose messages the child has refused, LocalError for a program that cannot
    be run, and TimeoutFault that names `own` for an answer that no program gives: bytes from any other server
    may make the child send it.
    """
    try:
        answer = decode_json(encoded, Answer)
    except msgspec.MsgspecError:
        raise _no_answer(own, "mpyc's process answered what is no answer") from None
    if answer.error and answer.peer in range(len(servers)):
        raise PeerFault(servers[answer.peer], f"its mpyc {answer.error}", Check.MALFORMED)
    if answer.error:
        raise LocalError(f"{own}: mpyc cannot compute this: {answer.error}")
    opened = len(output_spans(terms))
    # No more digits than the field's elements have: Python parses longer integers slowly, or refuses them.
    digits = len(str(terms.prime))
    integers, parties = answer.values[:opened], answer.values[opened:]
    written = all(len(text) <= digits + 1 and re.fullmatch("-?[0-9]+", text, re.ASCII) for text in integers)
    named = all(len(text) <= digits and text.isascii() and text.isdigit() for text in parties)
    if not (written and named) or len(integers) < opened:
        raise _no_answer(own, f"mpyc's process answered no integers, {opened} are opened")
    indices = [int(text) for text in parties]
    if any(index >= terms.parties for index in indices) or indices != sorted(set(indices)):
        raise _no_answer(own, "mpyc's process named parties that there are not")
    return answer


def _how(code: int) -> str:
    """Return how a process ended, in words: its signal, or its exit code."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _no_answer(own: str, reason: str) -> TimeoutFault:
    """Return the TimeoutFault that names this server, for a computation without an answer."""
    return TimeoutFault([own], COMPUTE, f"{own}: {reason}")


def _socket_pairs(count: int) -> list[tuple[socket.socket, socket.socket]]:
    """Return `count` pairs of sockets, each connected to its partner."""
    pairs: list[tuple[socket.socket, socket.socket]] = []
    try:
        for _ in range(count):
            pairs.append(socket.socketpair())
            pairs[-1][0].setblocking(False)
    except OSError as error:
        for end in (end for pair in pairs for end in pair):
            end.close()
        raise LocalError(f"no sockets for mpyc's process ({error.strerror})") from None
    return pairs


async def _ask(
    child: _Child, assignment: Assignment, largest: int, on_ready: Callable[[], None]
) -> bytes | None:
    """Send a job to the child and return its answer; None if the child ended before, or answers too much.

    `on_ready` is called when the child has loaded mpyc, before its first answer.
    """
    loop, control = asyncio.get_running_loop(), child.control
    content = msgspec.json.encode(assignment)
    try:
        await loop.sock_sendall(control, len(content).to_bytes(LENGTH_BYTES, "big") + content)
        if not child.loaded:
            if await _exactly(control, len(READY)) != READY:
                return None
            child.loaded = True
        on_ready()
        header = await _exactly(control, LENGTH_BYTES)
        size = int.from_bytes(header or b"", "big")
        return await _exactly(control, size) if header and size <= largest else None
    except ConnectionError:
        return None


async def _exactly(control: socket.socket, size: int) -> bytes | None:
    """Read exactly `size` bytes from the child's socket; None if the socket ends before."""
    loop = asyncio.get_running_loop()
    content = bytearray()
    while len(content) < size:
        part = await loop.sock_recv(control, min(size - len(content), 1 << 20))
        if not part:
            return None
        content += part
    return bytes(content)


async def _tail(process: asyncio.subprocess.Process) -> None:
    """Read and discard the child process's error output, so that it never blocks."""
    if process.stderr is not None:
        while await process.stderr.read(STDERR_LIMIT):
            pass
