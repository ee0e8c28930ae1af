"""Several sessions in one process, behind one HTTP server, each at the path of its aggregator's address.

Each has its own budgets, files and tasks, and the steps of its requests run in threads: one that fails, is
slow, or has no parties, leaves the others alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
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
from smpc_dp.transport.web_server import open_server
from smpc_dp.web_settings import WebSettings

FILE = "session.toml"
# Seconds until a session is served again that this machine could not serve: doubled each time.
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
# Threads for the steps of each session, so that a few slow ones do not hold up the others.
THREADS = 4

# Told that a session cannot be served, for this reason, now or any more.
OnProblem = Callable[["HostedSession", SmpcError], None]

_LOG = logging.getLogger("smpc_dp.session")


@dataclass(frozen=True, slots=True)
class HostedSession:
    """A session of a folder: `name` is that of its own folder, `aggregator` its roster entry."""

    name: str
    file: Path
    loaded: SessionFile
    aggregator: Member

    @property
    def path(self) -> str:
        """The path of the aggregator's address."""
        return WebAddress.parse(self.aggregator.address or "").path


def find_sessions(folder: Path) -> tuple[list[HostedSession], list[ConfigIssue]]:
    """Return the sessions in `session.toml` of the folders in a folder, and why others cannot be served.

    Raises LocalError if the folder cannot be read.
    """
    try:
        files = sorted(folder.glob(f"*/{FILE}"))
        if not folder.is_dir():
            raise LocalError(f"{folder}: no such folder")
    except OSError as error:
        raise LocalError(f"{folder}: cannot read the folder ({error.strerror})") from None
    sessions: list[HostedSession] = []
    issues: list[ConfigIssue] = []
    paths: dict[str, str] = {}
    for file in files:
        try:
            session = _hosted(file)
        except ConfigError as error:
            issues += [
                ConfigIssue(f"{file}: {where}" if where not in ("", str(file)) else str(file), reason, check)
                for where, reason, check in error.issues
            ]
            continue
        except LocalError as error:
            reason = str(error).removeprefix(f"{file}: ")
            issues.append(ConfigIssue(str(file), reason, ConfigCheck.FORMAT))
            continue
        if (other := paths.setdefault(session.path, session.name)) != session.name:
            reason = f"the path {session.path} is that of the session in {other}"
            issues.append(ConfigIssue(str(file), reason, ConfigCheck.DUPLICATE))
        else:
            sessions.append(session)
    return sessions, issues


def _hosted(file: Path) -> HostedSession:
    """Return the session of a file; raises ConfigError or LocalError if it cannot be served."""
    if not file.is_file():
        # A named pipe would be waited for.
        raise LocalError(f"{file}: is no file")
    loaded = load_session(file)
    aggregator = loaded.roster.aggregator
    if aggregator is None or not is_web_address(aggregator.address or ""):
        reason = "its aggregator has no address wss://host/path, by which sessions are told apart"
        raise ConfigError.at("roster", reason, ConfigCheck.UNSUPPORTED)
    return HostedSession(file.parent.name, file, loaded, aggregator)


async def serve_sessions(
    sessions: Sequence[HostedSession],
    host: str,
    port: int,
    web: WebSettings,
    watch_of: Callable[[HostedSession], OnEvent] = lambda _session: ignore,
    on_problem: OnProblem = lambda _session, _error: None,
    on_listening: Callable[[int], None] = lambda _port: None,
) -> None:
    """Serve sessions at `host`:`port` until all have ended: those of sums end when this is cancelled.

    `watch_of` makes the watcher of a session's events; `on_listening` is told the port. A session that this
    machine cannot serve, for its disk say, is served again later; one whose files are wrong is not. The event
    loop gets threads for all of them. Raises LocalError if nothing can listen there, or the files of the
    outer TLS are wrong.
    """

    def refused(who: str, error: SmpcError) -> None:
        _LOG.warning("refused %s: %s", who, error)

    threads = ThreadPoolExecutor(THREADS * (len(sessions) + 1))
    asyncio.get_running_loop().set_default_executor(threads)
    server = await open_server(host, port, web, STRANGERS, SILENCE_SECONDS, refused, "sessions")
    shared = replace(web, server=server)
    for session in sessions:
        server.expect(session.path)
    on_listening(server.port)
    serving = {
        asyncio.create_task(_serve(session, shared, watch_of(session), on_problem)): session
        for session in sessions
    }
    running = set(serving)
    try:
        while running:
            ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                server.forget(serving[task].path)
                error = asyncio.CancelledError() if task.cancelled() else task.exception()
                if error is not None:
                    # An error of this program in one session is none of the others.
                    _LOG.error("%s: its aggregator failed", serving[task].name, exc_info=error)
                    on_problem(serving[task], LocalError(f"its aggregator failed: {error!r}"))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await server.close()


async def _serve(session: HostedSession, web: WebSettings, watch: OnEvent, on_problem: OnProblem) -> None:
    """Serve one session to its end."""
    member = HostMember(
        session.file, session.aggregator.name, None, None, None, None, None, None, watch, web=web
    )
    task, pause = task_of(session.loaded), FIRST_PAUSE
    while True:
        try:
            await task.serve(member, "aggregator", 0, [])
            return
        except LocalError as error:
            on_problem(session, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        except SmpcError as error:
            on_problem(session, error)
            return
