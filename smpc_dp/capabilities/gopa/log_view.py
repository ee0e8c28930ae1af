"""What pages show of the log of a verifiable run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.errors import printable
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.log_page import MOST_VALUES, listed
from smpc_dp.logs.audits.log_watch import OPENED_COIN, LogView, Run
from smpc_dp.report.sections import ABOUT_INTERVALS, LONG, NUMBER, TEXT, number_headings, number_of
from smpc_dp.report.texts import follow_up_lines

# Rows of answers about records on the first page.
MOST_ANSWERS = 100
# Characters of an answer's name, whose middle is left out if it is longer: names differ at their ends.
MOST_NAME = 200


class VerifiableView(LogView):
    """Texts and tables of a log page of verifiable GOPA, for an average or for statistics of records."""

    steps: ClassVar[Mapping[str, str]] = MappingProxyType(
        {v.COMMIT: "committed", v.COIN: "opened its coin", v.PUBLISH: "published"}
    )
    meanings: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **LogView.meanings,
            v.COMMIT: "commits to its value and noise, with proofs",
            v.PUBLISH: "publishes its value with noise, with a proof",
            v.TALLY: "the total that the aggregator claims",
            v.OPEN: "opens the noise that it shares with those who are excluded",
            v.CERTIFY_COMMITMENTS: "a quorum signed who takes part",
            v.CERTIFY_COINS: "a quorum signed the coins",
            v.CERTIFY_EXCLUSIONS: "a quorum signed who is excluded",
            v.CERTIFY_TALLY: "a quorum signed the end",
        }
    )
    messages: ClassVar[Mapping[str, type[msgspec.Struct]]] = MappingProxyType(
        {v.COMMIT: v.Commit, v.COIN: v.Coin, v.PUBLISH: v.Publish, v.TALLY: v.Tally}
    )

    def verdict(self, _run: Run, report: Report) -> dict[str, str]:
        """Return the page's notice, kind, title and text: how many parties count, and who is left out."""
        verdict = report.verdict
        counted, out = len(verdict.counted), [item.party for item in verdict.excluded]
        subject = "average is that" if verdict.answers is None else "answers are those"
        text = f"{report.limits} The {subject} of {counted} parties, all of whose proofs hold."
        if out:
            text += f" Left out: {listed(out)}, who signed something false."
        if len(out) <= verdict.corrupt:
            return {"kind": "good", "title": "Every check of this log passed", "text": text}
        text += (
            f" These are more than the {verdict.corrupt} who may be corrupt: there may be another log of "
            "this run."
        )
        return {"kind": "warning", "title": "The checks passed, and an assumption failed", "text": text}

    def result(self, report: Report) -> dict[str, object]:
        """Return the log page's data on the average, or on answers about records; {} without a result."""
        result = report.verdict
        if result is None or result.average is None:
            return {}
        epsilon = "no claim" if result.epsilon is None else f"{result.epsilon:.4g}"
        answers = result.answers
        average = {
            "answers": None if answers is None else _answers(answers),
            "values": [f"{value:.6g}" for value in result.average[:MOST_VALUES]],
            "count": len(result.average if answers is None else answers["estimates"]),
            "error": f"{result.standard_error:.2g}",
            "privacy": f"epsilon {epsilon}, delta {result.delta:.3g}",
            "of": "honest party" if answers is None else answers["unit"],
        }
        return {"average": average}

    def state(self, run: Run, index: int, made: Mapping[str, int]) -> tuple[str, str]:
        """Return a party's state in words, and the kind of notice that colours it ("" for none)."""
        name = run.names[index]
        result = None if run.report is None or run.report.faults else run.report.verdict
        if result is not None and name in result.silent:
            return "silent: takes part, and the log has no publication of it", "warning"
        if result is not None and name in result.counted:
            return "counted: all its proofs hold", "good"
        for step in reversed(run.steps):
            if step in made:
                if step == v.COIN:
                    return OPENED_COIN, "good"
                proven = step in run.proven
                return (
                    f"{self.steps[step]}; its proofs {'hold' if proven else 'wait to be verified'}",
                    "good" if proven else "",
                )
        return super().state(run, index, made)


def _answers(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page's data on answers about records: columns, rows, captions and questions to ask next."""
    # Not at the top: logs without records need no statistics.
    from smpc_dp.records.result import printed_names

    estimates = answers["estimates"][:MOST_ANSWERS]
    numbers = number_headings(estimates, exact=False)
    names = printed_names(estimates)
    return {
        "columns": [
            ("answer", TEXT),
            *((heading, NUMBER) for heading in numbers.values()),
            ("unit", TEXT),
            ("note", LONG),
        ],
        "rows": [_answer(name, one, numbers) for name, one in zip(names, estimates, strict=True)],
        "which": "all intervals together have" if answers["simultaneous"] else "each interval has",
        "level": answers["level"],
        "about": ABOUT_INTERVALS,
        "follow_up": follow_up_lines(estimates),
    }


def _answer(name: str, one: Mapping[str, Any], numbers: Iterable[str]) -> list[str]:
    """Return the table row of an answer about records: its name, these numbers, unit and note."""
    cells = (number_of(one, key) for key in numbers)
    return [printable(name, MOST_NAME), *cells, printable(one["unit"], MOST_NAME), one["note"]]
