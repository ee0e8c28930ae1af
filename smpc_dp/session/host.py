"""One member of a session on this host: its files, what watches it, and its connection."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from smpc_dp.session.events import OnEvent
from smpc_dp.session.inputs import SUFFIXES, find_input
from smpc_dp.session.planned import NoiseWarning, UnchargedWarning
from smpc_dp.session.session import Session, connect
from smpc_dp.session.session_state import SessionState
from smpc_dp.web_settings import WebSettings


def _ignore(_line: str) -> None:
    """Do nothing with a line of output: the default when nobody reads."""
    pass


@dataclass(frozen=True, slots=True)
class HostMember:
    """Settings of one member that runs on this host, as given to `smpc-dp party`."""

    session: Path
    name: str
    vector: Path | None
    key: Path | None
    listen: str | None
    ledger: Path | None
    board: Path | None
    audit: Path | None
    watch: OnEvent
    # Shows a line to this member alone.
    note: Callable[[str], None] = _ignore
    web: WebSettings | None = None
    # What it keeps of its session, which whoever opened it closes; None: nothing.
    state: SessionState | None = None
    # Of an aggregator that serves sums until it is stopped: as of `serve`.
    stop: asyncio.Event | None = None

    def input_among(self, suffixes: Collection[str]) -> Path:
        """Return the party's input file, given or in `inputs` with one of the suffixes; or LocalError.

        Raises LocalError if that does not exist with one of these suffixes.
        """
        return self.vector or find_input(self.session.parent / "inputs", self.name, suffixes)

    @property
    def input_file(self) -> Path:
        """The path of the party's input file: a vector, record or table."""
        return self.input_among(SUFFIXES)

    def connect(self) -> AbstractAsyncContextManager[Session]:
        """Return a context manager that connects the party; silence two kinds of warnings process-wide."""
        for kind in (NoiseWarning, UnchargedWarning):
            warnings.simplefilter("ignore", kind)
        return connect(
            self.session,
            self.name,
            key=self.key,
            ledger=self.ledger,
            listen_on=self.listen,
            on_event=self.watch,
            web=self.web,
            state=self.state,
        )
