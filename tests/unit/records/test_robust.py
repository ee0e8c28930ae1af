"""Robust sampling errors of second moments by fourth ones.

In simulations rows and noise are drawn anew each time. Seeds are fixed.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from smpc_dp.errors import ConfigError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import estimate
from smpc_dp.records.ask import read_ask
from smpc_dp.records.features import Block, selector
from smpc_dp.records.fourth import ROBUST_COSTS, UNCLEAR
from smpc_dp.records.plan import plan_request
from smpc_dp.records.population import NORMAL_THEORY
from smpc_dp.records.result import Answers
from smpc_dp.records.schema import Schema, read_schema
from smpc_dp.records.table import read_table

Rows = dict[str, NDArray[Any]]
COLUMNS: dict[str, Any] = {
    "x": {"lower": 0.0, "upper": 10.0},
    "y": {"lower": -20.0, "upper": 60.0},
    "arm": {"values": ["old", "new"]},
}


def schema_of(**more: Any) -> Schema:
    return read_schema({"columns": COLUMNS, "max_rows": 50_000, **more})


def rows_with(rng: np.random.Generator, size: int, tail: float = 5.0) -> Rows:
    """Return rows with heavy tails, whose residuals are the larger the farther x is from its middle."""
    x = rng.uniform(0, 10, size)
    arm = rng.random(size) < 0.3
    scale = (0.4 + 0.5 * np.abs(x - 5)) * np.where(arm, 1.5, 1.0)
    residual = scale * rng.standard_t(tail, size) * math.sqrt((tail - 2) / tail)
    return {"x": x, "y": 5 + 2 * x - 3 * arm + residual, "arm": np.where(arm, "new", "old")}


@pytest.mark.parametrize(
    ("text", "kind", "columns"),
    [
        ("variance(x, robust)", "robust variance", ("x",)),
        ("correlation(x, y, robust)", "robust correlation", ("x", "y")),
        ("covariance(x, y, robust) by arm", "robust covariance", ("x", "y")),
        ("variance(x)", "variance", ("x",)),
    ],
)
def test_the_last_argument_asks_for_robust_errors(text: str, kind: str, columns: tuple[str, ...]) -> None:
    (one,) = read_ask(text, schema_of())
    assert (one.kind, one.columns, one.text) == (kind, columns, text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mean(x, robust)", "mean has no robust errors: variance, covariance and correlation have"),
        ("regression(y ~ x + arm, robust)", "regression has no robust errors"),
        ("regression(y ~ x, robust) by arm", "regression has no robust errors"),
        ("logistic(y ~ x, robust)", "logistic has no robust errors"),
        ("variance(x, sturdy)", "robust is expected"),
        ("correlation(x, robust)", "robust"),
        ("variance(x, robust, robust)", "is expected"),
        ("robust variance(x)", "not expected"),
    ],
)
def test_other_last_arguments_are_refused(text: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        read_ask(text, schema_of())


def test_a_column_of_that_name_makes_the_last_argument_ambiguous() -> None:
    schema = read_schema({"columns": {**COLUMNS, "robust": COLUMNS["x"]}, "max_rows": 10})
    assert read_ask("correlation(x, robust)", schema)[0].kind == "correlation"
    with pytest.raises(ConfigError, match="call the column otherwise"):
        read_ask("correlation(x, y, robust)", schema)


def test_sums_of_fourth_degree_are_exact() -> None:
    rng = np.random.default_rng(4)
    schema = schema_of()
    table = read_table(rows_with(rng, 20_000), schema)
    x, y = ([int(value) for value in table.codes[name]] for name in ("x", "y"))
    assert max(map(abs, x)) ** 4 > 1 << 90
    for powers in (("x",) * 4, ("x",) * 3, ("x", "x", "y"), ("x", "y", "y", "y"), ("x", "x", "y", "y")):
        values = [math.prod((x, y)[name == "y"][row] for name in powers) for row in range(len(x))]
        assert Block(powers, ("x", "y")).sums(table) == [sum(values)]
        by_arm = [0, 0]
        for value, arm in zip(values, table.codes["arm"], strict=True):
            by_arm[int(arm)] += value
        assert Block(powers, ("x", "y"), (selector(schema, "arm"),)).sums(table) == by_arm


def truth_of(name: str, rows: Rows) -> tuple[float, float]:
    """Return a moment of rows, and its standard error from the influence of each row."""
    x, y = rows["x"] - rows["x"].mean(), rows["y"] - rows["y"].mean()
    if name.startswith("variance"):
        return float((x**2).mean()), float((x**2).std() / math.sqrt(len(x)))
    if name.startswith("covariance"):
        return float((x * y).mean()), float((x * y).std() / math.sqrt(len(x)))
    u, v = x / x.std(), y / y.std()
    value = float((u * v).mean())
    return value, float((u * v - value / 2 * (u**2 + v**2)).std() / math.sqrt(len(x)))


def released(
    text: str, rows: Rows, epsilon: float, source: NoiseSource | None, *, schema: Schema | None = None
) -> Answers:
    """Return answers from rows of one party, with the noise of one share, or by chance with none at all."""
    schema = schema or schema_of()
    plan = plan_of(text, epsilon, schema.rows)
    total = plan.vector(read_table(rows, schema))
    total = total + (0 if source is None else plan.mechanism.share.noise(source, plan.length))
    public = len(rows["x"]) if schema.rows == "public" else None
    return estimate(plan, total, 1, rows=public)


@functools.cache
def plan_of(text: str, epsilon: float, rows: str) -> Any:
    return plan_request(schema_of(rows=rows), text, epsilon=epsilon, delta=1e-6, parties=1)


@pytest.mark.parametrize("name", ["variance(x)", "covariance(x, y)", "correlation(x, y)"])
def test_no_noise_gives_the_error_of_the_rows_own_influences(name: str) -> None:
    rows = heavy(np.random.default_rng(1), 5000)
    rows["x"] = rows["x"] ** 2 / 10
    named = name.replace(")", ", robust)")
    answers = released(named, rows, 100.0, None)
    found = next(one for one in answers.estimates if one.name == named)
    value, error = truth_of(name, rows)
    assert found.value == pytest.approx(value, rel=1e-3)
    assert found.sampling_error == pytest.approx(error, rel=1e-3)
    assert NORMAL_THEORY not in found.note
    assert found.population_low is not None
    assert found.population_high is not None
    half = (found.population_high - found.population_low) / 2
    assert half == pytest.approx(1.96 * error, rel=0.02)
    (plain,) = [one for one in released(name, rows, 100.0, None).estimates if one.name == name]
    assert abs(plain.sampling_error / error - 1) > 0.05  # type: ignore[operator]
    if name.startswith("correlation"):
        assert found.p_value is not None


@pytest.mark.parametrize("rows", ["private", "public"])
@pytest.mark.parametrize("text", ["variance(x)", "covariance(x, y) by arm", "correlation(x, y) where x > 2"])
def test_the_planned_error_is_that_of_the_value(text: str, rows: str) -> None:
    """At the noise of the request it is that of the same sums without robust errors, and no price is said."""
    schema = schema_of(rows=rows, **({"rows_expected": 5000} if rows == "private" else {}))
    robust_plan, alone = (
        plan_request(schema, asked, epsilon=1.0, delta=1e-6, parties=1)
        for asked in (text.replace(")", ", robust)"), text)
    )
    found, expected = robust_plan.errors(1, 5000), replace(robust_plan, terms=alone.terms).errors(1, 5000)
    assert [one.relative for one in found] == [one.relative for one in expected]
    for one, other in zip(found, alone.errors(1, 5000), strict=True):
        assert ROBUST_COSTS in one.assumed
        assert "times" not in one.assumed
        assert (one.relative or 0.0) > (other.relative or 1.0)


def test_groups_and_conditions_have_their_own_fourth_moments() -> None:
    rows = rows_with(np.random.default_rng(2), 4000, 9.0)
    answers = released("variance(x, robust) by arm where x > 2", rows, 100.0, None)
    for one in answers.estimates:
        inside = (rows["x"] > 2) & (rows["arm"] == one.cell["arm"])
        value, error = truth_of("variance", {name: column[inside] for name, column in rows.items()})
        assert one.value == pytest.approx(value, rel=1e-2)
        assert one.sampling_error == pytest.approx(error, rel=1e-2)


def test_fourth_moments_within_their_noise_give_a_wider_interval_and_no_error() -> None:
    rng = np.random.default_rng(3)
    rows = {"x": 5 + 0.4 * rng.standard_normal(3000), "y": np.zeros(3000), "arm": np.full(3000, "old")}
    source = NoiseSource.keyed(b"r" * 32, b"unclear")
    found = [released("variance(x, robust)", rows, 6.0, source).estimates[0] for _ in range(20)]
    unclear = [one for one in found if one.note == UNCLEAR]
    assert len(unclear) >= 5
    for one in unclear:
        assert one.sampling_error is None
        assert one.population_high is not None
        assert one.value is not None
        assert one.standard_error is not None
        normal = one.value * math.sqrt(2 / 3000)
        assert one.population_high - one.value > 1.9 * math.hypot(one.standard_error, normal)


def test_a_public_number_of_rows_has_no_noise_in_robust_errors() -> None:
    schema = schema_of(rows="public")
    rows = rows_with(np.random.default_rng(5), 2000, 9.0)
    (found,) = released("variance(x, robust)", rows, 100.0, None, schema=schema).estimates
    assert found.sampling_error == pytest.approx(truth_of("variance", rows)[1], rel=1e-2)


@pytest.mark.long
@pytest.mark.parametrize("name", ["variance(x)", "covariance(x, y)", "correlation(x, y)"])
def test_intervals_of_heavy_tails_hold_the_population_as_often_as_they_say(name: str) -> None:
    """Of 1,000 samples of 10,000 rows at epsilon 2: 95 % to within three Monte Carlo errors, or more.

    An exact interval is below 92.9 % with a chance of 0.13 %. Under normal theory the variance is at 80 %.
    """
    rng = np.random.default_rng(6)
    covered, plain = 0, 0
    source = NoiseSource.keyed(b"r" * 32, name.encode())
    truth = truth_of(name, heavy(np.random.default_rng(7), 4_000_000))[0]
    for _ in range(1000):
        rows = heavy(rng, 10_000)
        for text in (name.replace(")", ", robust)"), name):
            found = next(one for one in released(text, rows, 2.0, source).estimates if one.name == text)
            assert found.population_low is not None
            assert found.population_high is not None
            inside = found.population_low <= truth <= found.population_high
            covered, plain = covered + (inside and text != name), plain + (inside and text == name)
    least = 1000 * (0.95 - 3 * math.sqrt(0.95 * 0.05 / 1000))
    assert covered >= least
    assert plain < least


def heavy(rng: np.random.Generator, size: int) -> Rows:
    """Return two dependent columns with an excess kurtosis of 5 and of 4 within their bounds."""
    scale = np.exp(0.7 * rng.standard_normal(size))
    z = rng.standard_normal((2, size))
    x, y = scale * z[0], scale * (0.5 * z[0] + z[1])
    return {
        "x": np.clip(5 + 0.7 * x, 0, 10),
        "y": np.clip(20 + 6 * y, -20, 60),
        "arm": np.full(size, "old"),
    }
