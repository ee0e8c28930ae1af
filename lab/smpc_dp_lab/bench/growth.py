"""`smpc-dp bench growth`: what secure aggregation costs as parties, length and degree grow, with fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from smpc_dp.encoding import Encoding
from smpc_dp.privacy.secagg_plan import SecAggPlan, check_plan, plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp_lab.bench.figures import Figure, Progress, Report, Steps, cost, refuse, versions, within
from smpc_dp_lab.bench.recording import record

# What varies, and its values.
SIZES: Mapping[str, Sequence[int]] = {
    "parties": (30, 60, 120, 240),
    "length": (1_000, 10_000, 30_000, 100_000),
    "degree": (20, 40, 60, 80),
}
PARTIES, LENGTH = 30, 1_000
PARTIES_OF_DEGREES = 100


def run_growth_bench(
    runs: int = 1, progress: Progress | None = None, sizes: Mapping[str, Sequence[int]] = SIZES
) -> Report:
    """Measure CPU time and bytes of an exact secure sum for each size, the other two held.

    Parties vary on the planned graph, with vectors of 1,000 numbers; the length with 30 parties; the degree
    with 100 parties. A tenth drop out before their masked vectors. `parameters["fits"]` has the fits.

    Raises ConfigError for fewer than 1 runs.
    """
    refuse(within("runs", runs, 1))
    step = Steps(progress, "sizes", sum(len(values) for values in sizes.values()))
    figures: list[Figure] = []
    for of, values in sizes.items():
        for value in values:
            figures += _measured(of, value, runs)
            step()
    fits = [fit(figures, of, values, name) for of, values in sizes.items() for name in KINDS]
    return Report("growth", figures, versions("numpy"), {"runs": runs, "sizes": dict(sizes), "fits": fits})


# The figures of one size, and their units.
KINDS = {"client CPU time": "s", "aggregator CPU time": "s", "bytes up": "B", "bytes down": "B"}


def figure_name(kind: str, of: str, value: int) -> str:
    """Return the name of a figure of one size."""
    return f"{kind}, {of} = {value}"


def fit(figures: Sequence[Figure], of: str, values: Sequence[int], kind: str) -> dict[str, object]:
    """Return a least-squares fit of one kind of figure: a x^b of parties, a + b x of length and degree."""
    medians = {figure.name: figure.median for figure in figures}
    x = np.array(values, dtype=float)
    y = np.array([medians[figure_name(kind, of, value)] for value in values])
    power = of == "parties"
    across, up = (np.log(x), np.log(y)) if power else (x, y)
    b, a = np.polyfit(across, up, 1)
    rest = up - (a + b * across)
    spread = float(((up - up.mean()) ** 2).sum())
    return {
        "figure": kind,
        "of": of,
        "form": "a x^b" if power else "a + b x",
        "a": float(np.exp(a) if power else a),
        "b": float(b),
        "r_squared": 1 - float((rest**2).sum()) / spread if spread else 1.0,
    }


def _measured(of: str, value: int, runs: int) -> list[Figure]:
    length = value if of == "length" else LENGTH
    plan = _plan(of, value)
    encoding = Encoding.plan(length=length, lower=-1.0, upper=1.0, precision=1e-6, parties=plan.parties)
    parameters = SecAggParameters(encoding, plan)
    taken = [record(parameters, plan.max_dropouts, seed) for seed in range(1, runs + 1)]
    note = (
        f"{plan.parties} parties, length {length}, degree {plan.degree}, {plan.max_dropouts} drop out before "
        "their masked vectors; medians over the survivors; CPU time of one thread"
    )
    of_kind = {
        "client CPU time": [median(one.client_seconds.values()) for one in taken],
        "aggregator CPU time": [one.aggregator_seconds for one in taken],
        "bytes up": [median(one.up.values()) for one in taken],
        "bytes down": [median(one.down.values()) for one in taken],
    }
    return [cost(figure_name(kind, of, value), KINDS[kind], of_kind[kind], note) for kind in KINDS]


def _plan(of: str, value: int) -> SecAggPlan:
    if of == "degree":
        return check_plan(PARTIES_OF_DEGREES, value, value // 2 + 1, dropout=0.1)
    return plan_secagg(value if of == "parties" else PARTIES, dropout=0.1)
