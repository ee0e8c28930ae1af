"""`smpc-dp bench session`: one average of a large model in a session, each member a process of this host.

Beside the least processor time that the machine can do with, another checkout of the project, Flower's
SecAgg+ functions, and a plain average.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version

from smpc_dp.errors import LocalError
from smpc_dp.secagg.params import SecAggParameters, check_parameters
from smpc_dp_lab.bench.control_group import SAMPLE_SECONDS, ControlGroup
from smpc_dp_lab.bench.figures import (
    Figure,
    Limit,
    Peer,
    Progress,
    Report,
    Steps,
    Target,
    alternate,
    cost,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.peer import FlowerPeer
from smpc_dp_lab.bench.session_limit import aggregator_work, limit_parts, party_work
from smpc_dp_lab.bench.session_runs import Average, Checkout, plain_average
from smpc_dp_lab.bench.session_worker import PRECISION, parameters_of

FEW = 10
"""Values of the model that costs nothing beyond imports and set-up."""
NEAR_LIMIT = Target("ratio_to_limit", 1 / 3)
HALF_OF_BEFORE = Target("ratio_to_peer", 2)
HOW = "processes of one host, mutual TLS on loopback; a dict of float32 arrays in [-1, 1]"
OURS, BEFORE, PLAIN = "ours", "before", "plain"
PLAIN_NAME = "plain average over TCP, numpy alone"
SAMPLED = f"the most among samples, one each {SAMPLE_SECONDS * 1e3:.0f} ms"
FLOWER_DOES = {
    "party": "the peer does its masking work alone: quantising, shares, key agreements and masks; no channel",
    "aggregator": "the peer adds up, recovers and removes all self-masks, and dequantises; no channel",
}
PLAIN_DOES = (
    "the peer: each party sends float32 to one process and receives the average; "
    "nothing is encrypted or signed, and that process sees every model"
)
# A quantity of two averages of one round: of few values, and of the model.
Quantity = Callable[[Average, Average], float]


@dataclass(slots=True)
class _Bench:
    """Measurements of the session benchmark: averages, limits and Flower's times, by round."""

    parameters: SecAggParameters
    flower: FlowerPeer
    before: Checkout | None
    runs: dict[str, list[tuple[Average, Average]]] = field(default_factory=dict)
    limits: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    flower_seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def parties(self) -> int:
        return self.parameters.plan.parties

    @property
    def length(self) -> int:
        return self.parameters.encoding.ring_length

    @property
    def masks(self) -> int:
        """The number of masks of one party: pairwise ones, and the self-mask."""
        return round(self.parameters.plan.mask_degree) + 1

    def measure(self, rounds: int, advance: Callable[[], None]) -> None:
        """Take `rounds` measurements of each checkout, the limits and Flower, in turns."""
        codes = {OURS: Checkout.own().average, PLAIN: plain_average}
        if self.before is not None:
            codes[BEFORE] = self.before.average
        measures = {name: partial(self._run, name, average) for name, average in codes.items()}
        alternate(rounds, measures | {"limit": self._limit, "flower": self._flower}, advance)

    def _run(self, name: str, average: Callable[[int, int], Average]) -> None:
        pair = average(self.parties, FEW), average(self.parties, self.length)
        self.runs.setdefault(name, []).append(pair)

    def _limit(self) -> None:
        for member, work in (("party", party_work), ("aggregator", aggregator_work)):
            parts = limit_parts(self.parameters, work(self.parameters))
            self.limits.setdefault(member, []).append(parts)

    def _flower(self) -> None:
        """Measure a client's work, and the server's: the sum, and the masks that it removes."""
        plan, length, parties = self.parameters.plan, self.length, self.parties
        shares = {"holders": plan.degree, "threshold": plan.threshold}
        client = self.flower.seconds("client", length=length, masks=self.masks, **shares)
        added = self.flower.seconds("average", length=length, parties=parties)
        removed = self.flower.seconds(
            "recovery", length=length, **shares, seeds=parties, keys=0, pairs=0, sample=False
        )
        if client is not None and added is not None and removed is not None:
            self.flower_seconds.setdefault("party", []).append(client)
            self.flower_seconds.setdefault("aggregator", []).append(added + removed)

    def values(self, quantity: Quantity, code: str = OURS) -> list[float]:
        """Return a quantity of each round of one checkout; [] if that was not measured."""
        return [quantity(few, whole) for few, whole in self.runs.get(code, [])]

    def figure(
        self,
        name: str,
        unit: str,
        quantity: Quantity,
        note: str,
        limit: Limit | None = None,
        target: Target | None = None,
    ) -> Figure:
        """Return a figure of this checkout, with the other checkout's values as its peer."""
        commit = self.before.version if self.before is not None else None
        beside = Peer.of(BEFORE, commit, self.values(quantity, BEFORE))
        ours = self.values(quantity)
        return cost(name, unit, ours, f"{HOW}; {note}", peer=beside, limit=limit, target=target)

    def limit(self, member: str) -> Limit:
        """Return the limit of a member's processor time: the sum of its parts."""
        taken = self.limits[member]
        return Limit.of(f"{', '.join(taken[0])}; each alone", [sum(parts.values()) for parts in taken])


