"""`--metrics`: a port of this machine with counts of what an aggregator does."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from smpc_dp.console.output import print_note
from smpc_dp.session.events import OnEvent, both

if TYPE_CHECKING:
    from smpc_dp.session.metrics import Metrics


class Metering:
    """Counts metrics of this process's sessions and serves them on a port; None: nothing is counted."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._metrics: Metrics | None = None
        if port is not None:
            # Not at the top: most members count nothing.
            from smpc_dp.session.metrics import Metrics

            self._metrics = Metrics()

    def watched(self, digest: bytes, watch: OnEvent) -> OnEvent:
        """Return `watch`, or a function that also counts a session's events, if metrics are counted."""
        return watch if self._metrics is None else both(watch, self._metrics.watch(digest.hex()[:16]))

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Context manager that serves the metrics, if counted, over HTTP; LocalError if the port is used."""
        if self._metrics is None or self._port is None:
            yield
            return
        async with self._metrics.serving(self._port) as port:
            print_note(f"metrics: http://127.0.0.1:{port}/metrics")
            yield
