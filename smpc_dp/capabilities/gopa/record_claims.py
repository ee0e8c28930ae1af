"""GOPA for statistics of records: epsilon protects a row, and pairwise noise hides each party's totals.

docs/proofs/records.md has the standard error with which a total stays hidden.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from msgspec.structs import replace

from smpc_dp.capabilities.gopa.plan import SessionNoise
from smpc_dp.engine.phases.cost import LARGE
from smpc_dp.engine.result import Claim
from smpc_dp.errors import LocalError
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.records import parameters as records
from smpc_dp.records.parameters import NoisyRecordParameters, protected

if TYPE_CHECKING:
    from smpc_dp.privacy.accountant.events import Event
    from smpc_dp.records.plan import Plan


class GopaRecords(NoisyRecordParameters):
    """Mixin of parameters for statistics of records by GOPA: noise, claims and warnings about records.

    Attributes:
        hidden_totals: as in the settings, as it was asked for.
    """

    __slots__ = ()
    hides_records: ClassVar[bool] = True
    plan: SecAggPlan
    session: SessionNoise
    on_dropout: str
    hidden_totals: float
    seen_by: ClassVar[str]

    def leaving(self, residual_pairs: int) -> Self:
        """Return the parameters for a sum in which the noise of this many pairs does not cancel."""
        request = self.request.with_left(residual_pairs * self.session.pair_variance)
        return cast(Self, replace(cast(Any, self), request=request))

    @property
    def loss_notes(self) -> tuple[str, ...]:
        """Sentences for reports: how much one lost party enlarges errors, if its noise stays."""
        others = self.plan.parties - 1
        if self.on_dropout != "keep" or not self.plan.max_dropouts:
            return ()
        left = self.leaving(others)
        larger = left.request.deviation(others) / self.request.deviation(others + 1)
        known = [error.relative for error in left.errors(others) if error.relative is not None]
        useless = sum(error > LARGE for error in known)
        which = "no answer is" if not useless else f"{useless} of {len(known)} answers are"
        spoiled = f"; {which} useless then, with more than {100 * LARGE:g} % of the range" if known else ""
        return (
            "a party that is lost after the certificate and before it has published leaves the noise that it "
            f"shares with the others in every sum: one makes standard errors {larger:.3g} times as large"
            f"{spoiled}",
        )

    def of_unit(self, event: Event) -> Event:
        """Return a privacy event restated for records: its unit is a row or a person, by the schema."""
        return replace(event, relation=self.schema.relation, unit=self.schema.unit)

    @property
    def hidden_deviation(self) -> float:
        """Least standard error with which one number of a party is seen, besides what the sum says."""
        honest, session = self.session.honest, self.session
        return math.sqrt((session.own_variance + honest * session.pair_variance) / (1 - 1 / honest))

    @property
    def total_error(self) -> float:
        """Least standard error of one party's total, relative to the range of that total."""
        return self.hidden_deviation / reach(self.request)

    @property
    def totals(self) -> str:
        """The clause of the claim that says who sees the total of one party's records."""
        seen = (
            "to whoever knows the totals of all other honest parties, besides what the answers say, with a "
            f"standard error of at least {self.total_error:.3g} times max_rows times the range of a row in "
            "each request"
        )
        return (
            f"a party's totals are hidden: seen {seen}"
            if self.hidden_totals
            else (f"party totals are visible: {seen}")
        )

    def warnings(self, parties: int) -> list[str]:
        """Return warnings for the user before a request: large noise, and visible totals of parties."""
        return [*super().warnings(parties), *(() if self.hidden_totals else (self.totals,))]

    def about_records(self, vectors: Claim) -> Claim:
        """Return the claim about vectors restated for rows or persons, with what totals reveal."""
        from smpc_dp.records.result import not_protected

        if vectors.guarantee is None:
            raise LocalError("GOPA has a guarantee")
        schema, stated = self.schema, self.request.guarantee
        guarantee = replace(
            vectors.guarantee,
            relation=schema.relation,
            protects=schema.unit,
            sensitivity=stated.sensitivity,
            warnings=stated.warnings,
        )
        private = (
            f"{protected(schema)} ({guarantee.epsilon:g}, {guarantee.delta:g})-differentially private "
            f"({schema.relation}) in all that {self.seen_by.format(corrupt=self.plan.max_corrupt)}"
        )
        totals = NamedSentences.of(totals=self.totals)
        answers = not_protected(schema, self.request.statistics)
        return Claim(
            guarantee=guarantee,
            clauses=vectors.clauses.replaced(private=private) + totals,
            premises=vectors.premises,
            limits=answers + totals + vectors.limits.without("any_value"),
        )


def reach(request: Plan) -> float:
    """Return the greatest L2 distance between two vectors that one party may send.

    In a block of several cells all rows may be in one, or in another.
    """
    low, high = request.bounds
    widths = high.astype(float) - low.astype(float)
    square = 0.0
    for one in request.blocks:
        offset, cells = request.offsets[one.block][0], one.block.cells
        square += min(cells, 2) * float(widths[offset : offset + cells].max()) ** 2
    return math.sqrt(square)


def of_request(request: Plan, session: SessionNoise, good: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record fields of parameters: request with GOPA's own noise, public rows, hidden totals."""
    return {
        "request": request.with_variance(Fraction(session.own_variance)),
        "public_rows": records.public_rows(good),
        "hidden_totals": good["hidden_totals"],
    }
