"""A caller's own model and functions, exact averages, metrics, and named columns of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from smpc_dp.capabilities.learn.data import read_source, wisconsin
from smpc_dp.capabilities.learn.models import Model
from smpc_dp.capabilities.learn.registry import LearnParameters, check_learn
from smpc_dp.capabilities.learn.requirements import Step
from smpc_dp.errors import ConfigError, PrivacyError
from smpc_dp.privacy.accountant.compose import Composition

PARTIES = 6
TABLES, TEST = wisconsin("examples/data/breast_cancer_wisconsin_original.csv").split(PARTIES, 0.3, 1)
MODEL = Model("logistic", 9)
BUILT_IN: dict[str, Any] = {"learner": "sgd", "features": 9, "steps": 8, "rate": 1.0, "clip": 50.0}
OWN: dict[str, Any] = {"learner": "sgd", "model": "own", "length": 10, "steps": 8, "rate": 1.0, "clip": 50.0}
START = {"bias": 0.0, "slope": np.zeros((3, 3), np.float32)}


def gradient(model: dict[str, Any], table: np.ndarray) -> dict[str, Any]:
    weights = np.append(model["slope"].ravel(), model["bias"])[None]
    graded = MODEL.gradient(weights.astype(np.float64), MODEL.points([table]), np.arange(1))[0]
    return {"slope": graded[:9].reshape(3, 3), "bias": float(graded[9])}


def update(model: dict[str, Any], table: np.ndarray) -> dict[str, Any]:
    graded = gradient(model, table)
    return {key: np.float64(model[key]) - graded[key] for key in model}


def accuracy(model: dict[str, Any], table: np.ndarray) -> float:
    return MODEL.accuracy(np.append(model["slope"].ravel(), model["bias"]), table)


def checked(given: dict[str, Any], parties: int = PARTIES) -> LearnParameters:
    parameters, issues = check_learn(given, parties)
    assert parameters is not None, issues
    return parameters


def test_own_functions_learn_what_the_model_with_that_loss_learns() -> None:
    expected = simulate.learn(BUILT_IN, TABLES, fidelity="plain").values[0]
    expected = np.append(expected[9], expected[:9])
    for function in ({"gradient": gradient}, {"update": update}):
        learned = simulate.learn(OWN, TABLES, model=START, fidelity="plain", **function)  # type: ignore[arg-type]
        # The caller's model is float32.
        np.testing.assert_allclose(learned.values, np.tile(expected, (PARTIES, 1)), atol=1e-5)
        assert learned.model["slope"].dtype == np.float32
        assert learned.model["bias"] == pytest.approx(expected[0], abs=1e-5)
        assert accuracy(learned.model, TEST) > 0.9


@pytest.mark.parametrize("fidelity", ["ideal", "machines"])
@pytest.mark.parametrize("averager", [{"method": "secagg"}, {"method": "mpyc"}], ids=["secagg", "mpyc"])
def test_without_epsilon_averages_are_exact_and_the_result_says_what_they_reveal(
    averager: dict[str, object], fidelity: Any
) -> None:
    given = BUILT_IN | {"steps": 2, "averager": averager}
    exact = simulate.learn(given, TABLES[:3], fidelity=fidelity)
    plain = simulate.learn(given, TABLES[:3], fidelity="plain")
    np.testing.assert_allclose(exact.values, plain.values, atol=1e-8)
    assert exact.guarantee is None
    assert "NOT DIFFERENTIALLY PRIVATE: each step's average is exact" in exact.claim
    assert "those of its weights and metrics where there are any" in exact.claim
    assert "privacy: none; " in str(exact)
    assert str(exact).startswith("sgd: 6 of 6 steps\n")
    parameters = checked(given, 3)
    assert parameters.average is not None
    assert all(
        Composition([plan.event()]).epsilon(0.5) == np.inf for plan in parameters.average.plans.values()
    )


def test_exact_averages_are_weighted() -> None:
    given = OWN | {"weights": "points", "max_points": 100, "steps": 2}
    weights = [100.0, 1.0, 50.0, 20.0, 5.0, 4.0]
    options: dict[str, Any] = {"model": START, "gradient": gradient, "weights": weights}
    exact = simulate.learn(given, TABLES, **options)
    np.testing.assert_allclose(
        exact.values, simulate.learn(given, TABLES, fidelity="plain", **options).values, atol=1e-6
    )
    other = simulate.learn(given, TABLES, **(options | {"weights": [1.0] * 6}))
    assert np.abs(other.values - exact.values).max() > 1e-3


def test_a_metric_is_averaged_after_some_steps_and_the_last() -> None:
    given = OWN | {"metric_every": 3}
    seen: list[Step] = []
    options: dict[str, Any] = {"model": START, "gradient": gradient, "metric": accuracy}
    learned = simulate.learn(given, TABLES, on_step=seen.append, **options)
    assert [step for step, _ in learned.metrics] == [3, 6, 8]
    own = [accuracy(learned.model, table) for table in TABLES]
    assert learned.metrics[-1][1] == pytest.approx(np.mean(own), abs=1e-4)
    assert [(step.number, step.steps, step.failures) for step in seen] == [(n, 8, ()) for n in range(1, 9)]
    assert [step.metric for step in seen if step.metric is not None] == [
        value for _, value in learned.metrics
    ]
    assert learned.to_json()["metrics"][0] == {"step": 3, "value": learned.metrics[0][1]}
    built_in = simulate.learn(BUILT_IN | {"metric_every": 8}, TABLES)
    assert built_in.metrics[0][1] == pytest.approx(learned.metrics[-1][1], abs=1e-4)
    narrow = simulate.learn(given | {"metric_lower": -1.0, "metric_upper": 0.5}, TABLES, **options)
    assert [value for _, value in narrow.metrics] == pytest.approx([0.5] * 3, abs=1e-4)


def test_steps_and_metrics_share_the_budget() -> None:
    given = BUILT_IN | {"epsilon": 4.0, "delta": 1e-5, "metric_every": 3, "metric_share": 0.25}
    parameters = checked(given)
    assert parameters.average is not None
    assert parameters.metric is not None
    spent = []
    for planned, count, epsilon, delta in (
        (parameters.average, 8, 3.0, 0.75e-5),
        (parameters.metric, 3, 1.0, 0.25e-5),
    ):
        assert planned.participations == count
        (parameters_of_one,) = planned.plans.values()
        events = [parameters_of_one.event()] * count
        assert 0.9 * epsilon < Composition(events).epsilon(delta) <= epsilon
        spent += events
    assert Composition(spent).epsilon(1e-5) <= 4.0
    learned = simulate.learn(parameters, TABLES, seed_for_simulation=1)
    assert learned.guarantee is not None
    assert (learned.guarantee.epsilon, learned.guarantee.delta) == (4.0, 1e-5)
    assert "and of a metric 3 averages" in learned.guarantee.mechanism
    assert all(0 <= value <= 1 for _, value in learned.metrics)


def test_a_group_measures_its_own_step() -> None:
    given = BUILT_IN | {"learner": "block-gossip", "group": 3, "metric_every": 4}
    learned = simulate.learn(given, TABLES)
    assert len(learned.metrics) == 2
    seen: list[Step] = []
    simulate.learn(given, TABLES, on_step=seen.append)
    assert [step.number for step in seen] == list(range(1, 9))


@pytest.mark.parametrize(
    ("change", "where", "reason"),
    [
        ({"features": None}, "features", "is missing"),
        ({"length": 3}, "length", "is not for model = 'logistic'"),
        ({"model": "own", "features": None}, "length", "is missing"),
        ({"model": "own", "length": 3}, "features", "is not for model = 'own'"),
        ({"epsilon": 1.0}, "delta", "is missing"),
        ({"delta": 1e-5}, "epsilon", "without both averages are exact"),
        ({"averager": {"method": "gopa"}}, "averager.method", "'gopa' needs epsilon"),
        ({"averager": {"method": "local"}}, "averager.method", "'local' needs epsilon"),
        ({"averager": {"mechanism": "skellam"}}, "averager.mechanism", "of noise, which needs epsilon"),
        ({"metric_lower": 1.0}, "metric_upper", "above metric_lower = 1, is 1"),
        ({"columns": ["a"]}, "columns", "names 1 columns, needs features + 1 = 10"),
        ({"columns": ["a"] * 10}, "columns", "different names"),
        ({"columns": "a"}, "columns", "must be an array"),
        (
            {
                "averager": {"method": "gopa", "verifiable": True},
                "epsilon": 9.0,
                "delta": 1e-5,
                "metric_every": 1,
            },
            "metric_every",
            "auditors count two requests",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(
    change: dict[str, Any], where: str, reason: str
) -> None:
    given = {key: value for key, value in (BUILT_IN | change).items() if value is not None}
    parameters, issues = check_learn(given, PARTIES)
    assert parameters is None
    assert reason in {issue.where: issue.reason for issue in issues}[where]


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        ({}, {"model": None}, "model: is missing"),
        ({}, {"gradient": None}, "gradient: needs one function"),
        ({}, {"update": update}, "gradient: needs one function"),
        ({}, {"metric": accuracy}, "metric: needs metric_every in the session file"),
        ({"metric_every": 2}, {}, "metric: is missing: the session file has metric_every = 2"),
        ({}, {"weights": [1.0] * 6}, "weight: the session has no weights"),
        ({"weights": "points", "max_points": 9}, {}, "party 0: must be from 1 to 9, is None"),
        ({"weights": "points", "max_points": 9}, {"weights": [10.0] * 6}, "party 5: must be from 1 to 9"),
        ({"length": 9}, {}, "party 0: has 10 values in 2 leaves, vectors have 9"),
        ({"radius": 0.5}, {"model": START | {"bias": 0.75}}, r"\['bias'\] is outside \[-0.5, 0.5\]"),
        ({}, {"model": ["x"]}, "model: party 0: "),
        ({}, {"gradient": lambda _model, _data: {"bias": 0.0}}, r"tree\['slope'\]: party 0: is missing"),
        (
            {},
            {"gradient": lambda model, _data: model | {"more": 0.0}},
            r"tree\['more'\]: party 0: is no path",
        ),
        (
            {},
            {"gradient": lambda model, _data: model | {"slope": np.zeros(9)}},
            r"tree\['slope'\]: party 0: has shape \(9,\), the model has \(3, 3\)",
        ),
        (
            {},
            {"gradient": lambda model, _data: model | {"bias": np.nan}},
            r"party 0: \['bias'\] must be finite",
        ),
        (
            {"metric_every": 1},
            {"metric": lambda _model, _data: float("nan")},
            "metric: party 0: must be a finite number, is nan",
        ),
        (
            {"metric_every": 1},
            {"metric": lambda _model, _data: None},
            "metric: party 0: must be a finite number, is None",
        ),
        ({}, {"gradient": 3}, "gradient: must be a function, is int"),
        (
            {"weights": "points", "max_points": 9},
            {"weights": ["1"] * 6},
            "party 0: must be from 1 to 9, is '1'",
        ),
        ({"weights": "points", "max_points": 9}, {"weights": [1.0] * 5}, "weight: 5 weights for 6 parties"),
    ],
)
def test_functions_and_models_that_do_not_fit_are_refused(
    change: dict[str, Any], options: dict[str, Any], reason: str
) -> None:
    arguments: dict[str, Any] = {"model": START, "gradient": gradient} | options
    with pytest.raises((ConfigError, PrivacyError), match=reason):
        simulate.learn(OWN | change, TABLES, **arguments)


def test_a_model_may_be_an_array_and_data_anything() -> None:
    given = OWN | {"length": 2, "steps": 20, "rate": 0.5}
    learned = simulate.learn(
        given, ["far", "near", "out"], model=[0.0, 8.0], gradient=lambda model, word: model - len(word)
    )
    np.testing.assert_allclose(learned.model, [10 / 3] * 2, atol=1e-4)


def test_other_learners_take_no_functions() -> None:
    with pytest.raises(ConfigError) as refused:
        simulate.learn(BUILT_IN, TABLES, gradient=gradient, weights=[1.0] * PARTIES)
    assert {issue.where for issue in refused.value.issues} == {"gradient", "weight"}


COLUMNS = ("age", "size", "label")
ROWS = np.array([[1.0, 2.5, 0.0], [-3.0, 4.0, 1.0]])


def sources(folder: Path) -> list[object]:
    named = folder / "named.csv"
    named.write_text("name,label, size,age\nx,0,2.5,1\ny,1,4,-3\n")
    np.save(folder / "plain.npy", ROWS)
    columns = dict(zip(COLUMNS, ROWS.T, strict=True))
    structured = np.array(list(map(tuple, ROWS)), dtype=[(name, float) for name in COLUMNS])
    return [named, folder / "plain.npy", ROWS, ROWS.tolist(), columns, structured]


def test_masked_values_are_missing() -> None:
    columns = dict(zip(COLUMNS, ROWS.T, strict=True)) | {"age": np.ma.masked_equal([1, -3], 1)}
    np.testing.assert_array_equal(read_source(columns, COLUMNS, "ann"), [[np.nan, 2.5, 0.0], ROWS[1]])
    with pytest.raises(ConfigError, match="ann: columns must be of one length"):
        read_source(columns | {"size": [1.0]}, COLUMNS, "ann")


def test_columns_are_taken_by_name(tmp_path: Path) -> None:
    for source in sources(tmp_path):
        np.testing.assert_array_equal(read_source(source, COLUMNS, "ann"), ROWS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("age,label\n1,0\n", r"size: ann: the table has no column 'size' \(columns: age, label\)"),
        (
            "age,size,label,age\n1,2,0,3\n",
            "age: ann: has 2 columns 'age', needs a header of different column names",
        ),
        ("age,size,label\n1,two,0\n", r"bad\.csv:2: column 2 is not a number"),
        ("age,size,label\n1,2\n", r"bad\.csv:2: 2 columns, the header has 3"),
        ("age,size,label\n", "holds no points"),
    ],
)
def test_tables_without_the_columns_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        read_source(tmp_path / "bad.csv", COLUMNS, "ann")
    with pytest.raises(ConfigError, match="ann: has 2 columns, the session file names 3"):
        read_source(ROWS[:, 1:], COLUMNS, "ann")
    with pytest.raises(ConfigError, match="ann: must be a table of numbers"):
        read_source([["a"]], (), "ann")
    with pytest.raises(ConfigError, match="ann: has named columns: name those to learn from in `columns`"):
        read_source({"age": [1.0]}, (), "ann")
    with pytest.raises(ConfigError, match="age: ann: must be a column of numbers"):
        read_source({name: ["a"] for name in COLUMNS}, COLUMNS, "ann")


def test_names_of_columns_are_those_of_coordinates() -> None:
    tables = [np.column_stack([ROWS, ROWS[:, 2]])[:, :3]] * 3
    given = {"learner": "sgd", "features": 2, "steps": 1, "columns": list(COLUMNS)}
    assert simulate.learn(given, tables).names == ("age", "size", "intercept")
    softmax = simulate.learn(given | {"model": "softmax"}, tables)
    assert softmax.names[:3] == ("age of 0", "size of 0", "intercept of 0")


def test_what_a_function_returns_is_clipped() -> None:
    given = OWN | {"length": 2, "steps": 1, "clip": 1.0}
    for fidelity in ("ideal", "plain"):
        learned = simulate.learn(
            given,
            [1.0] * 3,
            model=np.zeros(2),
            gradient=lambda _model, _data: [30.0, 40.0],
            fidelity=fidelity,
        )
        np.testing.assert_allclose(learned.model, [-0.6, -0.8], atol=1e-3)
