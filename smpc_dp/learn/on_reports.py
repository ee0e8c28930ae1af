"""What learners by gossip on reports under local differential privacy have in common.

A party's record becomes one of k cells and then a report [Bellet 2021, Remark 3.5]. Only what is computed
from reports is sent, so any number of meetings costs the epsilon of one report.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from smpc_dp.kernels.quantiser import Quantiser
from smpc_dp.learn.exchanges import EXACT_STEPS
from smpc_dp.learn.pairing_schedule import PairingSchedule

if TYPE_CHECKING:
    from smpc_dp.learn.local_reports import LocalReports
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.guarantee import PrivacyGuarantee

OfParty = Annotated[
    Annotated[float, Meta(gt=0, le=100)], Meta(description="of each user; there is no `delta`")
]
# Of a message's norm: answers, parties' numbers and labels are whole, and have so many steps of the grid in
# 1.
MOST = EXACT_STEPS / 16


class OnReports(PairingSchedule, frozen=True, kw_only=True):
    """Gossip of what is computed from reports."""

    if TYPE_CHECKING:
        # Settings stand in the order of the documents, in each learner.
        epsilon: OfParty

    @property
    def quantiser(self) -> Quantiser:
        """Records to cells."""
        raise NotImplementedError

    @cached_property
    def reports(self) -> LocalReports:
        """The response on cells; raises ConfigError."""
        # Not at the top: scipy.
        from smpc_dp.learn.local_reports import LocalReports

        return LocalReports.plan(self.epsilon, self.quantiser.categories)

    @property
    def protected(self) -> tuple[str, PrivacyGuarantee | None, Event | None]:
        """What one report is, whatever is sent after it."""
        claim = f"{self.reports.claim}; the line by itself: "
        return claim, self.reports.guarantee, self.reports.response.event()
