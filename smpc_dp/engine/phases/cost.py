"""What a request costs: its charge, the standard error of each answer, and the traffic of a party."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from smpc_dp.privacy.guarantee import PlainStruct, Relation, Unit

if TYPE_CHECKING:
    from smpc_dp.encoding import Encoding
    from smpc_dp.records.plan import PlannedError

# A standard error above this share of the range is warned of.
LARGE = 0.1


class PlannedAnswer(PlainStruct, frozen=True, kw_only=True):
    """JSON output: the planned standard error of one answer, which counts the noise alone.

    Attributes:
        text: the answer.
        standard_error: in the unit of the answer; None where it depends on a number of rows that nobody
            has declared.
        range: the declared range of the answer: of one row for counts and sums.
        relative: the standard error over the range, for totals over that of all rows; None as above.
        of_rows: whether it is a total, so that its range grows with the rows.
        assumed: what it is stated for, "" if nothing.
    """

    text: str
    standard_error: float | None
    range: float
    relative: float | None
    of_rows: bool = False
    assumed: str = ""

    def __str__(self) -> str:
        if self.standard_error is None:
            return f"standard error of {self.text}: not known without rows_expected; range {self.range:g}"
        share = "" if self.relative is None else f", {100 * self.relative:.3g} % of it"
        share += " over all" if self.of_rows and share else ""
        given = f" ({self.assumed})" if self.assumed else ""
        error = f"{self.standard_error:.3g} in a range of {self.range:g}{' a row' if self.of_rows else ''}"
        return f"standard error of {self.text}: {error}{share}{given}"


class Cost(PlainStruct, frozen=True, kw_only=True):
    """Predicted cost of one request: its charge, the errors of its answers, and a party's bytes and messages.

    Attributes:
        unit, relation, epsilon, delta: what a ledger is charged for it; None: an exact release.
        counted: the shares of noise that the guarantee counts on; None as above, and where the servers draw
            one noise, or each party its own.
        factor: of the standard error over that of a trusted curator over the same parties, with none lost.
        answers: the standard error of each.
        sent, received: bytes of one party, about.
        steps: messages of one party, one after the other.
        warnings: what a reader must not miss.
        noise: the law of a share, None without noise or with servers.
        requests: those that are charged together, as the steps of a regression are.
        notes: what else the answers will be.
    """

    unit: Unit | None
    relation: Relation | None
    epsilon: float | None
    delta: float | None
    counted: int | None
    factor: float | None
    answers: tuple[PlannedAnswer, ...]
    sent: int
    received: int
    steps: int
    warnings: tuple[str, ...]
    noise: str | None = None
    requests: int = 1
    notes: tuple[str, ...] = ()


def average_answer(encoding: Encoding, parties: int, error: float) -> tuple[list[PlannedAnswer], list[str]]:
    """Return the planned error of an average over this many parties, and warnings if it is large.

    `error`: of the sum of the noise over the number of parties, in the unit of the vectors.
    """
    error, width, assumed = encoding.average_error(error)
    relative = error / width
    answer = PlannedAnswer(
        text="the average, each coordinate",
        standard_error=error,
        range=width,
        relative=relative,
        assumed=assumed,
    )
    if relative <= LARGE:
        return [answer], []
    factor = relative / LARGE
    warning = (
        f"the standard error of {answer.text} is {100 * relative:.3g} % of its range. It would be a "
        f"tenth with about {math.ceil(parties * factor)} parties, or {factor:.3g} times the epsilon; where "
        "vectors are made of records, statistics of records need far less noise"
    )
    return [answer], [warning]


def record_answer(error: PlannedError) -> PlannedAnswer:
    """Return the planned error of an answer about records in the form of JSON output."""
    rows = ""
    if error.rows is not None:
        rows = f"rows_expected = {error.rows}" if error.expected else f"{error.rows} public rows"
    return PlannedAnswer(
        text=error.text,
        standard_error=error.standard_error,
        range=error.range,
        relative=error.relative,
        of_rows=error.rows is None and error.standard_error is not None,
        assumed="; ".join(part for part in (rows, error.assumed) if part),
    )
