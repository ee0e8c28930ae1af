"""A kernel of one's own: garbled, on shares, in local reports and in gossip."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.averager import Parties, PlainExchange, Rows
from smpc_dp.capabilities.learn.pair_statistics import GossipClear
from smpc_dp.capabilities.learn.registry import check_learn
from smpc_dp.capabilities.learn.requirements import LearnerContext
from smpc_dp.capabilities.learn.simulation.learning import learn
from smpc_dp.capabilities.pairs.circuits.gadgets import less_than
from smpc_dp.capabilities.pairs.kernels import (
    Field,
    Kernel,
    circuit_kernel,
    collision,
    kendall_tau,
    table_kernel,
    variance,
)
from smpc_dp.capabilities.pairs.kernels.described import describe
from smpc_dp.capabilities.pairs.kernels.fields import Cells
from smpc_dp.capabilities.pairs.statistics import exact
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.errors import ConfigError, PeerFault
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import load_session

N = 12
RECORDS = np.random.default_rng(3).integers(0, 10, (N, 1)).astype(np.float64)
DIGIT = Field(0, 9, exact=True)
# 1 for a record with itself.
NEAR = table_kernel("near", lambda x, y: float(abs(x[0] - y[0]) <= 2), DIGIT, low=-1, high=1)
# Not symmetric, on 17 bits each: its gates cut it to its range.
FINE = Field(0, 100_000)
BELOW = circuit_kernel(
    "below",
    lambda builder, x, y: (less_than(builder, x[0], y[0]),),
    lambda a, b: (a[..., 0] < b[..., 0]) * 1,
    FINE,
    low=0,
    high=1,
    symmetric=False,
)
OWN = {"near": (NEAR, 10), "below": (BELOW, 20), "thirds": (collision(Cells(0, 9, bins=3)), 3)}
WAYS = (("gosta", "synchronous"), ("gosta", "asynchronous"), ("u2", "synchronous"))


def given(kernel: Kernel, bins: int, learner: str, ticks: int = 3_000, **change: Any) -> dict[str, Any]:
    reports = {"bins": bins, "epsilon": 60.0} if learner == "gossip-reports" else {}
    return {"learner": learner, "statistic": describe(kernel), "ticks": ticks} | reports | change


def records(kernel: Kernel) -> np.ndarray:
    return RECORDS * (10_000 if kernel is BELOW else 1)


def truth(kernel: Kernel) -> float:
    """The mean over the ordered pairs of different parties."""
    return exact.u_statistic(kernel, records(kernel))


@pytest.mark.thin(9)
@pytest.mark.parametrize("learner", ["gossip-clear", "gossip-reports"])
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(("method", "clock"), WAYS)
def test_users_end_with_the_mean_of_their_kernel(learner: str, name: str, method: str, clock: str) -> None:
    """Two are not 0 for a record with itself; at epsilon 60 a report lies with chance 1e-23."""
    kernel, bins = OWN[name]
    settings = given(kernel, bins, learner, method=method, clock=clock)
    result = learn(settings, list(records(kernel)[:, None]))
    assert result.names == (kernel.name,)
    assert abs(float(result.values.mean()) - truth(kernel)) < 0.06 * kernel.width
    assert (result.guarantee is None) == (learner == "gossip-clear")


def test_a_described_kernel_is_the_same_between_processes() -> None:
    for learner in ("gossip-clear", "gossip-reports"):
        settings = given(NEAR, 10, learner, ticks=40)
        ideal, machines = (
            learn(settings, list(RECORDS[:, None]), fidelity=how, seed_for_simulation=1)
            for how in ("ideal", "machines")
        )
        np.testing.assert_array_equal(machines.values, ideal.values)
        assert np.abs(ideal.values).max() > 0


def test_a_session_file_holds_the_kernel(tmp_path: Path) -> None:
    settings = given(BELOW, 20, "gossip-reports")
    path = create_local_session(tmp_path, ("ann", "bob", "cho"), settings, protocol="learn")
    read = load_session(path).parameters
    assert read["statistic"] == settings["statistic"]
    checked, faults = check_learn(read, 3)
    assert checked is not None, faults
    assert describe(checked.learner.own) == describe(BELOW)  # type: ignore[attr-defined]


def test_no_message_exceeds_its_bound() -> None:
    seen = []

    class Watched(PlainExchange):
        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            seen.append(float(np.linalg.norm(vector, axis=1).max()))
            return await super().exchange(vector, partner)

    learner = GossipClear(statistic=describe(BELOW), ticks=200, clock="synchronous")
    required = learner.requirements(N).exchange
    assert required is not None
    asyncio.run(learner.run(LearnerContext(exchange=Watched(N)), list(records(BELOW)[:, None])))
    assert required.length == 3
    assert 80_000 < max(seen) <= required.l2_bound


@pytest.mark.parametrize(("column", "value"), [(0, 1.5), (1, 10.0), (1, 0.5), (2, float(N)), (2, -1.0)])
def test_who_sends_what_is_no_code_is_named(column: int, value: float) -> None:
    class Lying(PlainExchange):
        async def exchange(self, vector: Rows, partner: Parties) -> Rows:
            lied = vector.copy()
            lied[2, column] = value
            received = await super().exchange(lied, partner)
            received[2] = vector[partner[2]]
            return received

    learner = GossipClear(statistic=describe(NEAR), ticks=60)
    with pytest.raises(PeerFault, match=r"at tick \d+ it sent an estimate") as caught:
        asyncio.run(learner.run(LearnerContext(exchange=Lying(N)), list(RECORDS[:, None])))
    assert caught.value.culprit == "party 2"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lower": 0.0}, "lower: the fields of the kernel have bounds of their own"),
        ({"statistic": describe(NEAR) | {"digest": "00"}}, "statistic (kernel.digest): is not that"),
        ({"statistic": {"kernel": "near"}}, "statistic (kernel): not a kernel's description"),
        ({"statistic": {"kernel": "auc", "fields": []}}, "statistic: a kernel of one's own must be"),
        ({"statistic": "variance"}, "lower: is missing; upper: is missing"),
        ({"positives": 3}, "positives: is of auc alone"),
        ({"statistic": describe(kendall_tau(DIGIT, FINE)), "bins": 200}, "more than 1024 cells"),
        ({"learner": "gossip-clear", "statistic": describe(variance(FINE))}, None),
        (
            {"learner": "gossip-clear", "statistic": describe(variance(FINE)), "clock": "synchronous"},
            "ticks: 500: messages may reach 2.5e+12, beside which records are rounded away",
        ),
        ({"learner": "gossip-clear", "statistic": describe(collision()), "ticks": 500}, None),
    ],
)
def test_settings_are_checked(change: dict[str, Any], named: str | None) -> None:
    settings = given(NEAR, 10, "gossip-reports", 500) | change
    if settings["learner"] == "gossip-clear":
        settings = {key: value for key, value in settings.items() if key not in ("bins", "epsilon")}
    checked, faults = check_learn(settings, N)
    assert (checked is not None) == (named is None), faults
    assert (named or "") in "; ".join(map(str, faults))


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ([[9.5]], "out of bounds"),
        ([[0.5]], "no multiples"),
        ([[np.nan]], "not a number"),
        ([[1.0, 2.0]], "1 val"),
    ],
)
def test_data_are_checked(bad: list[list[float]], named: str) -> None:
    for learner in ("gossip-clear", "gossip-reports"):
        with pytest.raises(ConfigError, match=f"party 1: .*{named}"):
            learn(given(NEAR, 10, learner), [np.array([[1.0]]), np.array(bad), np.array([[3.0]])])


def test_local_reports_serve_an_own_kernel_also_on_coarser_cells() -> None:
    """A cell's centre need not be on an exact grid; at epsilon 60 the estimate is that of the cells."""
    data = np.arange(10.0).repeat(3)[:, None]
    for kernel, bins in (
        (NEAR, None),
        (NEAR, 5),
        (
            circuit_kernel(
                "same",
                lambda builder, x, y: (builder.not_(builder.xor(x[0][0], y[0][0])),),
                lambda a, b: 1 - (a[..., 0] ^ b[..., 0]) % 2,
                DIGIT,
                low=0,
                high=1,
            ),
            None,
        ),
    ):
        plan = LocalPairwise.plan(kernel, 60.0, bins=bins)
        result = plan.estimate(plan.randomise_many(data))
        cells = plan.quantiser.points()[plan.quantiser.categorise(kernel.codes(data))]
        matrix = kernel.function(cells[:, None], cells[None])
        expected = (matrix.sum() - np.trace(matrix)) / (30 * 29)
        assert result.value == pytest.approx(expected, abs=1e-9)


def test_one_kernel_serves_every_protocol() -> None:
    """Garbled and on shares with the least noise there is; within 6 and 8 standard errors, 2e-9 and 2e-5."""
    data = RECORDS[:, 0]
    garbled = simulate.pairwise(NEAR, data, epsilon=12.0, P=6, seed_for_simulation=1)
    shared = simulate.pairwise(NEAR, data, epsilon=12.0, engine="mpyc", seed_for_simulation=1)
    reported = simulate.local_pairwise(NEAR, data, 60.0)
    gossiped = learn(given(NEAR, 10, "gossip-clear"), list(RECORDS[:, None]), fidelity="plain")
    assert reported.value == pytest.approx(truth(NEAR))
    assert garbled.standard_error is not None
    assert abs(garbled.value - truth(NEAR)) < 6 * garbled.standard_error
    # Laplace noise.
    assert abs(shared.value - truth(NEAR)) < 8 * shared.noise_error < 0.32
    assert abs(float(gossiped.values.mean()) - truth(NEAR)) < 0.1
