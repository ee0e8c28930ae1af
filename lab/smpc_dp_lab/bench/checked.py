"""Benchmark of checked totals: commitments and checks beside their additions, sums beside unchecked ones."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

from smpc_dp.crypto.vector_commitments import (
    IN_PROCESS,
    MAX_LENGTH,
    PeerMultiples,
    count_additions,
    make_additions,
)
from smpc_dp.encoding import Encoding
from smpc_dp.engine.phases.parameters import Total
from smpc_dp.generator_cache import GeneratorCache
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp_lab.bench.committed import Vector
from smpc_dp_lab.bench.figures import (
    Figure,
    Limit,
    Measure,
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
from smpc_dp_lab.bench.recording import Recording, record
from smpc_dp_lab.bench.workers import together

LENGTHS = (10_000, 100_000, 1_000_000)
WIDTHS = (16, 32, 48, 64)
PARTIES = 4
ADDITIONS = 50_000
"""So many of each kind are measured."""
THREADS = 2
NEAR_LIMIT = Target("ratio_to_limit", 1 / 1.5)
MOST_IN_CONSTANT_TIME = 100_000
"""Most points of the peer's sum in constant time: it has 1.3 kB of tables for each."""
MOST_STEP_BITS = 56
"""Of a value of a sum: a real number has few more."""
DALEK, DALEK_VERSION = "curve25519-dalek", "5.0.0"
LIMIT = "additions of points, counted, times the time of one"


@dataclass(frozen=True, slots=True)
class _Case:
    """One measured case: vectors of `length` elements of `bits` bits."""

    length: int
    bits: int

    @property
    def name(self) -> str:
        return f"{self.length} of {self.bits} bits"

    def parameters(self, total: Total) -> SecAggParameters:
        """Return the parameters of a sum whose elements have this width."""
        # Of a sum of four values two bits are above those of each, and each may be 2^steps itself.
        steps = min(self.bits - 3, MOST_STEP_BITS)
        encoding = Encoding.plan(
            length=self.length, lower=0.0, upper=1.0, precision=2.0**-steps, parties=PARTIES
        )
        return SecAggParameters(encoding, plan_secagg(PARTIES, dropout=0.0, corrupt=0.0), total=total)


