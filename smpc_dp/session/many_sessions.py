"""Several sessions in one process, behind one HTTP server, each at the path of its aggregator's address.

Each has its own budgets, files and tasks, and the steps of its requests run in threads: one that fails, is
slow, or has no parties, leaves the others alone. The folder is read again when it is asked for: sessions are
added and removed, and none that is served changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError, SmpcError
from smpc_dp.identity.address import WebAddress, is_web_address
from smpc_dp.identity.roster import Member
from smpc_dp.session.events import OnEvent, ignore
from smpc_dp.session.host import HostMember
from smpc_dp.session.session_file import SessionFile, load_session
from smpc_dp.session.tasks import task_of
from smpc_dp.transport.sockets import SILENCE_SECONDS
from smpc_dp.transport.strangers import STRANGERS
from smpc_dp.transport.web_server import WebServer, open_server
from smpc_dp.web_settings import WebSettings

FILE = "session.toml"
# Seconds until a session is served again that this machine could not serve: doubled each time.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
# Threads for the steps of each session, so that a few slow ones do not hold up the others.
THREADS = 4

# Told that the session with a name cannot be served, for this reason, now or any more.
OnProblem = Callable[[str, SmpcError], None]
# Told in a sentence what becomes of the session with a name.
OnChange = Callable[[str, str], None]

_LOG = logging.getLogger("smpc_dp.session")


@dataclass(frozen=True, slots=True)
class HostedSession:
    """A session that one process serves together with others: its folder, aggregator and path."""

    name: str
    file: Path
    loaded: SessionFile
    aggregator: Member

    @property
    def path(self) -> str:
        """URL path under which the session is served."""
        return WebAddress.parse(self.aggregator.address or "").path


@dataclass(frozen=True, slots=True)
class SessionFolder:
    """Result of searching a folder: sessions that can be served, and why others cannot."""

    sessions: tuple[HostedSession, ...]
    issues: dict[str, tuple[ConfigIssue, ...]]


def find_sessions(folder: Path, first: Collection[str] = ()) -> SessionFolder:
    """Search a folder's subfolders for session files; return those that can be served, and the faults.

    `first`: the names of those that keep their paths, where others have the same. Raises LocalError if the
    folder cannot be read.
    """
    try:
        # Not by `glob`, which passes over what it may not read.
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except OSError as error:
        raise LocalError(f"{folder}: cannot read the folder of sessions ({error.strerror})") from None
    sessions: list[HostedSession] = []
    issues: dict[str, tuple[ConfigIssue, ...]] = {}
    paths: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (name not in first, name)):
        file = folder / name / FILE
        try:
            session = _hosted(file)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ConfigError as error:
            issues[name] = tuple(
                ConfigIssue(_where(file, where), reason, check) for where, reason, check in error.issues
            )
            continue
        except (LocalError, OSError) as error:
            reason = str(error).removeprefix(f"{file}: ")
            if isinstance(error, OSError):
                reason = f"cannot be read ({error.strerror})"
            issues[name] = (ConfigIssue(str(file), reason, ConfigCheck.FORMAT),)
            continue
        if (other := paths.setdefault(session.path, name)) != name:
            reason = f"the path {session.path} is that of the session in {other}"
            issues[name] = (ConfigIssue(str(file), reason, ConfigCheck.DUPLICATE),)
        else:
            sessions.append(session)
    return SessionFolder(tuple(sessions), issues)


def _where(file: Path, where: str) -> str:
    """Return where in a session file a fault is, preceded by the file's name."""
    if where.startswith(str(file)):
        return where
    return f"{file}: {where}" if where else str(file)


def _hosted(file: Path) -> HostedSession:
    """Read a session file to be served; raise ConfigError or LocalError if it cannot be.

    Raises OSError if there is no such file, or it cannot be asked for.
    """
    if not stat.S_ISREG(file.stat().st_mode):
        # A named pipe would be waited for.
        raise LocalError(f"{file}: is no file")
    loaded = load_session(file)
    aggregator = loaded.roster.aggregator
    if aggregator is None or not is_web_address(aggregator.address or ""):
        reason = "its aggregator has no address wss://host/path, by which sessions are told apart"
        raise ConfigError.at("roster", reason, ConfigCheck.UNSUPPORTED)
    return HostedSession(file.parent.name, file, loaded, aggregator)


