"""The protocol `unanimous`: a secure sum over every party of the session, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from smpc_dp.crypto.randomness import Randomness
from smpc_dp.encoding import Lanes
from smpc_dp.errors import Fault
from smpc_dp.protocols.envelope import Context, Signer
from smpc_dp.protocols.registry import SumProtocol
from smpc_dp.protocols.result import Privacy
from smpc_dp.protocols.secagg.aggregator import AggregatorMachine, Watch
from smpc_dp.protocols.secagg.graph import PartySet
from smpc_dp.protocols.secagg.params import SecAggParameters, SumParameters, SumSettings, check_sum
from smpc_dp.protocols.secagg.party import PartyMachine
from smpc_dp.protocols.secagg.survivors import FixedSurvivors
from smpc_dp.seen import NOTHING_SEEN, Seen

if TYPE_CHECKING:
    from smpc_dp.board.keeping import Board

NAME = "unanimous"


class UnanimousParameters(SecAggParameters, frozen=True):
    """Those of secure aggregation, under a name of their own: it stands in whatever is signed or hashed."""

    protocol: ClassVar[str] = NAME

    def privacy(self, survivors: int) -> Privacy:
        """Return the claim of a secure sum, and that it is over everybody."""
        found = super().privacy(survivors)
        return replace(found, claim=f"unanimous, over all {self.plan.parties} parties: {found.claim}")


class UnanimousParty(PartyMachine):
    """A party that goes on only where every set that it is shown has all parties of the session."""

    def _set(self, packed: bytes, within: PartySet | None, what: str, least: int | None = None) -> PartySet:
        return super()._set(packed, within, what, max(least or 0, len(self._context.names)))


class UnanimousHub(AggregatorMachine):
    """An aggregator that needs all parties in each step."""

    def _needed(self) -> int:
        return len(self._context.names)


def check(parameters: Mapping[str, object], parties: int) -> tuple[UnanimousParameters | None, list[Fault]]:
    """Check a `[parameters]` table, which has the keys that all sums have."""
    # The default is to tolerate no loss.
    checked, _, faults = check_sum(SumSettings, parameters, parties, protocol=NAME, loss=0.0)
    if checked is None:
        return None, faults
    return UnanimousParameters(encoding=checked.encoding, plan=checked.plan), faults


def party(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    lanes: Lanes,
    randomness: Randomness | None = None,
    fixed: FixedSurvivors | None = None,
    seen: Seen = NOTHING_SEEN,  # noqa: ARG001 - for protocols with a session log
) -> PartyMachine:
    """Make a party's role for one request."""
    return UnanimousParty(context, parameters, identity, lanes, randomness, fixed)


def hub(
    context: Context,
    parameters: SumParameters,
    identity: Signer,
    *,
    threads: int = 1,
    watch: Watch | None = None,
    board: Board | None = None,  # noqa: ARG001 - for protocols with a session log
    fixed: FixedSurvivors | None = None,
) -> AggregatorMachine:
    """Make the aggregator's role for one request."""
    return UnanimousHub(context, parameters, identity, threads=threads, watch=watch, fixed=fixed)


unanimous = SumProtocol({1: check}, party, hub)
