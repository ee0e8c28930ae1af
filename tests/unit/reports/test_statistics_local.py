"""Algorithm 3.3: the estimate from counts against all pairs, its variance, its bounds, and what is refused.

Seeds are fixed. Means are accepted within 5 standard errors of what is expected: over the choice of the
seed a right program fails a comparison with chance 6e-7, so all of this file with less than 2e-5.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import smpc_dp
from smpc_dp.capabilities.pairs.kernels import (
    Field,
    Kernel,
    auc,
    auc_private_labels,
    collision,
    gini_mean_difference,
    kendall_tau,
    variance,
)
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.capabilities.reports.local_estimate import all_pairs, two_samples
from smpc_dp.capabilities.reports.quantiser import Quantiser, Rounding, choose_bins
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.local_pairwise import (
    corollary_bins,
    exact_variance,
    published_variance_bound,
    variance_bound,
)
from smpc_dp.privacy.response import ResponseDistribution
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

Floats = NDArray[np.float64]


def agrees(samples: Floats, expected: float) -> bool:
    error = float(samples.std(ddof=1)) / math.sqrt(len(samples))
    return abs(float(samples.mean()) - expected) <= 5 * error


@given(seed=st.integers(0, 10**6), k=st.integers(2, 7), n=st.integers(3, 25), epsilon=st.floats(0.1, 6))
def test_counts_give_what_all_pairs_give(seed: int, k: int, n: int, epsilon: float) -> None:
    """(3.9) and (3.10) as they are written, and the jackknife by leaving each answer out."""
    rng = np.random.default_rng(seed)
    matrix = rng.random((k, k))
    matrix += matrix.T
    answers = rng.integers(0, k, n)
    beta = ResponseDistribution.of_epsilon(k, epsilon).beta

    def h_hat(i: int, j: int) -> float:
        left, right = np.eye(k)[i] - beta / k, np.eye(k)[j] - beta / k
        return float(left @ matrix @ right) / (1 - beta) ** 2

    def u_hat(rows: NDArray[np.int64]) -> float:
        return float(np.mean([h_hat(i, j) for i, j in itertools.combinations(rows, 2)]))

    left_out = np.array([u_hat(np.delete(answers, index)) for index in range(n)]) if n > 3 else None
    plan = LocalPairwise.plan(collision(Field(0, k - 1)), epsilon)
    value, error = all_pairs(plan.unbiased(matrix), np.bincount(answers, minlength=k))
    scale = 1 / (1 - beta) ** 2
    assert value == pytest.approx(u_hat(answers), rel=1e-6, abs=1e-6 * scale)
    if left_out is not None:
        expected = math.sqrt((n - 1) / n * np.sum((left_out - left_out.mean()) ** 2))
        assert error == pytest.approx(expected, rel=1e-5, abs=1e-5 * scale)


@given(seed=st.integers(0, 10**6), k=st.integers(2, 6), n=st.integers(2, 12), m=st.integers(2, 12))
def test_counts_of_two_samples_give_what_all_pairs_give(seed: int, k: int, n: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.random((k, k))
    first, second = rng.integers(0, k, n), rng.integers(0, k, m)
    pairs = values[first[:, None], second[None, :]]
    value, error = two_samples(values, np.bincount(first, minlength=k), np.bincount(second, minlength=k))
    assert value == pytest.approx(pairs.mean())
    parts = (pairs.mean(axis=1), pairs.mean(axis=0))
    expected = sum(float(np.var(part, ddof=1)) / len(part) for part in parts)
    assert error == pytest.approx(math.sqrt(expected), abs=1e-12)


SETTINGS: list[tuple[Kernel, float, int]] = [
    (kendall_tau(Field(0, 2), Field(0, 2)), 1.0, 12),
    (gini_mean_difference(Field(0, 4)), 0.7, 20),
    (variance(Field(-1, 1, 0.5)), 2.0, 8),
    (collision(Field(0, 3)), 1.5, 15),
    (auc_private_labels(Field(0, 2)), 1.2, 10),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("kernel", "epsilon", "n"), SETTINGS, ids=lambda value: getattr(value, "name", ""))
def test_estimates_are_unbiased_and_as_far_off_as_the_exact_variance(
    kernel: Kernel, epsilon: float, n: int
) -> None:
    """Real responses: mean, mean squared error, the jackknife, Theorem 3.3; 1,000 runs each."""
    runs = 1_000
    plan = LocalPairwise.plan(kernel, epsilon)
    k = plan.quantiser.categories
    rng = np.random.default_rng(4)
    distribution = rng.dirichlet(np.ones(k))
    records = plan.quantiser.points()[rng.choice(k, p=distribution, size=runs * n)]
    answers = plan.randomise_many(records, SeededRandomnessForSimulation(1, kernel.name)).reshape(runs, n)
    estimates = [plan.estimate(row) for row in answers]
    values = np.array([estimate.value for estimate in estimates])
    truth = float(distribution @ plan.quantiser.matrix(kernel) @ distribution)
    assert agrees(values, truth)
    exact = plan.exact_error(distribution, n)
    assert agrees((values - truth) ** 2, exact**2)
    squares = np.array([estimate.standard_error**2 for estimate in estimates])
    assert squares.mean() + 5 * squares.std() / math.sqrt(runs) > exact**2
    bound = estimates[0].standard_error_bound
    assert bound is not None
    assert exact <= bound <= kernel.width * math.sqrt(published_variance_bound(n, k, plan.epsilon))
    # The comparison can fail: twice the budget has another variance.
    matrix = plan.quantiser.matrix(kernel)
    assert not agrees((values - truth) ** 2, exact_variance(matrix, distribution, n, 2 * epsilon))


def test_two_samples_are_unbiased_and_as_far_off_as_the_exact_variance() -> None:
    runs, scores = 1_000, np.array([0, 0, 1, 2, 3, 3, 1, 2, 2, 3])
    labels = np.array([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    plan = LocalPairwise.plan(auc(Field(0, 3)), 1.0)
    answers = plan.randomise_many(np.tile(scores, runs), SeededRandomnessForSimulation(2, "auc"))
    estimates = [plan.estimate(row, labels=labels) for row in answers.reshape(runs, -1)]
    values = np.array([estimate.value for estimate in estimates])
    counts = [np.bincount(scores[labels == label], minlength=4) for label in (1, 0)]
    truth = np.mean([(1 + np.sign(i - j)) / 2 for i in scores[labels == 1] for j in scores[labels == 0]])
    assert agrees(values, float(truth))
    assert agrees((values - truth) ** 2, plan.exact_response_error(*counts) ** 2)


def test_intervals_cover() -> None:
    """Rounded, 400 parties, 400 runs: at least 95 % but for 5 binomial deviations (1e-6)."""
    kernel = gini_mean_difference(Field(0, 1, 0.001))
    rounding: Rounding
    for rounding in ("simple", "randomised"):
        plan = LocalPairwise.plan(kernel, 2.0, parties=400, rounding=rounding)
        rng = np.random.default_rng(5)
        records = rng.beta(2, 3, size=400 * 400)
        truth = np.abs(np.subtract.outer(records[:2000], records[2000:4000])).mean()
        answers = plan.randomise_many(records, SeededRandomnessForSimulation(3, rounding))
        inside = 0
        for row in answers.reshape(400, 400):
            low, high = plan.estimate(row).interval
            inside += low <= truth <= high
        assert inside >= 400 * 0.95 - 5 * math.sqrt(400 * 0.95 * 0.05)


@given(
    steps=st.integers(1, 300),
    bins=st.integers(2, 300),
    seed=st.integers(0, 1000),
)
def test_simple_rounding_goes_to_the_nearest_centre(steps: int, bins: int, seed: int) -> None:
    field = Field(0, steps)
    bins = min(bins, steps + 1)
    quantiser = Quantiser((field,), (bins,))
    codes = np.arange(steps + 1)
    category = quantiser.categorise(codes[:, None], SeededRandomnessForSimulation(seed, "x"))
    sizes = np.bincount(category, minlength=bins)
    assert sizes.max() - sizes.min() <= 1
    assert np.array_equal(category, np.sort(category))
    centres = quantiser.points()[:, 0]
    for cell in range(bins):
        assert centres[cell] == codes[category == cell].mean()
    bias = quantiser.bias(gini_mean_difference(field))
    assert bias is not None
    assert 2 * np.abs(centres[category] - codes).max() <= bias


def test_randomised_rounding_is_unbiased_and_within_its_bound() -> None:
    field, runs = Field(0, 20), 40_000
    quantiser = Quantiser((field,), (4,), "randomised")
    centres = quantiser.points()[:, 0]
    assert centres.tolist() == pytest.approx([0, 20 / 3, 40 / 3, 20])
    kernel = gini_mean_difference(field)
    moved = []
    for code in range(21):
        codes = np.full((runs, 1), code)
        rounded = centres[quantiser.categorise(codes, SeededRandomnessForSimulation(code, "round"))]
        assert np.abs(rounded - code).max() < 20 / 3
        assert agrees(rounded, code) or np.all(rounded == code)
        moved.append(np.abs(rounded - code).mean())
    bias = quantiser.bias(kernel)
    assert bias is not None
    assert 2 * max(moved) <= bias * 1.01
    whole = Quantiser((field,), (21,), "randomised")
    same = whole.categorise(np.arange(21)[:, None], SeededRandomnessForSimulation(1, "whole"))
    assert same.tolist() == list(range(21))
    assert whole.bias(kernel) == 0


def test_theorem_3_4_holds() -> None:
    """Exact mean squared error, of response and rounding, below the corrected bound."""
    fine = np.arange(401) / 400
    for epsilon, n, bins in itertools.product((0.5, 1.0, 3.0), (100, 10_000), (2, 5, 20)):
        for distribution in (
            np.ones(401),
            fine**4,
            np.exp(-(((fine - 0.5) / 0.02) ** 2)),
            1.0 * (np.arange(401) == 80),
        ):
            distribution = distribution / distribution.sum()
            kernel = gini_mean_difference(Field(0, 1, 0.0025))
            plan = LocalPairwise.plan(kernel, epsilon, bins=bins)
            codes = np.arange(401)[:, None]
            category = plan.quantiser.categorise(codes, SeededRandomnessForSimulation(1, "x"))
            cells = np.bincount(category, weights=distribution, minlength=bins).astype(np.float64)
            truth = float(distribution @ np.abs(np.subtract.outer(fine, fine)) @ distribution)
            rounded = float(cells @ plan.quantiser.matrix(kernel) @ cells)
            error = plan.exact_error(cells, n) ** 2 + (rounded - truth) ** 2
            bias = plan.quantiser.bias(kernel)
            assert bias is not None
            assert error <= variance_bound(n, bins, plan.epsilon) + bias**2 * (1 + 1e-9)
            assert bias <= 1 / bins + 1e-12


def test_density_bound_holds_for_signs() -> None:
    """A kernel that is the mean of itself over cells: Gini would not be, the AUC's is."""
    points, bins, slope = 600, 5, 1.8
    field = Field(0, 1, 1 / 1024)
    centres = (np.arange(points) + 0.5) / points
    density = 1 + slope * (centres - 0.5)
    density /= density.sum()
    signs = (np.sign(np.subtract.outer(centres, centres)) + 1) / 2 * (centres[:, None] > 0.3)
    fine = float(density @ ((signs + signs.T) / 2) @ density)
    cells = density.reshape(bins, -1).sum(axis=1)
    averaged = signs.reshape(bins, points // bins, bins, points // bins).mean(axis=(1, 3))
    bias = Quantiser((field,), (bins,)).bias(auc(field), density_lipschitz=slope)
    assert bias is not None
    assert bias == pytest.approx(slope / (3 * bins))
    assert abs(float(cells @ averaged @ cells) - fine) <= bias
    # Over whole runs of the grid, the kernel at the centres is that mean.
    field = Field(0, 19)
    quantiser = Quantiser((field,), (4,))
    whole = Quantiser((field,), (20,)).matrix(auc(field))
    assert np.allclose(quantiser.matrix(auc(field)), whole.reshape(4, 5, 4, 5).mean(axis=(1, 3)))


def test_bins_follow_the_corollary() -> None:
    fine = gini_mean_difference(Field(0, 1, 2**-20))
    result = []
    for n in (10**4, 10**6, 10**8):
        (bins,) = choose_bins(fine, 0.5, n)
        result.append(bins)
        assert 0.5 < bins / corollary_bins(n, 0.5, 1.0) < 2
    assert result[1] / result[0] == pytest.approx(math.sqrt(10), rel=0.15)
    # A grid that is coarser than that is taken as it is.
    assert choose_bins(gini_mean_difference(Field(0, 3)), 0.5, 10**6) == (4,)
    assert choose_bins(kendall_tau(Field(0, 5), Field(0, 5)), 0.5) == (6, 6)
    with pytest.raises(ConfigError, match="give bins, or parties"):
        choose_bins(fine, 0.5)
    with pytest.raises(ConfigError, match="give bins"):
        choose_bins(kendall_tau(), 0.5, 100)


def test_reports_are_bytes_that_say_what_they_answer(tmp_path: Path) -> None:
    kernel = kendall_tau(Field(0, 5), Field(0, 5))
    plan = LocalPairwise.plan(kernel, 1.0)
    reports = [plan.randomise((x, 5 - x)) for x in range(6) for _ in range(50)]
    assert len({len(report) for report in reports}) == 1
    estimate = plan.estimate(reports)
    assert estimate.reports == 300
    assert estimate.privacy.delta == 0
    assert estimate.privacy.epsilon == pytest.approx(1.0, abs=1e-8)
    assert estimate.privacy.epsilon is not None
    assert estimate.privacy.epsilon <= 1.0
    assert estimate.to_json()["interval"] == list(estimate.interval)
    # The same answers serve another kernel on the same fields, and those of another budget do not.
    both = variance(Field(0, 5))
    with pytest.raises(ConfigError, match="other fields"):
        plan.estimate(reports, kernel=both)
    other = LocalPairwise.plan(kernel, 1.1)
    with pytest.raises(ConfigError, match=r"reports\[2\].*other parameters"):
        plan.estimate([*reports[:2], other.randomise((1, 1))])
    with pytest.raises(ConfigError, match=r"reports\[0\].*9 bytes, not 10"):
        plan.estimate([reports[0][:9], *reports])
    with pytest.raises(ConfigError, match=r"reports\[1\].*str"):
        plan.answers([reports[0], "x"])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="none of the 36 categories"):
        plan.answers([plan.fingerprint + b"\x00\x24"])
    with pytest.raises(ConfigError, match="at least 3"):
        plan.estimate(reports[:2])
    ledger = Ledger.create(
        tmp_path / "l", party="ann", dataset="d", relation="substitution", epsilon=1.5, delta=0
    )
    plan.randomise((1, 2), ledger=ledger, label="ratings")
    assert ledger.spent().epsilon == pytest.approx(1.0, abs=1e-8)
    with pytest.raises(PrivacyError, match="refused"):
        plan.randomise((1, 2), ledger=ledger)


