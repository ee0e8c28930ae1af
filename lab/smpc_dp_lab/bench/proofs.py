"""Benchmark of commitments and proofs: ranges beside other crates', and the cost of a verifiable average.

A party of a verifiable average publishes commitments to its value, to its noise with each neighbour, to its
secret bits and to its noise; a range proof; a noise proof; its noisy value and the total blinding. Signatures
are apart. The peers are programs that are compiled elsewhere (`bench.drivers`) and run in turns with ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import numpy as np

from smpc_dp.capabilities.gopa.verifiable.params import MAX_PARTIES
from smpc_dp.crypto import proofs
from smpc_dp.crypto.commit import POINT_BYTES, SCALAR_BYTES, add_blindings, commit, fresh_blinding
from smpc_dp.crypto.edges import Claim, EdgeFold
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import ConfigCheck, ConfigIssue
from smpc_dp_lab.bench.drivers import DriverPeers, Trial
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
from smpc_dp_lab.bench.logs import log_figures

PEERS = ("bulletproofs_plus", "bulletproofs")
PEER_BATCH, PEER_REPEATS = 100, 30
DEGREE = 40
NOISE_BITS = 40
"""Of each coordinate: 20 n / n_H for half the parties honest, stochastic rounding at 5 % of the variance."""
STEPS = 50
"""Grid steps of a value's range: sqrt(5 n) over a noise multiplier of about 4.5, for n = 10,000."""
BATCH = 1000
MADE = 8
"""Parties that are made; a batch repeats them, which is as much work."""
VALUE_BYTES = 8
PEERS_PACE = Target("ratio_to_peer", 1.0)
AUDIT_THREADS = 2

# Whom each party calls its neighbours.
_NEIGHBOURS = np.arange(1, DEGREE + 1, dtype="<u2").tobytes()


@dataclass(frozen=True, slots=True)
class _Party:
    """One party's published commitments and proofs, and the time to make them."""

    context: bytes
    value: bytes
    deltas: Sequence[bytes]
    secret: bytes
    noise: bytes
    of_range: bytes
    of_noise: bytes
    opened: Sequence[int]
    total: bytes
    coins: bytes
    seconds: float

    @property
    def size(self) -> int:
        """Number of bytes that the party publishes."""
        points = 3 + len(self.deltas)
        sizes = len(self.of_range) + len(self.of_noise) + SCALAR_BYTES + VALUE_BYTES * len(self.opened)
        return POINT_BYTES * points + sizes

    def claim(self, party: int) -> Claim:
        """Return the claim about the party's edges, in the form that an auditor checks."""
        return Claim(party, _NEIGHBOURS, b"".join(self.deltas), self.value + self.secret)

    def add_to(self, batch: proofs.Batch, edges: bytes) -> None:
        """Add the party's statements to a batch; `edges` is the sum of its commitments to pairwise terms."""
        length = len(self.opened)
        batch.add_range("range", self.context, self.value, length, 0, STEPS, self.of_range)
        batch.add_noise(
            "noise", self.context, self.secret, self.noise, length, NOISE_BITS, self.coins, self.of_noise
        )
        batch.add_opening("sum", [self.value, self.noise, edges], [], self.opened, self.total)


