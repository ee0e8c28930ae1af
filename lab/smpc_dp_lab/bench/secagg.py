"""Benchmark of secure aggregation: the cost of clients and aggregator, beside Flower and the hardware."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from cryptography.hazmat.backends.openssl import backend

from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.privacy.secagg_plan import SecAggPlan, check_plan, plan_secagg
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.session.memory.simulated_run import AGGREGATOR
from smpc_dp_lab.bench import kernels, memory
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
    rate,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.peer import FlowerPeer
from smpc_dp_lab.bench.recording import Recording, record

KEYSTREAM = "OpenSSL AES-256-CTR"
MASKS_OF_KEYSTREAM = 0.5
TIMES_AS_FAST_AS_PEER = 10.0
# A combination of shares costs the peer time quadratic in the threshold: from here on a sample is scaled.
SAMPLED_FROM_THRESHOLD = 40


@dataclass(slots=True)
class _Bench:
    """Settings of the benchmark of secure aggregation, and its rounds with Flower's functions."""

    parameters: SecAggParameters
    dropouts: int
    runs: int
    peer: FlowerPeer
    progress: Progress | None
    first: Recording | None = None

    @property
    def length(self) -> int:
        return self.parameters.encoding.ring_length

    @property
    def element_bytes_of(self) -> int:
        return self.parameters.encoding.dtype().itemsize

    @property
    def bytes_a_mask(self) -> int:
        return self.length * self.element_bytes_of

    def trials(self, name: str, measures: dict[str, Measure]) -> dict[str, list[float]]:
        """Take rounds of these and of the hardware's keystream, and report the progress of each."""
        given = measures | {"limit": kernels.keystream_rate}
        return alternate(self.runs, given, Steps(self.progress, name, self.runs))

    def beside(
        self, taken: dict[str, list[float]], scale: Callable[[float], float] = lambda seconds: seconds
    ) -> Peer | None:
        """Return Flower's median as a peer, its seconds converted by `scale`; None if not measured."""
        return Peer.of(self.peer.name, self.peer.version, map(scale, taken["peer"]))


def run_secagg_bench(
    parties: int = 100,
    length: int = 100_000,
    runs: int = 5,
    progress: Progress | None = None,
    *,
    dropout: float = 0.1,
    peer_python: str | None = None,
) -> Report:
    """Measure secure aggregation of `parties` vectors of `length` numbers in [-1, 1], precision 1e-6.

    All times are CPU times of one thread. The fraction `dropout` of the parties is killed after dealing its
    shares and before its masked vector, where it costs most.

    Args:
        parties: 4 or more, as many as `plan_secagg` can plan for.
        runs: measurements of each figure, 1 or more; memory is measured once.
        progress: called with what is measured, the rounds done and the rounds of it.
        peer_python: an interpreter that can import `flwr`; None for our own. Where it cannot, peers are None.

    Raises:
        ConfigError: a number is out of range.
        LocalError: `peer_python` cannot be run, or a measuring process failed.
    """
    refuse(within("runs", runs, 1))
    plan = plan_secagg(parties, dropout=dropout)
    if plan.max_dropouts < 1:
        raise ConfigError.at("dropout", f"{dropout} of {parties} parties is nobody", ConfigCheck.RANGE)
    encoding = Encoding.plan(length=length, lower=-1.0, upper=1.0, precision=1e-6, parties=parties)
    with FlowerPeer(peer_python) as peer:
        bench = _Bench(SecAggParameters(encoding, plan), plan.max_dropouts, runs, peer, progress)
        figures = [_masks(bench), *_runs(bench), _recovery(bench, plan)]
        if not plan.complete:
            figures.append(_recovery(bench, _complete(parties, dropout)))
        figures += _memory(bench)
        return Report(
            bench="secagg",
            figures=figures,
            versions=versions(
                *("numpy", "pynacl", "cryptography"),
                openssl=backend.openssl_version_text(),
                flwr=peer.version,
            ),
            parameters={
                "parties": parties,
                "length": length,
                "dropouts": plan.max_dropouts,
                "degree": plan.degree,
                "threshold": plan.threshold,
                "element_bytes": encoding.element_bytes,
                "lane_bytes": bench.element_bytes_of,
            },
        )


