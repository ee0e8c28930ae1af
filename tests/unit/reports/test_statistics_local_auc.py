"""The private AUC: its walk against the recursion as printed, its variance, the theorems, refusals.

Seeds are fixed. Means are accepted within 5 standard errors of what is expected: over the choice of the
seed a right program fails a comparison with chance 6e-7, so all of this file with less than 2e-5.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.kernels import Field
from smpc_dp.capabilities.reports.local_auc import A, LocalAuc
from smpc_dp.capabilities.reports.local_tree import Histogram, Oracle, Tree
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.local_auc import Split, exact_variance, node_variance, published_error_bound
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.examples import examples

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def coins(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def agrees(samples: Floats, expected: float) -> bool:
    error = float(samples.std(ddof=1)) / math.sqrt(len(samples))
    return abs(float(samples.mean()) - expected) <= 5 * error


def auc_of(scores: Integers, labels: Integers, ties: float) -> float:
    up, down = scores[labels == 1][:, None], scores[labels == 0][None, :]
    return float(((up > down) + ties * (up == down)).mean())


def runs_of(
    scores: Integers,
    labels: Integers,
    epsilon: float,
    levels: int,
    oracle: Oracle,
    split: Split,
    runs: int,
    **more: float,
) -> tuple[Floats, Floats]:
    """Return values and standard errors of many runs, each with its own coins and responses."""
    result = []
    field = Field(0, (1 << levels) - 1)
    randomness = SeededRandomnessForSimulation(7, f"{oracle} {split} {levels} {epsilon}")
    for run in range(runs):
        plan = LocalAuc.plan(
            field, epsilon, levels=levels, oracle=oracle, split=split, coins=coins(levels, run)
        )
        estimate = plan.estimate(plan.randomise_many(scores, randomness=randomness), labels, **more)
        result.append((estimate.value, estimate.standard_error))
    array = np.array(result)
    return array[:, 0], array[:, 1]


@pytest.mark.thin(2)
@pytest.mark.parametrize("split", ["users", "budget"])
@pytest.mark.parametrize("oracle", ["hadamard", "krr"])
def test_estimates_of_nodes_are_unbiased(oracle: Oracle, split: Split) -> None:
    leaves = np.array([0, 0, 1, 3, 6, 6, 6, 7])
    parties, runs = np.arange(len(leaves)), 1_500
    estimates = np.zeros((runs, 2, 8))
    for run in range(runs):
        tree = Tree(3, 2.0, oracle, split, coins(run))
        source = NoiseSource.keyed(coins("noise", run))
        histogram = tree.histogram(parties, tree.answer(leaves, parties, source))
        for level in (2, 3):
            estimates[run, level - 2, : 1 << level] = histogram.counts(level, np.arange(1 << level))
    for level in (2, 3):
        truth = np.bincount(leaves >> (3 - level), minlength=1 << level)
        bound = histogram.variance(level)
        for node in range(1 << level):
            samples = estimates[:, level - 2, node]
            assert agrees(samples, truth[node])
            assert samples.var() <= bound * 1.2
            if oracle == "hadamard":
                assert agrees((samples - truth[node]) ** 2, bound - truth[node])
    if oracle == "hadamard":
        assert histogram.variance(2) == pytest.approx(node_variance(8, 3, 2.0, split), rel=1e-6)


@given(
    seed=st.integers(0, 10**6),
    level=st.integers(1, 9),
    parties=st.integers(0, 60),
    wanted=st.integers(1, 20),
)
def test_fast_transform_gives_what_the_sum_gives(seed: int, level: int, parties: int, wanted: int) -> None:
    rng = np.random.default_rng(seed)
    tree = Tree(level, 1.0, "hadamard", "budget", coins(seed))
    answers = rng.integers(0, 2, (parties, level))
    numbers = rng.permutation(10**6)[:parties]
    nodes = np.sort(rng.choice(1 << level, min(wanted, 1 << level), replace=False))
    _, coefficients = tree.indices(numbers)
    retained = float(tree.response(level).distribution.retained)
    expected = [
        sum(
            (-1) ** (int(answer) + bin(int(node) & int(coefficient)).count("1"))
            for answer, coefficient in zip(answers[:, -1], coefficients[:, -1], strict=True)
        )
        / retained
        for node in nodes
    ]
    result = tree.histogram(numbers, answers).counts(level, nodes)
    assert np.allclose(result, expected)


def test_coins_do_not_depend_on_who_else_reports() -> None:
    for split in ("users", "budget"):
        tree = Tree(20, 1.0, "hadamard", split, coins(1))
        near = tree.indices(np.arange(100))
        far = tree.indices(np.array([7, 10**9, 42]))
        for one, other in zip(near, far, strict=True):
            assert np.array_equal(one[[7, 42]], other[[0, 2]])
    levels, coefficients = Tree(5, 1.0, "hadamard", "users", coins(2)).indices(np.arange(50_000))
    counts = np.bincount(levels[:, 0], minlength=6)[1:]
    assert np.abs(counts - 10_000).max() < 5 * math.sqrt(8_000)
    for level in range(1, 6):
        own = coefficients[levels == level]
        drawn = np.bincount(own, minlength=1 << level)
        assert len(drawn) == 1 << level
        assert np.abs(drawn - len(own) / 2**level).max() < 6 * math.sqrt(len(own) / 2**level)


def recursion(
    up: Histogram, down: Histogram, levels: int, threshold: float | None, ties: float
) -> tuple[float, int]:
    """UAUC and visited nodes by the recursion of [Bellet 2021, 3.3.3], the root always entered."""

    def tau(level: int) -> float:
        return 4 * (up.variance(level) + down.variance(level)) if threshold is None else threshold

    def children(node: int, level: int) -> tuple[Floats, Floats]:
        both = np.array([2 * node, 2 * node + 1])
        return up.counts(level + 1, both), down.counts(level + 1, both)

    def below(node: int, level: int, own: tuple[float, float] | None) -> tuple[float, int]:
        if level == levels:
            return (0.0 if own is None else ties * own[0] * own[1]), 0
        a, b = children(node, level)
        if own is not None:
            floors = [math.sqrt(A * tree.variance(level)) / 2 for tree in (up, down)]
            if max(own[0], floors[0]) * max(own[1], floors[1]) < tau(level + 1):
                return float(a.sum() * b.sum()) / 2, 2
        left = below(2 * node, level + 1, (a[0], b[0]))
        right = below(2 * node + 1, level + 1, (a[1], b[1]))
        return float(a[1] * b[0]) + left[0] + right[0], 2 + left[1] + right[1]

    return below(0, 0, None)


@settings(max_examples=examples(60))
@given(
    seed=st.integers(0, 10**6),
    levels=st.integers(1, 7),
    epsilon=st.floats(0.5, 20),
    oracle=st.sampled_from(["hadamard", "krr"]),
    split=st.sampled_from(["users", "budget"]),
    threshold=st.sampled_from([None, 0.0, 50.0, 1e9]),
    ties=st.sampled_from([0.0, 0.5]),
)
def test_walk_is_the_recursion(
    seed: int, levels: int, epsilon: float, oracle: Oracle, split: Split, threshold: float | None, ties: float
) -> None:
    rng = np.random.default_rng(seed)
    n = 200
    labels = np.r_[0, 1, rng.integers(0, 2, n - 2)]
    scores = rng.binomial((1 << levels) - 1, 0.2 + 0.5 * labels)
    plan = LocalAuc.plan(
        Field(0, (1 << levels) - 1), epsilon, levels=levels, oracle=oracle, split=split, coins=coins(seed)
    )
    answers = plan.randomise_many(scores, randomness=SeededRandomnessForSimulation(seed, "walk"))
    estimate = plan.estimate(answers, labels, threshold=threshold, ties=ties)
    parties = np.arange(n)
    up, down = (plan.tree.histogram(parties[labels == label], answers[labels == label]) for label in (1, 0))
    total, visited = recursion(up, down, levels, threshold, ties)
    assert estimate.value == pytest.approx(total / (up.parties * down.parties), rel=1e-9, abs=1e-9)
    assert estimate.visited == visited
    if threshold == 0:
        assert visited == (2 << levels) - 2
        assert estimate.bias_bound == 0
    assert plan.estimate(plan.reports(answers), labels, threshold=threshold, ties=ties) == estimate


SCORES = np.array([0, 1, 1, 3, 2, 5, 2, 4, 5, 6, 7, 7])
LABELS = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0])


@pytest.mark.parametrize(("levels", "known"), [(1, False), (2, False), (3, True)])
def test_fewer_leaves_than_points_have_no_bound_on_the_bias(levels: int, known: bool) -> None:
    """Scores of two labels, 2 and 3, tie in a leaf of two points: an AUC of 0.5, where the scores' is 1."""
    plan = LocalAuc.plan(Field(0, 7), 20.0, levels=levels, coins=coins(1))
    labels = np.arange(2_000) % 2
    answers = plan.randomise_many(2 + labels, randomness=SeededRandomnessForSimulation(1, "ties"))
    estimate = plan.estimate(answers, labels)
    assert (estimate.bias_bound is not None) == known
    assert (estimate.interval[1] > 0.95) == known
    assert plan.estimate(answers, labels, threshold=1e300).bias_bound == (0.5 if known else None)
    wider = plan.estimate(answers, labels, lost=0.1)
    assert wider.standard_error == pytest.approx(math.hypot(estimate.standard_error, 0.1))