async def serve_sessions(
    folder: Path,
    sessions: Sequence[HostedSession],
    host: str,
    port: int,
    web: WebSettings,
    watch_of: Callable[[HostedSession], OnEvent] = lambda _session: ignore,
    on_problem: OnProblem = lambda _name, _error: None,
    on_change: OnChange = lambda _name, _text: None,
    *,
    again: asyncio.Event | None = None,
) -> None:
    """Serve all sessions of a folder on one HTTP port, as their aggregators, until cancelled.

    `watch_of` makes the watcher of a session's events. A session that this machine cannot serve, for its disk
    say, is served again later; one whose files are wrong is not. Each time `again` is set, the folder is read
    again, as of `_Hosting.look`. The event loop gets threads for all of them. Raises LocalError if nothing
    can listen there, or the files of the outer TLS are wrong.
    """

    def refused(who: str, error: SmpcError) -> None:
        _LOG.warning("refused %s: %s", who, error)

    again = again or asyncio.Event()
    server = await open_server(host, port, web, STRANGERS, SILENCE_SECONDS, refused, "sessions")
    hosting = _Hosting(folder, server, web, watch_of, on_problem, on_change, again)
    try:
        hosting.begin(sessions)
        while True:
            await again.wait()
            again.clear()
            await hosting.look()
    finally:
        await hosting.end()
        await server.close()


@dataclass(frozen=True, slots=True)
class _Served:
    """State of one session that is being served: its task, and the event that stops the task."""

    session: HostedSession
    task: asyncio.Task[bool]
    stop: asyncio.Event


