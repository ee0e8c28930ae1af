"""The demonstration's statistics: equal to numpy's on pooled rows, within the public bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from smpc_dp.demo import lenders, regression
from smpc_dp.demo.lenders import COLUMNS, FEATURES, LENDERS, LENGTH, TARGET, Loan
from smpc_dp.encoding import Encoding
from smpc_dp.errors import ConfigError, LocalError, PrivacyError


@pytest.fixture(scope="module")
def loans() -> list[dict[str, str]]:
    return lenders.read_loans(lenders.DATA)


def plain(loans: Sequence[Loan], column: str) -> np.ndarray:
    return np.array([float(loan[column]) for loan in loans])


def total(loans: Sequence[Loan]) -> list[int]:
    vectors = [lenders.lender_vector(part) for part in lenders.shards(loans).values()]
    return [int(value) for value in np.sum(vectors, axis=0)]


def test_the_shipped_data_are_all_there(loans: list[dict[str, str]]) -> None:
    assert len(loans) == 9857
    assert len(loans[0]) == 23
    assert "MIT License" in (lenders.DATA.parent / "NOTICE").read_text("utf-8")


def test_shards_hold_every_loan_once(loans: list[dict[str, str]]) -> None:
    parts = lenders.shards(loans)
    assert tuple(parts) == LENDERS
    assert sorted(id(loan) for part in parts.values() for loan in part) == sorted(id(loan) for loan in loans)
    assert all(0 < len(part) <= lenders.MAX_LOANS for part in parts.values())


def test_every_loan_is_within_the_public_bounds(loans: list[dict[str, str]]) -> None:
    rows = lenders.rows(loans)
    for index, column in enumerate(COLUMNS, 1):
        assert rows[:, index].min() >= 0, column.name
        assert rows[:, index].max() <= column.upper * 10**column.decimals, column.name
    for part in lenders.shards(loans).values():
        assert lenders.lender_vector(part).min() >= 0
        assert lenders.lender_vector(part).max() <= lenders.UPPER


def test_the_bounds_leave_no_room_for_an_overflow() -> None:
    encoding = Encoding.plan(
        length=LENGTH, lower=0, upper=lenders.UPPER, precision=None, parties=len(LENDERS)
    )
    assert len(LENDERS) * lenders.UPPER < 1 << encoding.modulus_bits
    assert len(LENDERS) * lenders.UPPER < 1 << 63


def test_sums_of_lenders_are_those_of_the_pooled_loans(loans: list[dict[str, str]]) -> None:
    rows = lenders.rows(loans).astype(object)
    pooled = (rows.T @ rows)[np.triu_indices(lenders.WIDTH)]
    assert total(loans) == list(pooled)


def test_means_and_variances_are_numpys(loans: list[dict[str, str]]) -> None:
    fitted = regression.fit(total(loans))
    assert fitted.loans == len(loans)
    numeric = [column for column in COLUMNS if not column.codes]
    assert len(numeric) == 17
    for column in numeric:
        values = plain(loans, column.name)
        if column.rounds:
            values = np.rint(values)
        assert fitted.means[column.name] == pytest.approx(values.mean(), rel=1e-12), column.name
        assert fitted.variances[column.name] == pytest.approx(values.var(ddof=1), rel=1e-11), column.name
    sixty = np.array([loan["term"] == "term_60" for loan in loans])
    assert fitted.means["term_60_months"] == pytest.approx(sixty.mean(), rel=1e-14)


def test_a_mean_is_correctly_rounded(loans: list[dict[str, str]]) -> None:
    cents = sum(round(float(loan["int_rate"]) * 100) for loan in loans)
    assert regression.fit(total(loans)).means["int_rate"] == cents / (100 * len(loans))


def test_the_regression_is_least_squares_on_the_pooled_rows(loans: list[dict[str, str]]) -> None:
    fitted = regression.fit(total(loans))
    design = np.column_stack(
        [
            np.ones(len(loans)),
            *(
                [column.codes[loan[column.source or column.name]] for loan in loans]
                if column.codes
                else np.rint(plain(loans, column.name) * 10**column.decimals) / 10**column.decimals
                for column in FEATURES
            ),
        ]
    )
    target = plain(loans, TARGET.name)
    sizes = np.abs(design).max(axis=0)
    expected = np.linalg.lstsq(design / sizes, target)[0] / sizes
    assert list(fitted.coefficients) == [regression.INTERCEPT, *(column.name for column in FEATURES)]
    np.testing.assert_allclose(list(fitted.coefficients.values()), expected, rtol=1e-9)
    residual = target - design @ expected
    assert fitted.score.rmse == pytest.approx(math.sqrt(float((residual**2).mean())), rel=1e-12)
    assert fitted.score.r2 == pytest.approx(1 - residual.var() / target.var(), rel=1e-12)
    rows = lenders.rows(loans)
    for score in (
        regression.score(fitted.coefficients, rows),
        regression.score(dict(zip(fitted.coefficients, expected.tolist(), strict=True)), rows),
    ):
        assert score.r2 == pytest.approx(fitted.score.r2, rel=1e-10)
        assert score.rmse == pytest.approx(fitted.score.rmse, rel=1e-10)
    pooled = regression.pooled_fit(rows)
    np.testing.assert_allclose(list(pooled.values()), expected, rtol=1e-9)


def test_features_that_depend_on_each_other_are_refused(loans: list[dict[str, str]]) -> None:
    same_term = [loan for loan in loans if loan["term"] == "term_60"]
    with pytest.raises(ConfigError, match="depend linearly"):
        regression.fit(total(same_term))


@pytest.mark.parametrize(
    ("column", "value", "error", "message"),
    [
        ("annual_inc", "1000001", PrivacyError, r"annual_inc: a value is outside \[0, 1000000\]"),
        ("delinq_2yrs", "-1", PrivacyError, "delinq_2yrs: a value is outside"),
        ("int_rate", "nan", PrivacyError, "int_rate: a value is outside"),
        ("int_rate", "13.991", PrivacyError, "int_rate: a value has more than 2 decimals"),
        ("int_rate", "high", ConfigError, "int_rate: not a number"),
        ("term", "term_48", ConfigError, "term: unknown label, the known ones are term_36, term_60"),
    ],
)
def test_a_bad_value_is_refused_and_named(
    loans: list[dict[str, str]], column: str, value: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        lenders.lender_vector([loans[0], {**loans[1], column: value}])


def test_too_many_loans_are_refused(loans: list[dict[str, str]]) -> None:
    with pytest.raises(PrivacyError, match="2501 loans, a lender may contribute at most 2500"):
        lenders.lender_vector(loans[:2501])


def test_a_state_without_a_lender_is_refused(loans: list[dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match="addr_state: 'ZZ'"):
        lenders.shards([{**loans[0], "addr_state": "ZZ"}])


def test_shards_are_written_and_read_back(loans: list[dict[str, str]], tmp_path: object) -> None:
    file = f"{tmp_path}/shard.csv"
    lenders.write_loans(file, loans[:20])
    assert lenders.read_loans(file) == loans[:20]
    with open(file, "a", encoding="utf-8") as shard:
        shard.write("1,2\n")
    with pytest.raises(ConfigError, match=r"shard\.csv:22: not one value for each column"):
        lenders.read_loans(file)
    with pytest.raises(LocalError, match="cannot read the loans"):
        lenders.read_loans(f"{tmp_path}/absent.csv")
