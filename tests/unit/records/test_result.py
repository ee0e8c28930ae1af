"""The table of answers: what is shown, what is hidden, and what is said of the protection."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smpc_dp
from smpc_dp.cli.statistics import answer_lines
from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.asked import Statistic
from smpc_dp.records.exact import plan_tables
from smpc_dp.records.intervals import INFINITE, ErrorDistribution
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.population import Sampling, p_value
from smpc_dp.records.requests.records_task import dropped_lines, records_text
from smpc_dp.records.result import (
    HIDDEN,
    NEAR_ZERO,
    PROJECTED,
    WITHIN_NOISE,
    Answers,
    Estimate,
    estimate_lines,
    printed_names,
)
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import read_table
from smpc_dp.report.sections import statistics_section
from smpc_dp.report.table import Table
from tests.examples import examples

COLUMNS: dict[str, object] = {
    "age": {"lower": 0.0, "upper": 100.0, "step": 1.0},
    "ward": {"values": ["large", "empty"]},
}
SCHEMA = read_schema({"columns": COLUMNS, "max_rows": 5000})
ASK = ["count", "ward", "mean(age) by ward", "variance(age)"]


def planned(schema: Schema = SCHEMA, ask: Any = ASK) -> Plan:
    return plan_request(schema, ask, epsilon=1.0, delta=1e-6, parties=3, corrupt=1)


@pytest.fixture
def answers() -> Answers:
    rows = {"age": np.full(3000, 60.0), "ward": ["large"] * 3000}
    plan = planned()
    return estimate(plan, plan.vector(read_table(rows, SCHEMA)), 3)


def test_cells_and_groups_within_the_noise_are_not_shown(answers: Answers) -> None:
    large, empty = answers.of("ward")
    assert large.value == pytest.approx(3000, rel=1e-6)
    assert (empty.value, empty.note) == (None, HIDDEN)
    mean, none = answers.of("mean(age) by ward")
    assert mean.value == pytest.approx(60.0)
    assert (none.value, none.low, none.high, none.note) == (None, None, None, WITHIN_NOISE)
    plan = planned()
    shown = estimate(plan, np.zeros(plan.length, dtype=np.int64), 3, hide=0.0)
    assert shown.of("ward")[1].value == 0.0


def test_results_say_how_many_values_they_are_over(answers: Answers) -> None:
    mean, none = answers.of("mean(age) by ward")
    assert mean.over == pytest.approx(3000, rel=1e-6)
    assert none.over == 0.0
    assert answers.of("count")[0].over is None
    assert "mean(age) [ward = large]: 60 age over 3000 values; noise: standard error " in str(answers)


def test_printed_answers_have_both_errors_and_say_what_an_interval_covers() -> None:
    """The same lines in Python, by the commands and on a report's page."""
    rows = {"age": np.tile([40.0, 60.0], 1500), "ward": ["large"] * 3000}
    plan = planned(ask=["mean(age)", "variance(age)", "median(age)", "ward"])
    answers = estimate(plan, plan.vector(read_table(rows, SCHEMA)), 3, simultaneous=True)
    mean, _, median, _, empty = answers.estimates
    assert mean.standard_error is not None
    assert mean.sampling_error == pytest.approx(10 / math.sqrt(3000), rel=1e-3)
    lines = estimate_lines([one.to_json() for one in answers.estimates], exact=False)
    assert lines[0] == (
        f"mean(age): 50 age over 3000 values; noise: standard error {mean.standard_error:.3g}, "
        f"in [{mean.low:.6g}, {mean.high:.6g}]; sampling: standard error 0.183; "
        f"both: in [{mean.population_low:.6g}, {mean.population_high:.6g}]"
    )
    assert lines[2] == (
        f"quantile(age, 0.5): {median.value:.6g} age over {median.over:.6g} values; "
        f"noise: in [{median.low:.6g}, {median.high:.6g}]; "
        f"both: in [{median.population_low:.6g}, {median.population_high:.6g}]"
    )
    assert lines[4].endswith(f", in [0, {empty.high:.6g}] ({HIDDEN})")
    level = (
        "level of all intervals together: 0.95, for the noise alone; where it says both, for the noise and "
        "for rows that are independent draws from a population"
    )
    assert str(answers).splitlines()[: len(lines)] == lines
    assert level in str(answers).splitlines()
    privacy = {"epsilon": 1.0, "claim": "", "not_protected": []}
    others = {"survivors": ["a"], "absent": [], "faults": [], "residual_pairs": 0, "evidence": None}
    printed = records_text({**answers.to_json(), **others, "privacy": privacy}).splitlines()
    assert printed[1 : len(lines) + 2] == [*(f"  {line}" for line in lines), level]
    assert answer_lines(answers.to_json()) == printed[1 : len(lines) + 2]
    page = str(statistics_section(answers.to_json(), exact=False))
    assert "standard error of the noise" in page
    assert "sampling error" in page


