"""`smpc-dp bench many`: one sum of many clients over sockets, some hundred of them in each process."""

from __future__ import annotations

import multiprocessing
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import cast

import msgspec
import numpy as np

from smpc_dp.encoding import MAX_LENGTH
from smpc_dp.engine.phases.messages import AGGREGATOR_STEPS
from smpc_dp.engine.phases.parameters import MAX_PARTIES, Total
from smpc_dp.errors import ConfigCheck, ConfigIssue, LocalError
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts, load_session
from smpc_dp_lab.bench.figures import (
    Figure,
    Progress,
    Report,
    Steps,
    cost,
    machine,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.growth import fit
from smpc_dp_lab.bench.many_trouble import STRANGERS
from smpc_dp_lab.bench.many_worker import (
    LOOK_SECONDS,
    STEP_BITS,
    Job,
    Taken,
    raise_limit,
    run_aggregator,
    run_clients,
    value_file,
    vector_of,
)
from smpc_dp_lab.bench.page import RESULTS, load_results, store_result
from smpc_dp_lab.bench.provenance import CHANGED, observed

BENCH = "many"
PARTIES = (200, 1_000, 5_000, 10_000)
# Of which growth with the number of clients is shown.
LENGTH = 1_000
EACH = 200
KILLED = 0.05
SHARED_FROM = 5_000
LEAST_TROUBLED = 30
"""So many clients tolerate three lost ones: one that is killed, one that floods, one that comes back late."""
SECONDS = 7_200.0
"""The most that one sum may take, with everything before it."""
TROUBLED_STEP = 30.0
"""Seconds of a step where something goes wrong, so that it ends soon."""
SLOW_PART = 0.4
"""Part of a step in which a slow client sends its vector: a message may take half of one."""
OTHERS = 64 + STRANGERS
"""Descriptors that a process needs beside its connections."""
# Not before `start`: an aggregator waits a whole step for a client that is lost before, which may come back.
KILLED_BEFORE = AGGREGATOR_STEPS[1:]
HOW = "clients of {each} a process, mutual TLS on 127.0.0.1, {killed} of {parties} killed at random steps"

REMEDY = "remove it, or name another folder"
# The figures of one size, and their units.
KINDS = {
    "set-up, wall time": "s",
    "sum, wall time": "s",
    "aggregator CPU time, start": "s",
    "aggregator CPU time, connections": "s",
    "aggregator CPU time, sum": "s",
    "client CPU time, connection": "s",
    "client CPU time, sum": "s",
    "aggregator peak memory": "B",
    "peak memory of a process of clients, per client": "B",
    "client sends": "B",
    "client receives": "B",
    "aggregator open descriptors": "",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """What goes wrong beside the kills; `churn` makes two requests of one, with other clients in each."""

    slow: bool = False
    flood: bool = False
    churn: bool = False

    @property
    def any(self) -> bool:
        """Whether any kind of trouble is set."""
        return self.slow or self.flood or self.churn


@dataclass(frozen=True, slots=True)
class Case:
    """Settings of one measurement: clients, length, fraction killed, seed and trouble.

    `killed`: a fraction of the clients; `total` as of a session file, None for its default.
    """

    parties: int
    length: int
    killed: float
    seed: int
    total: Total | None = None
    trouble: Trouble = Trouble()
    each: int = EACH
    shared: bool = False

    @property
    def names(self) -> list[str]:
        """The names of all clients, in roster order."""
        return [f"p{index:05}" for index in range(self.parties)]

    @property
    def requests(self) -> int:
        """The number of sums that are requested: 2 if clients leave and come back, else 1."""
        return 2 if self.trouble.churn else 1


def run_many_bench(
    parties: Sequence[int] = PARTIES,
    length: int = LENGTH,
    progress: Progress | None = None,
    *,
    killed: float = KILLED,
    seed: int = 0,
    total: Total | None = None,
    trouble: Trouble = Trouble(),
    each: int = EACH,
    shared_from: int = SHARED_FROM,
    out: Path | None = None,
) -> Report:
    """Measure one exact sum for each number of clients; check that all survivors have the plain sum.

    Args:
        parties: numbers of clients, one aggregator beside them.
        length: of a vector.
        killed: fraction of the clients that is killed, at steps that the seed draws: its connection is cut.
        seed: of vectors and kills.
        total: as in a session file.
        trouble: what goes wrong beside that.
        each: clients of a process.
        shared_from: with so many clients those of a process check public messages once for all of them.
        out: folder of a stored result, to which each size is added when it ends.

    Raises:
        ConfigError: a number is out of range.
        LocalError: a process failed, too few descriptors are allowed, a result is wrong, or there is a stored
            one and it is of another commit, machine or trouble, or this code has changed since its commit.
    """
    in_range = 0 <= killed <= MOST_KILLED
    reason = f"must be 0 to {MOST_KILLED}, is {killed}"
    refuse(
        *(within("parties", count, LEAST_TROUBLED if trouble.any else 5, MAX_PARTIES) for count in parties),
        within("each", each, 1),
        within("length", length, 1, MAX_LENGTH),
        [] if in_range else [ConfigIssue("kill", reason, ConfigCheck.RANGE)],
    )
    raise_limit(max(parties) + OTHERS)
    step = Steps(progress, "sums", len(parties))
    parameters = {
        "killed": killed,
        "seed": seed,
        "total": total,
        "trouble": asdict(trouble),
        "each": each,
        "shared_from": shared_from,
    }
    empty = observed(lambda: Report(BENCH, [], versions("numpy"), {**parameters, "sizes": [], "growth": []}))
    report = empty if out is None else _stored(out, empty)
    for count in parties:
        case = Case(count, length, killed, seed, total, trouble, each, count >= shared_from)
        report = _with_size(report, (count, length), observed(partial(_measured, empty, case)))
        if out is not None:
            store_result(out, report)
        step()
    return report


def _measured(report: Report, case: Case) -> Report:
    """Measure a case, and return the report with its figures."""
    return replace(report, figures=measure(case))


def _stored(out: Path, empty: Report) -> Report:
    """Return the stored result that is to be completed; `empty` if there is none.

    Raises LocalError if it was measured elsewhere or otherwise, or if this code is not that of a commit: each
    figure has the commit of the result.
    """
    file = out / RESULTS.format(BENCH)
    for result in load_results(out):
        if result["bench"] != BENCH:
            continue
        if empty.commit is None or empty.commit.endswith(CHANGED):
            # Whether the stored sizes are of the same code is unknown.
            raise LocalError(f"{file} has sizes, and this code is not that of a commit: {REMEDY}")
        known = {"commit": empty.commit, "machine": machine(), "versions": empty.versions}
        differing = [name for name, value in known.items() if result[name] != value]
        parameters = result["parameters"]
        differing += [
            name
            for name, value in empty.parameters.items()
            if name not in ("sizes", "growth") and parameters.get(name) != value
        ]
        if differing:
            raise LocalError(f"{file} has another {', '.join(differing)}: {REMEDY}")
        figures = [cost(one["name"], one["unit"], [one["median"]], one["note"]) for one in result["figures"]]
        return replace(empty, figures=figures, parameters=parameters, others=result["others"])
    return empty


def _with_size(report: Report, size: tuple[int, int], measured: Report) -> Report:
    """Return a report with one more size, in the place of an earlier measurement of it."""
    names = {figure.name for figure in measured.figures}
    figures = [*(one for one in report.figures if one.name not in names), *measured.figures]
    earlier = cast("list[list[int]]", report.parameters["sizes"])
    sizes = sorted({*((one[0], one[1]) for one in earlier), size}, key=lambda one: one[::-1])
    medians = {figure.name: figure.median for figure in figures}
    counts = [count for count, length in sizes if length == LENGTH]
    growth = [
        fit(kind, "parties", counts, [medians[figure_name(kind, count, LENGTH)] for count in counts])
        for kind in KINDS
        if len(counts) > 1
    ]
    others = [one.others for one in (report, measured) if one.others is not None]
    return replace(
        report,
        figures=figures,
        parameters={**report.parameters, "sizes": [list(one) for one in sizes], "growth": growth},
        # The most of all sizes.
        others=max(others, default=None),
    )


def figure_name(kind: str, parties: int, length: int) -> str:
    """Return the name of a figure of this kind, number of clients and length."""
    return f"{parties:,} clients, {length:,} numbers: {kind}"


# Of the default plan, which tolerates a tenth.
MOST_KILLED = 0.09


def measure(case: Case) -> list[Figure]:
    """Run one sum and return its figures; raise LocalError where it goes wrong."""
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        jobs = _jobs(Path(folder), case)
        aggregator, *clients = _run(Path(folder), jobs)
        check_sums(case, jobs, aggregator, clients)
    return _figures(case, aggregator, clients)


def _run(folder: Path, jobs: Sequence[Job]) -> list[Taken]:
    """Run each job in a process of its own, all at once; return the measurements of each.

    The session file is read once for all clients: their processes are forked from this one.

    Raises LocalError if one fails, or takes longer than it may; no process is left.
    """
    forking = multiprocessing.get_context("fork")
    files = [folder / f"taken{job.number}.json" for job in jobs]
    workers = [forking.Process(target=run_aggregator, args=(jobs[0], files[0]), daemon=True)]
    ends = time.monotonic() + SECONDS
    try:
        # Before this process has the session file, which the aggregator reads itself.
        workers[0].start()
        session = load_session(jobs[0].session)
        for job, file in zip(jobs[1:], files[1:], strict=True):
            workers.append(forking.Process(target=run_clients, args=(job, session, file), daemon=True))
            workers[-1].start()
        while any(worker.exitcode is None for worker in workers):
            if any(worker.exitcode for worker in workers):
                break
            if time.monotonic() > ends:
                raise LocalError(f"the members took more than {SECONDS} s")
            time.sleep(LOOK_SECONDS)
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.kill()
                worker.join()
    if any(worker.exitcode for worker in workers):
        raise LocalError("a process of members failed: its error is above")
    return [msgspec.json.decode(file.read_bytes(), type=Taken) for file in files]


def _jobs(folder: Path, case: Case) -> list[Job]:
    """Create the session; return the jobs of the aggregator and of the processes of clients."""
    names = case.names
    parameters: dict[str, object] = {
        "length": case.length,
        "lower": -1.0,
        "upper": 1.0,
        "precision": 2.0**-STEP_BITS,
    }
    if case.total is not None:
        parameters["total"] = case.total
    if case.trouble.churn:
        # Who comes back is in the second sum and may have missed the first.
        parameters |= {"same_survivors": False, "dropout": 0.1}
    step = TROUBLED_STEP if case.trouble.any else SECONDS / 4
    timeouts = Timeouts(connect=SECONDS / 4, gather=4 * step, step=step)
    path = create_local_session(folder, names, parameters, timeouts=timeouts)
    draw = random.Random(case.seed)  # noqa: S311 - no secret
    groups = [names[start : start + case.each] for start in range(0, len(names), case.each)]
    free = draw.sample(names, len(names))
    killed = {
        free.pop(): (draw.randint(1, case.requests), draw.choice(KILLED_BEFORE))
        for _ in range(int(case.killed * case.parties))
    }
    slow = free.pop() if case.trouble.slow else ""
    flooding = free.pop() if case.trouble.flood else ""
    leaving = {free.pop() for _ in range(max(1, case.parties // 50))} if case.trouble.churn else set()
    if flooding:
        killed[flooding] = (1, draw.choice(KILLED_BEFORE))
    return [
        Job(
            session=str(path),
            length=case.length,
            seed=case.seed,
            requests=case.requests,
            processes=len(groups),
            number=number,
            seconds=SECONDS,
            parties=tuple(group),
            killed={name: killed[name] for name in group if name in killed},
            slow=slow,
            slow_seconds=SLOW_PART * step,
            flooding=flooding,
            shared=case.shared,
            strangers=case.trouble.flood and number == 1,
            leaving=frozenset(leaving.intersection(group)),
        )
        for number, group in enumerate([[], *groups])
    ]


def check_sums(case: Case, jobs: Sequence[Job], aggregator: Taken, clients: Sequence[Taken]) -> None:
    """Raise LocalError unless everybody who was not cut has the plain sum over the named survivors."""
    for one in clients:
        for name, error in one.failed.items():
            raise LocalError(f"{name} failed: {error}")
    for request in range(1, case.requests + 1):
        cut = {name for job in jobs for name, (when, _) in job.killed.items() if when <= request}
        if request == 1:
            cut |= {name for job in jobs for name in job.leaving}
        stayed = {*case.names} - cut
        results = {name: digest for one in clients for name, digest in one.results[request - 1].items()}
        survivors = aggregator.survivors[request]
        for missing, lacking in (
            (stayed - results.keys(), "no result"),
            (stayed - {*survivors}, "no part in it"),
        ):
            if missing:
                raise LocalError(
                    f"request {request}: {len(missing)} clients, {min(missing)} too, have {lacking}"
                )
        if {*results.values()} != {*aggregator.results[request - 1].values()}:
            raise LocalError(f"request {request}: the members have different results")
        expected = np.zeros(case.length)
        for name in survivors:
            expected += vector_of(name, case.length, case.seed + request)
        if not np.array_equal(np.load(value_file(jobs[0].session, request)), expected):
            raise LocalError(f"request {request}: not the plain sum of the survivors' vectors")


def _figures(case: Case, aggregator: Taken, clients: Sequence[Taken]) -> list[Figure]:
    """Return the figures of a successful sum: times, bytes and memory of aggregator and clients."""
    moments = aggregator.moments
    killed = int(case.killed * case.parties)
    how = HOW.format(each=case.each, killed=killed, parties=case.parties)
    if case.shared:
        how += "; what is public is checked once for all clients of a process"
    names = ("loaded", "connected", "begun", "done")
    ends = [[one.moments[name] for name in names] for one in clients]
    values = {
        "set-up, wall time": max(end[1].clock for end in ends) - min(end[0].clock for end in ends),
        "sum, wall time": max(end[3].clock for end in ends) - min(end[2].clock for end in ends),
        "aggregator CPU time, start": moments["listening"].processor - moments["begun"].processor,
        "aggregator CPU time, connections": moments["connected"].processor - moments["listening"].processor,
        "aggregator CPU time, sum": moments["done"].processor - moments["connected"].processor,
        "client CPU time, connection": sum(end[1].processor - end[0].processor for end in ends)
        / case.parties,
        "client CPU time, sum": sum(end[3].processor - end[2].processor for end in ends) / case.parties,
        "aggregator peak memory": aggregator.peak,
        "peak memory of a process of clients, per client": median(one.peak for one in clients)
        / min(case.each, case.parties),
        "client sends": mean(sent for one in clients for sent in one.sent),
        "client receives": mean(received for one in clients for received in one.received),
        "aggregator open descriptors": aggregator.descriptors,
    }
    return [
        cost(figure_name(kind, case.parties, case.length), unit, [values[kind]], how)
        for kind, unit in KINDS.items()
    ]
