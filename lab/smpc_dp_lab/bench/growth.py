"""`smpc-dp bench growth`: what secure aggregation costs as parties, length and degree grow, with fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from smpc_dp.encoding import Encoding
from smpc_dp.privacy.secagg_plan import SecAggPlan, check_plan, plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp_lab.bench import kernels
from smpc_dp_lab.bench.figures import (
    Figure,
    Limit,
    Peer,
    Progress,
    Report,
    Steps,
    alternate,
    cost,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.peer import FlowerPeer
from smpc_dp_lab.bench.recording import Recording, record

# What varies, and its values.
SIZES: Mapping[str, Sequence[int]] = {
    "parties": (30, 60, 120, 240),
    "length": (1_000, 10_000, 30_000, 100_000),
    "degree": (20, 40, 60, 80),
}
PARTIES, LENGTH = 30, 1_000
PARTIES_OF_DEGREES = 100


def run_growth_bench(
    runs: int = 1,
    progress: Progress | None = None,
    sizes: Mapping[str, Sequence[int]] = SIZES,
    *,
    peer_python: str | None = None,
) -> Report:
    """Measure CPU time and bytes of an exact secure sum for each size, the other two held.

    Parties vary on the planned graph, with vectors of 1,000 numbers; the length with 30 parties; the degree
    with 100 parties. A tenth drop out before their masked vectors. `parameters["fits"]` has the fits.
    `peer_python` is an interpreter that can import `flwr`, None for our own; where it cannot, peers are None.

    Raises ConfigError for fewer than 1 runs, LocalError if `peer_python` cannot be run.
    """
    refuse(within("runs", runs, 1))
    step = Steps(progress, "sizes", sum(len(values) for values in sizes.values()))
    figures: list[Figure] = []
    with FlowerPeer(peer_python) as peer:
        for of, values in sizes.items():
            for value in values:
                figures += _measured(of, value, runs, peer)
                step()
    medians = {figure.name: figure.median for figure in figures}
    fits = [
        fit(kind, of, values, [medians[figure_name(kind, of, value)] for value in values])
        for of, values in sizes.items()
        for kind in KINDS
    ]
    parameters = {"runs": runs, "sizes": dict(sizes), "fits": fits}
    return Report("growth", figures, versions("numpy", flwr=peer.version), parameters)


# The figures of one size, and their units.
CLIENT, AGGREGATOR, UP, DOWN = "client CPU time", "aggregator CPU time", "bytes up", "bytes down"
KINDS = {CLIENT: "s", AGGREGATOR: "s", UP: "B", DOWN: "B"}


def figure_name(kind: str, of: str, value: int) -> str:
    """Return the name of a figure: its kind, and the varied size with its value."""
    return f"{kind}, {of} = {value}"


def fit(kind: str, of: str, values: Sequence[int], medians: Sequence[float]) -> dict[str, object]:
    """Return a least-squares fit of one kind of figure: a x^b of parties, a + b x of length and degree."""
    x, y = np.array(values, dtype=float), np.array(medians)
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


def _measured(of: str, value: int, runs: int, peer: FlowerPeer) -> list[Figure]:
    length = value if of == "length" else LENGTH
    plan = _plan(of, value)
    encoding = Encoding.plan(length=length, lower=-1.0, upper=1.0, precision=1e-6, parties=plan.parties)
    parameters = SecAggParameters(encoding, plan)
    masks = round(plan.mask_degree) + 1
    recordings: list[Recording] = []

    def run() -> float:
        recordings.append(record(parameters, plan.max_dropouts, len(recordings) + 1))
        return median(recordings[-1].client_seconds.values())

    taken = alternate(
        runs,
        {
            "ours": run,
            "peer": lambda: peer.seconds(
                "client",
                length=encoding.ring_length,
                masks=masks,
                holders=plan.degree,
                threshold=plan.threshold,
            ),
            "limit": kernels.keystream_rate,
        },
    )
    note = (
        f"{plan.parties} parties, length {length}, degree {plan.degree}, {plan.max_dropouts} drop out before "
        "their masked vectors; medians over the survivors; CPU time of one thread"
    )
    made = masks * encoding.ring_length * encoding.dtype().itemsize
    vector = Limit("the vector alone, packed", float(encoding.ring_length * encoding.element_bytes))
    of_kind: dict[str, tuple[list[float], Peer | None, Limit | None]] = {
        CLIENT: (
            taken["ours"],
            Peer.of(f"{peer.name}, masking alone", peer.version, taken["peer"]),
            Limit("OpenSSL AES-256-CTR keystream of the client's masks", made / median(taken["limit"])),
        ),
        AGGREGATOR: ([one.aggregator_seconds for one in recordings], None, None),
        UP: ([median(one.up.values()) for one in recordings], None, vector),
        DOWN: ([median(one.down.values()) for one in recordings], None, vector),
    }
    return [
        cost(figure_name(kind, of, value), KINDS[kind], values, note, peer=beside, limit=limit)
        for kind, (values, beside, limit) in of_kind.items()
    ]


def _plan(of: str, value: int) -> SecAggPlan:
    if of == "degree":
        return check_plan(PARTIES_OF_DEGREES, value, value // 2 + 1, dropout=0.1)
    return plan_secagg(value if of == "parties" else PARTIES, dropout=0.1)
