"""Options of commands that connect one member of a session, or several aggregators, from this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smpc_dp.errors import ConfigError, ConfigIssue
from smpc_dp.web_settings import PING_SECONDS, WebSettings

KeyFile = Annotated[Path | None, typer.Option("--key", help="Identity file; default keys/NAME.key.")]
ListenOn = Annotated[
    str | None,
    typer.Option("--listen", help="Who is called by others: host:port to bind, if not the roster's address."),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="Party, of an aggregator at wss://: certificates (PEM) to trust, beside the system's."
    ),
]
PingSeconds = Annotated[
    float | None,
    typer.Option(
        "--ping",
        help=f"Party, of an aggregator at wss://: seconds between pings; default {PING_SECONDS:g}.",
    ),
]
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate",
        help="Aggregator at wss:// that no balancer is before: its chain for HTTPS (PEM).",
    ),
]
CertificateKey = Annotated[
    Path | None, typer.Option("--tls-key", help="The private key of --tls-certificate (PEM).")
]
Behind = Annotated[
    list[str] | None,
    typer.Option(
        "--behind",
        help="Aggregator at wss://: address or network of a balancer, whose header X-Forwarded-For is "
        "believed; may be given several times.",
    ),
]
Pages = Annotated[
    bool,
    typer.Option(
        "--pages",
        help="Aggregator at wss://: show its logs, with the names of parties, to everybody at PATH/board/ of "
        "its address.",
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics",
        min=0,
        max=65535,
        help="Aggregator: port of this machine for Prometheus, at /metrics; 0: any.",
    ),
]

# Options of the settings that can be wrong.
_OPTIONS = {"ping": "--ping", "certificate": "--tls-certificate", "proxies": "--behind"}


def web_settings(
    ca: Path | None,
    ping: float | None,
    certificate: Path | None,
    certificate_key: Path | None,
    behind: list[str] | None,
    *,
    pages: bool,
) -> WebSettings | None:
    """Return the HTTPS settings that options give, None for the defaults; ConfigError for a wrong one."""
    seconds = PING_SECONDS if ping is None else ping
    try:
        settings = WebSettings(ca, seconds, certificate, certificate_key, tuple(behind or ()), pages)
    except ConfigError as error:
        issues = [ConfigIssue(_OPTIONS[field], reason, check) for field, reason, check in error.issues]
        raise ConfigError(issues) from None
    return None if settings == WebSettings() else settings
