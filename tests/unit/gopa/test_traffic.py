"""Planned traffic of a party beside the bytes of simulated runs."""

from __future__ import annotations

from statistics import mean
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.gopa.check import check_gopa
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.report.trace import Trace
from smpc_dp.simulate import average


@pytest.mark.thin(3)
@pytest.mark.parametrize("length", [2, 40])
@pytest.mark.parametrize("parties", [5, 12])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"topology": "direct"},
        # A vector of 40 with proofs takes eight seconds.
        pytest.param({"verifiable": True}, marks=pytest.mark.long),
        {"on_dropout": "roll-back"},
        {"on_dropout": "roll-back", "total": "checked"},
    ],
    ids=["relay", "direct", "verifiable", "roll-back", "checked"],
)
def test_the_planned_traffic_is_that_of_a_run(form: dict[str, Any], parties: int, length: int) -> None:
    given = {"lower": 0.0, "upper": 1.0, "epsilon": 2.0, "delta": 1e-6, "length": length}
    parameters, issues = check_gopa(given | form, parties)
    assert not issues
    assert isinstance(parameters, SumParameters)
    trace = Trace()
    average(
        np.full((parties, length), 0.5),
        lower=0.0,
        upper=1.0,
        epsilon=2.0,
        delta=1e-6,
        method="gopa",
        **form,
        planned_dropout=parameters.plan.dropout,
        corrupt=parameters.plan.corrupt,
        seed_for_simulation=1,
        trace=trace,
    )
    names = [name for name in {end for pair in trace.sent for end in pair} if name.startswith("party-")]
    sent = mean(sum(size for (sender, _), size in trace.sent.items() if sender == name) for name in names)
    got = mean(sum(size for (_, receiver), size in trace.sent.items() if receiver == name) for name in names)
    assert parameters.traffic[0] == pytest.approx(sent, rel=0.2)
    assert parameters.traffic[1] == pytest.approx(got, rel=0.2)