def test_the_least_p_value_of_laplace_noise_is_printed_as_an_upper_bound() -> None:
    laplace = ErrorDistribution(1.0)
    found = [p_value(value, [(1.0, laplace)]) for value in (30.0, 100.0, 3.0)]
    assert found[:2] == [1e-10, 1e-10]
    statistic = Statistic("risk(event) by drug", "risk")
    made = [
        Estimate.of(statistic, "risk difference", "", INFINITE, value=0.5, sampled=Sampling(p_value=one))
        for one in found
    ]
    assert made[0].to_json()["p_value"] == 1e-10
    lines = estimate_lines([one.to_json() for one in made], exact=False)
    assert [line.rpartition("; ")[2] for line in lines] == ["p <= 1e-10"] * 2 + [f"p = {found[2]:.3g}"]


def test_a_table_of_groups_is_printed_as_one_and_stored_in_parts() -> None:
    """Of groups of 2,000 and 1,000 rows, one value missing in four; a third group has none."""
    columns = {
        "age": COLUMNS["age"],
        "ill": {"values": ["no", "yes"], "other": "no", "missing": False},
        "ward": {"values": ["large", "small", "empty"]},
    }
    known = read_schema({"columns": columns, "max_rows": 5000})
    rows = {
        "age": np.tile([20.0, 40.0, 60.0, np.nan], 750),
        "ill": np.tile(["no", "no", "no", "yes", "yes"], 600).tolist(),
        "ward": ["large"] * 2000 + ["small"] * 1000,
    }
    text = "table1(age, ill) by ward"
    plan = planned(known, [text, "mean(age)"])
    answers = estimate(plan, plan.vector(read_table(rows, known)), 3)
    made = [re.split(r" {2,}", line.strip()) for line in str(answers).splitlines()[:9]]
    error = answers.of("count by ward")[0].standard_error
    assert made[:3] == [
        [text],
        ["ward", "large", "small", "empty"],
        ["rows", *(f"{number} ± {error:.2g}" for number in (2000, 1000)), "- [1]"],
    ]
    assert [re.sub(r" ± [\d.]+", "", cell) for cell in made[3]] == [
        "mean of age",
        "40 (16.33)",
        # the correction for the noise of the mean
        "40 (16.34)",
        "- [2]",
    ]
    assert [[re.sub(r" ± [\d.]+", "", cell) for cell in row] for row in made[4:7]] == [
        ["age missing", "500 (25.0%)", "250 (25.0%)", "0"],
        ["ill = no", "1200 (60.0%)", "600 (60.0%)", "- [1]"],
        ["ill = yes", "800 (40.0%)", "400 (40.0%)", "- [1]"],
    ]
    assert str(answers).splitlines()[9:12] == [
        f"  [1] {HIDDEN}",
        f"  [2] {WITHIN_NOISE}",
        *estimate_lines([answers.estimates[-1].to_json()], exact=False),
    ]
    stored = [(one["statistic"], one["part_of"]) for one in answers.to_json()["estimates"]]  # type: ignore[attr-defined]
    kinds = ("count by ward", "mean(age) by ward", "variance(age) by ward", "missing(age) by ward")
    assert stored == [
        *((kind, text) for kind in kinds for _ in range(3)),
        *([("ward x ill", text)] * 6),
        ("mean(age)", ""),
    ]
    assert "count by ward,count,ward = large,2000.0" in answers.to_csv()
    _, table, _ = statistics_section(answers.to_json(), exact=False)[0].blocks
    assert isinstance(table, Table)
    assert [list(row) for row in table.rows] == made[2:7]