def test_response_is_epsilon_private_exactly() -> None:
    """The chances of the answers are fractions, and their greatest ratio is below e^epsilon."""
    for k, epsilon in ((2, 0.05), (36, 1.0), (500, 4.0)):
        ratio = LocalPairwise.plan(collision(Field(0, k - 1)), epsilon).response.ratio
        true, lie = ratio / (ratio + k - 1), 1 / (ratio + k - 1)
        assert true + (k - 1) * lie == 1
        assert true / lie == ratio <= Fraction(math.exp(epsilon))
        # (3.8), as corrected.
        beta = ResponseDistribution.of_epsilon(k, epsilon).beta
        assert float(true) == pytest.approx(1 - beta + beta / k)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 101.0}, "epsilon"),
        ({"parties": 1}, "parties"),
        ({"bins": 0}, "bins of x"),
        ({"bins": 1}, "1 categories"),
        ({"bins": (6,)}, "1 numbers for 2 fields"),
        ({"bins": (7, 6)}, "bins of x"),
        ({"bins": "6"}, "bins"),
        ({"rounding": "up"}, "rounding"),
        ({"bins": (1, 6), "rounding": "randomised"}, "bins of x"),
        ({"density_lipschitz": -1.0}, "density_lipschitz"),
    ],
)
def test_bad_plans_are_refused(arguments: dict[str, object], named: str) -> None:
    kernel = kendall_tau(Field(0, 5, name="x"), Field(0, 5, name="y"))
    with pytest.raises(ConfigError, match=named):
        LocalPairwise.plan(kernel, **({"epsilon": 1.0} | arguments))  # type: ignore[arg-type]