@pytest.mark.thin(4)
@pytest.mark.parametrize("split", ["users", "budget"])
@pytest.mark.parametrize("ties", [0.5, 0.0])
def test_without_threshold_unbiased_and_as_far_off_as_the_exact_variance(split: Split, ties: float) -> None:
    values, errors = runs_of(SCORES, LABELS, 3.0, 3, "hadamard", split, 1_400, ties=ties, threshold=0.0)
    truth = auc_of(SCORES, LABELS, ties)
    assert agrees(values, truth)
    up, down = (np.bincount(SCORES[label == LABELS], minlength=8).astype(np.float64) for label in (1, 0))
    exact = exact_variance(up, down, 3.0, split=split, ties=ties)
    assert agrees((values - truth) ** 2, exact)
    # The comparison would see a third more, in at least 93 of 100 seeds.
    assert not agrees((values - truth) ** 2, exact / 0.75)
    # Negative covariances are left out of the estimated error.
    assert (errors**2).mean() + 5 * (errors**2).std() / math.sqrt(len(errors)) > exact


@pytest.mark.long
def test_krr_is_unbiased_without_threshold() -> None:
    for split in ("users", "budget"):
        values, errors = runs_of(SCORES, LABELS, 3.0, 3, "krr", split, 1_000, ties=0.5, threshold=0.0)
        assert agrees(values, auc_of(SCORES, LABELS, 0.5))
        assert (errors**2).mean() > 0.8 * values.var()


