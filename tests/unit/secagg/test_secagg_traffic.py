"""Planned traffic of a party of a secure sum beside the bytes of simulated runs."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

import numpy as np
import pytest

from smpc_dp.engine.phases.parameters import CheckableParameters, SumParameters, Total
from smpc_dp.privacy.secagg_plan import commitment_seconds, communication
from smpc_dp.report.trace import Trace
from smpc_dp.secagg.params import check_parameters
from smpc_dp.simulate import average

BOUNDS: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "precision": 1e-3}


def planned(parties: int, length: int, total: Total) -> SumParameters:
    parameters, issues = check_parameters(BOUNDS | {"length": length, "total": total}, parties)
    assert parameters is not None, issues
    return parameters


def bytes_of_a_run(parameters: SumParameters, length: int, given: Mapping[str, Any]) -> tuple[float, float]:
    """Return the mean bytes that a party sent and received."""
    trace, parties = Trace(), parameters.plan.parties
    average(
        np.full((parties, length), 0.5),
        planned_dropout=parameters.plan.dropout,
        seed_for_simulation=1,
        trace=trace,
        **BOUNDS,
        **given,
    )
    names = {name for pair in trace.sent for name in pair if name.startswith("party-")}
    sent = [sum(size for (one, _), size in trace.sent.items() if one == name) for name in names]
    received = [sum(size for (_, one), size in trace.sent.items() if one == name) for name in names]
    return mean(sent), mean(received)


@pytest.mark.parametrize("total", ["unchecked", "checked"])
@pytest.mark.parametrize(("parties", "length"), [(5, 40), (12, 2), (70, 2)])
def test_the_planned_traffic_is_that_of_a_run(parties: int, length: int, total: Total) -> None:
    parameters = planned(parties, length, total)
    measured = bytes_of_a_run(parameters, length, {"total": total})
    assert parameters.traffic == pytest.approx(measured, rel=0.05)


def test_a_checked_total_costs_what_the_plan_adds() -> None:
    """But for the lengths of fields, to a few bytes: everybody is present.

    docs/reference/session-file.md states the 168 bytes.
    """
    totals: tuple[Total, Total] = ("unchecked", "checked")
    plans = [planned(12, 2, total) for total in totals]
    without, checked = (
        bytes_of_a_run(one, 2, {"total": total}) for one, total in zip(plans, totals, strict=True)
    )
    assert plans[1].traffic[0] - plans[0].traffic[0] == 168
    for index in (0, 1):
        more = plans[1].traffic[index] - plans[0].traffic[index]
        assert more == pytest.approx(checked[index] - without[index], abs=16)


@pytest.mark.parametrize(("parties", "length"), [(12, 40), (30, 2)])
def test_checkers_receive_what_the_plan_adds(
    parties: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On average: each party takes a certificate, and checkers all commitments and the total once more.

    To a few bytes: the lengths of fields, and of proofs.
    """
    without = planned(parties, length, "unchecked")
    unchecked = bytes_of_a_run(without, length, {"total": "unchecked"})
    monkeypatch.setattr(CheckableParameters, "has_checkers", property(lambda one: one.is_checked))
    parameters = planned(parties, length, "checked")
    plan, encoding = parameters.plan, parameters.encoding
    cost = communication(plan, length, encoding.element_bytes, checked=True, has_checkers=True)
    share = plan.checkers() / parties
    expected = [cost[direction]["total"] + share * cost["checker"][direction] for direction in ("up", "down")]
    assert parameters.traffic == (cost["up"]["total"], cost["down"]["total"])
    measured = bytes_of_a_run(parameters, length, {"total": "checked"})
    for index in (0, 1):
        more = expected[index] - without.traffic[index]
        assert more == pytest.approx(measured[index] - unchecked[index], abs=16)
    [note] = parameters.notes
    assert f"{plan.checkers()} survivors check it for all" in note
    assert f"{plan.max_corrupt + 1} of them must attest it" in note


def test_the_plan_says_whose_word_the_total_is() -> None:
    without, checked = (planned(12, 2, total) for total in ("unchecked", "checked"))
    [note] = without.notes
    assert note.startswith(
        "total: the aggregator's word: it may report any total within the bounds, and another"
    )
    [note] = checked.notes
    sent, received = (more - less for more, less in zip(checked.traffic, without.traffic, strict=True))
    assert note.startswith("total: each party checks it against commitments to all vectors")
    assert f"with {sent} of the bytes sent and {received} of those received, and some 0.0007 s of" in note


@pytest.mark.parametrize(
    ("parties", "elements", "width", "seconds"),
    [(10, 10_000, 4, 0.028), (100, 100_000, 4, 0.28), (10_000, 10_000, 4, 0.58), (10, 100_000, 8, 0.48)],
)
def test_the_planned_time_of_a_check_is_that_of_the_decision(
    parties: int, elements: int, width: int, seconds: float
) -> None:
    """Of docs/decisions/0051 and 0052, where it was measured: commitment, check and signatures."""
    assert commitment_seconds(parties, elements, width) == pytest.approx(seconds, rel=0.1)


@pytest.mark.parametrize(("precision", "width", "seconds"), [(1e-3, 3, "0.2"), (1e-15, 8, "0.5")])
def test_the_plan_says_the_time_of_elements_of_its_width(precision: float, width: int, seconds: str) -> None:
    given = BOUNDS | {"length": 100_000, "precision": precision}
    parameters, issues = check_parameters(given, 100)
    assert parameters is not None, issues
    assert parameters.encoding.element_bytes == width
    assert any(f"some {seconds} s of processor time" in note for note in parameters.notes), parameters.notes
