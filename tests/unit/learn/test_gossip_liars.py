"""A party that sends what no honest party can have: each learner refuses it and names who it is."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.averager import Parties, PlainExchange, Rows
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.errors import PeerFault
from smpc_dp.privacy.sampling import NoiseSource

LIAR = 2
DESCENT: dict[str, Any] = {"features": 2, "ticks": 30, "seed": 3}
ESTIMATE: dict[str, Any] = {"lower": -3.0, "upper": 4.0, "ticks": 30, "seed": 3}
CELLS: dict[str, Any] = {"bins": 5, "epsilon": 3.0}
RNG = np.random.default_rng(1)
DATA = [np.append(RNG.normal(size=2) / 2, label)[None] for label in (0.0, 1.0, 0.0, 1.0)]
SCORES = [table[:, [0, 2]] for table in DATA]
CLEAR = {"learner": "dual-averaging", "record_bound": 5.0} | DESCENT
REPORTS = {"learner": "dual-averaging-reports", "lower": -3.0, "upper": 4.0} | CELLS | DESCENT
AUC = {"learner": "gossip-clear", "statistic": "auc", "positives": 2} | ESTIMATE
AUC_REPORTS = {"learner": "gossip-reports", "statistic": "auc", "positives": 2} | CELLS | ESTIMATE
SYNCHRONOUS = {"clock": "synchronous"}


class Lying(PlainExchange):
    """Party `LIAR` sends `value` in a column."""

    def __init__(self, column: int, value: float) -> None:
        super().__init__(len(DATA))
        self._column, self._value = column, value

    async def exchange(self, vector: Rows, partner: Parties) -> Rows:
        lied = vector.copy()
        lied[LIAR, self._column] = self._value
        received = await super().exchange(lied, partner)
        received[LIAR] = vector[partner[LIAR]]
        return received


@pytest.mark.parametrize(
    ("parameters", "tables", "column", "value"),
    [
        (AUC_REPORTS, SCORES, 1, 1e6),
        (AUC_REPORTS, SCORES, 1, -1.0),
        (AUC_REPORTS, SCORES, 1, 0.5),
        (AUC_REPORTS, SCORES, 2, 4.0),
        (AUC_REPORTS | {"labels": "public"}, SCORES, 3, 7.0),
        (AUC_REPORTS | {"method": "u2"} | SYNCHRONOUS, SCORES, 0, 10.0),
        (AUC, SCORES, 0, 1.01),
        (AUC, SCORES, 1, 4.1),
        (AUC, SCORES, 2, 0.5),
        (AUC | SYNCHRONOUS, SCORES, 0, 40.0),
        (CLEAR, DATA, 0, 1e5),
        (CLEAR, DATA, 2, 6.0),
        (CLEAR, DATA, 4, 2.0),
        (CLEAR | SYNCHRONOUS, DATA, 0, 400.0),
        (REPORTS, DATA, 2, 50.0),
        (REPORTS | {"loss": "metric", "labels": "public"}, DATA, 6, -1.0),
    ],
)
def test_who_sends_what_nobody_can_have_is_named(
    parameters: dict[str, Any], tables: list[np.ndarray], column: int, value: float
) -> None:
    """Unchecked, an answer that is no cell ends an honest party's process, or goes on to the next one."""
    checked, faults = check_learn(parameters, len(tables))
    assert checked is not None, faults
    source = NoiseSource.keyed(bytes(32), b"test")
    with pytest.raises(PeerFault, match=r"at tick \d+ it sent an estimate") as caught:
        asyncio.run(checked.learner.run(LearnerContext(exchange=Lying(column, value), source=source), tables))
    assert caught.value.culprit == f"party {LIAR}"


@pytest.mark.parametrize("parameters", [AUC, AUC | SYNCHRONOUS, CLEAR, CLEAR | SYNCHRONOUS])
def test_a_lie_within_the_bounds_ends_nobody(parameters: dict[str, Any]) -> None:
    """What is believed keeps honest messages within the bound that they are planned for."""
    tables = SCORES if parameters["learner"] == "gossip-clear" else DATA
    checked, faults = check_learn(parameters, len(tables))
    assert checked is not None, faults
    plan = checked.exchange
    assert plan is not None
    largest = 0.0

    class Watched(Lying):
        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            nonlocal largest
            others = np.delete(vector, LIAR, axis=0)
            largest = max(largest, float(np.linalg.norm(others, axis=1).max()))
            return await super().exchange(vector, partner)

    # As large as is believed at the first tick.
    asyncio.run(checked.learner.run(LearnerContext(exchange=Watched(0, 1.0)), tables))
    assert plan.parameters.encoding.l2_bound is not None
    assert 1.0 < largest <= plan.parameters.encoding.l2_bound


def test_settings_beyond_all_numbers_are_faults() -> None:
    diffusion = {"learner": "diffusion", "features": 2, "steps": 6, "epsilon": 9.0, "rate": 0.5}
    for parameters, where in (
        (AUC_REPORTS | {"epsilon": 1e-300}, "epsilon"),
        (REPORTS | {"epsilon": 1e-300}, "epsilon"),
        (AUC | {"upper": 1e300}, "ticks"),
        (diffusion | {"rate": 1e-310}, "rate"),
        (diffusion | {"clip": 1e-310}, "rate"),
    ):
        assert [fault.where for fault in check_learn(parameters, 4)[1]] == [where], parameters
