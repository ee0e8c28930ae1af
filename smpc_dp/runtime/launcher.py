"""Runs every member of a session as its own process on this machine, and leaves none behind."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from smpc_dp.errors import LocalError
from smpc_dp.runtime.events import Event, OnEvent, ignore

# How long a process may take to end by itself once the aggregator has ended, and after SIGTERM.
GRACE_SECONDS = 10.0
TERM_SECONDS = 2.0
LINE_LIMIT = 1 << 24
STDERR_KEPT = 4096

_DECODER = msgspec.json.Decoder(Event)
_ENCODER = msgspec.json.Encoder()


@dataclass(slots=True)
class Ending:
    """How one process ended: exit code (negative: the signal), last event and the end of its stderr."""

    name: str
    exit_code: int | None = None
    last: Event | None = None
    errors: str = ""
    output: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when the process ended by itself and without error."""
        return self.exit_code == 0


class Launcher:
    """The processes of one session.

    Every child is given a pipe as standard input that closes when this process dies, whatever the reason, and
    ends itself then (`run_child`). Each prints one event as JSON a line; other lines are kept as output.
    """

    def __init__(self, on_event: OnEvent = ignore) -> None:
        self._on_event = on_event
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self.endings: dict[str, Ending] = {}

    def kill(self, name: str) -> None:
        """Kill one process at once, as a crash would."""
        process = self._processes.get(name)
        if process is not None and process.returncode is None:
            process.kill()

    async def run(self, commands: Mapping[str, Sequence[str]], hub: str) -> dict[str, Ending]:
        """Start a process for each name, wait until all have ended, and return how.

        When the `hub` (the aggregator) has ended, the others get GRACE_SECONDS. On cancellation, an error or
        a signal all are terminated, then killed.

        Raises:
            LocalError: a process cannot be started.
        """
        try:
            watchers = {}
            for name, command in commands.items():
                process = await self._start(name, command)
                watchers[name] = asyncio.create_task(self._watch(name, process))
            await watchers[hub]
            rest = [task for name, task in watchers.items() if name != hub]
            if rest:
                await asyncio.wait(rest, timeout=GRACE_SECONDS)
        finally:
            await asyncio.shield(self._stop_all())
        await asyncio.gather(*watchers.values())
        return self.endings

    async def _start(self, name: str, command: Sequence[str]) -> asyncio.subprocess.Process:
        self.endings[name] = Ending(name)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=LINE_LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            raise LocalError(f"{name}: cannot start a process ({error.strerror})") from None
        self._processes[name] = process
        return process

    async def _watch(self, name: str, process: asyncio.subprocess.Process) -> None:
        ending = self.endings[name]
        if process.stdout is None or process.stderr is None:
            raise LocalError(f"{name}: the process has no output pipes")
        collecting = asyncio.create_task(self._collect(ending, process.stderr))
        async for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            try:
                event = _DECODER.decode(line)
            except msgspec.DecodeError:
                ending.output.append(line)
                continue
            ending.last = event
            self._on_event(event)
        await collecting
        ending.exit_code = await process.wait()

    async def _collect(self, ending: Ending, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(STDERR_KEPT):
            ending.errors = (ending.errors + chunk.decode("utf-8", "replace"))[-STDERR_KEPT:]

    async def _stop_all(self) -> None:
        running = [process for process in self._processes.values() if process.returncode is None]
        for process in running:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        if running:
            waits: list[Awaitable[int]] = [process.wait() for process in running]
            done = asyncio.gather(*waits, return_exceptions=True)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(done), TERM_SECONDS)
            for process in running:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
            await done


def member_command(*arguments: str) -> list[str]:
    """Return the command line of `smpc-dp ARGUMENTS` as a child that prints its events."""
    return [sys.executable, "-m", "smpc_dp", *arguments, "--events"]


def print_event(event: Event) -> None:
    """Print an event for the launcher that started this process."""
    sys.stdout.write(_ENCODER.encode(event).decode() + "\n")
    sys.stdout.flush()


def run_child(main: Callable[[], Awaitable[int]], supervised: bool) -> int:
    """Run `main` to its exit code; if supervised, end with the parent, and on SIGTERM, by cancellation."""
    return asyncio.run(_guarded(main, supervised))


async def _guarded(main: Callable[[], Awaitable[int]], supervised: bool) -> int:
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(main())
    told_to_stop = False

    def stop() -> None:
        nonlocal told_to_stop
        told_to_stop = True
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, stop)
    if supervised:
        # The parent writes nothing: readable means closed, and closed means that it is gone.
        loop.add_reader(sys.stdin.fileno(), stop)
    try:
        return await task
    except asyncio.CancelledError:
        if not told_to_stop:
            # Ctrl-C: `asyncio.run` makes a KeyboardInterrupt of it.
            raise
        return 128 + signal.SIGTERM
    finally:
        if supervised:
            loop.remove_reader(sys.stdin.fileno())
        loop.remove_signal_handler(signal.SIGTERM)