def run_session_bench(
    parties: int,
    length: int,
    runs: int = 1,
    progress: Progress | None = None,
    *,
    before: str | None = None,
    peer_python: str | None = None,
) -> Report:
    """Measure `session.average(tree)` of a model of `length` float32 values.

    Args:
        parties: 3 to 1,000.
        length: 1 to 2^26.
        runs: measurements of each figure, 1 or more.
        progress: called with what is measured, the rounds done and the rounds of it.
        before: a folder with another checkout of this project, its core compiled, measured in turns; or None.
        peer_python: an interpreter that can import `flwr`; None for our own. Where it cannot, peers are None.

    Raises:
        ConfigError: a number is out of range, or `before` is no such folder.
        LocalError: a process failed, or `peer_python` cannot be run.
    """
    refuse(
        within("parties", parties, 3, 1_000), within("length", length, 1, 1 << 26), within("runs", runs, 1)
    )
    checkout = None if before is None else Checkout.at(before)
    parameters, issues = check_parameters(parameters_of(length), parties)
    if parameters is None:
        raise LocalError(f"the session of the benchmark: {issues[0]}")
    with FlowerPeer(peer_python) as flower:
        bench = _Bench(parameters, flower, checkout)
        bench.measure(runs, Steps(progress, "averages", runs))
        commit = None if checkout is None else checkout.version
        known = versions("numpy", "cryptography", flwr=flower.version, before=commit)
    figures = [*_times(bench), *_traffic(bench), *_memory(bench), *_limits(bench), *_peers(bench)]
    group = bench.runs[OURS][0][1].group
    return Report(
        "session",
        figures,
        known,
        {
            "parties": parties,
            "length": length,
            "precision": PRECISION,
            "runs": runs,
            "masks": bench.masks,
            "element_bytes": parameters.encoding.element_bytes,
            "control_group": group and group.version,
        },
    )


def _measured(key: str) -> dict[str, Callable[[Average], float]]:
    """Return functions that read a named measurement: the largest party's, aggregator's, and the sum."""
    return {
        "party": lambda run: run.most(key),
        "aggregator": lambda run: run.aggregator[key],
        "all processes": lambda run: run.whole(key),
    }


_CPU, _BUSY = _measured("cpu"), _measured("busy")


def _of_few(value: Callable[[Average], float]) -> Quantity:
    return lambda few, _: value(few)


def _of_whole(value: Callable[[Average], float]) -> Quantity:
    return lambda _, whole: value(whole)


def _of_model(value: Callable[[Average], float]) -> Quantity:
    """Return a quantity: a value of the large model's average less that of a small one."""
    return lambda few, whole: max(0.0, value(whole) - value(few))


def _times(bench: _Bench) -> list[Figure]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limits = {member: bench.limit(member) for member in bench.limits}
    least = (bench.parties * limits["party"].median + limits["aggregator"].median) / cores
    wall = bench.figure(
        "average of a tree: wall time",
        "s",
        _of_whole(lambda run: run.wall),
        "from the first party's request until the last one has its result; all are connected before",
        Limit(f"limits of all members' processor time, on {cores} cores", least),
    )
    figures = [wall]
    for member, limit in limits.items():
        cpu, who = _CPU[member], "the most of a party; " if member == "party" else ""
        figures += [
            bench.figure(
                f"{member}: processor time",
                "s",
                _of_whole(cpu),
                f"{who}imports, connecting and closing too; the model is there already; "
                "half of the other checkout's is wanted",
                target=HALF_OF_BEFORE,
            ),
            bench.figure(
                f"{member}: processor time of imports and set-up",
                "s",
                _of_few(cpu),
                f"{who}all of an average of {FEW} values",
            ),
            bench.figure(
                f"{member}: processor time of the model",
                "s",
                _of_model(_BUSY[member]),
                f"{who}after connecting, beyond an average of {FEW} values; 3 times its limit is wanted",
                limit,
                NEAR_LIMIT,
            ),
        ]
    return figures


