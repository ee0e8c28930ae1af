"""Verifiable GOPA for statistics of records: sums in proven bounds, on a coarse grid, with proven noise."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from smpc_dp.capabilities.gopa.record_claims import GopaRecords, of_request, reach
from smpc_dp.capabilities.gopa.verifiable.params import Apart, VerifiableParameters, plan_flips
from smpc_dp.engine.result import Claim
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.records import parameters as records

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.plan import Plan
    from smpc_dp.records.schema import Schema

# log2 of the noise's deviation in grid steps, from the coarsest grid on.
COARSEST, FINEST, STEP = 3.0, 10.0, 0.5
# By which part of a fine grid's the largest error may be greater, rounding included.
WORTH = 0.15
# Coin flips of a party, at most, and over those that Gaussian noise would take.
MOST_FLIPS, FLIPS_OVER = 1 << 15, 1.25
# The moves of a row are composed one by one if their squares sum to at most so many times those of the bound
# on their norm, and otherwise bounded by that.
LOOSE = 1.2
MOST_WIDTHS = 16
# Characters of the bounds of all coordinates in the question of a request.
MOST_TEXT = 640
# Of the intervals of an auditor.
AUDIT_LEVEL = 0.95


class VerifiableRecordParameters(VerifiableParameters, GopaRecords, frozen=True, kw_only=True):
    """Checked parameters of a request for statistics of records, by verifiable GOPA."""

    plan_version: ClassVar[int] = 2
    seen_by: ClassVar[str] = (
        "the aggregator, up to {corrupt} colluding parties, any single curious party, or whoever reads the "
        "log see: every party's noisy sums and the total"
    )
    left_in: ClassVar[str] = "the total"
    # In the place of what is known of a party's input where nothing is proven.
    proven: ClassVar[NamedSentences] = NamedSentences.of(
        proven="proven of each party: each of its sums is between 0 rows and max_rows rows at the bounds of "
        "a row, and its noise is as declared; not that a sum is one of clipped rows",
        lies="a party that lies moves each total by max_rows times the range of a row at most",
    )
    request: Plan
    public_rows: tuple[int, ...] | None
    hidden_totals: float

    @property
    def view(self) -> str:
        """The key of the report page for this protocol, in `report.roles.VIEWS`."""
        return "verifiable-records"

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for reports: the cost of one lost party, and who checks the total."""
        return (*self.loss_notes, *super().notes)

    @property
    def apart(self) -> Apart:
        """Distance, in grid steps, of the vectors of two tables that differ in a row or person."""
        return row_apart(self.request)

    @property
    def hidden_deviation(self) -> float:
        """Least standard error with which one number of a party is seen, besides what the sum says.

        Given the sum, a party's number that is greater by a shows as a terms between two parties do
        (docs/proofs/verifiable-plan.md, part 2), of effective resistance 2/h on the complete graph.
        """
        return math.sqrt(self.session.honest * self.session.pair_variance / 2)

    def audited_answers(
        self, grid: NDArray[np.int64], numbers: Sequence[int], residual_pairs: int
    ) -> dict[str, Any]:
        """Return, as JSON data, the answers about records that an auditor derives from a total."""
        parameters = self.leaving(residual_pairs)
        return parameters.answers(grid, numbers, level=AUDIT_LEVEL, simultaneous=False).to_json()

    def planned(self) -> str:
        """Return, as text, coordinates' bounds and moves, a digest of scales, and variances."""
        return f"{bounds_text(self.request)} {self.scales_digest()} {super().planned()}"

    def event(self) -> Event:
        """Return the privacy event of one request for a ledger: binomial noise, unit a row or person."""
        return self.of_unit(super().event())

    def event_without(self, excluded: int) -> Event:
        """Return the privacy event per row or person, with `excluded` corrupt parties."""
        return self.of_unit(super().event_without(excluded))

    def claim(self, survivors: int, excluded: int = 0) -> Claim:
        """Return the privacy claim of a run: epsilon and delta of a row or person, and what is proven."""
        claimed = super().claim(survivors, excluded)
        # What nobody proves in other forms, in the words about vectors, or else about records.
        unproven = "any_value"
        if claimed.guarantee is not None:
            fewer = max(0, excluded - self.plan.max_corrupt)
            left = replace(self.session, honest=self.session.honest - fewer)
            claimed, unproven = replace(self, session=left).about_records(claimed), "any_vector"
        noise = self.noise(survivors, 0, excluded)
        moved = (noise.bias or 0.0) / noise.total
        leaving = (
            "corrupt parties may leave after they have seen their noise, or stop runs: in expectation that "
            f"moves each sum by {moved:.2g} standard deviations of its noise at most, in no interval"
        )
        limits = self.proven + claimed.limits.without(unproven) + NamedSentences.of(leaving=leaving)
        return dataclasses.replace(claimed, limits=limits)


