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
    pass


@dataclass(frozen=True, slots=True)
class HostMember:
    """One member of a session on this host, as the options of `smpc-dp party` describe it."""

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
        """Return the file of its vector, record or data, by default one beside the session file.

        Raises LocalError if that does not exist with one of these suffixes.
        """
        return self.vector or find_input(self.session.parent / "inputs", self.name, suffixes)

    @property
    def input_file(self) -> Path:
        """The file of its vector, record or points; errors as of `input_among`."""
        return self.input_among(SUFFIXES)

    def connect(self) -> AbstractAsyncContextManager[Session]:
        """Connect a party as `smpc_dp.connect` does; what it warns of is printed with plan or result."""
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
