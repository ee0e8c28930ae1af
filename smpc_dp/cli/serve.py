"""`smpc-dp serve`: the aggregators of several sessions in one process."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.cli.connecting import (
    Behind,
    Certificate,
    CertificateKey,
    MetricsPort,
    Pages,
    web_settings,
)
from smpc_dp.cli.member import exit_code
from smpc_dp.cli.metering import Metering
from smpc_dp.console.output import print_note
from smpc_dp.errors import ConfigCheck, ConfigError, SmpcError, printable
from smpc_dp.identity.address import split_address
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.launcher import run_child
from smpc_dp.session.many_sessions import FILE, HostedSession, find_sessions, serve_sessions
from smpc_dp.signals import hangups_ignored
from smpc_dp.web_settings import WebSettings


def serve(
    sessions: Annotated[
        Path,
        typer.Option(help="Folder with a folder for each session: its session.toml, and keys beside it."),
    ],
    listen: Annotated[str, typer.Option(help="host:port to bind.")] = "127.0.0.1:8080",
    certificate: Certificate = None,
    certificate_key: CertificateKey = None,
    behind: Behind = None,
    pages: Pages = False,
    metrics: MetricsPort = None,
) -> None:
    """Serve several sessions in one process, until it is stopped.

    The aggregator of each has an address wss://host/path, with a path of its own. A session whose files are
    wrong is named, and the others are served. After SIGHUP the folder is read again: sessions that were added
    are served, and those whose folders are gone end.
    """
    try:
        host, port = split_address(listen)
    except ValueError as error:
        raise ConfigError.at("--listen", str(error), ConfigCheck.FORMAT) from None
    web = web_settings(None, None, certificate, certificate_key, behind, pages=pages) or WebSettings()
    # One that comes too early must not end this process.
    with hangups_ignored():
        content = find_sessions(sessions)
        issues = [issue for of_session in content.issues.values() for issue in of_session]
        if not content.sessions:
            reason = f"{sessions} has no folder with a {FILE}"
            raise ConfigError(issues) if issues else ConfigError.at("--sessions", reason, ConfigCheck.MISSING)
        for issue in issues:
            print_note(f"not served: {issue}")
        metering = Metering(metrics)

        def watch_of(session: HostedSession) -> OnEvent:
            return metering.watched(session.loaded.digest, partial(_show, session.name))

        async def compute() -> None:
            again = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, again.set)
            async with metering.serving():
                watchers = (watch_of, _report, _print)
                await serve_sessions(sessions, content.sessions, host, port, web, *watchers, again=again)

        code = run_child(partial(exit_code, compute, "serve", events=False), supervised=False)
    raise typer.Exit(code)


def _show(name: str, event: Event) -> None:
    """Print an event of a session, except events about traffic."""
    if event.kind == "traffic":
        return
    request = f"request {event.request}: " if event.request else ""
    detail = f": {event.detail}" if event.detail and event.kind in ("done", "failed") else ""
    _print(name, f"{request}{event.text}{detail}")


def _report(name: str, error: SmpcError) -> None:
    """Print the error because of which a session is not served."""
    _print(name, f"is not served: {error}")


def _print(name: str, text: str) -> None:
    """Print a line about a session, with the session's name before the text if there is one."""
    print_note(f"{time.strftime('%H:%M:%S')} {printable(name) or 'sessions'}: {text}")