def run_proofs_bench(
    runs: int = 5,
    progress: Progress | None = None,
    drivers: str | None = None,
    *,
    lengths: Sequence[int] = (1, 10, 100),
    batch: int = BATCH,
    parties: Sequence[int] = (),
) -> Report:
    """Measure the wall time of making and verifying commitments and proofs.

    Args:
        runs: measurements of each figure, 1 or more.
        progress: called with what is measured, and how many rounds are done of how many.
        drivers: a folder with the compiled programs of `benchmarks/bulletproofs`; without it, peers are None.
        lengths: coordinates of the parties' vectors.
        batch: parties that are verified together.
        parties: logs of whole runs of so many parties, 3 or more, are made and audited.

    Raises:
        ConfigError: a number is out of range.
        LocalError: a driver is missing, failed or printed something else.
    """
    least = (("runs", runs), ("batch", batch), ("lengths", min(lengths)))
    refuse(
        *(within(name, value, 1) for name, value in least),
        [
            ConfigIssue("parties", f"must be from 3 to {MAX_PARTIES}, is {count}", ConfigCheck.RANGE)
            for count in parties
            if not 3 <= count <= MAX_PARTIES
        ],
    )
    peers = DriverPeers(drivers, PEERS)
    figures = _ranges(runs, peers, progress)
    for length in lengths:
        figures += _parties(length, runs, batch, progress)
    figures += log_figures(parties, runs, progress)
    parameters = {
        "runs": runs,
        "degree": DEGREE,
        "noise_bits": NOISE_BITS,
        "steps": STEPS,
        "batch": batch,
        "made": MADE,
    }
    return Report("proofs", figures, versions(**peers.versions), parameters)


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _ranges(runs: int, peers: DriverPeers, progress: Progress | None) -> list[Figure]:
    """Measure 64-bit range proofs of one value: made, verified alone and together, as the crates do."""
    randomness = SystemRandomness()
    context, top = proofs.context(b"bench", "user"), (1 << 64) - 1
    numbers = [number * 0x9E3779B97F4A7C15 & top for number in range(PEER_BATCH)]
    secrets = [(number, fresh_blinding(randomness)) for number in numbers]
    statements = [commit([number], r) for number, r in secrets]
    made: list[bytes] = []

    def prove() -> float:
        made.clear()
        seconds = []
        for number, r in secrets:
            begun = time.perf_counter()
            made.append(proofs.prove_range(context, [number], r, 0, top, randomness))
            seconds.append(time.perf_counter() - begun)
        return median(seconds)

    def verify() -> float:
        seconds = []
        for commitment, proof in zip(statements[:PEER_REPEATS], made, strict=False):
            begun = time.perf_counter()
            proofs.verify_range(context, commitment, 1, 0, top, proof)
            seconds.append(time.perf_counter() - begun)
        return median(seconds)

    def together() -> float:
        batch = proofs.Batch()
        for commitment, proof in zip(statements, made, strict=True):
            batch.add_range("", context, commitment, 1, 0, top, proof)
        return _seconds(batch.verify) / PEER_BATCH

    ours: dict[str, Measure] = {"prove": prove, "verify": verify, "batch": together}
    seed, rounds = randomness.bytes(32), [1 << number for number in range(6)]
    # Of a round of n: L and R with 2 n + 2 multiples each, and 2 n folded points; at the end A and B.
    of_secrets = [2 * n + 2 for n in rounds for _ in "LR"] + [4, 2]
    # A round's L and R, those of the end, the bits, and the commitment; all generators.
    shown_points, known_points = 2 * len(rounds) + 4, 2 * 64 + 3

    def least(proofs_made: int) -> float:
        shown = shown_points * proofs_made
        work = _seconds(lambda: proofs.group_sums(seed, shown, [shown + known_points], []))
        return work / proofs_made

    floors: dict[str, Measure] = {
        "floor of prove": lambda: _seconds(
            lambda: proofs.group_sums(seed, 0, [1] * sum(2 * n for n in rounds), of_secrets)
        ),
        "floor of verify": lambda: least(1),
        "floor of batch": lambda: least(PEER_BATCH),
    }
    trials = [peers.trial(driver, PEER_BATCH, PEER_REPEATS) for driver in PEERS]
    for measure in ours.values():
        measure()
    taken = alternate(
        runs,
        ours | floors | {driver: trial for driver, trial in zip(PEERS, trials, strict=True)},
        Steps(progress, "64-bit range proof", runs),
    )
    names = {"prove": "prove", "verify": "verify alone", "batch": f"verify in a batch of {PEER_BATCH}, each"}
    note = "one value, one thread, by the clock, through the Python face; the peer is the fastest crate"
    points = f"{shown_points} decodings a proof, one sum of all points"
    multiples = "the argument's multiples of points by secrets, and its folds point by point"
    counted = {"prove": multiples, "verify": points, "batch": points}
    figures = [
        cost(
            f"64-bit range proof: {shown}",
            "s",
            taken[name],
            note,
            peer=_least(trials, name, "s"),
            limit=Limit.of(f"counted floor: {counted[name]}", taken[f"floor of {name}"]),
            target=PEERS_PACE,
        )
        for name, shown in names.items()
    ]
    smallest, size = _least(trials, "bytes", "B"), proofs.range_proof_bytes(1, 0, top)
    note = "one value; the peer is the crate with the smallest proof"
    return [*figures, cost("64-bit range proof: bytes", "B", [size], note, peer=smallest)]