@pytest.mark.parametrize(
    ("of_mean", "of_variance", "cell", "notes"),
    [
        ("", NEAR_ZERO, "[1]", [f"of the variance: {NEAR_ZERO}"]),
        (NEAR_ZERO, "", "[1]", [NEAR_ZERO]),
        (PROJECTED, NEAR_ZERO, "[1] [2]", [PROJECTED, f"of the variance: {NEAR_ZERO}"]),
        (WITHIN_NOISE, WITHIN_NOISE, "[1]", [WITHIN_NOISE]),
        ("", "sampling error by normal theory", "", []),
    ],
)
def test_a_note_of_a_variance_in_a_table_of_groups_says_so(
    of_mean: str, of_variance: str, cell: str, notes: list[str]
) -> None:
    given = {"count": "", "mean(age)": of_mean, "variance(age)": of_variance}
    made = [
        Estimate.of(Statistic(name, "", part_of="table1(age)"), name, "", INFINITE, value=4.0, note=note)
        for name, note in given.items()
    ]
    lines = estimate_lines([one.to_json() for one in made], exact=False)
    assert lines[3].split(maxsplit=4) == ["mean", "of", "age", "4", f"(2) {cell}".rstrip()]
    assert [line.strip() for line in lines[5:]] == [f"[{at}] {note}" for at, note in enumerate(notes, 1)]


def test_columns_named_like_rows_of_a_table_of_groups_have_rows_of_their_own() -> None:
    columns = {"rows": COLUMNS["age"], "mean": {"values": ["rows", "b"]}, "variance": {"values": ["c"]}}
    known = read_schema({"columns": columns, "max_rows": 5000})
    plan = planned(known, "table1(rows, mean, variance)")
    rows = {"rows": [20.0, 40.0] * 1500, "mean": ["rows", "b"] * 1500, "variance": ["c"] * 3000}
    lines = str(estimate(plan, plan.vector(read_table(rows, known)), 3)).splitlines()
    made = [re.split(r" {2,}", re.sub(r" ± [\d.]+", "", line.strip())) for line in lines[2:10]]
    assert made == [
        ["rows", "3000"],
        ["mean of rows", "30 (10)"],
        ["rows missing", "0 (0.0%)"],
        ["mean = rows", "1500 (50.0%)"],
        ["mean = b", "1500 (50.0%)"],
        ["mean missing", "0 (0.0%)"],
        ["variance = c", "3000 (100.0%)"],
        ["variance missing", "0 (0.0%)"],
    ]


def test_an_exact_table_of_groups_is_printed_without_noise() -> None:
    columns = {
        "ill": {"values": ["no", "yes"], "other": "no", "missing": False},
        "ward": {"values": ["a", "b"]},
    }
    known = read_schema({"columns": columns, "max_rows": 100})
    tables = plan_tables(known, "table1(ill) by ward", 5)
    rows = {"ill": ["no"] * 30 + ["yes"] * 10, "ward": ["a"] * 20 + ["b"] * 20}
    lines = str(tables.answers(tables.vector(read_table(rows, known)), 0.95)).splitlines()
    assert [re.split(r" {2,}", line.strip()) for line in lines[1:5]] == [
        ["ward", "a", "b"],
        ["rows", "20", "20"],
        ["ill = no", "20 (100.0%)", "10 (50.0%)"],
        ["ill = yes", "0 (0.0%)", "10 (50.0%)"],
    ]
    assert "±" not in "".join(lines[1:6])


