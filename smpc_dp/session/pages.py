"""Pages of the logs of an aggregator at `wss://host/path`, below that path: for everybody who can reach it.

Answers are made in few threads, and logs are audited in one, while somebody looks: a run waits for neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from smpc_dp.errors import LocalError, VerificationError
from smpc_dp.identity.address import WebAddress
from smpc_dp.session.member import Membership
from smpc_dp.transport.interfaces import PeerListener

if TYPE_CHECKING:
    from smpc_dp.transport.web_listener import WebListener

# Seconds after the last request until no further log is audited.
IDLE_SECONDS = 600.0
# Logs of a folder of which it is known whose they are.
_KNOWN_LOGS = 4_096


@contextlib.asynccontextmanager
async def showing_logs(membership: Membership, folder: Path) -> AsyncIterator[Callable[[PeerListener], None]]:
    """Context manager that yields a function, which makes a listener show pages of the session's logs.

    The listener, which is that of the aggregator, is closed within the block: at its end an audit is waited
    for, and nobody is to be admitted meanwhile.
    """
    if not membership.web.pages:
        yield lambda _listener: None
        return
    # Not at the top: most aggregators show no logs.
    from smpc_dp.logs.audits.log_page import LogPages
    from smpc_dp.logs.audits.log_page_server import LogPageSite
    from smpc_dp.logs.audits.log_watch import LogWatch
    from smpc_dp.transport.web_server import BOARD

    session = membership.session
    address = WebAddress.parse(session.roster.member(membership.name).address or "")
    root = address.path + BOARD
    known = functools.lru_cache(_KNOWN_LOGS)(functools.partial(_is_log_of, session.canonical_json().decode()))

    def own(log: Path) -> bool:
        # Not known of a log that cannot be read now.
        with contextlib.suppress(LocalError):
            return known(log)
        return False

    watch = LogWatch(folder, session.digest.hex(), own, IDLE_SECONDS)
    pages = LogPages(watch, f"https://{address.server}{root}", root)
    watch.start()
    try:
        yield lambda listener: cast("WebListener", listener).show(LogPageSite(watch, pages, root).routes())
    finally:
        # The audit may be within the proofs of one entry.
        await asyncio.to_thread(watch.stop)


def _is_log_of(session: str, log: Path) -> bool:
    """Return whether a log file belongs to a session; raises LocalError if unreadable."""
    from smpc_dp.logs.growing_log import read_line
    from smpc_dp.logs.log import MAX_LINE_BYTES, read_header

    try:
        return read_header(read_line(log, 0, 0, MAX_LINE_BYTES + 1)).session == session
    except VerificationError:
        return False