def settings_of_the_theorem() -> list[tuple[int, int, int, float, float]]:
    """(n+, n-, alpha, epsilon, separation)."""
    return [
        (n_up, n_down, alpha, epsilon, separation)
        for (n_up, n_down) in ((200, 200), (5_000, 5_000), (100, 9_000))
        for alpha in (1, 4, 10)
        for epsilon in (0.5, 4.0)
        for separation in (0.0, 0.6)
    ]


@pytest.mark.long
@pytest.mark.parametrize("split", ["users", "budget"])
def test_theorem_3_5_holds_in_every_setting_tried(split: Split) -> None:
    """Mean squared error of 25 runs below the bound.

    The expected error is at most a third of the bound in each; 25 squares of about normal errors exceed 3
    times their mean with a chance of 6e-7.
    """
    for n_up, n_down, alpha, epsilon, separation in settings_of_the_theorem():
        rng = np.random.default_rng(n_up + alpha)
        labels = np.r_[np.ones(n_up, dtype=np.int64), np.zeros(n_down, dtype=np.int64)]
        position = np.clip(rng.normal(0.4 + separation * labels / 2, 0.1), 0, 0.999)
        scores = (position * (1 << alpha)).astype(np.int64)
        values, _ = runs_of(scores, labels, epsilon, alpha, "hadamard", split, 25)
        truth = _fast_auc(scores, labels)
        error = float(np.mean((values - truth) ** 2))
        bound = published_error_bound(n_up, n_down, alpha, epsilon, split)
        assert error < bound, (n_up, n_down, alpha, epsilon, separation)