def test_a_kernel_outside_of_its_range_is_caught() -> None:
    field = Field(0, 3)
    right = collision(field)
    for factor in (2.0, math.nan):

        def wrong_function(a: Floats, b: Floats, by: float = factor) -> Floats:
            return np.asarray(by * right.function(a, b))

        wrong = replace(right, function=wrong_function)
        with pytest.raises(ConfigError, match="outside of its range"):
            LocalPairwise.plan(wrong, 1.0).estimate(np.array([0, 1, 2]))


def test_bad_records_and_labels_are_refused() -> None:
    plan = LocalPairwise.plan(auc(Field(0, 3)), 1.0)
    for record in (math.nan, 4, -0.6, "x"):
        with pytest.raises(PrivacyError):
            plan.randomise(record)
    with pytest.raises(ConfigError, match="record"):
        plan.randomise([1, 2])
    answers = np.array([0, 1, 2, 3])
    for labels, reason in (
        (None, "public labels are needed"),
        ([0, 1], r"shape \(2,\)"),
        ([[0], [1, 0]], "not equally long"),
        ([0, 1, 2, 1], "0 or 1"),
        ([0, 1, math.nan, 1], "0 or 1"),
        ([1, 1, 1, 1], "all are the same"),
        ([1, 0, 0, 0], "2 are needed of each"),
    ):
        with pytest.raises(ConfigError, match=reason):
            plan.estimate(answers, labels=labels)
    with pytest.raises(ConfigError, match="no public labels"):
        LocalPairwise.plan(collision(Field(0, 3)), 1.0).estimate(answers, labels=[0, 1, 0, 1])
    for wrong in (np.array([0.5, 1, 2]), np.array([0, 1, 4]), np.array([[0, 1, 2]])):
        with pytest.raises(ConfigError, match="answers"):
            plan.estimate(wrong, labels=[0, 1, 1])
    with pytest.raises(ConfigError, match="confidence"):
        plan.estimate(answers, labels=[0, 1, 0, 1], confidence=1.0)
    private = LocalPairwise.plan(auc_private_labels(Field(0, 3)), 1.0)
    with pytest.raises(PrivacyError, match="label"):
        private.randomise((1, 0.5))


