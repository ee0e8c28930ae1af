"""`smpc-dp bench engines`: the same noisy kernel by garbled circuits and by secret sharing.

Servers are processes of this host, over mpyc's own sockets on loopback, and over our channels. Errors are
those of the ideal functionalities, at the same epsilon, against the statistic without noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from smpc_dp.capabilities.pairs.garbled.draw import matchings
from smpc_dp.capabilities.pairs.kernels import (
    Field,
    Kernel,
    circuit_kernel,
    definitions,
    gini_mean_difference,
    kendall_tau,
)
from smpc_dp.capabilities.pairs.kernels.fields import Codes
from smpc_dp.capabilities.pairs.kernels.on_bits import as_circuit
from smpc_dp.capabilities.pairs.statistics import exact
from smpc_dp.capabilities.servers.statistics.kernels import Way
from smpc_dp.capabilities.servers.statistics.plan import read_answer, statistic_program
from smpc_dp.crypto.noise import NoiseSource
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.bench.figures import (
    Figure,
    Peer,
    Progress,
    Report,
    Steps,
    Target,
    cost,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.ideal_pairs import noisy_mean
from smpc_dp_lab.bench.servers import DELAY, Measured, run_servers
from smpc_dp_lab.bench.statistic import both, garbled_session

SERVERS = (3, 5, 7)
PARTIES = 30
EPSILON = 1.0
SIZES = (30, 100, 1_000, 10_000)
EPSILONS = (0.1, 1.0)
DRAWS = 200
GRID = Field(0, (1 << 32) - 1)
# Times that a program may take over our channels, of its time over mpyc's own sockets.
LIMIT = 1.5
# (bits of a grid, parties) at which the ways of computing a sum over all pairs are compared.
WAYS = ((4, 30), (4, 100), (8, 30), (8, 100), (16, 30), (16, 100), (16, 200))

Pair = Mapping[str, Mapping[str, Any]]


def run_engines_bench(
    runs: int = 3,
    progress: Progress | None = None,
    servers: Sequence[int] = SERVERS,
    sizes: Sequence[int] = SIZES,
) -> Report:
    """Measure Kendall's tau of 32-bit values with Laplace noise of epsilon 1, and errors against n.

    Args:
        servers: numbers of them, odd and at least 3; sizes: numbers of parties for the errors.

    Raises ConfigError for a number out of range, LocalError when a measuring process fails.
    """
    issues = within("runs", runs, 1)
    if any(m < 3 or m % 2 == 0 or m > 9 for m in servers):
        issues.append(
            ConfigIssue("servers", f"must be odd numbers from 3 to 9, are {list(servers)}", ConfigCheck.RANGE)
        )
    if any(n < 4 or n % 2 for n in sizes):
        issues.append(
            ConfigIssue("sizes", f"must be even numbers of at least 4, are {list(sizes)}", ConfigCheck.RANGE)
        )
    refuse(issues)
    advance = Steps(progress, "measurements", 4 + 4 * len(servers) + len(WAYS) + len(sizes))
    pairs = [garbled_session(1) for _ in range(runs)]
    advance()
    figures = _garbled(pairs)
    for m in servers:
        figures += _of_servers(m, runs, pairs, advance)
        figures += _over_channels(m, runs)
        advance()
    for bits, parties in WAYS:
        figures += _of_ways(bits, parties, servers[0], runs)
        advance()
    figures += _of_circuits(servers[0], runs, pairs, advance)
    for n in sizes:
        figures += [_error(n, epsilon) for epsilon in EPSILONS]
        advance()
    parameters = {"runs": runs, "servers": list(servers), "parties": PARTIES}
    return Report("engines", figures, versions("mpyc", "numpy"), parameters)


def _garbled(pairs: Sequence[Pair]) -> list[Figure]:
    """Return the figures of a garbled evaluation of one pair: processor time, bytes, rounds."""
    how = "garbler, evaluator and aggregator are three processes, mutual TLS on loopback; one noisy pair"
    waits = [pair["evaluator"]["rounds"] for pair in pairs]
    return [
        cost("garbled, a pair: processor time", "s", _both(pairs, "fresh"), f"{how}; both sides"),
        cost("garbled, a pair: sent", "B", _both(pairs, "bytes"), f"{how}; both sides"),
        cost("garbled, a pair: rounds", "rounds", waits, f"{how}; how often the evaluator waits"),
    ]


def _both(pairs: Sequence[Pair], key: str) -> list[float]:
    """Return, by pair of processes, a measurement of garbler and evaluator added up."""
    return [both(pair, key) for pair in pairs]


def _of_servers(
    m: int,
    runs: int,
    pairs: Sequence[Pair],
    advance: Callable[[], None],
) -> list[Figure]:
    """Measure Kendall's tau on secret shares among m servers, for 2 and for more parties."""
    generator = np.random.default_rng(m)
    kernel = kendall_tau(GRID, GRID)
    figures = []
    for parties in (2, PARTIES):
        records = generator.integers(0, GRID.steps + 1, (parties, 2)).tolist()
        terms = statistic_program(kernel, parties, EPSILON).terms
        taken = run_servers(terms, records, m, runs)
        title = "a pair" if parties == 2 else f"all pairs of {parties}"
        how = f"{m} servers, processes on loopback, mpyc's sockets; range checks and one noise included"
        name = f"mpyc, {m} servers, {title}"
        alone = parties == 2
        busy, sent = (_peer(pairs, key) if alone else None for key in ("fresh", "bytes"))
        figures += [
            cost(f"{name}: wall", "s", taken.wall, f"{how}; the slowest server by the clock"),
            cost(f"{name}: processor time", "s", taken.cpu, f"{how}; all servers", peer=busy),
            cost(f"{name}: sent", "B", taken.sent, f"{how}; all servers", peer=sent),
        ]
        advance()
        if alone:
            counted: Measured = run_servers(terms, records, m, 1, delay=DELAY)
            note = f"{how}; every message delayed by {DELAY} s, and pauses counted"
            figures.append(cost(f"{name}: rounds", "rounds", [counted.rounds], note))
            advance()
    return figures