def _fast_auc(scores: Integers, labels: Integers) -> float:
    up = np.bincount(scores[labels == 1], minlength=scores.max() + 1)
    down = np.bincount(scores[labels == 0], minlength=scores.max() + 1)
    return float(up @ (np.cumsum(down) - down / 2)) / float(up.sum() * down.sum())


def test_theorem_3_6_has_its_orders_and_a_split_of_users_a_better_one() -> None:
    """alpha^3 / (n epsilon^2) where each level has its own answer, alpha^2 where each party has one level.

    The worst case: all scores are the least, so that every level compares all records with an empty node. n
    is so large that the noise of empty nodes against each other, which a threshold keeps out, is nothing.
    """

    def error(n: int, alpha: int, epsilon: float, split: Split) -> float:
        counts = np.zeros(1 << alpha)
        counts[0] = n / 2
        return exact_variance(counts, counts, epsilon, split=split)

    n = 10**12
    powers: list[tuple[Split, int]] = [("users", 2), ("budget", 3)]
    for split, power in powers:
        assert error(n, 12, 0.1, split) / error(n, 6, 0.1, split) == pytest.approx(2**power, rel=0.02)
        rates = [error(n, 6, epsilon, split) * epsilon**2 for epsilon in (0.02, 0.1, 0.3)]
        assert max(rates) / min(rates) < 1.02
        assert error(n, 6, 0.1, split) / error(10 * n, 6, 0.1, split) == pytest.approx(10, rel=0.01)


