"""Charges of runs to a party's ledger."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event as ReleaseEvent
    from smpc_dp.privacy.accountant.ledger import Ledger
    from smpc_dp.privacy.accountant.receipt import Receipt


class Raised(NamedTuple):
    """Actual privacy loss of a run that was more than charged, with how many parties signed falsely."""

    false_count: int
    event: ReleaseEvent


class Charge(Protocol):
    """Interface of a function that charges a run to the party's ledger, and returns the receipt, if any.

    `raised`: the run's actual release, where it shows more than was charged. It is recorded even
    beyond the budget, since it has happened, and once for each number of false parties.
    """

    async def __call__(self, run_id: bytes, raised: Raised | None = None) -> Receipt | None: ...


async def charge_run(
    ledger: Ledger | None,
    event: Callable[[], ReleaseEvent],
    request: int,
    run_id: bytes,
    raised: Raised | None = None,
) -> Receipt | None:
    """Charge a run's release to the ledger and return the receipt, None without one; or PrivacyError."""
    if ledger is None:
        return None
    if raised is None:
        return await asyncio.to_thread(lambda: ledger.charge(run_id, event(), f"request {request}"))
    label = f"request {request}: more parties were corrupt than planned"
    # A run that is restored is shown the same once more, which costs nothing.
    name = run_id + raised.false_count.to_bytes(8, "big")
    return await asyncio.to_thread(lambda: ledger.charge(name, raised.event, label, resume=True, forced=True))


def open_ledger(path: str | os.PathLike[str], party: str) -> Ledger:
    """Open the privacy ledger file of a party; raise an error if it is missing or another party's."""
    # Not at the top: most sessions have no ledger, and the accountant takes a while to load.
    from smpc_dp.privacy.accountant.ledger import Ledger

    return Ledger.open(os.fspath(path), party=party)