def _over_channels(m: int, runs: int) -> list[Figure]:
    """Measure the same program over our channels and over mpyc's own sockets, in turns."""
    kernel = kendall_tau(GRID, GRID)
    records = np.random.default_rng(m).integers(0, GRID.steps + 1, (PARTIES, 2)).tolist()
    terms = statistic_program(kernel, PARTIES, EPSILON).terms
    own, ours = [], []
    for _ in range(runs):
        # Over channels each computation is the first of its process: so it is here.
        own.append(run_servers(terms, records, m, 1, warm=False))
        ours.append(run_servers(terms, records, m, 1, channels=True))
    name = f"mpyc over our channels, {m} servers, all pairs of {PARTIES}"
    how = "processes on loopback; the first computation of each mpyc process, start-up left out"
    plain, known = "mpyc over its own plain sockets", version("mpyc")
    walls, plain_walls = ([taken.wall[0] for taken in some] for some in (ours, own))
    busy, plain_busy = ([taken.cpu[0] for taken in some] for some in (ours, own))
    return [
        cost(
            f"{name}: wall",
            "s",
            walls,
            f"{how}; the slowest server by the clock",
            peer=Peer.of(plain, known, plain_walls),
            target=Target("ratio_to_peer", 1 / LIMIT),
        ),
        cost(
            f"{name}: processor time",
            "s",
            busy,
            f"{how}; all servers, mpyc and channels",
            peer=Peer.of(plain, known, plain_busy),
        ),
    ]


def _peer(pairs: Sequence[Pair], key: str) -> Peer | None:
    """Return the garbled evaluation of a pair as the peer of a figure; None if none was measured."""
    return Peer.of("a garbled pair, both sides", version("smpc-dp"), _both(pairs, key))


def _of_ways(bits: int, parties: int, servers: int, runs: int) -> list[Figure]:
    """Measure Gini's mean difference on shares, summed by pairs, by counts and by sorting."""
    kernel = gini_mean_difference(Field(0, (1 << bits) - 1))
    records = np.random.default_rng(bits).integers(0, 1 << bits, (parties, 1)).tolist()
    terms = statistic_program(kernel, parties, EPSILON).terms
    ways: list[Way] = ["pairs", "counts"] if bits <= 10 else ["pairs"]
    ways.append("sort")
    note = f"Gini's mean difference with noise, {servers} servers on loopback, processor time of all"
    return [
        cost(
            f"all pairs of {parties}, {bits} bits, by {way}",
            "s",
            run_servers(terms, records, servers, runs, way=way).cpu,
            note,
        )
        for way in ways
    ]


