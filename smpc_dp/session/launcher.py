"""Runs every member of a session as a process on this machine, and leaves no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import shorten

import msgspec

from smpc_dp.errors import LocalError
from smpc_dp.session.events import Event, OnEvent, ignore
from smpc_dp.signals import STOP_SIGNALS

# Seconds that a process may take to end after the aggregator has succeeded, or failed; and after SIGTERM.
GRACE_SECONDS = 10.0
FAILED_SECONDS = 1.5
TERM_SECONDS = 2.0
# Characters of a line: a result that a child could not write to its file is one.
LINE_LIMIT = 1 << 28
STDERR_LIMIT = 4096
REASON_LIMIT = 500

_DECODER = msgspec.json.Decoder(Event)


@dataclass(slots=True)
class ProcessOutcome:
    """How a member's process ended: exit code, last event, and the end of its error output.

    `first`: it failed before the aggregator did, so that its failure is no consequence of the aggregator's
    end.
    """

    name: str
    exit_code: int | None = None
    last: Event | None = None
    errors: str = ""
    output: list[str] = field(default_factory=list)
    first: bool = False

    @property
    def ok(self) -> bool:
        """Whether the process ended with exit code 0."""
        return self.exit_code == 0

    @property
    def how(self) -> str:
        """Text on how the process ended, such as "killed (SIGKILL)" or "exit code 3"."""
        code = self.exit_code
        if code is None:
            return "has not ended"
        return f"killed ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"

    @property
    def reason(self) -> str:
        """One line on why the process failed: its error, its stderr's end, or its exit code."""
        if self.last is not None and self.last.kind == "failed" and self.last.detail:
            # The end of stderr names more of the same parties.
            return shorten(self.last.detail, REASON_LIMIT, placeholder=" ...")
        return " ".join(self.errors.removeprefix("smpc-dp: ").split())[-REASON_LIMIT:] or self.how


