"""`smpc-dp serve`: the aggregators of several sessions in one process."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.cli.member import exit_code
from smpc_dp.cli.metering import Metering
from smpc_dp.console.output import print_note
from smpc_dp.errors import ConfigCheck, ConfigError, SmpcError
from smpc_dp.identity.address import split_address
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.session.launcher import run_child
from smpc_dp.session.many_sessions import HostedSession, find_sessions, serve_sessions
from smpc_dp.web_settings import WebSettings


def serve(
    sessions: Annotated[
        Path,
        typer.Option(help="Folder with a folder for each session: its session.toml, and keys beside it."),
    ],
    listen: Annotated[str, typer.Option(help="host:port to bind.")] = "127.0.0.1:8080",
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-certificate", help="Without a balancer before: the chain for HTTPS (PEM)."),
    ] = None,
    certificate_key: Annotated[
        Path | None, typer.Option("--tls-key", help="The private key of --tls-certificate (PEM).")
    ] = None,
    behind: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a balancer, whose header X-Forwarded-For is believed; may be given "
            "several times."
        ),
    ] = None,
    metrics: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port of this machine for Prometheus, at /metrics; 0: any."),
    ] = None,
) -> None:
    """Serve several sessions in one process, until it is stopped.

    The aggregator of each has an address wss://host/path, with a path of its own. A session whose files are
    wrong is named, and the others are served.
    """
    try:
        host, port = split_address(listen)
    except ValueError as error:
        raise ConfigError.at("--listen", str(error), ConfigCheck.FORMAT) from None
    hosted, issues = find_sessions(sessions)
    if not hosted:
        reason = f"{sessions} has no session that can be served"
        raise ConfigError(issues) if issues else ConfigError.at("--sessions", reason, ConfigCheck.MISSING)
    for issue in issues:
        print_note(f"not served: {issue}")
    web = WebSettings(certificate=certificate, certificate_key=certificate_key, proxies=tuple(behind or ()))
    metering = Metering(metrics)

    def watch_of(session: HostedSession) -> OnEvent:
        return metering.watched(session.loaded.digest, partial(_show, session))

    def listening(bound: int) -> None:
        for session in hosted:
            print_note(f"{session.name}: serves {session.aggregator.address} at port {bound}")

    async def compute() -> None:
        async with metering.serving():
            await serve_sessions(hosted, host, port, web, watch_of, _report, listening)

    raise typer.Exit(run_child(partial(exit_code, compute, "serve", events=False), supervised=False))


def _show(session: HostedSession, event: Event) -> None:
    """Print an event of a session but traffic."""
    if event.kind == "traffic":
        return
    request = f"request {event.request}: " if event.request else ""
    detail = f": {event.detail}" if event.detail and event.kind in ("done", "failed") else ""
    print_note(f"{time.strftime('%H:%M:%S')} {session.name}: {request}{event.text}{detail}")


def _report(session: HostedSession, error: SmpcError) -> None:
    """Print why a session is not served."""
    print_note(f"{time.strftime('%H:%M:%S')} {session.name}: is not served: {error}")