def _of_circuits(m: int, runs: int, pairs: Sequence[Pair], advance: Callable[[], None]) -> list[Figure]:
    """Measure kernels compiled from circuits: tau as a party's own kernel, and noise in a single pair."""
    tau = kendall_tau(GRID, GRID)
    own = circuit_kernel(
        "own_tau", as_circuit(definitions.kendall_tau), tau.integer, *tau.fields, low=-1.0, high=1.0
    )
    records = np.random.default_rng(m).integers(0, GRID.steps + 1, (PARTIES, 2)).tolist()
    terms, known = (statistic_program(kernel, PARTIES, EPSILON).terms for kernel in (own, tau))
    taken, other = run_servers(terms, records, m, runs), run_servers(known, records, m, runs)
    advance()
    pair = statistic_program(tau, 2, EPSILON, distribution="pair_laplace", partners=1, design=bytes(32)).terms
    alone = run_servers(pair, records[:2], m, runs)
    advance()
    two = statistic_program(own, 2, EPSILON).terms
    counted = run_servers(two, records[:2], m, 1, delay=DELAY)
    advance()
    name, how = f"mpyc, {m} servers, a user's kernel", "Kendall's tau as if it were a user's own circuit"
    baseline = "the same kernel compiled from its definition"
    known_version, note = version("smpc-dp"), f"{how}; all servers, range checks and one noise included"
    busy, sent = (Peer.of(baseline, known_version, values) for values in (other.cpu, other.sent))
    whole, own_noise = f"{name}, all pairs of {PARTIES}", f"mpyc, {m} servers, a pair with noise of its own"
    distribution = "Kendall's tau, the law of a garbled pair; all servers, range checks included"
    return [
        cost(f"{whole}: processor time", "s", taken.cpu, note, peer=busy),
        cost(f"{whole}: sent", "B", taken.sent, note, peer=sent),
        cost(f"{name}, a pair: rounds", "rounds", [counted.rounds], how),
        cost(f"{own_noise}: processor time", "s", alone.cpu, distribution, peer=_peer(pairs, "fresh")),
    ]


def _error(parties: int, epsilon: float) -> Figure:
    """Return the error of tau: central noise on all pairs, beside the two-party protocol on one pair each."""
    kernel = kendall_tau(Field(0, 1023), Field(0, 1023))
    source = SeededRandomnessForSimulation(parties, f"engines {epsilon}")
    program = statistic_program(kernel, parties, epsilon)
    true = 1 / 3
    central, paired = [], []
    for draw in range(DRAWS):
        codes = _correlated(parties, draw)
        whole = exact.u_statistic(kernel, codes)
        total = round((whole - kernel.low) / kernel.unit * parties * (parties - 1) / 2)
        opened = [program.noise[0].draw(total, source)]
        central.append(read_answer(program, opened).values[0] - true)
        paired.append(_two_party(kernel, codes, epsilon, source) - true)
    baseline = Peer("two-party protocol, P = 1", version("smpc-dp"), _root_mean_square(paired))
    note = (
        f"root mean squared error of tau = 1/3 over {DRAWS} samples and noises, ideal functionalities; "
        "substitution of one record"
    )
    name = f"error, epsilon {epsilon:g}, {parties} users"
    return cost(name, "tau", [_root_mean_square(central)], note, peer=baseline)


def _two_party(kernel: Kernel, codes: Codes, epsilon: float, source: SeededRandomnessForSimulation) -> float:
    """Return an estimate of the two-party protocol with one pair each."""
    drawn = matchings(source.bytes(32), len(codes), 1).reshape(1, -1)
    return noisy_mean(kernel, codes, drawn, epsilon, NoiseSource.keyed(source.bytes(32), b"engines"))


def _correlated(parties: int, draw: int) -> Codes:
    """Draw records of two correlated normals, on a grid, whose Kendall's tau is 1/3.

    A normal distribution of correlation sin(pi / 6) = 1/2.
    """
    normal = np.random.default_rng((parties, draw)).multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]], parties)
    # Ties of so fine a grid are too few to count.
    return np.clip(np.rint(normal * 128 + 512), 0, 1023).astype(np.int64)


def _root_mean_square(errors: Sequence[float]) -> float:
    """Return the square root of the mean of the squared errors."""
    return math.sqrt(float(np.mean(np.square(errors))))
