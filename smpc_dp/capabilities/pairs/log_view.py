"""What pages show of the log of a statistic of pairs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

import msgspec

from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.log_page import ROWS, listed
from smpc_dp.logs.audits.log_watch import OPENED_COIN, LogView, Run


class StatisticView(LogView):
    """Renderer of the log page for runs of pairwise statistics, whose matchings may be drawn again."""

    steps: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            m.HELLO: "committed to its coins",
            m.COINS[0]: "opened its coin",
            m.COINS[1]: "opened its second coin",
            m.COINS[2]: "opened its third coin",
            m.DONE: "reported its pairs",
        }
    )
    rare_steps: ClassVar[frozenset[str]] = frozenset(m.COINS[1:])
    meanings: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            **LogView.meanings,
            m.TERMS: "the statistic, its noise and its budget",
            m.HELLO: "commits to its coins, and asks for this statistic",
            "again": "a coin is missing or wrong: the matchings are drawn again, from the next coins",
            m.DONE: "reports which of its pairs failed",
            m.OUTCOME: "the estimate that the aggregator claims, and the pairs that it is without",
        }
    )
    messages: ClassVar[Mapping[str, type[msgspec.Struct]]] = MappingProxyType(
        {
            m.TERMS: m.Terms,
            m.HELLO: m.Hello,
            **dict.fromkeys(m.COINS, m.Coin),
            **dict.fromkeys(m.AGAINS, m.Again),
            m.DONE: m.Done,
            m.OUTCOME: m.Outcome,
        }
    )

    def verdict(self, run: Run, report: Report) -> dict[str, str]:
        """Return the page's notice as kind, title and text: what the audit checked, who is left out."""
        text = (
            f"{report.limits} Signatures, order, coins and matchings are right. Only the aggregator can "
            "check its estimate."
        )
        if run.excluded:
            text += f" Left out: {listed([*run.excluded])}, who signed something false."
        return {"kind": "good", "title": "Every check of this log passed", "text": text}

    def result(self, report: Report) -> dict[str, object]:
        """Return an audited run's estimate as data for the log's web page; {} without a result."""
        result = report.statistic
        if result is None:
            return {}
        drawn = sum(map(len, result.pairs))
        estimate = {
            "value": f"{result.value:.6g}",
            "error": "unknown" if result.standard_error is None else f"{result.standard_error:.2g}",
            "pairs": drawn - len(result.failed),
            "drawn": drawn,
            "draws": len(result.attempts),
            "disputed": [
                (f"matching {matching + 1}", f"{garbler} and {evaluator}")
                for matching, garbler, evaluator in result.disputed[:ROWS]
            ],
        }
        return {"estimate": estimate}

    def counts(self, report: Report) -> dict[str, list[int]]:
        """Return by party [pairs, failed ones, disputed ones that both signed as evaluated]; or {}."""
        drawn = report.statistic
        if drawn is None:
            return {}
        result = {name: [0, 0, 0] for name in drawn.present}
        pairs = (pair for matching in drawn.pairs for pair in matching)
        for index, named in enumerate(
            (pairs, *((pair for _, *pair in each) for each in (drawn.failed, drawn.disputed)))
        ):
            for pair in named:
                for name in pair:
                    result[name][index] += 1
        return result

    def state(self, run: Run, index: int, made: Mapping[str, int]) -> tuple[str, str]:
        """Return the text and style that show how a party's pairs ended, or how far it has come."""
        name = run.names[index]
        if run.present is None or index + 1 not in run.present:
            return ("left out of a further draw", "warning") if m.HELLO in made else ("not present", "")
        if name in run.counts and run.report is not None and not run.report.faults:
            pairs, failed, disputed = run.counts[name]
            text = f"in {pairs} pairs" + (f", of which {failed} failed" if failed else "")
            if disputed:
                text += f"; {disputed} of these both parties signed as evaluated"
            if m.DONE not in made:
                text += "; sent no report on them"
            return text, "warning" if failed or m.DONE not in made else "good"
        if m.DONE in made:
            return self.steps[m.DONE], "good"
        if m.COINS[run.draw - 1] in made:
            return OPENED_COIN, "good"
        if m.HELLO in made:
            return f"{self.steps[m.HELLO]}; that of draw {run.draw} is not open", ""
        return super().state(run, index, made)
