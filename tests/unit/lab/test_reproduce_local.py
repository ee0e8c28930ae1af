"""`smpc-dp reproduce kendall-tripadvisor` and `auc`: measured as calculated, and bounds hold."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from smpc_dp.capabilities.pairs.kernels import Field, gini_mean_difference, kendall_tau
from smpc_dp.cli import app
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.local_pairwise import published_variance_bound
from smpc_dp.privacy.pairwise_plan import plan_pairwise
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp_lab.bench import kendall, local_auc
from smpc_dp_lab.bench.ideal_pairs import noisy_mean, noisy_mean_variance


def test_numbers_of_the_figure() -> None:
    """n = 246,000, a kernel in [0, 1], zeta_2 = 1/4: one pair each, and Theorem 3.3's bound for 36 values."""
    for epsilon, two_party, local in ((0.5, 0.0082, 0.115), (1.0, 0.0043, 0.044), (2.0, 0.0025, 0.0134)):
        plan = plan_pairwise(246_000, epsilon, 0.0, 0.25, partners=1)
        assert math.sqrt(plan.mean_squared_error) == pytest.approx(two_party, rel=0.02)
        assert math.sqrt(published_variance_bound(246_000, 36, epsilon)) == pytest.approx(local, rel=0.01)


def test_measured_errors_are_the_calculated_ones() -> None:
    """12 root mean squares of 60 runs, within 5 deviations: a right program fails with chance 1e-5."""
    result = kendall.kendall_errors(parties=2_000, epsilons=(1.0, 3.0, 8.0), repetitions=60)
    measured = [point for point in result.points if point.measured is not None]
    assert len(measured) == 12
    for point in measured:
        assert point.measured is not None
        assert abs(point.measured / point.exact - 1) < 5 / math.sqrt(2 * result.repetitions)
        assert point.exact <= point.bound
    assert result.ranks["1"][0] == "two-party"
    assert set(result.ranks["1"]) == {"two-party", "local", "naive, advanced", "naive, optimal"}
    distribution = kendall.ratings_distribution()
    assert distribution.sum() == pytest.approx(1)
    assert (distribution > 0).all()


def test_ideal_functionality_is_unbiased_with_its_variance() -> None:
    """Discrete noise, 3 kernels and P, 1,500 runs; 5 standard errors: a right program fails with 4e-6."""
    rng = np.random.default_rng(8)
    for kernel, partners, epsilon in (
        (kendall_tau(Field(0, 2), Field(0, 2)), 1, 4.0),
        (gini_mean_difference(Field(0, 4)), 2, 1.0),
        (kendall_tau(Field(0, 1), Field(0, 1)), 4, 9.0),
    ):
        source = NoiseSource.keyed(bytes([partners]) * 32)
        grids = [np.arange(field.steps + 1) for field in kernel.fields]
        domain = np.stack([axis.ravel() for axis in np.meshgrid(*grids, indexing="ij")], axis=-1)
        distribution = rng.dirichlet(np.ones(len(domain)))
        matrix = np.array([kernel.function(point, domain) for point in domain], dtype=np.float64)
        truth = float(distribution @ matrix @ distribution)
        zeta_1 = float(distribution @ (matrix @ distribution) ** 2) - truth**2
        zeta_2 = float(distribution @ matrix**2 @ distribution) - truth**2
        values = np.empty(1_500)
        for run in range(len(values)):
            codes = domain[rng.choice(len(domain), p=distribution, size=10)]
            matchings = np.stack([rng.permutation(10) for _ in range(partners)])
            values[run] = noisy_mean(kernel, codes, matchings, epsilon, source)
        errors = (values - truth) ** 2
        variance = noisy_mean_variance(kernel, 10, epsilon, partners, zeta_1, zeta_2)
        assert abs(values.mean() - truth) < 5 * values.std() / math.sqrt(len(values))
        assert abs(errors.mean() - variance) < 5 * errors.std() / math.sqrt(len(errors))
        assert abs(errors.mean() - variance / 2) > 5 * errors.std() / math.sqrt(len(errors))


@pytest.mark.long
def test_errors_of_the_auc_are_the_calculated_ones_and_below_the_bound() -> None:
    """The generic ones within 5 deviations of 60 runs; a threshold improves the others."""
    result = local_auc.auc_errors(
        positives=400, negatives=3_000, epsilons=(2.0,), bins=(2, 8, 32), levels=(1, 4, 8), repetitions=60
    )
    for point in result.of("generic", 2.0):
        assert point.exact is not None
        assert abs(point.rms / point.exact - 1) < 5 / math.sqrt(2 * result.repetitions)
    for point in result.of("hierarchical", 2.0):
        assert point.bound is not None
        assert point.exact is not None
        assert point.rms < point.bound
        assert point.rms < point.exact * (1 + 5 / math.sqrt(2 * result.repetitions))
    scores, labels = local_auc.synthetic_scores(50, 60, 4.0, 1)
    pairs = scores[labels == 1][:, None] > scores[labels == 0]
    exact = local_auc.auc_errors(
        positives=50, negatives=60, epsilons=(1.0,), bins=(2,), levels=(1,), repetitions=2
    ).auc
    assert exact == pytest.approx(pairs.mean(), abs=1e-3)


FEW = ["--bins", "2", "--bins", "4", "--levels", "1", "--levels", "3"]


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["kendall-tripadvisor", "--parties", "100", "--repetitions", "2"], "local / two-party"),
        (["auc", "--positives", "20", "--negatives", "30", "--repetitions", "2", *FEW], "Theorem 3.5"),
    ],
)
def test_commands_print_numbers_and_draw(arguments: list[str], shown: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plot.png"
    common = ["reproduce", *arguments, "--epsilon", "1", "--epsilon", "4", "--plot"]
    reported = CliRunner().invoke(app, [*common, str(path), "--json"])
    assert reported.exit_code == 0, reported.output
    read = json.loads(reported.stdout)
    assert read["plot"] == str(path)
    assert {point["epsilon"] for point in read["points"]} == {1.0, 4.0}
    assert path.read_bytes().startswith(b"\x89PNG")
    table = CliRunner().invoke(app, [*common, str(tmp_path / "plot.svg")])
    assert shown in table.output
    assert "<svg" in (tmp_path / "plot.svg").read_text("utf-8")


def test_bad_requests_are_named() -> None:
    for parties in (9, 8, 11):
        with pytest.raises(ConfigError, match="parties"):
            kendall.kendall_errors(parties=parties)
    with pytest.raises(ConfigError, match="repetitions"):
        kendall.kendall_errors(repetitions=1)
    with pytest.raises(ConfigError, match="epsilon"):
        kendall.kendall_errors(parties=10, epsilons=(0.0,), repetitions=2)
    with pytest.raises(ConfigError, match="epsilon"):
        kendall.kendall_errors(parties=10, epsilons=())
    with pytest.raises(ConfigError, match="positives"):
        local_auc.auc_errors(positives=1)
    with pytest.raises(ConfigError, match="repetitions"):
        local_auc.auc_errors(repetitions=0)