class _Hosting:
    """Manager of all sessions that one HTTP server serves, which follows changes of their folder."""

    def __init__(
        self,
        folder: Path,
        server: WebServer,
        web: WebSettings,
        watch_of: Callable[[HostedSession], OnEvent],
        on_problem: OnProblem,
        on_change: OnChange,
        again: asyncio.Event,
    ) -> None:
        """Arguments as of `serve_sessions`."""
        self._folder = folder
        self._server = server
        self._web = replace(web, server=server)
        self._watch_of = watch_of
        self._on_problem = on_problem
        self._on_change = on_change
        self._again = again
        self._served: dict[str, _Served] = {}
        # By name the digests of those that have ended well: they have no further requests.
        self._over: dict[str, bytes] = {}
        # Paths for which sessions of the folder wait.
        self._wanted: set[str] = set()
        self._threads = 0

    def begin(self, sessions: Sequence[HostedSession]) -> None:
        """Start serving these sessions, none of which is served yet."""
        self._make_threads(len(self._served) + len(sessions))
        for session in sessions:
            self._server.expect(session.path)
            stop = asyncio.Event()
            member = HostMember(
                session.file,
                session.aggregator.name,
                None,
                None,
                None,
                None,
                None,
                None,
                self._watch_of(session),
                web=self._web,
                stop=stop,
            )
            task = asyncio.create_task(_serve(session, member, stop, self._on_problem))
            task.add_done_callback(partial(self._ended, session))
            self._served[session.name] = _Served(session, task, stop)
            self._on_change(session.name, f"begins: {session.aggregator.address} at port {self._server.port}")

    async def look(self) -> None:
        """Read the folder again: start sessions that were added, stop those whose file is gone.

        These end when no request is under way. One whose file is changed, or wrong, is served as before.
        """
        try:
            content = await asyncio.to_thread(find_sessions, self._folder, {*self._served})
        except LocalError as error:
            self._on_change("", f"nothing is changed: {error}")
            return
        sessions = {session.name: session for session in content.sessions}
        there = sessions.keys() | content.issues.keys()
        for name, served in self._served.items():
            if served.stop.is_set():
                continue
            if name not in there:
                is_sum = served.session.loaded.described.is_sum
                until = "when no request is under way" if is_sum else "after its last request"
                self._on_change(name, f"{served.session.file} is gone: ends {until}")
                served.stop.set()
            else:
                self._compare(served.session, sessions.get(name), content.issues.get(name, ()))
        for name in sorted(content.issues.keys() - self._served.keys()):
            self._on_problem(name, ConfigError(content.issues[name]))
        self._over = {name: digest for name, digest in self._over.items() if name in there}
        self._begin_new(sessions)

    def _begin_new(self, sessions: dict[str, HostedSession]) -> None:
        """Start sessions of the folder that are neither served nor have ended normally."""
        paths = {served.session.path: name for name, served in self._served.items()}
        added = []
        self._wanted.clear()
        for name, session in sessions.items():
            if name in self._served or self._over.get(name) == session.loaded.digest:
                continue
            if (other := paths.get(session.path)) is None:
                added.append(session)
            else:
                self._wanted.add(session.path)
                self._on_change(name, f"waits for the path {session.path} until the session in {other} ends")
        self.begin(added)

    def _compare(
        self, served: HostedSession, current: HostedSession | None, issues: Sequence[ConfigIssue]
    ) -> None:
        """Report if a served session's file has changed, and that the change is not applied."""
        stays = f"the session goes on with the digest {served.loaded.digest.hex()}"
        if current is None:
            self._on_change(served.name, f"{stays}; not taken: {ConfigError(issues)}")
        elif changed := _change(served, current.loaded):
            self._on_change(served.name, f"{changed}, which is not taken: {stays}")
        elif current.loaded.timeouts != served.loaded.timeouts:
            self._on_change(served.name, f"{current.file} has other timeouts, which are not taken: {stays}")

    def _ended(self, session: HostedSession, task: asyncio.Task[bool]) -> None:
        """Remove a session whose task has ended; report its end or error, have the folder read again."""
        served = self._served.pop(session.name, None)
        if served is None:
            return
        self._server.forget(session.path)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            # An error of this program in one session is none of the others.
            _LOG.error("%s: its aggregator failed", session.name, exc_info=error)
            self._on_problem(session.name, LocalError(f"its aggregator failed: {error!r}"))
        elif served.stop.is_set():
            self._on_change(session.name, "has ended")
        elif task.result():
            self._over[session.name] = session.loaded.digest
        if served.stop.is_set() or session.path in self._wanted:
            # Another one may have come to its place, or wait for its path.
            self._again.set()

    async def end(self) -> None:
        """Stop serving all sessions at once."""
        tasks = [served.task for served in self._served.values()]
        self._served.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _make_threads(self, sessions: int) -> None:
        """Give the event loop enough threads for so many sessions; do nothing if it has them."""
        if sessions <= self._threads:
            return
        self._threads = sessions
        # What was begun in those before goes on there.
        threads = ThreadPoolExecutor(THREADS * (sessions + 1))
        asyncio.get_running_loop().set_default_executor(threads)


def _change(session: HostedSession, loaded: SessionFile) -> str:
    """Return text on how a session's file differs from the served session; "" if it does not."""
    if loaded.digest == session.loaded.digest:
        return ""
    return f"{session.file} is now of a session with the digest {loaded.digest.hex()}"


def _check_unchanged(session: HostedSession) -> None:
    """Raise ConfigError if the session file on disk is not the session that is served."""
    if changed := _change(session, load_session(session.file)):
        reason = f"{changed}, and was of {session.loaded.digest.hex()}"
        raise ConfigError.at("", reason, ConfigCheck.DIFFERS)


async def _serve(
    session: HostedSession, member: HostMember, stop: asyncio.Event, on_problem: OnProblem
) -> bool:
    """Run an aggregator, again after a LocalError; return True if it ended well, else (stop, error) False."""
    task, pause = task_of(session.loaded), 0.0
    while not stop.is_set():
        try:
            if pause:
                await asyncio.to_thread(_check_unchanged, session)
            await task.serve(member, "aggregator", 0, [])
            return True
        except LocalError as error:
            on_problem(session.name, error)
            pause = min(2 * pause, LONGEST_PAUSE) or FIRST_PAUSE
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
        except SmpcError as error:
            on_problem(session.name, error)
            return False
    return False
