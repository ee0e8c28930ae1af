"""Verdict of an audit of a verifiable run."""

from __future__ import annotations

from typing import Any

import msgspec

from smpc_dp.capabilities.gopa.verifiable.statements import FALSE
from smpc_dp.logs.auditing import Excluded
from smpc_dp.logs.opinion import CONVOLVED, ROUNDED, Findings, Opinion, differing_answers, is_near


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the audit of one log: the total, who is counted, and who signed something false.

    Attributes:
        counted: the parties whose values are in the average.
        excluded: the parties that signed a false statement.
        corrupt: c, the assumed greatest number of corrupt parties.
        silent: participants without a publication on the board; the aggregator may have withheld it.
        void_edges: pairs whose two commitments do not cancel; one of the two deviated, and neither used it.
        residual_pairs: pairs whose noise does not cancel in the total.
        average: in the unit of the session, shape (length,); None if there is none. Of statistics of records
            in grid steps: the sums over the parties, divided by their number.
        answers: of statistics of records what the total says, as in the result of a party at the level 0.95.
        standard_error: of the noise in it.
        bias: the most by which corrupt parties can move it, in expectation; see `greatest_bias`.
        tries: the number of runs assumed for the bias; tries_listed: whether a session log lists so many, or
            they are assumed.
        epsilon, delta: of each honest party, after the exclusions; None: nothing is claimed any more.
        attested: the digest that the quorum signed in the end, in hex; a party's result has it as
            `evidence.survivors.set_digest`, by which the party recognises the log of its own run.
        faults: events of no honest run; each names the members at fault. Empty: everything holds.
    """

    counted: tuple[str, ...]
    excluded: tuple[Excluded, ...]
    corrupt: int
    silent: tuple[str, ...]
    void_edges: tuple[tuple[str, str], ...]
    residual_pairs: int
    average: tuple[float, ...] | None
    answers: dict[str, Any] | None = None
    standard_error: float
    bias: float | None
    tries: int
    tries_listed: bool
    epsilon: float | None
    delta: float
    attested: str
    faults: tuple[str, ...]

    @property
    def summary(self) -> str:
        """Phrase on how many parties' vectors the average counts, and whom it excludes."""
        subject = "average is that" if self.answers is None else "answers are those"
        who = f"the {subject} of {len(self.counted)} parties whose every statement is true"
        if excluded := ", ".join(item.party for item in self.excluded):
            who += f", without {excluded}, who signed a false one"
        if len(self.excluded) > self.corrupt:
            who += f" (no more than {self.corrupt} should be corrupt: there may be another log of this run)"
        return who

    def limits(self, corrupt: int) -> str:
        """Return sentences on what the audit does not show if this many parties are corrupt."""
        listed = "as many as the session log lists runs" if self.tries_listed else "which is an assumption"
        subject = "inputs within the bounds"
        if self.answers is not None:
            subject = (
                "sums within the bounds of max_rows rows, which need be of no rows: a party that lies moves "
                "each total by max_rows times the range of a row at most"
            )
        return (
            f"Not detected: false {subject}. All this holds only if at most "
            f"c = {corrupt} of the parties are corrupt. The bound on the bias is for {self.tries} "
            f"{'try' if self.tries == 1 else 'tries'}, "
            f"{listed}."
        )

    def compared(self, opinion: Opinion) -> Findings:
        """Return what two auditors found in a run, for comparison; figures only where they differ."""
        computed = {
            "standard error": (self.standard_error, opinion.standard_error, ROUNDED),
            "bias": (self.bias, opinion.bias, ROUNDED),
            # A part of delta moves epsilon by a smaller part.
            "epsilon": (self.epsilon, opinion.epsilon, 1e-8 + CONVOLVED / (self.delta or 1.0)),
        }
        excluded = tuple((item.party, item.sequence, item.reason) for item in self.excluded)
        return {
            "counted": (self.counted, opinion.counted),
            "excluded": (
                excluded,
                tuple((name, entry, FALSE.get(reason, reason)) for name, entry, reason in opinion.excluded),
            ),
            "silent": (self.silent, opinion.silent),
            "void edges": (self.void_edges, opinion.void),
            "average": (self.average, opinion.average),
            "delta": (self.delta, opinion.delta),
            **{
                name: (one, other)
                for name, (one, other, far) in computed.items()
                if not is_near(one, other, far)
            },
            **differing_answers(self.answers, opinion.answers),
        }
