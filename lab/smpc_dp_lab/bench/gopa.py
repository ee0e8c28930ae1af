"""Benchmark of GOPA: the cost of a party as their number grows, beside secure sums on two graphs."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import process_time

from smpc_dp.capabilities.gopa.direct_params import MAX_PARTIES, DirectParameters
from smpc_dp.capabilities.gopa.direct_params import check_parameters as check_direct
from smpc_dp.capabilities.gopa.params import check_parameters as check_gopa
from smpc_dp.crypto.agree import agree, public_key
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.secagg_plan import ADVERTISEMENT, check_plan
from smpc_dp.secagg.noisy import check_noisy
from smpc_dp.secagg.params import SecAggParameters
from smpc_dp.secagg.params import check_parameters as check_exact
from smpc_dp_lab.bench.figures import Figure, Limit, Progress, Report, cost, rate, refuse, versions, within
from smpc_dp_lab.bench.gopa_direct import record_direct
from smpc_dp_lab.bench.recording import Sampled, record_sample

STEPS = 1 << 20
EPSILON, DELTA = 1.0, 1e-6
# So many parties of a run are measured.
SAMPLE = 5
LEAST_PARTIES, MOST_PARTIES = 10, 10_000
# Every pair of a complete graph agrees on a key and exchanges sealed shares: a million pairs take a minute.
MOST_COMPLETE = 1_000
AGREEMENTS = 2_000
# Users of runs without an aggregator.
DIRECT = (10, 50, 100, 256)
# The signed keys of one neighbour: an `Advertise` and the signature of its envelope.
KEYS_BYTES = ADVERTISEMENT + 64


def run_gopa_bench(
    parties: Sequence[int] = (100, 1_000),
    runs: int = 1,
    progress: Progress | None = None,
    *,
    length: int = 1,
    lost: int = 10,
    dropout: float = 0.01,
    direct: Sequence[int] = (),
) -> Report:
    """Measure GOPA and secure sums for each number of `parties`, `length` numbers in [0, 1] each.

    All are planned for a tenth corrupt and `lost` parties lost (at most a tenth of them), although nobody is;
    GOPA ("keep") and the exact sum on the sparse graph for the fraction `dropout` lost as well. GOPA, and a
    sum with shares of noise, are planned for epsilon 1 and delta 1e-6. CPU times are of one thread.

    Args:
        parties: 10 to 10,000 each; the complete graph is measured up to 1,000.
        runs: measurements of each figure, 1 or more.
        direct: numbers of parties of runs without an aggregator, up to 256, planned by default.
        progress: called with what is measured, the runs done and the runs of all.

    Raises:
        ConfigError: a number is out of range.
    """
    refuse(
        *(within("parties", n, LEAST_PARTIES, MOST_PARTIES) for n in parties),
        *(within("direct", n, 3, MAX_PARTIES) for n in direct),
        within("runs", runs, 1),
        within("lost", lost, 0),
        [] if parties else [ConfigIssue("parties", "is empty", ConfigCheck.RANGE)],
    )
    figures: list[Figure] = []
    plans: list[dict[str, object]] = []
    cases = [(n, *case) for n in parties for case in _all_cases(n, length, lost, dropout)]
    done, agreement = 0, _seconds_of_an_agreement()
    for n, name, parameters in cases:
        plan = parameters.plan
        named = f"{name}, {n} users, {plan.max_dropouts} may be lost"
        samples: list[Sampled] = []
        for run in range(runs):
            if progress is not None:
                progress(named, done, len(cases) * runs)
            samples.append(record_sample(parameters, SAMPLE, seed=run + 1))
            done += 1
        figures += _figures(named, parameters, samples, agreement)
        plans.append(
            {
                "parties": n,
                "protocol": name,
                "max_dropouts": plan.max_dropouts,
                "degree": plan.degree,
                "quorum": plan.quorum,
            }
        )
    for n in direct:
        if progress is not None:
            progress(f"GOPA without an aggregator, {n} users", done, done)
        figures += _direct(n, length, runs, agreement)
    if progress is not None:
        progress("done", done, done)
    return Report(
        bench="gopa",
        figures=figures,
        versions=versions("numpy", "pynacl"),
        parameters={
            "length": length,
            "lost": lost,
            "dropout": dropout,
            "sample": SAMPLE,
            "plans": plans,
        },
    )


def _all_cases(parties: int, length: int, lost: int, dropout: float) -> list[tuple[str, SumParameters]]:
    """Return the measured cases for one number of parties, by name: for `lost` of them and for a fraction."""
    given = min(lost, parties // 10) / parties
    cases = list(_cases(parties, length, given).items())
    known = cases[0][1].plan.max_dropouts
    for name, parameters in _cases(parties, length, dropout).items():
        if name in ("GOPA, keep", "secure sum, sparse graph") and parameters.plan.max_dropouts != known:
            cases.append((name, parameters))
    return cases


def _cases(parties: int, length: int, dropout: float) -> dict[str, SumParameters]:
    """Return the parameters of each protocol for one number of parties."""
    given: dict[str, object] = {"length": length, "lower": 0.0, "upper": 1.0, "precision": 1 / STEPS}
    # Not each form has checked totals.
    given |= {"dropout": dropout, "total": "unchecked"}
    private = given | {"epsilon": EPSILON, "delta": DELTA}
    checked: dict[str, tuple[SumParameters | None, list[ConfigIssue]]] = {
        "GOPA, keep": check_gopa(private, parties),
        "GOPA, roll-back": check_gopa(private | {"on_dropout": "roll-back"}, parties),
        "secure sum with shares of noise": check_noisy(private, parties),
        "secure sum, sparse graph": check_exact(given, parties),
    }
    issues = [issue for _, result in checked.values() for issue in result]
    if issues:
        raise ConfigError(issues)
    cases = {name: parameters for name, (parameters, _) in checked.items() if parameters is not None}
    if parties <= MOST_COMPLETE:
        threshold = -(-2 * (parties - 1) // 3)
        complete = check_plan(parties, parties - 1, threshold, dropout=dropout)
        encoding = cases["secure sum, sparse graph"].encoding
        cases["secure sum, complete graph"] = SecAggParameters(encoding, complete)
    return cases


def _figures(
    name: str, parameters: SumParameters, samples: Sequence[Sampled], agreement: float
) -> list[Figure]:
    plan = parameters.plan
    vector = float(parameters.encoding.ring_length * parameters.encoding.element_bytes)
    return [
        rate(
            f"{name}: users per second in simulation",
            "1/s",
            [sample.others_per_second for sample in samples],
            "users that one second of CPU time simulates, relay included; in one process each signature "
            "is checked once, not once by every user",
        ),
        cost(
            f"{name}: CPU time of a user",
            "s",
            [median(sample.seconds) for sample in samples],
            f"median over {SAMPLE} users that check everything themselves; grows with the degree, and "
            "with the logarithm of the number of users",
            limit=Limit("agreeing on a key with each neighbour", plan.mask_degree * agreement),
        ),
        cost(
            f"{name}: bytes up of a user",
            "B",
            [median(sample.up) for sample in samples],
            "median over the same users of all encoded envelopes, without frames and TLS records; it "
            "grows with the degree",
            limit=Limit("the vector alone, packed", vector),
        ),
        cost(
            f"{name}: bytes down of a user",
            "B",
            [median(sample.down) for sample in samples],
            "likewise; grows with the degree times the logarithm of the number of users",
            limit=Limit("the signed keys of its neighbours", plan.mask_degree * KEYS_BYTES),
        ),
    ]


def _direct(parties: int, length: int, runs: int, agreement: float) -> list[Figure]:
    """Measure GOPA without an aggregator: processor time and bytes of a party and the coordinator."""
    given = {"length": length, "lower": 0.0, "upper": 1.0, "precision": 1 / STEPS, "topology": "direct"}
    parameters, issues = check_direct(given | {"epsilon": EPSILON, "delta": DELTA}, parties)
    if not isinstance(parameters, DirectParameters):
        raise ConfigError(issues)
    taken = [record_direct(parameters, seed=run + 1) for run in range(runs)]
    name, degree = f"GOPA without an aggregator, {parties} users", parameters.plan.mask_degree
    note = "median over all users but the coordinator, who check everything themselves; nobody is lost"
    to_all = Limit("the vector alone, to or from each other user", 8.0 * length * (parties - 1))
    return [
        cost(
            f"{name}: CPU time of a user",
            "s",
            [one.seconds for one in taken],
            note,
            limit=Limit("agreeing on a key with each neighbour", degree * agreement),
        ),
        cost(f"{name}: bytes up of a user", "B", [one.up for one in taken], note, limit=to_all),
        cost(f"{name}: bytes down of a user", "B", [one.down for one in taken], note, limit=to_all),
        cost(
            f"{name}: bytes up of the coordinator",
            "B",
            [one.coordinator_up for one in taken],
            "all encoded envelopes, without frames and TLS records; what is for all is sent to each",
        ),
    ]


def _seconds_of_an_agreement() -> float:
    """Return the processor time of one X25519 key agreement, in seconds."""
    secret, other = bytes(range(32)), public_key(bytes(range(1, 33)))
    begun = process_time()
    for _ in range(AGREEMENTS):
        agree(secret, other, salt=b"", info=b"")
    return (process_time() - begun) / AGREEMENTS