def run_checked_bench(
    runs: int = 5,
    progress: Progress | None = None,
    *,
    lengths: Sequence[int] = LENGTHS,
    widths: Sequence[int] = WIDTHS,
) -> Report:
    """Measure commitments, checks and sums of vectors for each length and each width, in bits.

    Args:
        runs: measurements of commitments and checks, 1 or more; all else is measured once.
        progress: called with what is measured, and how many steps are done of how many.

    Raises:
        ConfigError: a number is out of range.
        LocalError: a measuring process failed.
    """
    refuse(
        within("runs", runs, 1),
        *(within("length", length, 1, MAX_LENGTH) for length in lengths),
        *(within("width", bits // 8 if bits % 8 == 0 else 0, 1, 8) for bits in widths),
    )
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
        for length in lengths:
            figures += _loading(Path(folder) / f"{length}", length)
        largest = Path(folder) / f"{max(lengths)}"
        GeneratorCache(largest, IN_PROCESS).load(max(lengths), THREADS)
        for case in (_Case(length, bits) for length in lengths for bits in widths):
            figures += _kernels(case, runs, Steps(progress, case.name, runs))
            figures.append(_memory(largest, case))
            figures += _sums(case)
    parameters = {"runs": runs, "lengths": list(lengths), "widths": list(widths), "parties": PARTIES}
    return Report("checked", figures, versions("numpy", **{DALEK: DALEK_VERSION}), parameters)


def _spent(call: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    begun = clock()
    call()
    return clock() - begun


def _loading(folder: Path, length: int) -> list[Figure]:
    """Measure making the generators for this length in an empty cache folder, then reading them back."""
    make, read = (_spent(lambda: GeneratorCache(folder).load(length)) for _ in ("make", "read"))
    name, note = f"generators of {length}", "processor time, one thread, once; with"
    return [
        cost(f"{name}, make", "s", [make], f"{note} writing their files"),
        cost(f"{name}, read", "s", [read], f"{note} the comparison of their digests"),
    ]


def _kernels(case: _Case, runs: int, step: Callable[[], None]) -> list[Figure]:
    """Measure commitment and check beside the additions that they make, and dalek's sums."""
    vector = Vector(IN_PROCESS, case.length, case.bits)
    commitment = vector.commit()
    peer = PeerMultiples(vector.words)
    constant = case.length <= MOST_IN_CONSTANT_TIME
    measures: dict[str, Measure] = {
        "commit": lambda: _spent(vector.commit),
        "check": lambda: _spent(lambda: vector.check(commitment)),
        "seven": lambda: _spent(lambda: make_additions(ADDITIONS, 0)) / ADDITIONS,
        "eight": lambda: _spent(lambda: make_additions(0, ADDITIONS)) / ADDITIONS,
        "peer of check": lambda: _spent(partial(peer.add, constant_time=False)),
        "peer of commit": lambda: _spent(partial(peer.add, constant_time=True)) if constant else None,
        "commit by the clock": lambda: _spent(lambda: vector.commit(THREADS), time.perf_counter),
        "check by the clock": lambda: _spent(lambda: vector.check(commitment, THREADS), time.perf_counter),
    }
    taken = alternate(runs, measures, step)
    times = [median(taken[kind]) for kind in ("seven", "eight")]
    figures = []
    for kind, counted in zip(("commit", "check"), count_additions(case.length, case.bits // 8), strict=True):
        seconds = sum(count * time for count, time in zip(counted, times, strict=True))
        how = "a sum of multiples in constant time" if kind == "commit" else "a public sum of multiples"
        figures += [
            cost(
                f"{case.name}: {kind}",
                "s",
                taken[kind],
                "processor time, one thread, generators loaded; random elements, one commitment",
                peer=Peer.of(f"{DALEK}, {how}", DALEK_VERSION, taken[f"peer of {kind}"]),
                limit=Limit(LIMIT, seconds),
                target=NEAR_LIMIT,
            ),
            cost(
                f"{case.name}: {kind} by the clock",
                "s",
                taken[f"{kind} by the clock"],
                f"{THREADS} threads, as a member of a session does",
            ),
        ]
    return figures


def _memory(folder: Path, case: _Case) -> Figure:
    """Measure the peak memory of a separate process that commits to a vector and checks it."""
    call = [str(folder), str(case.length), str(case.bits)]
    [printed] = together("checked_worker", [call], "measuring memory")
    return cost(
        f"{case.name}: peak memory",
        "B",
        [json.loads(printed)],
        "resident memory of a process that reads the generators, commits and checks; interpreter and modules "
        "included",
        limit=Limit("generators and one vector", 96.0 * case.length + 8 * case.length),
    )


def _sums(case: _Case) -> list[Figure]:
    """Measure a secure sum of a few parties, with a checked total and with an unchecked one."""
    checked, unchecked = (record(case.parameters(total), 0, 1) for total in ("checked", "unchecked"))
    kinds: dict[str, tuple[str, Callable[[Recording], float]]] = {
        "party": ("s", lambda run: median(run.client_seconds.values())),
        "aggregator": ("s", lambda run: run.aggregator_seconds),
        "bytes up": ("B", lambda run: median(run.up.values())),
        "bytes down": ("B", lambda run: median(run.down.values())),
    }
    note = f"an exact sum of {PARTIES} parties in one process, all messages included, generators loaded, once"
    return [
        cost(
            f"sum of {case.name}, {kind}",
            unit,
            [measure(checked)],
            note,
            peer=Peer("the same sum, unchecked", version("smpc-dp"), measure(unchecked)),
        )
        for kind, (unit, measure) in kinds.items()
    ]
