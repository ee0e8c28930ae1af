"""Settings of connections over HTTPS, each member's own; nothing in them is part of the session."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smpc_dp.errors import ConfigCheck, ConfigError, LocalError

__all__ = ["WebSettings"]

# Seconds between two pings of a dialler: below the idle limit of balancers, often 60 s, sometimes 30.
PING_SECONDS = 20.0
LEAST_PING, MOST_PING = 0.1, 3600.0

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Settings of connections by web address (wss://): certificates, pings, proxies and pages.

    Attributes:
        ca_file: of a party: certificates (PEM) that it trusts for the outer TLS, beside those of the system;
            of an organisation whose firewall inspects TLS, say.
        ping: of a party: seconds between two pings, so that no balancer sees an idle connection.
        certificate, certificate_key: of an aggregator that ends the outer TLS itself: the files (PEM) of its
            chain and its private key. By default it listens for plain HTTP, behind what ends TLS.
        proxies: of an aggregator: addresses or networks whose header `X-Forwarded-For` it believes.
        pages: of an aggregator: whether everybody who reaches its address is shown its logs, at PATH/board/
            below it: names of parties, settings, and all that an audit reads.
        server: of an aggregator: the HTTP server that sessions of one process share, which then has these
            settings; by default each listens alone.

    Raises ConfigError for the first fault.
    """

    ca_file: Path | None = None
    ping: float = PING_SECONDS
    certificate: Path | None = None
    certificate_key: Path | None = None
    proxies: tuple[str, ...] = ()
    pages: bool = False
    server: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not LEAST_PING <= self.ping <= MOST_PING:
            reason = f"{self.ping:g} is not in {LEAST_PING:g} to {MOST_PING:g} seconds"
            raise ConfigError.at("ping", reason, ConfigCheck.RANGE)
        if (self.certificate is None) != (self.certificate_key is None):
            reason = "a certificate and its key go together: give both, or neither behind a balancer"
            raise ConfigError.at("certificate", reason, ConfigCheck.MISSING)
        networks(self.proxies)

    def client_context(self) -> ssl.SSLContext:
        """Return a client's context for the outer TLS; LocalError if `ca_file` is unreadable."""
        context = ssl.create_default_context()
        # The default since Python 3.13 refuses what many a firewall signs that inspects TLS.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["http/1.1"])
        if self.ca_file is not None:
            try:
                context.load_verify_locations(cafile=self.ca_file)
            except (OSError, ssl.SSLError) as error:
                reason = "no PEM" if isinstance(error, ssl.SSLError) else error.strerror
                raise LocalError(f"{self.ca_file}: cannot read the CA certificates ({reason})") from None
        return context

    def server_context(self) -> ssl.SSLContext | None:
        """Return an aggregator's outer TLS context, None for plain HTTP; LocalError for wrong files.

        Raises LocalError if the files cannot be read.
        """
        if self.certificate is None or self.certificate_key is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self.certificate, self.certificate_key)
        except (OSError, ssl.SSLError) as error:
            reason = "no PEM, or no pair" if isinstance(error, ssl.SSLError) else error.strerror
            files = f"{self.certificate} and {self.certificate_key}"
            raise LocalError(f"{files}: cannot use them as certificate and key ({reason})") from None
        return context


def networks(proxies: Iterable[str]) -> tuple[Network, ...]:
    """Parse proxies' IP addresses and networks; raise ConfigError for other text."""
    read = []
    for text in proxies:
        try:
            read.append(ipaddress.ip_network(text))
        except ValueError:
            reason = f"'{text}' is no IP address and no network, such as 10.0.0.0/8"
            raise ConfigError.at("proxies", reason, ConfigCheck.FORMAT) from None
    return tuple(read)


DEFAULT = WebSettings()
