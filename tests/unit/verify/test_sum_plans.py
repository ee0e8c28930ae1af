"""The second auditor plans the noise of statistics of records by secure sums as sessions do."""

from __future__ import annotations

import json
import math
import random
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest

from smpc_dp.engine.registry import checker_of
from smpc_dp.errors import ConfigError
from smpc_dp.privacy.accountant.compose import Composition
from smpc_dp.privacy.guarantee import LEAST_DELTA
from smpc_dp.privacy.secagg_plan import plan_secagg
from smpc_dp.records.features import Lacking
from smpc_dp.records.split import _room
from smpc_dp_verify.division import room_of
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.gaussian import gaussian_epsilon, gaussian_mu
from smpc_dp_verify.graph import honest_in_sums, sparse_threshold
from smpc_dp_verify.joint import LaplaceLosses
from smpc_dp_verify.result import check_estimates, check_order
from smpc_dp_verify.session import Session
from smpc_dp_verify.sum_plan import Shares, read_shares
from smpc_dp_verify.sums import read_sums

COLUMNS: dict[str, Any] = {
    "age": {"lower": 0, "upper": 100.0, "step": 0.5, "bins": [18, 40.5, 65.0]},
    "bmi": {"lower": 10.0, "upper": 60.0, "missing": False},
    "weight": {"lower": -3.0, "upper": 5.0},
    "visits": {"lower": 0, "upper": 30, "step": 1},
    "ill": {"lower": 0, "upper": 1, "step": 1, "missing": False},
    "sex": {"values": ["f", "m"], "other": "f", "missing": False},
    "ward": {"values": ["a", "b", "c", "d"]},
}
ASKED = (
    *("count", "count by sex", "count where ill = 1", "ward", "sex x ward", "age x sex", "histogram(bmi, 7)"),
    *("histogram(age, [30, 60])", "mean(age)", "mean(bmi)", "mean(weight)", "mean(visits) by ward"),
    *("mean(weight) by sex where age >= 18", "sum(visits)", "sum(bmi) by sex", "sum(weight)", "median(bmi)"),
    *("median(age) by sex", "quantile(weight, 0.1, 0.9)", "risk(ill) by sex", "chi_square(sex, ward)"),
    *("variance(bmi)", "variance(weight) by sex", "covariance(age, bmi)", "correlation(age, weight, bmi)"),
    *("regression(bmi ~ age + sex)", "regression(weight ~ age * ward)", "difference(bmi) by sex"),
    *("missing(age)", "missing(ward) by sex", "survival(age, ill) by sex", "logrank(age, ill) by sex"),
    *("cox(age, ill ~ ward)", "heterogeneity(bmi)", "table1(age, ward) by sex", "mean(ill) by ward"),
    *("age", "mean(age) by age", "mean(weight) by age"),
)
# What a quarter of the sessions asks for besides.
MORE = (
    *("variance(bmi, robust)", "variance(age, robust) by sex", "covariance(age, bmi, robust)"),
    *(
        "correlation(age, weight, robust)",
        "regression(bmi ~ age) by sex",
        "regression(age ~ bmi + ill) by ward",
    ),
    *(
        "cox_breslow(age, ill ~ ward)",
        "cox_efron(age, ill ~ sex)",
        "mean(bmi) by site",
        "variance(age) by site",
    ),
    *("regression(bmi ~ age + site)", "regression(weight ~ age) by site"),
)
FORMULAS = ("ill ~ age", "ill ~ age * sex + bmi", "ill ~ ward + weight", "ill ~ sex:ward + sex + ward")
EACH = {"unit": "person", "id": "who", "rows_per_person": 1, "parties_per_person": 1}
PERSON = {"unit": "person", "id": "who", "rows_per_person": 2, "parties_per_person": 3}
Given = dict[str, Any]


def session_of(given: Given, parties: int, version: int = 3) -> Session:
    return Session(bytes(32), "secagg", version, given, {}, [f"p{i}" for i in range(parties)], "relay", None)


def shares_of(given: Given, parties: int) -> Shares:
    shares = read_shares(read_sums(session_of(given, parties)))
    assert shares is not None
    return shares