def _least(trials: Sequence[Trial], figure: str, unit: str) -> Peer | None:
    """Return the best of the peers in a figure, None if none was measured."""
    result = [trial.peer(figure, unit, "64 bits, its own interface") for trial in trials]
    return min((peer for peer in result if peer is not None), key=lambda peer: peer.median, default=None)


def _party(name: str, length: int, coins: bytes) -> _Party:
    randomness = SystemRandomness()
    values = [STEPS] * length
    deltas = [[(-1) ** edge * (edge + 1) << 40] * length for edge in range(DEGREE)]
    context = proofs.context(b"bench", name)
    begun = time.perf_counter()
    r, r_noise = fresh_blinding(randomness), fresh_blinding(randomness)
    r_deltas = [fresh_blinding(randomness) for _ in deltas]
    secret = proofs.NoiseSecret.draw(length, NOISE_BITS, randomness)
    value = commit(values, r)
    of_deltas = [commit(delta, blinding) for delta, blinding in zip(deltas, r_deltas, strict=True)]
    of_range = proofs.prove_range(context, values, r, 0, STEPS, randomness)
    eta = secret.noise(coins)
    noise, of_noise = secret.prove(context, coins, r_noise, randomness)
    opened = [sum(parts) for parts in zip(values, eta, *deltas, strict=True)]
    total = add_blindings([r, r_noise, *r_deltas])
    seconds = time.perf_counter() - begun
    return _Party(
        context, value, of_deltas, secret.commitment, noise, of_range, of_noise, opened, total, coins, seconds
    )


def _parties(length: int, runs: int, batch: int, progress: Progress | None) -> list[Figure]:
    """Measure a party of `length` coordinates: the cost of its proofs, and of checking them."""
    name = f"user of length {length}"
    coins = SystemRandomness().bytes(proofs.coin_bytes(length, NOISE_BITS))
    parties = [_party(f"user {number}", length, coins) for number in range(MADE)]

    def prove() -> float:
        return median(_party("user", length, coins).seconds for _ in range(3))

    def check(count: int, threads: int) -> float:
        """Fold all edges, then verify all proofs, as an audit does; parts of both go to threads."""
        fold = EdgeFold(np.ones(count + DEGREE, dtype=np.bool_))
        part = -(-count // threads)

        def verify(start: int) -> None:
            mine = [(number + 1, parties[number % MADE]) for number in range(start, min(start + part, count))]
            sums = fold.take([party.claim(number) for number, party in mine])
            checked = proofs.Batch()
            for (_, party), (edges, _) in zip(mine, sums, strict=True):
                party.add_to(checked, edges)
            checked.verify()

        with ThreadPoolExecutor(threads) as pool:
            return _seconds(lambda: list(pool.map(verify, range(0, count, part))))

    measures: dict[str, Measure] = {
        "prove": prove,
        "alone": lambda: check(1, 1),
        "batch": lambda: check(batch, 1) / batch,
        "audit": lambda: check(batch, AUDIT_THREADS),
    }
    check(1, 1)
    taken = alternate(runs, measures, Steps(progress, name, runs))
    note = (
        f"by the clock; {DEGREE} neighbours, values of 0 to {STEPS} grid steps, {NOISE_BITS} bits of noise a"
        " coordinate; commitments, range proof, noise proof and opening of the sum, without signatures"
    )
    repeated = f"{note}; {MADE} users, repeated"
    proven = len(parties[0].of_range) + len(parties[0].of_noise)

    def figure(title: str, unit: str, values: list[float], note: str) -> Figure:
        return cost(f"{name}: {title}", unit, values, note)

    audited = f"{repeated}; {AUDIT_THREADS} threads"
    return [
        figure("prove", "s", taken["prove"], f"{note}; one thread"),
        figure("bytes", "B", [parties[0].size], f"of which proofs {proven} B; {note}"),
        figure("verify alone", "s", taken["alone"], f"{note}; one thread"),
        figure(f"verify in a batch of {batch}, each", "s", taken["batch"], f"{repeated}; one thread"),
        figure(f"audit {batch}", "s", taken["audit"], audited),
    ]