@pytest.mark.parametrize(("upper", "near"), [(20.0, True), (2.0, False)])
def test_a_variance_within_its_noise_says_that_it_is_too_large_on_average(upper: float, near: bool) -> None:
    """150 values with a variance of 0.25: what is cut at 0 has a mean above it; what is clear has not.

    Of 150 releases each mean is within 5 of its standard errors; the bias is above 6. Their spread is within
    a fifth of the stated one, 3.5 of its deviations: false alarms below 5e-4, and the seed is fixed.
    """
    rows = {"v": np.tile([0.5, 1.5], 75)}
    column = {"lower": 0.0, "upper": upper}
    known = read_schema({"columns": {"v": column}, "max_rows": 200})
    plan = plan_request(known, "variance(v)", epsilon=8.0, delta=1e-6, parties=3, corrupt=1)
    exact, source = plan.vector(read_table(rows, known)), np.random.default_rng(2)
    noise = np.rint(source.normal(0, plan.deviation(3), (150, plan.length))).astype(np.int64)
    drawn = [estimate(plan, exact + one, 3).estimates[0] for one in noise]
    values = np.array([one.value for one in drawn], dtype=np.float64)
    bias = (values.mean() - 0.25) / (values.std() / math.sqrt(150))
    assert (bias > 6) if near else (abs(bias) < 5)
    noted = [NEAR_ZERO in one.note for one in drawn]
    assert np.mean(noted) > 0.9 if near else not any(noted)
    errors = np.array([one.standard_error for one in drawn], dtype=np.float64)
    if near:
        assert values.mean() - 0.25 < 0.4 * errors.mean()
    else:
        assert values.std() == pytest.approx(errors.mean(), rel=0.2)


@pytest.mark.parametrize(("upper", "clear"), [(20.0, False), (2.0, True)])
def test_a_sampling_error_is_stated_only_of_a_variance_clear_of_its_noise(upper: float, clear: bool) -> None:
    """Of 60 releases those whose variance is called within its noise have none; the others are near it."""
    rows = {"v": np.tile([0.5, 1.5], 75)}
    known = read_schema({"columns": {"v": {"lower": 0.0, "upper": upper}}, "max_rows": 200})
    plan = plan_request(known, ["mean(v)", "variance(v)"], epsilon=12.0, delta=1e-6, parties=3, corrupt=1)
    exact, source = plan.vector(read_table(rows, known)), np.random.default_rng(2)
    noise = np.rint(source.normal(0, plan.deviation(3), (60, plan.length))).astype(np.int64)
    drawn = [estimate(plan, exact + one, 3).estimates for one in noise]
    assert all((mean.sampling_error is None) == (NEAR_ZERO in variance.note) for mean, variance in drawn)
    stated = [mean.sampling_error for mean, _ in drawn if mean.sampling_error is not None]
    assert len(stated) == 60 if clear else len(stated) < 15
    if clear:
        assert np.median(stated) == pytest.approx(0.5 / math.sqrt(150), rel=0.2)


@pytest.mark.parametrize(("large", "clear"), [(2900, True), (3000, False)])
def test_a_cell_of_all_rows_but_few_has_no_sampling_error(large: int, clear: bool) -> None:
    plan = planned(ask=["ward"])
    rows = {"age": [50.0] * 3000, "ward": ["large"] * large + ["empty"] * (3000 - large)}
    exact = plan.vector(read_table(rows, SCHEMA))
    exact[-1] += round(plan.deviation(3))
    first = estimate(plan, exact, 3).estimates[0]
    assert (first.sampling_error is not None) == clear


def test_quantiles_of_tied_values_have_an_interval_and_no_standard_error() -> None:
    """Half of the rows at 20, half at 80: the median is 20, its estimate jumps, its interval has both."""
    plan = planned(ask=["quantile(age, .5, .9)"])
    rows = {"age": [20.0] * 1500 + [80.0] * 1500, "ward": ["large"] * 3000}
    exact = plan.vector(read_table(rows, SCHEMA))
    source = NoiseSource.keyed(bytes(32), b"ties")
    inside = 0
    for _ in range(200):
        noise = plan.mechanism.share.noise(source, 3 * plan.length).reshape(3, -1).sum(axis=0)
        median, upper = estimate(plan, exact + noise, 3).estimates
        assert median.standard_error is upper.standard_error is None
        assert median.over == pytest.approx(3000, abs=600)
        inside += (median.low or 0.0) <= 20 <= (median.high or 0.0)
    # of level 0.95: fewer than 180 of 200 with a chance of 2e-3
    assert inside >= 180