def drawn(seed: int) -> tuple[Given, int]:
    """Return the parameters of a session, drawn with this seed, and its number of parties."""
    draw = random.Random(seed)
    parties, is_public = draw.choice([3, 4, 7, 12, 40]), draw.random() < 0.3
    records: Given = {"max_rows": draw.choice([20, 1000, 10**6]), "columns": COLUMNS}
    records |= {"rows": "public"} if is_public else {"rows_expected": 5000}
    if draw.random() < 0.15:
        records |= PERSON
    asked = draw.sample(ASKED, draw.choice([1, 2, 3, 5, 8]))
    given: Given = {"records": records, "ask": asked, "split": draw.choice(["balanced"] * 3 + ["range"])}
    given |= {"epsilon": 10 ** draw.uniform(-1, 1.1), "delta": 10 ** draw.uniform(-12, -4)}
    if is_public:
        given["public_rows"] = [draw.randrange(1, 21) for _ in range(parties)]
    if draw.random() < 0.4 and "table1" not in asked[0]:
        given["answer_weights"] = {asked[0]: 10 ** draw.uniform(-2, 2)}
    if draw.random() < 0.3:
        given["corrupt"] = 0.0
    if draw.random() < 0.1:
        records["norm"] = {"columns": ["age", "bmi"], "bound": 0.9}
    if draw.random() < 0.25:
        asked.append(draw.choice(MORE))
        site = {"kind": "party", "values": [f"p{i}" for i in range(parties)]}
        records["columns"] = COLUMNS | {"site": site}
    return given, parties


def planned(given: Given, parties: int) -> Any:
    """Return the parameters that a session's checker plans; None of a session that it refuses."""
    checked, _ = checker_of("secagg", 3)(given, parties)
    return checked


def refused(shares: Shares, question: str, begins: list[int] | None = None) -> bool:
    try:
        shares.check(question, begins)
    except Refused:
        return True
    return False


# Sessions of which nearly all can be planned, and of which both laws are in one.
MANY = 320


# Drawn sessions in which the blocks' moves are together above what a row makes.
APART = {11, 68, 160, 281}


