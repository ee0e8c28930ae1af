"""The result of a request for statistics of records: the answers, with their privacy and their evidence."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from smpc_dp.engine.result import Evidence, Outcome, Privacy, privacy_line
from smpc_dp.privacy.accountant.receipt import Receipt
from smpc_dp.summary import spent_text

if TYPE_CHECKING:
    from smpc_dp.records.result import Answers
    from smpc_dp.records.table import Dropped

KIND = "statistics"
BEYOND_ROWS = "more rows than max_rows count: each sum is clamped by itself, and answers are wrong"


@dataclass(frozen=True, slots=True)
class RecordResult:
    """Result of a request for statistics: answers, parties included and absent, privacy, evidence.

    Attributes:
        answers: the estimates with their intervals.
        survivors: whose rows are in them; absent: whose are not.
        faults: what went wrong on the way without spoiling the result; each names a party.
        privacy: what the release gives away, of one unit; evidence: what binds the answers to their run.
        residual_pairs: pairs of which one party was lost late, so that their noise is left in the sums; the
            intervals allow for it.
        hide: as it was given, in noise deviations below which counts are hidden; None: the default.
        dropped: what of this party's own rows does not count, for it alone; None for others.
        resumed: whether an earlier process of this party began the call: what that one gave counts.
        begins: of an answer that takes several requests the numbers from earlier ones on which the last one
            depends; None of others.
    """

    task = "records"
    schema = "statistics"
    answers: Answers
    survivors: tuple[str, ...]
    absent: tuple[str, ...]
    faults: tuple[str, ...]
    privacy: Privacy
    evidence: Evidence
    residual_pairs: int = 0
    hide: float | None = None
    dropped: Dropped | None = field(default=None, repr=False)
    resumed: bool = False
    begins: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        outcome: Outcome,
        answers: Answers,
        receipt: Receipt | None = None,
        dropped: Dropped | None = None,
        hide: float | None = None,
        *,
        resumed: bool = False,
        begins: tuple[int, ...] | None = None,
    ) -> RecordResult:
        """Return the result that combines a request's outcome, for its parties and privacy, with answers."""
        return cls(
            answers=answers,
            survivors=outcome.survivors,
            absent=outcome.absent,
            faults=outcome.faults,
            privacy=replace(outcome.privacy, receipt=receipt),
            evidence=outcome.evidence,
            residual_pairs=0 if outcome.noise is None else outcome.noise.residual_pairs,
            dropped=dropped,
            hide=hide,
            resumed=resumed,
            begins=begins,
        )

    def __str__(self) -> str:
        present, absent = len(self.survivors), len(self.absent)
        lines = [str(self.answers), f"over {present} of {present + absent} parties"]
        lines += self._missing
        lines += ["resumed: with the rows of an earlier process"] if self.resumed else []
        if self.dropped is not None and self.dropped.beyond_rows:
            lines.append(f"of this party {BEYOND_ROWS}")
        receipt = self.privacy.receipt
        lines.append("no ledger: nothing was charged" if receipt is None else spent_text(receipt.to_json()))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return HTML for notebooks, with pictures of the answers, privacy and evidence.

        It says nothing that is the caller's own, since notebooks are passed on.
        """
        # Not at the top: most results are shown by no notebook.
        from smpc_dp.report.notebook import result_html
        from smpc_dp.report.sections import statistics_section

        shown = self.to_json()
        present, absent = len(self.survivors), len(self.absent)
        lines = [f"statistics over {present} of {present + absent} parties"]
        lines += [*self._missing, privacy_line(self.privacy)]
        own = statistics_section(shown, exact=self.privacy.epsilon is None)
        return result_html(lines, own, self.privacy.to_json(), self.evidence.to_json())

    @property
    def _missing(self) -> list[str]:
        """Lines that name absent parties, and say if lost parties' noise is left in the sums."""
        lines = [f"without: {', '.join(self.absent)}"] if self.absent else []
        return lines + residual_lines(self.residual_pairs)

    def to_pandas(self) -> Any:
        """Return a pandas table of the answers, with a row for each estimate."""
        return self.answers.to_pandas()

    def to_json(self) -> dict[str, object]:
        """Return the result as plain JSON data, without what of the party's own rows was dropped."""
        answers = self.answers.to_json()
        return {
            "kind": KIND,
            **{
                key: answers[key]
                for key in ("estimates", "level", "simultaneous", "rows", "present", "counted")
            },
            "hide": None if self.hide is None else float(self.hide),
            "survivors": list(self.survivors),
            "absent": list(self.absent),
            "residual_pairs": self.residual_pairs,
            "resumed": self.resumed,
            "begins": None if self.begins is None else list(self.begins),
            "faults": list(self.faults),
            "privacy": self.privacy.to_json(),
            "evidence": self.evidence.to_json(),
        }


def residual_lines(pairs: int) -> list[str]:
    """Return a line saying that noise of lost parties is left in the sums, none for 0 pairs."""
    if not pairs:
        return []
    return [
        f"parties were lost late: the noise of {pairs} pairs is left in the sums, the intervals allow for it"
    ]