@pytest.mark.parametrize("split", ["range", "balanced"])
def test_what_cannot_be_negative_is_cut_at_0_with_its_interval(split: Any) -> None:
    """Noise of 1 and of 40 deviations below an empty table; only sums of both signs stay negative."""
    columns = {
        "age": COLUMNS["age"],
        "debt": {"lower": -9.0, "upper": -1.0},
        "gain": {"lower": -1, "upper": 2},
    }
    schema = read_schema({"columns": columns, "max_rows": 5000})
    ask = ["count", "sum(age)", "sum(debt)", "sum(gain)"]
    plan = plan_request(schema, ask, epsilon=1.0, delta=1e-6, parties=3, split=split, laplace=True)
    for deviations in (1.0, 40.0):
        down = np.full(plan.length, -round(deviations * math.sqrt(3 * plan.variance)), dtype=np.int64)
        count, age, debt, gain = estimate(plan, down, 3).estimates
        for one in (count, age):
            assert (one.value, one.low, one.note) == (0.0, 0.0, PROJECTED)
            assert (one.high or 0.0) > 0 if deviations < 2 else one.high == 0.0
        assert (debt.value or 0.0) > -1e9
        assert debt.high is not None
        assert debt.high <= 0.0
        assert (gain.value or 0.0) < 0
        assert (gain.low or 0.0) < (gain.value or 0.0)
        _, _, debt, _ = estimate(plan, -down, 3).estimates
        assert debt.value is not None
        assert debt.value <= 0.0


@pytest.mark.parametrize("split", ["range", "balanced"])
def test_quantiles_grow_with_their_level_whatever_the_noise(split: Any) -> None:
    levels = [0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.98]
    ask = [f"quantile(age, {', '.join(map(str, levels))})"]
    plan = plan_request(SCHEMA, ask, epsilon=0.5, delta=1e-6, parties=3, split=split, laplace=True)
    assert (plan.laplace is not None) == (split == "balanced")
    rows = {"age": [20.0] * 100 + [80.0] * 200, "ward": ["large"] * 300}
    exact, share = plan.vector(read_table(rows, SCHEMA)), plan.mechanism.share
    source, falling = NoiseSource.keyed(bytes(32), b"levels"), 0
    for _ in range(20):
        noise = share.noise(source, 3 * plan.length).reshape(3, -1).sum(axis=0)
        values = [one.value or 0.0 for one in estimate(plan, exact + noise, 3, hide=0.0).estimates]
        assert values == sorted(values)
        finest = exact[: plan.blocks[0].block.cells] + noise[: plan.blocks[0].block.cells]
        falling += bool((finest < 0).any())
    assert falling == 20, "no count below 0, which would make ranks fall"


@pytest.mark.parametrize(("rows", "missing"), [("public", False), ("public", True), ("private", False)])
def test_rows_that_do_not_count_for_their_person_are_said_to_be_the_middle_where_they_are(
    rows: str, missing: bool
) -> None:
    """In the mean and the sum of a column without missing values, over a public number of rows alone."""
    given = {"unit": "person", "id": "who", "rows_per_person": 1, "parties_per_person": 1}
    column = {"lower": 0.0, "upper": 1.0, "missing": missing}
    schema = read_schema({"columns": {"v": column}, "max_rows": 3000, "rows": rows, **given})
    values, people = np.full(3000, 0.1), np.arange(3000)
    table = read_table({"v": values, "who": np.where(people % 3, people, 0)}, schema)
    plan = plan_request(schema, ["mean(v)", "sum(v)"], epsilon=100.0, delta=1e-6, parties=2)
    answers = estimate(plan, plan.vector(table), 2, rows=3000 if rows == "public" else None)
    filled = rows == "public" and not missing
    mean, total = (one.value for one in answers.estimates)
    assert mean == pytest.approx(0.1 + 0.4 * 999 / 3000 if filled else 0.1, abs=1e-3)
    assert total == pytest.approx(200.1 + (0.5 * 999 if filled else 0.0), abs=1.0)
    told = [line for line in answers.not_protected if "take them as the middle of v" in line]
    assert len(told) == filled
    assert any("999 rows" in line and ("the middle of v" in line) == filled for line in dropped_lines(table))


