"""The secure sum for statistics of records: noise for one record or person, shared by the parties."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta
from msgspec.structs import replace

from smpc_dp.engine.result import Claim
from smpc_dp.engine.session_protocol import RECORDS
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.privacy.guarantee import LEAST_DELTA
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.records import parameters as records
from smpc_dp.records.parameters import (
    AskSettings,
    Delta,
    NoisyRecordParameters,
    PlannedRecordParameters,
    RecordSettings,
    SteppedRecordParameters,
    protected,
)
from smpc_dp.secagg.claim import noisy_claim
from smpc_dp.secagg.noisy import REFUSED as REFUSED_NOISY
from smpc_dp.secagg.noisy import NoisySumParameters, check_room, counted_shares, noise_counts
from smpc_dp.secagg.params import CheckedTotal, Corrupt, SecAggParameters, Security, Share, resolve_total

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.privacy.sampling import NoiseSource
    from smpc_dp.records.plan import Plan
    from smpc_dp.records.schema import Schema
    from smpc_dp.records.steps import SteppedPlan

REFUSED = REFUSED_NOISY | records.REFUSED | records.NO_TABLES


class PrivateRecordParameters(NoisySumParameters, PlannedRecordParameters, frozen=True):
    """Base of checked parameters of private statistics of records by a secure sum."""

    hides_records: ClassVar[bool] = True

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "records-checked" if self.is_checked else "records"

    def planned(self) -> str:
        """Return, as text, the variance of a share of noise and a digest of the blocks' scales."""
        return f"{super().planned()} {self.scales_digest()}"

    def event(self) -> Event:
        """Return the privacy event of one request, to charge to a ledger."""
        return self.request.event()

    def claim(self, survivors: int) -> Claim:
        """Return the privacy claim: that of the secure sum, and (epsilon, delta) of a row or person."""
        from smpc_dp.records.result import not_protected

        schema = self.schema
        guarantee = replace(self.request.guarantee, assumption=self.assumption)
        private = (
            f"{protected(schema)} ({self.epsilon:g}, {self.delta:g})-differentially private "
            f"({schema.relation}) in what is released{steps_text(self.steps)}, given {self.known_noise}:"
        )
        limits = not_protected(schema, self.request.statistics)
        return noisy_claim(
            self.plan,
            survivors,
            guarantee,
            private,
            limits,
            checked=self.is_checked,
            by_some=self.has_checkers,
        )


class RecordSumParameters(PrivateRecordParameters, NoisyRecordParameters, frozen=True):
    """Checked parameters of a request for statistics of records, by a secure sum."""

    request: Plan
    public_rows: tuple[int, ...] | None

    def own_noise(self, source: NoiseSource, count: int) -> NDArray[np.int64]:
        """Return `count` draws of one party's share of the noise, in grid steps."""
        if self.request.laplace is None:
            return super().own_noise(source, count)
        return self.request.mechanism.share.noise(source, count)


class SteppedSumParameters(PrivateRecordParameters, SteppedRecordParameters, frozen=True):
    """Checked parameters of one step of several for private statistics; epsilon is of all steps."""

    request: SteppedPlan
    public_rows: tuple[int, ...] | None


class ExactSteppedParameters(SecAggParameters, SteppedRecordParameters, frozen=True, kw_only=True):
    """Checked parameters of one of several exact sums for one statistic, over fixed parties."""

    request: SteppedPlan
    public_rows: tuple[int, ...] | None

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "records-checked" if self.is_checked else "records"

    def planned(self) -> str:
        """Return the digest of the step's scales and of coefficients from earlier steps, as text."""
        return self.scales_digest()


SteppedParameters = SteppedSumParameters | ExactSteppedParameters


def steps_text(steps: int) -> str:
    """Return " in all N steps together", to add to a privacy claim; "" for a single step."""
    return "" if steps == 1 else f" in all {steps} steps together"


class SumRecordSettings(RecordSettings, frozen=True, kw_only=True):
    """The `[parameters]` of a session file for statistics of records by a secure sum."""

    total: CheckedTotal = None


class StepSettings(AskSettings, frozen=True, kw_only=True):
    """The `[parameters]` of statistics that take several requests, such as logistic regression."""

    total: CheckedTotal = None
    steps: Annotated[
        int, Meta(ge=1, le=50, description="Newton steps of a regression, each a request; 5 to 8 do")
    ] = 5
    epsilon: Annotated[
        Annotated[float, Meta(gt=0, lt=1000)] | None,
        Meta(
            description="of each unit in all steps together; without it and `delta` sums are exact",
            extra={"range": "(0, 1000)"},
        ),
    ] = None
    delta: Annotated[
        Delta | None, Meta(description="as `epsilon`", extra={"range": f"[{LEAST_DELTA:g}, 1)"})
    ] = None
    dropout: Annotated[
        Share | None,
        Meta(
            description="fraction of the parties that may disappear",
            extra={"range": "[0, 0.5)", "default": "as above"},
        ),
    ] = None
    corrupt: Corrupt = None
    security: Security = 40


def asks_steps(parameters: Mapping[str, object]) -> bool:
    """Tell whether `[parameters]` ask for a statistic that takes several requests."""
    return _loop_of(parameters) is not None


