"""The secure sum for statistics of records: noise for one record or person, shared by the parties."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from smpc_dp.errors import ConfigIssue
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.protocols import records
from smpc_dp.protocols.records import NoisyRecordParameters, RecordSettings, protected
from smpc_dp.protocols.result import Privacy
from smpc_dp.protocols.secagg.claim import privacy_of
from smpc_dp.protocols.secagg.noisy import REFUSED as REFUSED_NOISY
from smpc_dp.protocols.secagg.noisy import NoisySumParameters, check_room, counted_shares

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.plan import Plan
    from smpc_dp.records.schema import Schema

REFUSED = REFUSED_NOISY | records.REFUSED | records.NO_TABLES


class RecordSumParameters(NoisySumParameters, NoisyRecordParameters, frozen=True):
    """Checked parameters of a request for statistics of records, by a secure sum."""

    request: Plan
    public_rows: tuple[int, ...] | None

    def planned(self) -> str:
        """Return the variance of a share, and the scale of each block: all that is derived with floats."""
        return f"{super().planned()} {self.scales_digest()}"

    def event(self) -> Event:
        """Return what one request is to a privacy ledger."""
        return self.request.event()

    def privacy(self, survivors: int) -> Privacy:
        """Return the claim: that of the secure sum, and (epsilon, delta) of one unit for what it releases."""
        from smpc_dp.records.answers import not_protected

        exact, schema = privacy_of(self.plan, survivors), self.schema
        guarantee = replace(self.request.guarantee(), assumption=self.assumption)
        return Privacy.private(
            guarantee,
            claim=(
                f"{protected(schema)} ({self.epsilon:g}, {self.delta:g})-differentially private "
                f"({schema.relation}) in what is released, given {self.known_noise}: "
                f"{exact.claim.replace('an exact', 'a noisy', 1)}"
            ),
            assumptions=exact.assumptions,
            not_protected=(
                *not_protected(self.request),
                *exact.not_protected[2:],
                "samplers do not run in constant time",
            ),
        )


def check_records(
    parameters: Mapping[str, object], parties: int
) -> tuple[RecordSumParameters | None, list[ConfigIssue]]:
    """Check a `[parameters]` table (`RecordSettings`); return every fault found."""
    return records.check_record_settings(
        RecordSettings,
        parameters,
        parties,
        _planned,
        unknown="unknown parameter of secagg with records",
        refused=REFUSED,
    )


def _planned(plan: SecAggPlan, schema: Schema, good: Mapping[str, Any]) -> RecordSumParameters:
    from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian

    request = records.plan_records(plan, schema, good)
    records.check_planned_errors(request, good, plan.parties)
    encoding = records.record_encoding(request, plan.parties)
    check_room(encoding, math.isqrt(math.ceil(plan.parties * request.variance)) + 1)
    curator = DiscreteGaussian.calibrate(good["epsilon"], good["delta"], request.sensitivity)
    return RecordSumParameters(
        encoding=encoding,
        plan=plan,
        epsilon=good["epsilon"],
        delta=good["delta"],
        mechanism="discrete-gaussian",
        variance=request.variance,
        honest=counted_shares(plan),
        curator_deviation=math.sqrt(curator.variance),
        request=request,
        public_rows=records.public_rows(good),
    )