def test_each_noisy_margin_is_of_the_rows_that_have_its_columns() -> None:
    """Each table has cells of its own; without noise, to within the half step that a sum may be rounded."""
    source = np.random.default_rng(1)
    ward = source.choice(np.array(["large", "empty", None], dtype=object), 900)
    age = np.where(source.random(900) < 0.2, np.nan, source.uniform(0, 100, 900))
    binned = {"lower": 0.0, "upper": 100.0, "step": 1.0, "bins": [50.0]}
    known = read_schema({"columns": {**COLUMNS, "age": binned}, "max_rows": 900})
    plan = planned(known, ["count", "ward", "age", "ward x age", "mean(age) by ward"])
    answers = estimate(plan, plan.vector(read_table({"age": age, "ward": ward}, known)), 3, hide=0.0)
    placed, aged, old = np.array([one is not None for one in ward]), ~np.isnan(age), age >= 49.5
    (count,) = answers.of("count")
    assert count.value == pytest.approx(900, abs=0.5)
    for text, rows in (("ward", placed), ("age", aged), ("ward x age", placed & aged)):
        for one in answers.of(text):
            inside = rows & ((ward == one.cell["ward"]) if "ward" in one.cell else True)
            inside = inside & ((old == one.cell["age"].startswith("[50")) if "age" in one.cell else True)
            assert one.value == pytest.approx(int(inside.sum()), abs=0.5)
    for one in answers.of("mean(age) by ward"):
        assert one.over == pytest.approx((aged & (ward == one.cell["ward"])).sum(), abs=0.5)


@pytest.mark.parametrize("rows", ["private", "public"])
def test_quantiles_are_over_the_rows_that_count_of_each_person(rows: str) -> None:
    """Also where a public number of rows has further ones, which are in no bin. Exact but for a bin."""
    given = {"unit": "person", "id": "who", "rows_per_person": 1, "parties_per_person": 1}
    column = {"lower": 0.0, "upper": 1.0, "missing": False}
    schema = read_schema({"columns": {"v": column}, "max_rows": 3000, "rows": rows, **given})
    values, people = np.linspace(0.0, 0.2, 3000), np.arange(3000)
    table = read_table({"v": values, "who": np.where(people % 3, people, 0)}, schema)
    plan = plan_request(schema, "quantile(v, 0.9)", epsilon=100.0, delta=1e-6, parties=2)
    (one,) = estimate(plan, plan.vector(table), 2, rows=3000 if rows == "public" else None).estimates
    assert one.value == pytest.approx(np.quantile(values[table.counted], 0.9), abs=1 / 256)
    assert one.over == pytest.approx(2001)


def test_a_variance_below_zero_is_projected_with_a_note(answers: Answers) -> None:
    (variance,) = answers.of("variance(age)")
    assert variance.value is not None
    assert variance.value >= 0
    plan = planned()
    total = plan.vector(read_table({"age": np.full(3000, 60.0), "ward": ["large"] * 3000}, SCHEMA))
    index = next(plan.offsets[one.block][0] for one in plan.blocks if len(one.block.powers) == 2)
    total[index] -= round(6 * plan.deviation(3))
    (variance,) = estimate(plan, total, 3).of("variance(age)")
    assert (variance.value, variance.low) == (0.0, 0.0)
    assert "projected" in variance.note