def _traffic(bench: _Bench) -> list[Figure]:
    packed = Limit.of(
        "the vector alone, in the bytes of its element",
        bench.values(_of_whole(lambda run: run.parties[0]["plain_bytes"])),
    )
    most = "the most of a party"
    return [
        bench.figure("party: sent", "B", _of_whole(lambda run: run.most("sent")), most, packed),
        bench.figure("party: received", "B", _of_whole(lambda run: run.most("received")), most, packed),
        bench.figure(
            "largest difference to the plain average",
            "",
            _of_whole(lambda run: run.parties[0]["error"]),
            "float32 has 6e-8 near 1",
        ),
    ]


def _memory(bench: _Bench) -> list[Figure]:
    model = Limit("the model as float32 and its average as float64", 12.0 * bench.length)
    resident = "resident, interpreter and modules too; the most of a party, with its model and its average"
    figures = [
        bench.figure("party: peak memory", "B", _of_whole(lambda run: run.most("peak")), resident, model),
        bench.figure(
            "aggregator: peak memory",
            "B",
            _of_whole(lambda run: run.aggregator["peak"]),
            "resident, interpreter and modules too",
        ),
        bench.figure(
            "all processes: written to disk",
            "B",
            _of_whole(lambda run: run.whole("written")),
            "of files that were not removed before the system wrote them",
        ),
    ]
    groups: dict[str, tuple[Callable[[ControlGroup], float], str]] = {
        "peak memory": (lambda group: group.peak, "page cache too, as the kernel counts their control group"),
        "peak memory of their own": (lambda group: group.anonymous, f"{SAMPLED}; anonymous memory"),
        "peak page cache": (lambda group: group.cache, f"{SAMPLED}; of files that they read first or wrote"),
    }
    if all(run.group is not None for _, run in bench.runs[OURS]):
        figures += [
            bench.figure(f"all processes: {name}", "B", _of_whole(partial(_in_group, value)), note)
            for name, (value, note) in groups.items()
        ]
    return figures


def _in_group(value: Callable[[ControlGroup], float], run: Average) -> float:
    """Return a quantity of a run's control group; raise LocalError if there was none."""
    if run.group is None:
        raise LocalError("a control group could be made for one run and not for another one")
    return value(run.group)


def _limits(bench: _Bench) -> list[Figure]:
    """Return a figure for each part of the processor-time limits of party and aggregator."""
    works = {"party": party_work(bench.parameters), "aggregator": aggregator_work(bench.parameters)}
    return [
        cost(f"limit of the {member}: {part}", "s", [parts[part] for parts in taken], works[member].described)
        for member, taken in bench.limits.items()
        for part in taken[0]
    ]


def _peers(bench: _Bench) -> list[Figure]:
    """Return the figures beside Flower's functions, and beside a plain average: how much security costs."""
    figures = []
    for member in bench.limits:
        ours = bench.values(_of_model(_BUSY[member]))
        peer = Peer.of(bench.flower.name, bench.flower.version, bench.flower_seconds.get(member, []))
        figures.append(cost(f"{member}: masking beside Flower", "s", ours, FLOWER_DOES[member], peer=peer))
    quantities: dict[str, Quantity] = {"wall time": _of_whole(lambda run: run.wall)}
    quantities |= {f"processor time of the model, {name}": _of_model(busy) for name, busy in _BUSY.items()}
    quantities |= {f"processor time, {name}": _of_whole(cpu) for name, cpu in _CPU.items()}
    for name, quantity in quantities.items():
        ours, plain = bench.values(quantity), bench.values(quantity, PLAIN)
        peer = Peer.of(PLAIN_NAME, version("numpy"), plain)
        figures.append(cost(f"security: {name}", "s", ours, PLAIN_DOES, peer=peer))
        if all(plain):
            ratios = [own / other for own, other in zip(ours, plain, strict=True)]
            figures.append(cost(f"times a plain average: {name}", "", ratios, PLAIN_DOES))
    return figures