@pytest.mark.thin(32)
@pytest.mark.parametrize("seed", range(MANY))
def test_both_plan_and_answer_a_drawn_session_alike(seed: int) -> None:
    given, parties = drawn(seed)
    checked = planned(given, parties)
    if checked is None:
        pytest.skip("the session is refused: it asks for too much")
    if seed in APART:
        assert read_shares(read_sums(session_of(given, parties))) is None
        pytest.skip("the second auditor does not plan it")
    shares, question = shares_of(given, parties), f"statistics {checked.planned()}"
    assert shares.check(question) == checked.variance
    assert (shares.counted, shares.length) == (checked.honest, checked.request.length)
    assert shares.unit == checked.schema.unit
    variance, rest = checked.planned().split("/", 1)
    for part in (0.5, 0.99, 1.01, 2.0):
        assert refused(shares, f"statistics {int(int(variance, 16) * part):x}/{rest}")
    assert refused(shares, question[:-1] + ("0" if question[-1] != "0" else "1"))
    # what is accepted is enough by the auditor's own account
    if checked.request.is_mixed:
        assert shares.is_private(int(checked.variance))
        assert not shares.is_private(int(checked.variance) * 9 // 10)
    if given["delta"] >= LEAST_DELTA:
        # below it the accountant resolves nothing, and there are no answers
        find_the_same(checked, shares, parties, seed)


@pytest.mark.parametrize("seed", [111, 157])
def test_both_take_the_same_of_rounds_that_differ_by_rounding_errors(seed: int) -> None:
    """In the one session many rounds have one largest error, in the other searches differ by two parts."""
    given, parties = drawn(seed)
    checked = planned(given, parties)
    assert shares_of(given, parties).check(f"statistics {checked.planned()}") == checked.variance


def find_the_same(checked: Any, shares: Shares, parties: int, seed: int) -> None:
    """Compare values and standard errors of drawn totals, and all else that is computed here."""
    rng = np.random.default_rng(seed)
    low, high = (side.astype(np.float64) for side in checked.request.bounds)
    numbers = sorted(rng.choice(parties, max(3, parties - 1), replace=False).tolist())
    part = rng.random(len(low)) * rng.choice([0.001, 1.0])
    total = np.rint(len(numbers) * (low + part * (high - low))).astype(np.int64)
    hide = float(rng.choice([0.0, 3.0]))
    together, level = bool(rng.random() < 0.3), float(rng.choice([0.5, 0.9, 0.999]))
    expected = checked.answers(total, numbers, level=level, simultaneous=together, hide=hide)
    elements = [int(value) - len(numbers) * int(checked.encoding.lowest) for value in total]
    outside = (1 - level) / (len(expected.estimates) if together else 1)
    own = shares.estimates(elements, int(checked.variance), numbers, hide, outside)
    computed = {one.statistic for one in own}
    others = {f"estimates of {one.text}" for one in checked.request.statistics if one.text not in computed}
    # the other ones are fields of every result
    assert {one for one in shares.unchecked if one.startswith("estimates")} == others
    check_order([*(shares.asked or {})], [{"statistic": each.statistic} for each in expected.estimates])
    for one in own:
        found = [(each.numbers["value"], each.numbers["standard_error"]) for each in one.each]
        first = [(each.value, each.standard_error) for each in expected.of(one.statistic)]
        assert len(found) == len(first)
        assert [each.cell for each in one.each] == [each.cell for each in expected.of(one.statistic)]
        for (value, error), (right, size) in zip(found, first, strict=True):
            assert (value is None, error is None) == (right is None, size is None)
            assert value is None or value == pytest.approx(right, rel=1e-9, abs=1e-9 * (size or 0.0))
            assert error is None or error == pytest.approx(size, rel=1e-9)
    fields: list[Given] = json.loads(msgspec.json.encode(expected.estimates))
    for one in own:
        unclear = [name for name in check_estimates(one, fields) if not name.startswith("p_value")]
        has_tree = one.words["noise"] == "laplace" and one.statistic.startswith(("quantile", "median"))
        assert not unclear or has_tree or outside < 1e-4


@pytest.mark.thin(32)
@pytest.mark.parametrize("seed", range(MANY))
def test_a_change_of_the_session_changes_what_is_planned(seed: int) -> None:
    given, parties = drawn(seed)
    checked = planned(given, parties)
    if checked is None:
        pytest.skip("the session is refused: it asks for too much")
    question, draw = f"statistics {checked.planned()}", random.Random(seed)
    changes: list[Given] = [{"epsilon": given["epsilon"] * 0.9}, {"delta": given["delta"] / 2}]
    changes += [{"records": given["records"] | {"max_rows": given["records"]["max_rows"] * 2 + 7}}]
    if len(given["ask"]) > 1:
        text = given["ask"][0]
        changes += [{"ask": given["ask"][::-1]}, {"ask": given["ask"][:-1]}]
        if "table1" not in text:
            changes += [{"answer_weights": {text: 1e-3}}, {"answer_weights": {text: 1e4}}]
        changes += [{"split": "range" if given["split"] == "balanced" else "balanced"}]
    change = draw.choice(changes)
    other = planned(given | change, parties)
    if other is None:
        # both refuse the session, or its question is another one
        with suppress(Refused):
            assert refused(shares_of(given | change, parties), question)
        return
    shares = read_shares(read_sums(session_of(given | change, parties)))
    if shares is None:
        assert (given | change)["split"] == "balanced"
        pytest.skip("the second auditor does not plan it")
    # weights may change within the rounding of scales, and the plan is what it was
    assert refused(shares, question) == (other.planned() != checked.planned())


def test_both_reconcile_a_count_that_follows_from_another_once() -> None:
    """Rows with an age in a bin are counted, and those of them that lack one in place of another count."""
    given = MIXED | {"ask": ["age", "mean(age) by age", "mean(weight) by age", "age x sex"]}
    checked, shares = planned(given, 9), shares_of(given, 9)
    assert any(isinstance(one.block, Lacking) for one in checked.request.blocks)
    low, high = (side.astype(np.float64) for side in checked.request.bounds)
    total = np.rint(9 * (0.5 * low + 0.5 * high) * np.linspace(0.3, 1.0, len(low))).astype(np.int64)
    answers = checked.answers(total, range(9), level=0.9, simultaneous=False)
    elements = [int(value) - 9 * int(checked.encoding.lowest) for value in total]
    for one in shares.estimates(elements, int(checked.variance), range(9), 3.0, 0.1):
        for name in ("value", "standard_error"):
            expected = [getattr(each, name) for each in answers.of(one.statistic)]
            found = [each.numbers[name] for each in one.each]
            assert [number is None for number in found] == [number is None for number in expected]
            assert [number for number in found if number is not None] == pytest.approx(
                [number for number in expected if number is not None], rel=1e-9
            )


@pytest.mark.long
def test_drawn_sessions_have_all_laws() -> None:
    """Of a quarter of them at least a tenth has both laws, one Laplace noise alone, most Gaussian noise."""
    kinds = {"discrete-gaussian": 0, "discrete-laplace": 0, "discrete-gaussian-and-laplace": 0}
    for seed in range(0, MANY, 4):
        checked = planned(*drawn(seed))
        if checked is not None:
            kinds[checked.mechanism] += 1
    assert sum(kinds.values()) > 50
    assert min(kinds.values()) >= 6, kinds


@pytest.mark.parametrize(
    ("blocks", "epsilon", "delta"), [(1, 1.0, 1e-6), (3, 0.2, 1e-9), (12, 3.0, 1e-5), (5, 40.0, 1e-6)]
)
def test_both_leave_the_same_room_for_gaussian_noise(blocks: int, epsilon: float, delta: float) -> None:
    parts, rooms = _room(blocks, epsilon, delta)
    room = room_of(blocks, epsilon, delta)
    assert room.epsilons == pytest.approx(parts.tolist(), rel=1e-12)
    assert room.shifts == pytest.approx(rooms.tolist(), rel=1e-8, abs=1e-9 * rooms.max())


MIXED: Given = {
    "records": {"max_rows": 1000, "rows_expected": 5000, "columns": COLUMNS},
    "ask": ["count", "mean(age)", "ward", "median(weight)", "heterogeneity(visits)"],
    "split": "balanced",
    "epsilon": 1.0,
    "delta": 1e-6,
}


@pytest.mark.parametrize("more", [{}, {"records": MIXED["records"] | EACH}, {"epsilon": 4.0}])
def test_both_account_alike_for_both_laws(more: Given) -> None:
    """The second auditor takes Gaussian noise exactly: it finds no more than the accountant, hardly less."""
    given = MIXED | more
    checked = planned(given, 9)
    assert checked.request.is_mixed
    shares = shares_of(given, 9)
    accounted = Composition([checked.event()]).delta(given["epsilon"])
    share, mean = checked.request.shares.share, math.sqrt(checked.honest * checked.variance)
    losses = LaplaceLosses(int(share.laplace.scale), share.moves or (), int(share.laplace.sensitivity.l1))
    own = losses.delta(share.gaussian.sensitivity.l2 / mean, given["epsilon"])
    assert own <= accounted <= given["delta"]
    assert own == pytest.approx(accounted, rel=1e-3)
    assert shares.is_private(int(checked.variance))
    assert not shares.is_private(int(checked.variance) * 98 // 100)


STEPPED: list[tuple[int, Given]] = [
    *((9, {"ask": f"logistic({formula})"}) for formula in FORMULAS),
    (5, {"ask": "logistic(ill ~ age + bmi)", "steps": 1}),
    (5, {"ask": ["logistic(ill ~ age + bmi)"], "steps": 8, "epsilon": 0.03}),
    (12, {"ask": "poisson(visits ~ age + ward)", "epsilon": 200.0}),
    (12, {"ask": "poisson(visits ~ age:sex + age + sex)", "steps": 1, "corrupt": 0.0}),
    (20, {"ask": "random_effects(bmi)"}),
    (20, {"ask": "random_effects(age, 5)", "delta": 1e-9}),
    (250, {"ask": "random_effects(age, 5)"}),
]
UNITS: dict[str, Given] = {"records": {}, "persons": PERSON, "public": {"rows": "public"}}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("index", range(len(STEPPED)))
def test_both_plan_the_same_noise_of_several_requests(index: int, unit: str) -> None:
    parties, more = STEPPED[index]
    records = {"max_rows": 2000, "columns": COLUMNS} | UNITS[unit]
    given: Given = {"records": records, "epsilon": 2.0, "delta": 1e-6} | more
    if unit == "public":
        given["public_rows"] = [100] * parties
    checked = planned(given, parties)
    shares = shares_of(given, parties)
    question = f"statistics week 3 {checked.planned()}"
    begins = [*checked.begins]
    assert shares.check(question, begins) == checked.variance
    assert (shares.counted, shares.length) == (checked.honest, checked.request.length)
    variance, rest = checked.planned().split("/", 1)
    for part in (0.5, 0.999, 1.01):
        assert refused(shares, f"statistics {int(int(variance, 16) * part):x}/{rest}", begins)
    assert refused(shares, question[:-4] + "0000", begins)
    assert refused(shares, question)
    for change in ({"epsilon": given["epsilon"] * 0.9}, {"delta": given["delta"] / 9}):
        assert refused(shares_of(given | change, parties), question, begins)
    later = [1 << 20] if not begins else [number - 7 for number in begins]
    question = f"statistics {checked.beginning(later).planned()}"
    shares.check(question, later)
    assert refused(shares, question, begins)


@pytest.mark.parametrize(
    "more",
    [
        {"ask": "logistic(ill ~ age); count"},
        {"ask": "logistic(age ~ bmi)"},
        {"ask": "poisson(weight ~ bmi)"},
        {"ask": "logistic(ill ~ nothing)"},
        {"ask": "logistic(ill ~ age) by sex"},
        {"ask": "logistic(ill ~ age)", "steps": 51},
        {"ask": "logistic(ill ~ age)", "steps": True},
        {"ask": "random_effects(age)", "steps": 2},
        {"ask": "random_effects(age, 0)"},
        {"ask": "random_effects(age, 3000)"},
        {"ask": "random_effects(ward)"},
        {"ask": "count", "split": "alone"},
        {"ask": 7},
    ],
)
def test_both_refuse_what_cannot_be_planned(more: Given) -> None:
    given = {"records": {"max_rows": 2000, "columns": COLUMNS}, "epsilon": 2.0, "delta": 1e-6} | more
    assert planned(given, 9) is None
    with pytest.raises(Refused):
        read_shares(read_sums(session_of(given, 9)))


@pytest.mark.parametrize("ask", [["count", "mean(age)"], "logistic(ill ~ age)"])
@pytest.mark.parametrize(
    "more",
    [
        *({"delta": delta} for delta in (0.0, 1, 1.0, 2.0, -1e-6, True)),
        *({"epsilon": epsilon} for epsilon in (0.0, -1.0, 1000.0, 1e300, True, 10**400)),
    ],
    ids=str,
)
def test_both_refuse_a_budget_that_no_session_has(more: Given, ask: Any) -> None:
    given = {"records": {"max_rows": 2000, "columns": COLUMNS}, "ask": ask, "epsilon": 2.0, "delta": 1e-6}
    if "epsilon" not in more or more["epsilon"] < 10**400:
        # a session file has no such integers
        assert planned(given | more, 9) is None
    with pytest.raises(Refused):
        read_shares(read_sums(session_of(given | more, 9)))
    wide = given | {"epsilon": 100.5}
    assert (planned(wide, 9) is None) == isinstance(ask, list)
    if isinstance(ask, list):
        with pytest.raises(Refused, match="epsilon"):
            read_shares(read_sums(session_of(wide, 9)))
    else:
        assert shares_of(wide, 9).least > 0


@pytest.mark.parametrize(("columns", "more"), [(16, 0), (70, 6)])
def test_what_would_take_minutes_is_not_planned(columns: int, more: int) -> None:
    """Signs of 16 columns, or absent rows of six conditions, change all products of two of the columns."""
    names = [f"x{index}" for index in range(columns)]
    column = {"lower": -1.0, "upper": 1.0, "missing": False}
    records = {"max_rows": 50, "rows": "public", "columns": dict.fromkeys(names, column)}
    asked = [f"covariance({', '.join(names)}{', robust' * (not more)})"]
    asked += [f"mean(x0) where x{index + 1} >= 0" for index in range(more)]
    given = {"records": records, "ask": asked, "epsilon": 1.0, "delta": 1e-6, "public_rows": [20] * 9}
    assert read_shares(read_sums(session_of(given, 9))) is None


@pytest.mark.parametrize("ask", [["count", "mean(age)"], "logistic(ill ~ age)"])
def test_a_tiny_epsilon_is_not_planned(ask: Any) -> None:
    given = {"records": {"max_rows": 50, "columns": COLUMNS}, "ask": ask, "epsilon": 9e-6, "delta": 1e-6}
    assert read_shares(read_sums(session_of(given, 9))) is None
    given |= {"epsilon": 1e-3}
    assert shares_of(given, 9).check(
        f"statistics {planned(given, 9).planned()}", [0, 0] if isinstance(ask, str) else None
    )


@pytest.mark.parametrize("delta", [1.0, 2.0, math.nan])
def test_the_shift_at_a_delta_that_none_reaches_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        gaussian_mu(1.0, delta)
    with pytest.raises(ValueError, match="delta"):
        gaussian_epsilon(-delta, 1.0)


@pytest.mark.parametrize(
    "parties",
    [3, 5, 64, 65, 200, 201, 250, 400, 1000, 3000],
)
@pytest.mark.parametrize(
    ("dropout", "corrupt"), [(0.1, 0.1), (0.0, 0.0), (0.2, 0.3), (0.05, 0.45), (0.3, 0.1)]
)
def test_both_count_the_same_honest_parties(parties: int, dropout: float, corrupt: float) -> None:
    lost, many = (math.floor(part * parties + 1e-9) for part in (dropout, corrupt))
    least = parties - 1 if parties <= 200 else 2
    try:
        plan = plan_secagg(parties, dropout=dropout, corrupt=corrupt, least_degree=least)
    except ConfigError:
        with pytest.raises(Refused):
            honest_in_sums(parties, many, lost)
        return
    assert honest_in_sums(parties, many, lost) == plan.min_honest_in_sum
    if parties > 200:
        assert sparse_threshold(parties, many, lost, 40.0) == (None if plan.complete else plan.threshold)


@pytest.mark.parametrize("security", [20, 60.5, 128])
def test_both_take_the_security_of_a_session(security: float) -> None:
    given: Given = {"records": {"max_rows": 50, "columns": COLUMNS}, "ask": ["count", "mean(age)"]}
    given |= {"epsilon": 1.0, "delta": 1e-7, "security": security, "split": "balanced", "corrupt": 0.3}
    checked = planned(given, 300)
    shares = shares_of(given, 300)
    assert shares.counted == checked.honest
    assert shares.check(f"statistics {checked.planned()}") == checked.variance


@pytest.mark.parametrize(
    "ask",
    [
        ["median(bmi) by age x ward x sex", "age x ward x sex"],
        [f"covariance({', '.join(f'x{index}' for index in range(91))})"],
    ],
)
@pytest.mark.parametrize("split", ["range", "balanced"])
def test_more_coordinates_are_planned(ask: list[str], split: str) -> None:
    more = {f"x{index}": {"lower": -1.0, "upper": 1.0, "missing": False} for index in range(91)}
    records = {"max_rows": 1000, "rows_expected": 500, "columns": COLUMNS | more}
    given: Given = {"records": records, "ask": ask, "split": split, "epsilon": 1.0, "delta": 1e-6}
    checked = planned(given, 20)
    shares = shares_of(given, 20)
    assert shares.length == checked.request.length > 4096
    assert shares.check(f"statistics {checked.planned()}") == checked.variance