def _complete(parties: int, dropout: float) -> SecAggPlan:
    """Return the complete graph with a threshold of two thirds of the holders."""
    threshold = -(-2 * (parties - 1) // 3)
    return check_plan(parties, parties - 1, threshold, dropout=dropout)


def _masks(bench: _Bench) -> Figure:
    masks = round(bench.parameters.plan.mask_degree) + 1
    made = masks * bench.bytes_a_mask
    taken = bench.trials(
        "masks",
        {
            "ours": lambda: kernels.mask_rate(bench.length, bench.parameters.encoding.dtype, masks),
            "peer": lambda: bench.peer.seconds("expand", length=bench.length, masks=masks),
        },
    )
    return rate(
        "mask expansion and addition",
        "B/s",
        taken["ours"],
        f"{masks} masks of {bench.length} elements of {bench.element_bytes_of} bytes added to one vector, "
        "one thread; bound by AES units. The peer's elements are counted with the same bytes.",
        peer=bench.beside(taken, lambda seconds: made / seconds),
        limit=Limit.of(KEYSTREAM, taken["limit"]),
        target=Target("ratio_to_limit", MASKS_OF_KEYSTREAM),
    )


def _runs(bench: _Bench) -> list[Figure]:
    plan, encoding = bench.parameters.plan, bench.parameters.encoding
    masks = round(plan.mask_degree) + 1
    made = masks * bench.bytes_a_mask
    seeds = iter(range(1, bench.runs + 1))

    def run() -> float:
        recording = record(bench.parameters, bench.dropouts, next(seeds))
        bench.first = bench.first or recording
        aggregator.append(recording.aggregator_seconds)
        up.append(median(recording.up.values()))
        down.append(median(recording.down.values()))
        return median(recording.client_seconds.values())

    aggregator: list[float] = []
    up: list[float] = []
    down: list[float] = []
    taken = bench.trials(
        "run",
        {
            "ours": run,
            "peer": lambda: bench.peer.seconds(
                "client", length=bench.length, masks=masks, holders=plan.degree, threshold=plan.threshold
            ),
        },
    )
    own = Limit(f"{KEYSTREAM} keystream of the client's masks", made / median(taken["limit"]))
    alone = Limit("the vector alone, packed", float(encoding.ring_length * encoding.element_bytes))
    return [
        cost(
            "client CPU time",
            "s",
            taken["ours"],
            "median over the surviving clients of all calls of their machine in a run; bound by the "
            "signatures and key agreements in it; sealing and every check are included. The peer does its "
            f"masking work alone: quantising, sharing two secrets among {plan.degree} with threshold "
            f"{plan.threshold}, {masks - 1} key agreements and {masks} masks.",
            peer=bench.beside(taken),
            limit=own,
        ),
        cost(
            "aggregator CPU time",
            "s",
            aggregator,
            "all calls of the aggregator's machine in a run, recovery included; bound by checking and "
            "writing signatures, and adding up the vectors.",
        ),
        cost(
            "bytes up of one party",
            "B",
            up,
            "median over the survivors of all encoded envelopes, without frames and TLS records.",
            limit=alone,
        ),
        cost(
            "bytes down of one party",
            "B",
            down,
            "median over the survivors of all encoded envelopes, the result included, without frames "
            "and TLS records.",
            limit=alone,
        ),
    ]


def _recovery(bench: _Bench, plan: SecAggPlan) -> Figure:
    wreck = kernels.wreck(plan, bench.length, bench.parameters.encoding.dtype, bench.dropouts, seed=1)
    survivors = len(wreck.survivors)
    masks = survivors + wreck.pair_masks
    sample = plan.threshold >= SAMPLED_FROM_THRESHOLD
    taken = bench.trials(
        f"recovery, {plan.degree} holders",
        {
            "ours": wreck.recover,
            "peer": lambda: bench.peer.seconds(
                "recovery",
                length=bench.length,
                threshold=plan.threshold,
                holders=plan.degree,
                seeds=survivors,
                keys=bench.dropouts,
                pairs=wreck.pair_masks,
                sample=sample,
            ),
        },
    )
    made = masks * bench.bytes_a_mask
    estimate = (
        " The peer's time is an ESTIMATE in part: 3 secrets of each kind are combined and their time is "
        "scaled to all of them; its masks are measured in full."
        if sample
        else ""
    )
    graph = "complete graph" if plan.degree == plan.parties - 1 else "planned graph"
    return cost(
        f"aggregator recovery, {graph}",
        "s",
        taken["ours"],
        f"degree {plan.degree}, threshold {plan.threshold}: from revealed shares to the bare sum, one "
        f"thread: {survivors} self-mask seeds and {bench.dropouts} masking keys, {survivors} self-masks and "
        f"{wreck.pair_masks} pairwise masks; bound by mask expansion and by key agreement. The peer combines "
        f"{plan.threshold} shares for each secret and expands as many masks." + estimate,
        peer=bench.beside(taken),
        limit=Limit(f"{KEYSTREAM} keystream of the masks", made / median(taken["limit"])),
        target=Target("ratio_to_peer", TIMES_AS_FAST_AS_PEER),
    )


def _memory(bench: _Bench) -> list[Figure]:
    recording = bench.first
    if recording is None:
        raise LocalError("memory is measured on a recorded run, and there is none")
    vector = Limit("one vector, as it is computed with", float(bench.bytes_a_mask))
    step = Steps(bench.progress, "memory", 3)
    peaks = []
    for name, heard in ((recording.client, recording.client_heard), (AGGREGATOR, recording.aggregator_heard)):
        peaks.append(memory.replay_peak(name, heard, bench.parameters, seed=1))
        step()
    whole = memory.whole_run_peak(bench.parameters, bench.dropouts, seed=1)
    step()
    alone = (
        "allocations through Python and numpy of one machine against recorded messages in a fresh process, "
        "its vector and the message at hand included, interpreter and modules not; bound by "
    )
    copies = "a few copies of the vector (lanes, packed, in the envelope)."
    at_hand = (
        "a few copies of the vector at hand and of the result; it does not grow with the number of vectors."
    )
    resident = (
        "resident memory of a fresh process with all parties, all their input vectors, the aggregator, the "
        "messages under way, the interpreter and the modules."
    )
    return [
        cost("peak memory of a client", "B", peaks[:1], alone + copies, limit=vector),
        cost("peak memory of the aggregator", "B", peaks[1:], alone + at_hand, limit=vector),
        cost("peak memory of a whole run in one process", "B", [whole], resident),
    ]
