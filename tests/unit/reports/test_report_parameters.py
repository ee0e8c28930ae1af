"""The `[parameters]` of local reports: every fault, the planned error, what may be missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.pairs.kernels import Field, gini_mean_difference
from smpc_dp.capabilities.reports.local import LocalPairwise
from smpc_dp.capabilities.reports.local_auc import LocalAuc
from smpc_dp.capabilities.reports.report_parameters import ReportParameters, check_reports
from smpc_dp.errors import ConfigCheck

GINI: dict[str, Any] = {"kernel": "gini", "epsilon": 4.0, "fields": [{"lower": 0, "upper": 5}]}
AUC: dict[str, Any] = {
    "kernel": "auc",
    "epsilon": 4.0,
    "levels": 3,
    "fields": [{"lower": 0, "upper": 7}],
    "labels": [0, 1, 0, 1, 1],
}


def checked(given: dict[str, Any], parties: int = 5) -> ReportParameters:
    parameters, issues = check_reports({k: v for k, v in given.items() if v is not None}, parties)
    assert isinstance(parameters, ReportParameters), issues
    return parameters


@pytest.mark.parametrize(
    ("given", "where", "check"),
    [
        ({**GINI, "fields": []}, "fields", ConfigCheck.MISSING),
        ({**GINI, "fields": [{"lower": 5, "upper": 0}]}, "fields[0].high", ConfigCheck.RANGE),
        ({**GINI, "fields": [{"lower": 0}]}, "fields", ConfigCheck.RANGE),
        ({**GINI, "epsilon": 0}, "epsilon", ConfigCheck.RANGE),
        ({**GINI, "delta": 0.1}, "delta", ConfigCheck.UNKNOWN_KEY),
        ({**GINI, "kernel": "medians"}, "kernel", ConfigCheck.CHOICE),
        ({**GINI, "label": "a\nb"}, "label", ConfigCheck.FORMAT),
        ({**GINI, "labels": [0, 1, 0, 1, 1]}, "labels", ConfigCheck.UNSUPPORTED),
        ({**GINI, "levels": 3}, "levels", ConfigCheck.CONFLICT),
        ({**GINI, "max_standard_error": 0.2}, "max_standard_error", ConfigCheck.INFEASIBLE),
        ({**AUC, "labels": [0, 1]}, "labels", ConfigCheck.SHAPE),
        ({**AUC, "labels": [1] * 5}, "labels", ConfigCheck.RANGE),
        ({**AUC, "labels": None}, "labels", ConfigCheck.MISSING),
        ({**AUC, "levels": 4}, "levels", ConfigCheck.RANGE),
        ({**AUC, "bins": [3]}, "levels", ConfigCheck.CONFLICT),
    ],
)
def test_a_fault_is_named(given: dict[str, Any], where: str, check: ConfigCheck) -> None:
    parameters, issues = check_reports({k: v for k, v in given.items() if v is not None}, 5)
    assert parameters is None
    assert [(one.where, one.check) for one in issues] == [(where, check)]


def test_the_planned_error_is_that_of_the_estimate() -> None:
    """Against the spread of simulated estimates, coins too; false alarm below 1e-6: five deviations."""
    runs = 120
    rng = np.random.default_rng(3)
    # Each label has each score equally often.
    labels, scores = np.repeat([0, 1], 200), np.tile(np.arange(8), 50)
    plan = checked({**AUC, "labels": labels.tolist()}, 400)
    tree = plan.plan
    assert isinstance(tree, LocalAuc)
    values = []
    for _ in range(runs):
        numbers = rng.choice(1 << 30, 400, replace=False)
        answers = tree.randomise_many(scores, numbers, rng)
        values.append(tree.estimate(answers, labels, parties=numbers, threshold=0.0).value)
    assert np.std(values) == pytest.approx(plan.error()[0], rel=5 / np.sqrt(2 * runs))
    flat = checked({**AUC, "labels": labels.tolist(), "levels": None, "bins": [8]}, 400)
    pairs = flat.plan
    assert isinstance(pairs, LocalPairwise)
    values = [pairs.estimate(pairs.randomise_many(scores, rng), labels=labels).value for _ in range(runs)]
    assert np.std(values) == pytest.approx(flat.error()[0], rel=5 / np.sqrt(2 * runs))


def test_a_kernel_without_labels_has_a_proven_bound() -> None:
    parameters = checked(GINI, 100)
    made = LocalPairwise.plan(gini_mean_difference(Field(0, 5)), 4.0, parties=100)
    answers = made.randomise_many(np.arange(100) % 6)
    assert parameters.error()[0] == made.estimate(answers).standard_error_bound


def test_what_may_be_missing_leaves_enough_of_each_label() -> None:
    assert checked(GINI).tolerated == (5, 2, 4)
    assert checked(AUC).tolerated == (5, 1, 4)