def _loop_of(parameters: Mapping[str, object]) -> str | None:
    """Return which statistic of several requests the `[parameters]` ask for; None if there is none."""
    if RECORDS not in parameters:
        return None
    from smpc_dp.records.ask import asked_loop

    return asked_loop(parameters.get("ask"))


def check_steps(
    parameters: Mapping[str, object], parties: int
) -> tuple[SteppedParameters | None, list[ConfigIssue]]:
    """Check a statistic of several requests; return (parameters, []), or (None, all faults)."""
    refused = REFUSED | dict.fromkeys(
        ("budget", "answer_weights", "split"),
        "is not for what takes several requests: epsilon is of all of them together",
    )
    if _loop_of(parameters) == "random_effects":
        refused["steps"] = "is for regressions: random effects take two requests"
    checked, issues = records.check_record_settings(
        StepSettings, parameters, parties, _planned_steps, unknown="unknown parameter", refused=refused
    )
    if ("epsilon" in parameters) != ("delta" in parameters):
        missing = "delta" if "epsilon" in parameters else "epsilon"
        issues = [*issues, ConfigIssue(missing, "is missing", ConfigCheck.MISSING)]
        checked = None
    return checked, issues


def _planned_steps(plan: SecAggPlan, schema: Schema, good: Mapping[str, Any]) -> SteppedParameters:
    """Return parameters of a statistic of several requests: with noise for an epsilon, else exact."""
    from smpc_dp.records.effects import plan_effects
    from smpc_dp.records.fit import plan_fit

    parties, missing, looking = noise_counts(plan)
    private = good["epsilon"] is not None and good["delta"] is not None
    plan_of = functools.partial(plan_fit, steps=good["steps"])
    request: SteppedPlan = (plan_effects if _loop_of(good) == "random_effects" else plan_of)(
        schema,
        good["ask"],
        budget=(good["epsilon"], good["delta"]) if private else None,
        parties=parties,
        missing=missing,
        corrupt=looking,
    )
    encoding, rows = records.record_encoding(request, plan.parties), records.public_rows(good)
    if not private:
        total = resolve_total(good["total"], encoding.ring_length, plan.parties, least=plan.least_to_check)
        return ExactSteppedParameters(encoding, plan, request=request, public_rows=rows, total=total)
    records.check_planned_errors(request, good, plan.parties)
    counted = counted_shares(plan)
    # the summed noise of the counted shares is that of a curator, to a part in a million
    return SteppedSumParameters(
        **_common(plan, request, good, math.sqrt(counted * request.variance)), request=request
    )


def check_records(
    parameters: Mapping[str, object], parties: int, *, laplace: bool = True
) -> tuple[RecordSumParameters | SteppedParameters | None, list[ConfigIssue]]:
    """Check statistics of records by secure sums; return (parameters, []), or (None, all faults).

    `laplace`: whether statistics may have discrete Laplace noise, where it is smaller in one request.
    """
    if asks_steps(parameters):
        return check_steps(parameters, parties)
    return records.check_record_settings(
        SumRecordSettings,
        parameters,
        parties,
        functools.partial(_planned, laplace=laplace),
        unknown="unknown parameter of secagg with records",
        refused=REFUSED,
    )


def _planned(
    plan: SecAggPlan, schema: Schema, good: Mapping[str, Any], *, laplace: bool
) -> RecordSumParameters:
    """Plan the statistics of a session, with Gaussian noise, or Laplace noise too if `laplace`."""
    from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian

    request = records.plan_records(plan, schema, good, laplace=laplace)
    records.check_planned_errors(request, good, plan.parties)
    if request.is_mixed:
        # of the Gaussian noise, as the counted shares have it together
        common = _common(plan, request, good, math.sqrt(counted_shares(plan) * request.variance))
        mechanism = "discrete-gaussian-and-laplace"
        return RecordSumParameters(**{**common, "mechanism": mechanism}, request=request)
    if request.laplace is not None:
        whole = request.laplace.variance * request.laplace.parts
        common = _common(plan, request, good, math.sqrt(whole))
        return RecordSumParameters(**{**common, "mechanism": "discrete-laplace"}, request=request)
    curator = DiscreteGaussian.calibrate(good["epsilon"], good["delta"], request.sensitivity)
    return RecordSumParameters(**_common(plan, request, good, math.sqrt(curator.variance)), request=request)


def _common(
    plan: SecAggPlan, request: Plan | SteppedPlan, good: Mapping[str, Any], curator: float
) -> dict[str, Any]:
    """Return the fields, as keyword arguments, that all private parameters of records have in common."""
    encoding = records.record_encoding(request, plan.parties)
    check_room(encoding, math.isqrt(math.ceil(plan.parties * request.variance)) + 1)
    return {
        "encoding": encoding,
        "plan": plan,
        "epsilon": good["epsilon"],
        "delta": good["delta"],
        "mechanism": "discrete-gaussian",
        "variance": request.variance,
        "honest": counted_shares(plan),
        "curator_deviation": curator,
        "public_rows": records.public_rows(good),
        "total": resolve_total(good["total"], encoding.ring_length, plan.parties, least=plan.least_to_check),
    }
