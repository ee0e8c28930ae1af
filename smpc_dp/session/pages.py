"""Pages of the logs of an aggregator at `wss://host/path`, below that path: for everybody who can reach it.

Answers are made in few threads, and logs are audited in one, while somebody looks: a run waits for neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
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
async def serving_pages(membership: Membership, folder: Path, listener: PeerListener) -> AsyncIterator[None]:
    """Show the logs of the session in a folder until the end of the block, where the settings say so.

    `listener`: that of the aggregator.
    """
    if not membership.web.pages:
        yield
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
        cast("WebListener", listener).show(LogPageSite(watch, pages, root).routes())
        yield
    finally:
        # The audit may be within the proofs of one entry.
        await asyncio.to_thread(watch.stop)


def _is_log_of(session: str, log: Path) -> bool:
    """Tell whether a log that has begun is of a session, given by its canonical JSON; raises LocalError."""
    from smpc_dp.logs.growing_log import read_line
    from smpc_dp.logs.log import MAX_LINE_BYTES, read_header

    try:
        return read_header(read_line(log, 0, 0, MAX_LINE_BYTES + 1)).session == session
    except VerificationError:
        return False
