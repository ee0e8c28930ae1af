"""Benchmark of the samplers: CPU time per value, beside OpenDP (exact) and numpy (inexact)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from smpc_dp.privacy.sampling import (
    NoiseSource,
    bernoulli_exp,
    binomial,
    discrete_gaussian,
    discrete_laplace,
    skellam,
)
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
from smpc_dp_lab.bench.peer import OpenDpPeer

VALUES = 1_000_000
"""Values of one measurement of ours and of numpy."""
PEER_VALUES = 20_000
KEYED_CALLS = 500
TIMES_AS_FAST_AS_PEER = 20.0
SCALE = 100


@dataclass(frozen=True, slots=True)
class _Distribution:
    """A measured distribution: our call, the peer's task if it has one, and numpy's call as the limit."""

    name: str
    ours: Callable[[int], object]
    limit_name: str
    limit: Callable[[int], object]
    note: str
    task: str | None = None
    target: Target | None = None


def run_sampling_bench(
    runs: int = 7,
    progress: Progress | None = None,
    *,
    values: int = VALUES,
    peer_python: str | None = None,
) -> Report:
    """Measure the exact noise samplers beside OpenDP's and numpy's inexact ones.

    Args:
        runs: measurements of each figure, 1 or more.
        progress: called with what is measured, and how many rounds are done of how many.
        values: values of one measurement, 1000 or more; the peer draws at most 20,000.
        peer_python: an interpreter that can import `opendp`; None for our own. Without it, peers are None.

    Raises:
        ConfigError: a number is out of range.
        LocalError: `peer_python` cannot be run, or its process failed.
    """
    refuse(within("runs", runs, 1), within("values", values, 1000))
    with OpenDpPeer(peer_python) as peer:
        figures = [
            _of_distribution(distribution, runs, values, peer, progress) for distribution in _distributions()
        ]
        known = versions("numpy", opendp=peer.version)
    figures += [_keyed(runs, progress), _first_call(runs, progress)]
    return Report("sampling", figures, known, {"runs": runs, "values": values, "peer_values": PEER_VALUES})


def _distributions() -> list[_Distribution]:
    source, keyed = NoiseSource.system(), NoiseSource.keyed(bytes(32), b"bench")
    generator = np.random.default_rng()

    def normal(count: int) -> object:
        return generator.normal(0.0, SCALE, count)

    def poissons(count: int) -> object:
        return generator.poisson(SCALE**2 / 2, count) - generator.poisson(SCALE**2 / 2, count)

    target = Target("ratio_to_peer", TIMES_AS_FAST_AS_PEER)
    wide = Fraction(1 << 60)
    return [
        _Distribution(
            "discrete Gaussian, sigma 100",
            lambda n: discrete_gaussian(source, n, SCALE**2),
            "numpy normal",
            normal,
            "key of the operating system",
            "gaussian",
            target,
        ),
        _Distribution(
            "discrete Gaussian, sigma 100, keyed",
            lambda n: discrete_gaussian(keyed, n, SCALE**2),
            "numpy normal",
            normal,
            "a source that two parties share",
        ),
        _Distribution(
            "discrete Gaussian, sigma 2^30",
            lambda n: discrete_gaussian(source, n, wide),
            "numpy normal",
            normal,
            "key of the operating system",
        ),
        _Distribution(
            "discrete Laplace, scale 100",
            lambda n: discrete_laplace(source, n, SCALE),
            "numpy laplace",
            lambda n: generator.laplace(0.0, SCALE, n),
            "key of the operating system",
            "laplace",
            target,
        ),
        _Distribution(
            "Skellam, variance 100^2",
            lambda n: skellam(source, n, SCALE**2),
            "numpy, two Poissons",
            poissons,
            "two Poisson values each",
        ),
        _Distribution(
            "binomial, 2^20 trials, p 1/2",
            lambda n: binomial(source, n, 1 << 20, Fraction(1, 2)),
            "numpy binomial",
            lambda n: generator.binomial(1 << 20, 0.5, n),
            "key of the operating system",
        ),
        _Distribution(
            "Bernoulli(exp(-1/2))",
            lambda n: bernoulli_exp(source, n, Fraction(1, 2)),
            "numpy random < p",
            lambda n: generator.random(n) < 0.6065306597126334,
            "key of the operating system",
        ),
    ]


def _cpu_nanoseconds(call: Callable[[int], object], count: int) -> float:
    begun = time.process_time()
    call(count)
    return (time.process_time() - begun) / count * 1e9


def _of_distribution(
    distribution: _Distribution, runs: int, values: int, peer: OpenDpPeer, progress: Progress | None
) -> Figure:
    count = min(values, PEER_VALUES)

    def of_peer() -> float | None:
        seconds = (
            None if distribution.task is None else peer.seconds(distribution.task, count=count, scale=SCALE)
        )
        return None if seconds is None else seconds / count * 1e9

    measures: dict[str, Measure] = {
        "ours": lambda: _cpu_nanoseconds(distribution.ours, values),
        "peer": of_peer,
        "limit": lambda: _cpu_nanoseconds(distribution.limit, values),
    }
    for measure in measures.values():
        measure()
    taken = alternate(runs, measures, Steps(progress, distribution.name, runs))
    return cost(
        distribution.name,
        "ns",
        taken["ours"],
        f"CPU time of one value, {values} values in one call, one thread; {distribution.note}"
        + ("; the peer turns lists of Python integers into lists" if distribution.task else "")
        + "; the limit is inexact and not cryptographic",
        peer=Peer.of(peer.name, peer.version, taken["peer"]),
        limit=Limit.of(distribution.limit_name, taken["limit"]),
        target=distribution.target,
    )


def _keyed(runs: int, progress: Progress | None) -> Figure:
    name = "keyed source and one value, sigma 2^30"
    numbers = [number.to_bytes(8, "big") for number in range(KEYED_CALLS)]

    def measure() -> float:
        begun = time.process_time()
        for number in numbers:
            discrete_gaussian(NoiseSource.keyed(bytes(32), number), 1, 1 << 60)
        return (time.process_time() - begun) / KEYED_CALLS

    measure()
    taken = alternate(runs, {"ours": measure}, Steps(progress, name, runs))
    note = f"CPU time, mean of {KEYED_CALLS} sources: what a party pays for its noise with one neighbour"
    return cost(name, "s", taken["ours"], note)


def _first_call(runs: int, progress: Progress | None) -> Figure:
    name = "first value of a law not used before"
    variances = iter(range(SCALE**2 + 1, SCALE**2 + 1 + runs))

    def measure() -> float:
        source, variance = NoiseSource.system(), Fraction(next(variances), 7)
        begun = time.process_time()
        discrete_gaussian(source, 1, variance)
        return time.process_time() - begun

    taken = alternate(runs, {"ours": measure}, Steps(progress, name, runs))
    note = "CPU time to make the table of a discrete Gaussian of sigma 38; the latest 64 laws are kept"
    return cost(name, "s", taken["ours"], note)