def row_apart(request: Plan) -> Apart:
    """Return the distance of the vectors of two tables that differ in a row or person, in grid steps.

    The moves of the coordinates that a row can change are composed where that is not much worse than the
    bound on their norm.
    """
    # Not at the top: a session without records needs none of it.
    from smpc_dp.records.sensitivity import row_moves

    bounds, moves = request.sensitivity, row_moves(request.blocks, request.schema)
    squared = bounds.l2**2 * (1 + 1e-9)
    if moves and len({*moves}) <= MOST_WIDTHS and sum(move * move for move in moves) <= LOOSE * squared:
        return Apart(len(moves), moves, None)
    return Apart(request.length, None, max(math.ceil(squared / 4), math.ceil(bounds.linf / 2) ** 2))


def bounds_text(request: Plan) -> str:
    """Return a text of each coordinate's least and greatest value, and how far a row can move it.

    In hexadecimal, "COUNTxLOW:HIGH" for each run of coordinates with the same bounds, then the moves in the
    same way, or "s" and the bound on a quarter of their squares. An auditor without a plan reads them.
    """
    low, high = request.bounds
    sides = zip(low.tolist(), high.tolist(), strict=True)
    coordinates = ",".join(f"{count:x}x{a:x}:{b:x}" for (a, b), count in _runs(sides))
    apart = row_apart(request)
    steps = () if apart.steps is None else apart.steps
    steps = (steps,) * apart.length if isinstance(steps, int) else steps
    moves = ",".join(f"{count:x}x{move:x}" for move, count in _runs(steps))
    return f"{coordinates};{moves or f's{apart.bound_squared:x}'}"


def _runs(values: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    """Yield each run of equal neighbouring values as (value, length)."""
    for value, group in itertools.groupby(values):
        yield value, sum(1 for _ in group)


def plan_verifiable_records(
    plan: SecAggPlan, schema: Schema, good: Mapping[str, Any]
) -> VerifiableRecordParameters:
    """Return parameters on the coarsest grid whose errors are still near those of a fine grid.

    Where that takes too many coin flips the grid is as fine as they allow.

    Raises:
        ConfigError: no grid has few enough coin flips, or what is asked has too many different bounds.
    """
    request = _coarsest(plan, schema, good)
    encoding = records.record_encoding(request, plan.parties)
    plan, session, bits = plan_flips(
        encoding,
        plan,
        row_apart(request),
        good["epsilon"],
        good["delta"],
        hiding=good["hidden_totals"] * reach(request) * math.sqrt(2 / request.mechanism.honest),
    )
    parameters = VerifiableRecordParameters(
        encoding=encoding,
        plan=plan,
        session=session,
        on_dropout="keep",
        bits=bits,
        box=_box(request),
        **of_request(request, session, good),
    )
    parameters.check_sizes()
    records.check_planned_errors(parameters.request, good, plan.parties)
    if len(bounds_text(request)) > MOST_TEXT:
        reason = f"the bounds of its coordinates have over {MOST_TEXT} characters: ask for less at once"
        raise ConfigError.at("ask", reason, ConfigCheck.TOO_LARGE)
    return parameters


def _box(request: Plan) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the least and greatest grid value of each coordinate, from the lowest of all; None for one."""
    low, high = request.bounds
    lowest = int(low.min())
    return None if request.length == 1 else (tuple((low - lowest).tolist()), tuple((high - lowest).tolist()))


def _coarsest(plan: SecAggPlan, schema: Schema, good: Mapping[str, Any]) -> Plan:
    """Return the request on the coarsest grid of small errors, or the finest that is not too expensive."""
    fine = records.plan_records(plan, schema, good, replaced=True).worst()
    coarsest: Plan | None = None
    for step in range(round((FINEST - COARSEST) / STEP) + 1):
        request = records.plan_records(plan, schema, good, COARSEST + step * STEP, replaced=True)
        if 4 * FLIPS_OVER * float(request.variance) * request.length > MOST_FLIPS:
            break
        coarsest = request
        if request.worst() <= (1 + WORTH) * fine:
            break
    if coarsest is None:
        reason = (
            f"{request.length} numbers take more than {MOST_FLIPS} coin flips of a party: ask for less at "
            "once, with a larger epsilon, or of more parties"
        )
        raise ConfigError.at("ask", reason, ConfigCheck.TOO_LARGE)
    return coarsest