def test_json_csv_and_text_have_all_estimates(answers: Answers) -> None:
    plain = json.loads(json.dumps(answers.to_json()))
    assert len(plain["estimates"]) == len(answers.estimates) == 6
    assert plain["guarantee"]["protects"] == plain["unit"] == "record"
    rows = list(csv.DictReader(io.StringIO(answers.to_csv())))
    assert [row["name"] for row in rows] == [one.name for one in answers.estimates]
    assert rows[1]["cell"] == "ward = large"
    text = str(answers)
    assert "(1, 1e-06)-differential privacy for each record (add-remove)" in text
    assert "not protected: one record is protected, not all records of one person" in text


def test_a_pandas_table_needs_the_extra(answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(LocalError, match=r"pandas is not installed: install smpc-dp\[tables\]"):
        answers.to_pandas()


def test_results_of_persons_say_so() -> None:
    person = {"unit": "person", "id": "who", "rows_per_person": 2, "parties_per_person": 3}
    schema = {"columns": COLUMNS, "max_rows": 50, **person}
    table = {"age": [1.0, 2.0, 3.0], "ward": ["large"] * 3, "who": ["a", "a", "a"]}
    answers = smpc_dp.simulate.statistics(
        [table] * 3, "count", schema=schema, epsilon=1.0, delta=1e-6, corrupt=0.0, seed_for_simulation=1
    )
    assert answers.guarantee is not None
    assert answers.unit == answers.guarantee.protects == "person"
    assert "that a person is in at most 3 parties is declared, not checked" in answers.not_protected
    assert not any("one record is protected" in line for line in answers.not_protected)


@pytest.mark.parametrize(
    ("change", "part"), [({"level": 1.0}, "level"), ({"hide": -1.0}, "level"), ({"rows": 3}, "rows")]
)
def test_what_cannot_be_shown_is_refused(change: dict[str, Any], part: str) -> None:
    plan = planned()
    with pytest.raises(ConfigError, match=part):
        estimate(plan, np.zeros(plan.length, dtype=np.int64), 3, **change)
    with pytest.raises(ConfigError, match="shape must be"):
        estimate(plan, np.zeros(plan.length + 1, dtype=np.int64), 3)


WIDE = planned(ask=[*ASK, "quantile(age, .1, .9)", "heterogeneity(age)", "sum(age) by ward"])
TOKENS = [
    "mean",
    "age",
    "ward",
    "(",
    ")",
    ",",
    "x",
    "by",
    "~",
    "+",
    "[",
    "]",
    "3",
    "-1e999",
    ".5",
    "count",
    "é",
    ";",
]


@given(st.lists(st.sampled_from(TOKENS), max_size=8).map(" ".join) | st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        statistics = read_ask(text, SCHEMA)
    except ConfigError:
        return
    assert statistics


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(-(1 << 61), 1 << 61), min_size=1))
def test_any_total_has_answers(values: list[int]) -> None:
    """Whatever the sum is, no answer raises, and intervals have their ends in order."""
    plan = WIDE
    total = np.resize(np.array(values, dtype=np.int64), plan.length)
    for one in estimate(plan, total, 3).estimates:
        assert one.low is None or one.high is None or one.low <= one.high


# Questions of which several have numbers of one name, or numbers whose names are no question.
ALIKE = (
    *(
        "count",
        "ward",
        "count by ward",
        "variance(a)",
        "variance(a, robust)",
        "variance(a) by ward where b > 5",
    ),
    *("variance(a, robust) by ward where b > 5", "correlation(a, b)", "correlation(a, b, c)"),
    *("correlation(a, b, robust)", "covariance(a, b)", "covariance(a, b, c)", "covariance(a, b, robust)"),
    *(
        "regression(a ~ b)",
        "regression(a ~ b + c)",
        "regression(a ~ b) by ward",
        "regression(a ~ b) where c > 2",
    ),
    *("cox(t, ill ~ ward)", "cox_efron(t, ill ~ ward)", "cox_breslow(t, ill ~ ward)"),
    *("cox(t, ill ~ ward) by sex", "logrank(t, ill) by ward", "logrank(t, ill) by ward x sex"),
    *("survival(t, ill)", "survival(t, ill) by ward", "chi_square(ward, sex)", "chi_square(sex, ward)"),
    *("risk(ill) by ward", "risk(ill) by sex", "risk(ill) by ward where a > 3", "difference(a) by ward"),
    *("difference(a) by sex", "quantile(a, 0.5)", "median(a)", "heterogeneity(a)", "heterogeneity(b)"),
    *("histogram(a, 4)", "histogram(a, [5])", "mean(a)", "table1(a, ward) by sex", "ward x sex"),
)


