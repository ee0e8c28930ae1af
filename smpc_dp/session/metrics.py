"""Metrics of an aggregator for Prometheus, at a port of this machine alone: counts of events, no names."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, Summary, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from smpc_dp.errors import SmpcError
from smpc_dp.session.deadline import now
from smpc_dp.session.events import Event, OnEvent
from smpc_dp.transport.sockets import SILENCE_SECONDS
from smpc_dp.transport.web_server import open_server
from smpc_dp.web_settings import WebSettings

HOST = "127.0.0.1"
# Hosts that a request may name.
HOSTS = (HOST, "localhost")
# Connections at once.
MOST = 16


class Metrics:
    """Prometheus metrics of the sessions in one process, counted from their events by session."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._live = self._gauge("smpc_dp_connections", "Connections of members")
        self._connected = self._counter("smpc_dp_connections_opened", "Connections of members so far")
        self._refused = self._counter("smpc_dp_connections_refused", "Connections that were refused or cut")
        self._lost = self._counter("smpc_dp_parties_lost", "Parties lost in a request")
        self._bytes = Counter(
            "smpc_dp_message_bytes",
            "Bytes of whole messages over connections that have ended",
            ("session", "direction"),
            registry=self._registry,
        )
        self._requests = Counter(
            "smpc_dp_requests", "Requests by outcome", ("session", "outcome"), registry=self._registry
        )
        self._number = self._gauge("smpc_dp_request", "Number of the last request that began")
        self._waiting = self._gauge("smpc_dp_waiting_parties", "Parties that the aggregator waits for")
        self._seconds = Summary(
            "smpc_dp_request_seconds",
            "Time of a request from its first step to its end",
            ("session",),
            registry=self._registry,
        )

    def watch(self, session: str) -> OnEvent:
        """Return a watcher that counts the events of one session under this label."""
        begun: dict[int, float] = {}
        live, number, waiting = (gauge.labels(session) for gauge in (self._live, self._number, self._waiting))
        connected, refused, lost = (
            counter.labels(session) for counter in (self._connected, self._refused, self._lost)
        )

        def count(event: Event) -> None:
            match event.kind:
                case "connected":
                    live.inc()
                    connected.inc()
                case "traffic":
                    live.dec()
                    self._bytes.labels(session, "sent").inc(event.sent)
                    self._bytes.labels(session, "received").inc(event.received)
                case "refused":
                    refused.inc()
                case "lost":
                    lost.inc()
                case "step" | "waiting":
                    waiting.set(event.waiting)
                    if event.request and not begun.keys() & {event.request}:
                        # An aggregator serves one request at a time.
                        begun.clear()
                        begun[event.request] = now()
                        number.set(event.request)
                case "done" | "failed":
                    waiting.set(0)
                    self._requests.labels(session, event.kind).inc()
                    if event.request in begun:
                        self._seconds.labels(session).observe(now() - begun[event.request])
                case _:
                    pass

        return count

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    @contextlib.asynccontextmanager
    async def serving(self, port: int) -> AsyncIterator[int]:
        """Serve the metrics over HTTP at a local port (0: any free one) until the block ends; yield the port.

        Raises LocalError if it is in use.
        """

        async def page(request: Request) -> Response:
            if request.url.hostname not in HOSTS:
                # A page of another origin, whose name was led to this machine, may not read them.
                return PlainTextResponse("ask for http://127.0.0.1\n", 421)
            return Response(self.text(), media_type=CONTENT_TYPE_LATEST)

        def refused(_who: str, _error: SmpcError) -> None:
            """Nothing: who asks is on this machine."""

        pages = [Route("/metrics", page)]
        server = await open_server(
            HOST, port, WebSettings(), MOST, SILENCE_SECONDS, refused, "metrics", pages
        )
        try:
            yield server.port
        finally:
            await server.close()

    def _counter(self, name: str, text: str) -> Counter:
        """Create a Prometheus counter with a label for the session."""
        return Counter(name, text, ("session",), registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        """Create a Prometheus gauge with a label for the session."""
        return Gauge(name, text, ("session",), registry=self._registry)