def test_one_bit_is_sent_and_it_is_private(tmp_path: Path) -> None:
    plan = LocalAuc.plan(Field(0, 1, 0.001), 1.0, levels=8)
    report = plan.randomise(0.5, 3)
    assert len(report) == 9
    assert report[:8] == plan.fingerprint
    assert report[8] in (0, 128)  # one bit
    reports = [plan.randomise(party / 100, party) for party in range(100)]
    labels = np.arange(100) > 50
    estimate = plan.estimate(reports, labels)
    assert estimate.privacy.epsilon is not None
    assert 1 - 1e-8 < estimate.privacy.epsilon <= 1
    assert estimate.categories == 256
    assert estimate.visited is not None
    # The order of reports is free as long as their parties' numbers are given.
    shuffled = np.random.default_rng(1).permutation(100)
    again = plan.estimate([reports[party] for party in shuffled], labels[shuffled], parties=shuffled)
    assert again.value == pytest.approx(estimate.value)
    for oracle, split in itertools.product(("hadamard", "krr"), ("users", "budget")):
        tree = Tree(8, 1.0, oracle, split, coins(1))  # type: ignore[arg-type]
        distribution = tree.response(4).distribution
        retained, lie = float(distribution.retained), float(distribution.lie)
        ratio = (retained + lie) / lie
        assert ratio**tree.width == pytest.approx(math.e, rel=1e-7)
        ledger = Ledger.create(
            tmp_path / f"{oracle}{split}",
            party="a",
            dataset="d",
            relation="substitution",
            epsilon=1.9,
            delta=0,
        )
        plan = LocalAuc(Field(0, 1, 0.001), tree)
        plan.randomise(0.1, 0, ledger=ledger)
        assert ledger.spent().epsilon == pytest.approx(1.0, abs=1e-7)
        with pytest.raises(PrivacyError):
            plan.randomise(0.1, 0, ledger=ledger)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"levels": 0}, "levels"),
        ({"levels": 31}, "levels"),
        ({"levels": 11}, "more than the grid"),
        ({"oracle": "rappor"}, "oracle"),
        ({"split": "none"}, "split"),
        ({"coins": b"short"}, "coins"),
    ],
)
def test_bad_plans_are_refused(arguments: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        LocalAuc.plan(Field(0, 1, 0.001), **({"epsilon": 1.0, "levels": 8} | arguments))  # type: ignore[arg-type]


def test_bad_reports_are_refused() -> None:
    plan = LocalAuc.plan(Field(0, 1, 0.001), 1.0, levels=8)
    answers = plan.randomise_many([0.1, 0.2, 0.9])
    reports, labels = plan.reports(answers), [0, 0, 1]
    for parties, reason in (
        ([0, 1], "parties"),
        ([0, 1, 1], "twice"),
        ([-1, 0, 1], "2\\^40"),
        ([0.0, 1, 2], "parties"),
    ):
        with pytest.raises(ConfigError, match=reason):
            plan.estimate(reports, labels, parties=parties)
    with pytest.raises(ConfigError, match=r"reports\[1\].*none of this protocol"):
        plan.estimate([reports[0], plan.fingerprint + b"\x40", reports[2]], labels)
    with pytest.raises(ConfigError, match=r"reports\[0\].*other parameters"):
        plan.estimate(LocalAuc.plan(Field(0, 1, 0.001), 1.0, levels=8).reports(answers), labels)
    with pytest.raises(ConfigError, match="labels"):
        plan.estimate(reports, [0, 0, 2])
    with pytest.raises(ConfigError, match="all are the same"):
        plan.estimate(reports, [0, 0, 0])
    for more, reason in (
        ({"ties": 2.0}, "ties"),
        ({"threshold": math.nan}, "threshold"),
        ({"confidence": 0.0}, "conf"),
    ):
        with pytest.raises(ConfigError, match=reason):
            plan.estimate(reports, labels, **more)
    for wrong in (2, -1):
        with pytest.raises(ConfigError, match=r"reports\[1\].*none of this protocol"):
            plan.estimate(np.array([[0], [wrong], [1]]), labels)
    assert plan.estimate(answers, labels, threshold=1e300).bias_bound is None
    with pytest.raises(ConfigError, match="int64"):
        plan.estimate(answers.ravel(), labels)
    with pytest.raises(PrivacyError, match="out of bounds"):
        plan.randomise(1.1, 0)
    with pytest.raises(PrivacyError, match="not a number"):
        plan.randomise_many([0.1, math.nan])
    with pytest.raises(ConfigError, match="parties"):
        plan.randomise(0.1, -1)
    wide = LocalAuc.plan(Field(0, 1, 1e-9), 1.0, levels=30)
    with pytest.raises(ConfigError, match="lets through"):
        wide.estimate(wide.randomise_many([0.1, 0.9]), [0, 1], threshold=0.0)
    krr = LocalAuc.plan(Field(0, 1, 0.001), 1.0, levels=8, oracle="krr")
    with pytest.raises(ConfigError, match="none of this protocol"):
        krr.estimate([krr.fingerprint + b"\xff\xff\xff\xff"] * 3, labels)


@pytest.mark.parametrize("oracle", ["hadamard", "krr"])
def test_memory_does_not_grow_with_the_reports(oracle: Oracle) -> None:
    """Beside a million answers, which are 8 MB, nodes of a deep level take less than half of that."""
    tree = Tree(20, 1.0, oracle, "users", bytes(32))
    parties = np.arange(1_000_000)
    answers = np.zeros((len(parties), 1), np.int64)
    chosen = parties % 3 == 0
    histogram = tree.histogram(parties, answers, chosen)
    tracemalloc.start()
    histogram.counts(18, np.arange(100, 130))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6
