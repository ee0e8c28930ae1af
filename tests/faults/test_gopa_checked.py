"""GOPA with roll-back whose receivers check the total: losses at each step, and members that lie."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp.capabilities.gopa.params import GopaParameters, check_parameters
from smpc_dp.crypto import commit
from smpc_dp.engine.phases import messages as m
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode
from tests.faults.checked_totals import CheckedRun, ResultLie, assert_no_total, plus
from tests.faults.simulated import by

LOST = "p4"
WRONG = "the total is not that of the commitments"


def row_of(parties: int = 4) -> CheckedRun:
    given: dict[str, Any] = {"length": 3, "lower": -9.0, "upper": 9.0, "precision": 1e-3}
    given |= {"epsilon": 1.0, "delta": 1e-6, "dropout": 0.25, "corrupt": 0.0}
    parameters, issues = check_parameters(given | {"on_dropout": "roll-back", "total": "checked"}, parties)
    assert parameters is not None, issues
    return CheckedRun(parties, parameters=parameters)


def committed_sum(simulated: CheckedRun, names: Iterable[str]) -> list[int]:
    """Return what these parties committed to, added up, as offsets from the lowest values."""
    total = sum((simulated.lanes[name] for name in names), simulated.encoding.zeros())
    return [int(element) for element in total.view(np.int64)]


@pytest.mark.parametrize(
    "step", [None, m.REVEAL, m.DEAL, m.ATTEST_PARTICIPANTS, m.MASKED, m.ATTEST_SURVIVORS]
)
def test_the_total_is_that_of_the_survivors_commitments(step: str | None) -> None:
    """A party may be lost at each step: its terms come out of the total, or its vector is in it."""
    simulated = row_of()
    simulated.execute() if step is None else simulated.execute(by(step, LOST, lambda _: ()))
    staying = [name for name in simulated.names if step in (None, m.ATTEST_SURVIVORS) or name != LOST]
    for name in staying if step is None else staying[:3]:
        outcome = simulated.parties[name].result
        assert outcome.evidence.checked is True
        assert list(outcome.survivors) == staying
        lowest = len(staying) * simulated.encoding.lowest
        assert outcome.total.tolist() == [each + lowest for each in committed_sum(simulated, staying)]
        assert outcome.noise.residual_pairs == 0


@pytest.mark.long
def test_own_noise_is_in_the_total_once() -> None:
    """Mean square of 120 runs of 3 coordinates: 360 degrees of freedom; five deviations are 6e-7.

    The runs share one plan, and each has randomness and vectors of its own.
    """
    parameters = row_of().parameters
    assert isinstance(parameters, GopaParameters)
    squares = []
    for run in range(1, 121):
        simulated = CheckedRun(4, parameters=parameters, run=run).execute()
        off = simulated.parties["p1"].result.total - sum(simulated.grid(name) for name in simulated.names)
        squares.append(off.astype(float) ** 2 / (4 * parameters.session.own_variance))
    assert abs(np.mean(squares) - 1) < 5 * (2 / 360) ** 0.5


def off_by_one(simulated: CheckedRun, _: str, result: m.CheckedResult) -> m.CheckedResult:
    total = simulated.total_of(result)
    return msgspec.structs.replace(result, total=simulated.pack([total[0] + 1, *total[1:]]))


def other_blinding(_: CheckedRun, _receiver: str, result: m.CheckedResult) -> m.CheckedResult:
    return msgspec.structs.replace(result, blinding=plus(result.blinding, 1))


def without_one(simulated: CheckedRun, _: str, result: m.CheckedResult) -> m.CheckedResult:
    """Leave out a vector and its blinding, and list its party."""
    own = [int(element) for element in simulated.lanes["p3"]]
    total = [a - b for a, b in zip(simulated.total_of(result), own, strict=True)]
    left = commit.add_blindings([result.blinding], [simulated.committed["p3"].blinding])
    return msgspec.structs.replace(result, total=simulated.pack(total), blinding=left)


@pytest.mark.parametrize("lie", [off_by_one, other_blinding, without_one])
def test_a_false_total_is_refused_by_all(lie: ResultLie) -> None:
    row_of().lie_in_result(lie).assert_all_refuse(WRONG)


@pytest.mark.parametrize("field", ["vector", "blinding"])
def test_another_vector_than_committed(field: str) -> None:
    """Also another pairwise term, which looks the same: no total is sent, and nobody is named."""
    simulated = row_of()

    def other(envelope: Envelope) -> Iterable[Envelope]:
        message = decode(envelope.body, m.CheckedMasked, "p3")
        lanes = simulated.encoding.unpack(message.vector).copy()
        lanes[0] += np.uint64(1)
        changed = {"vector": simulated.encoding.pack(lanes), "blinding": plus(message.blinding, 1)}
        return (simulated.change(envelope, **{field: changed[field]}),)

    assert_no_total(simulated.execute(by(m.MASKED, "p3", other)))