class Launcher:
    """Starter and supervisor of processes, one for each member of a session on this machine.

    The standard input of every child is a pipe that closes when this process dies, for whatever reason; the
    child then ends (`run_child`). Each child prints one event as JSON a line; other lines are kept as output.
    """

    def __init__(self, on_event: OnEvent = ignore, *, own_errors: bool = False) -> None:
        """`own_errors`: the children write to the standard error of this process, for their log records."""
        self._on_event = on_event
        self._own_errors = own_errors
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = False
        self._aggregator_over = False
        self.outcomes: dict[str, ProcessOutcome] = {}

    def kill(self, name: str) -> None:
        """Kill a member's process at once, as a crash would."""
        process = self._processes.get(name)
        if process is not None and process.returncode is None:
            process.kill()

    async def run(
        self, commands: Mapping[str, Sequence[str]], aggregator: str | None
    ) -> dict[str, ProcessOutcome]:
        """Start a process for each member; once all ended or were stopped return outcomes; or LocalError.

        When the `aggregator` has ended, the others get GRACE_SECONDS, or if it failed FAILED_SECONDS to
        report their state. Without one they get GRACE_SECONDS when the first of them has succeeded. On
        cancellation, an error or a signal all are terminated, then killed.

        Raises:
            LocalError: a process cannot be started.
        """
        try:
            watchers = {}
            for name, command in commands.items():
                process = await self._start(name, command)
                watchers[name] = asyncio.create_task(self._watch(name, process, name == aggregator))
            patience = await self._first(watchers, aggregator)
            rest = [task for task in watchers.values() if not task.done()]
            if rest:
                await asyncio.wait(rest, timeout=patience)
        finally:
            await asyncio.shield(self._stop_all())
        await asyncio.gather(*watchers.values())
        return self.outcomes

    async def _first(self, watchers: Mapping[str, asyncio.Task[None]], aggregator: str | None) -> float:
        """Wait for the aggregator's end, or else a first success; return seconds left to the others."""
        if aggregator is not None:
            await watchers[aggregator]
            return GRACE_SECONDS if self.outcomes[aggregator].ok else FAILED_SECONDS
        running = set(watchers.values())
        while running and not any(outcome.ok for outcome in self.outcomes.values()):
            _, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        return GRACE_SECONDS

    async def _start(self, name: str, command: Sequence[str]) -> asyncio.subprocess.Process:
        """Start one member's process with this command line and return it; LocalError if that fails."""
        self.outcomes[name] = ProcessOutcome(name)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if self._own_errors else asyncio.subprocess.PIPE,
                limit=LINE_LIMIT,
                start_new_session=True,
            )
        except OSError as error:
            raise LocalError(f"{name}: cannot start a process ({error.strerror})") from None
        self._processes[name] = process
        return process

    async def _watch(self, name: str, process: asyncio.subprocess.Process, is_aggregator: bool) -> None:
        """Read events from a process's output, and report them, until the process ends."""
        outcome = self.outcomes[name]
        if process.stdout is None:
            raise LocalError(f"{name}: the process has no output pipe")
        collecting = asyncio.create_task(self._collect(outcome, process.stderr))
        async for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            try:
                event = _DECODER.decode(line)
            except msgspec.DecodeError:
                outcome.output.append(line)
                continue
            if event.kind != "traffic":
                outcome.last = event
            if event.kind == "failed":
                outcome.first = not self._aggregator_over
                self._aggregator_over |= is_aggregator
            self._on_event(event)
        await collecting
        outcome.exit_code = await process.wait()
        silent = outcome.last is None or outcome.last.kind not in ("done", "failed")
        if silent and not outcome.ok and not self._stopping:
            outcome.first = not self._aggregator_over
            self._on_event(Event(name, "ended", detail=outcome.reason if outcome.errors else outcome.how))
        self._aggregator_over |= is_aggregator

    async def _collect(self, outcome: ProcessOutcome, stream: asyncio.StreamReader | None) -> None:
        """Read a process's error output, and keep its end in the outcome."""
        while stream is not None and (chunk := await stream.read(STDERR_LIMIT)):
            outcome.errors = (outcome.errors + chunk.decode("utf-8", "replace"))[-STDERR_LIMIT:]

    async def _stop_all(self) -> None:
        """Send all processes a signal to end; kill those that do not."""
        self._stopping = True
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
    """Return the command line that runs `smpc-dp` with these arguments as a child process."""
    return [sys.executable, "-m", "smpc_dp", *arguments, "--events"]


def print_event(event: Event) -> None:
    """Print an event as a line of JSON for the launching process."""
    # In ASCII: standard output may have an encoding of its own.
    sys.stdout.write(json.dumps(msgspec.to_builtins(event)) + "\n")
    sys.stdout.flush()


def run_child(main: Callable[[], Awaitable[int]], supervised: bool) -> int:
    """Run `main` as a child process's work; return its exit code, or 128 + the signal that cancelled it.

    If supervised, the end of the parent counts as SIGTERM.
    """
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    try:
        return asyncio.run(_guarded(main, supervised))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _guarded(main: Callable[[], Awaitable[int]], supervised: bool) -> int:
    """Run `main` to its end; return its exit code, or 128 + the signal number if a signal stops it."""
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(main())
    reported_by: signal.Signals | None = None

    def stop(number: signal.Signals) -> None:
        nonlocal reported_by
        reported_by = reported_by or number
        task.cancel()

    caught = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    for number in caught:
        loop.add_signal_handler(number, stop, number)
    if supervised:
        # The parent writes nothing: readable means closed, and closed means that it has ended.
        loop.add_reader(sys.stdin.fileno(), stop, signal.SIGTERM)
    try:
        return await task
    except asyncio.CancelledError:
        if reported_by is None:
            # Ctrl-C: `asyncio.run` turns it into KeyboardInterrupt.
            raise
        return 128 + reported_by
    finally:
        if supervised:
            loop.remove_reader(sys.stdin.fileno())
        for number in caught:
            loop.remove_signal_handler(number)
