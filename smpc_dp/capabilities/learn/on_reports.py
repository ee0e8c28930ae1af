"""Base of learners by gossip on reports under local differential privacy.

A party's record becomes one of k cells and then a report [Bellet 2021, Remark 3.5]. Only values computed
from reports are sent, so any number of meetings costs the epsilon of one report.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from smpc_dp.capabilities.learn.exchanges import EXACT_STEPS
from smpc_dp.capabilities.learn.pairing_schedule import PairingSchedule
from smpc_dp.capabilities.reports.quantiser import Quantiser

if TYPE_CHECKING:
    from smpc_dp.capabilities.learn.local_reports import LocalReports
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.guarantee import PrivacyGuarantee

OfParty = Annotated[
    Annotated[float, Meta(gt=0, le=100)], Meta(description="of each party; there is no `delta`")
]
# Of a message's norm: answers, parties' numbers and labels are whole, and have so many steps of the grid in
# 1.
MOST = EXACT_STEPS / 16


class OnReports(PairingSchedule, frozen=True, kw_only=True):
    """Base of settings of gossip learners that use randomised reports of records (local privacy)."""

    if TYPE_CHECKING:
        # Settings stand in the order of the documents, in each learner.
        epsilon: OfParty

    @property
    def quantiser(self) -> Quantiser:
        """Return the map from records to finitely many cells, to be randomised; subclasses implement this."""
        raise NotImplementedError

    @cached_property
    def reports(self) -> LocalReports:
        """Return the randomised response on cells that parties report, or raise ConfigError."""
        # Not at the top: scipy.
        from smpc_dp.capabilities.learn.local_reports import LocalReports

        return LocalReports.plan(self.epsilon, self.quantiser.categories)

    @property
    def protected(self) -> tuple[str, PrivacyGuarantee | None, Event | None]:
        """Return (claim, guarantee, ledger event) of one report, which cover all messages."""
        claim = f"{self.reports.claim}; the line by itself: "
        return claim, self.reports.guarantee, self.reports.response.event()