def test_the_simulation_is_the_protocol() -> None:
    """The same seed gives what parties and aggregator give with that randomness; none gives fresh reports."""
    kernel = gini_mean_difference(Field(0, 1, 0.01))
    records = np.linspace(0, 1, 500)
    first, second = (
        smpc_dp.simulate.local_pairwise(kernel, records, 2.0, bins=8, seed_for_simulation=4) for _ in range(2)
    )
    assert first == second
    plan = LocalPairwise.plan(kernel, 2.0, bins=np.int64(8))  # type: ignore[arg-type]
    answers = plan.randomise_many(records, SeededRandomnessForSimulation(4, "local pairwise"))
    assert plan.estimate(plan.reports(answers)) == first
    fresh = smpc_dp.simulate.local_pairwise(kernel, records, 2.0, bins=8)
    assert fresh.value != first.value
    named = smpc_dp.simulate.local_pairwise("kendall_tau", (range(99), range(99)), 2.0, bins=2)
    assert named.statistic == "kendall_tau"
    for unknown in ("kendall", None):
        with pytest.raises(ConfigError, match=r"kernel: .* is none of"):
            smpc_dp.simulate.local_pairwise(unknown, records, 2.0)  # type: ignore[arg-type]
    auc_of = smpc_dp.simulate.local_auc
    labels = np.arange(500) % 2
    result = [
        auc_of(Field(0, 1, 0.01), records, labels, 2.0, levels=5, seed_for_simulation=seed).value
        for seed in (1, 1, 2)
    ]
    assert result[0] == result[1] != result[2]