@pytest.fixture(scope="module")
def alike() -> Answers:
    numbers = {name: {"lower": 0, "upper": 10} for name in "abc"}
    columns = {
        **numbers,
        "ill": {"lower": 0, "upper": 1, "step": 1},
        "t": {"lower": 0, "upper": 10, "bins": [2, 5]},
        "ward": {"values": ["p", "q"]},
        "sex": {"values": ["f", "m"]},
    }
    schema = read_schema({"columns": columns, "max_rows": 2000, "rows_expected": 1000})
    rng = np.random.default_rng(4)
    rows = {name: rng.uniform(0, 10, 1000) for name in "abct"} | {"ill": rng.integers(0, 2, 1000) * 1.0}
    rows |= {"ward": rng.choice(["p", "q"], 1000), "sex": rng.choice(["f", "m"], 1000)}
    plan = plan_request(schema, ALIKE, epsilon=50.0, delta=1e-6, parties=1)
    return estimate(plan, plan.vector(read_table(rows, schema)), 1)


def test_each_printed_name_tells_one_question(alike: Answers) -> None:
    numbers = [one.to_json() for one in alike.estimates]
    names = printed_names(numbers)
    assert len({*names}) == len(names)
    assert len({(one["statistic"], one["name"], str(one["cell"])) for one in numbers}) == len(numbers)
    assert {
        "variance(a)",
        "variance(a, robust)",
        "variance(a, robust) where b > 5 [ward = p]",
        "correlation(a, b)",
        "correlation(a, b, c): correlation(a, b)",
        "correlation(a, c)",
        "covariance(a, a, robust)",
        "regression(a ~ b + c): slope of b",
        "regression(a ~ b) where c > 2: intercept",
        "regression(a ~ b) by ward: slope of b [ward = p]",
        "cox(t, ill ~ ward): log hazard ratio to ward = p [ward = q]",
        "cox_efron(t, ill ~ ward): log hazard ratio to ward = p [ward = q]",
        "chi_square(sex, ward): chi-square, noise included",
        "count [ward = p]",
        "ward: count [ward = p]",
        "median(a): quantile(a, 0.5)",
    } <= {*names}
    robust = [one.name for one in alike.estimates if "robust" in one.statistic]
    assert robust
    assert all("robust" in name for name in robust)


def test_lines_have_the_printed_names(alike: Answers) -> None:
    numbers = [one.to_json() for one in alike.estimates]
    named = zip(printed_names(numbers), numbers, strict=True)
    lines = str(alike).splitlines()
    for name, one in named:
        assert one["part_of"] or any(line.startswith(f"{name}: ") for line in lines)


def test_printed_names_of_robust_errors_have_no_numbers_but_where_these_tell_them_apart() -> None:
    def numbers(*texts: str) -> list[str]:
        return printed_names(
            [{"statistic": text, "name": "slope of b", "cell": {}, "part_of": ""} for text in texts]
        )

    one, other = (f"sandwich(a ~ b + b:c, [{each}, 1e-05], [0.5], [0.1, 0], 4, 123)" for each in (-1, 2))
    assert numbers(one) == ["sandwich(a ~ b + b:c): slope of b"]
    assert numbers(one, f"{one} where c = 'x, [y], 3)'") == [
        "sandwich(a ~ b + b:c): slope of b",
        "sandwich(a ~ b + b:c) where c = 'x, [y], 3)': slope of b",
    ]
    assert numbers(one, other) == [f"{one}: slope of b", f"{other}: slope of b"]
