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
    """The release of a run in which more parties than planned, `false_count`, signed false statements."""

    false_count: int
    event: ReleaseEvent


class Charge(Protocol):
    """Charges a run, given its id, to the ledger if there is one; raises PrivacyError if refused.

    Returns the receipt. `raised`: the run's actual release, where it shows more than was charged. It is
    recorded even beyond the budget, since it has happened, and once for each number of false parties.
    """

    async def __call__(self, run_id: bytes, raised: Raised | None = None) -> Receipt | None: ...


async def charge_run(
    ledger: Ledger | None,
    event: Callable[[], ReleaseEvent],
    request: int,
    run_id: bytes,
    raised: Raised | None = None,
) -> Receipt | None:
    """Charge a run to the ledger, if there is one; with the first three arguments bound it is a `Charge`."""
    if ledger is None:
        return None
    if raised is None:
        return await asyncio.to_thread(lambda: ledger.charge(run_id, event(), f"request {request}"))
    label = f"request {request}: more parties were corrupt than planned"
    # A run that is restored is shown the same once more, which costs nothing.
    name = run_id + raised.false_count.to_bytes(8, "big")
    return await asyncio.to_thread(lambda: ledger.charge(name, raised.event, label, resume=True, forced=True))


def open_ledger(path: str | os.PathLike[str], party: str) -> Ledger:
    """Open the ledger of a party; raises the errors of `Ledger.open`."""
    # Not at the top: most sessions have no ledger, and the accountant takes a while to load.
    from smpc_dp.privacy.accountant.ledger import Ledger

    return Ledger.open(os.fspath(path), party=party)
