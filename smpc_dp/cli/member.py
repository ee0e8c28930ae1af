"""One member of a session on this host: its options, its connection, and its exit code."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smpc_dp.cli.output import progress_console, report_error
from smpc_dp.errors import SmpcError
from smpc_dp.net.events import Event, OnEvent
from smpc_dp.net.inputs import find_input
from smpc_dp.net.launcher import print_event
from smpc_dp.net.planned import NoiseWarning
from smpc_dp.net.session import Session, connect

if TYPE_CHECKING:
    from smpc_dp.net.audit import Report


@dataclass(frozen=True, slots=True)
class HostMember:
    """One member of a session on this host, as the options of `party` describe it."""

    session: Path
    name: str
    vector: Path | None
    key: Path | None
    listen: str | None
    ledger: Path | None
    board: Path | None
    audit: Path | None
    watch: OnEvent

    @property
    def input_file(self) -> Path:
        """The file of its vector, record or data; raise LocalError if none is given or found."""
        return self.vector or find_input(self.session.parent / "inputs", self.name)

    def connect(self) -> AbstractAsyncContextManager[Session]:
        """Connect a party as `net.session.connect` does; what it warns of is printed with the plan."""
        warnings.simplefilter("ignore", NoiseWarning)
        return connect(
            self.session,
            self.name,
            key=self.key,
            ledger=self.ledger,
            listen_on=self.listen,
            on_event=self.watch,
        )


async def exit_code(compute: Callable[[], Awaitable[Report | None]], name: str, *, events: bool) -> int:
    """Run a member's computation and return its exit code.

    1 after an error, which is shown, or a bad audit.
    """
    try:
        report = await compute()
        if report is None:
            return 0
        for line in (report.statement, *report.digests):
            progress_console().print(line)
        return 0 if report.ok else 1
    except SmpcError as error:
        if events:
            print_event(Event(name, "failed", detail=str(error)))
        report_error(error)
        return 1
