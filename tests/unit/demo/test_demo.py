"""The demonstration's statistics: equal to numpy's on pooled rows, within the public bounds."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from smpc_dp.demo import lenders, regression
from smpc_dp.demo.lenders import COLUMNS, FEATURES, LENDERS, LENGTH, ROUNDED, TARGET
from smpc_dp.demo.report import report
from smpc_dp.demo.run import Demonstration, Files, Scores, _collect
from smpc_dp.encoding import Encoding
from smpc_dp.errors import Check, ConfigError, LocalError, PrivacyError, VerificationError
from smpc_dp.records.table import read_table

Loan = Mapping[str, str]


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, loans: Sequence[Loan]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(loans[0]))
        writer.writeheader()
        writer.writerows(loans)
    return path


@pytest.fixture(scope="module")
def loans() -> list[dict[str, str]]:
    return read(lenders.DATA)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    lenders.write_shards(folder)
    return folder


@pytest.fixture(scope="module")
def parts(shards: Path) -> list[np.ndarray]:
    return [lenders.rows(lenders.read_loans(shards / f"{name}.csv")) for name in LENDERS]


@pytest.fixture(scope="module")
def total(parts: list[np.ndarray]) -> list[int]:
    return [int(value) for value in np.sum([lenders.statistics(part) for part in parts], axis=0)]


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return lenders.rows(read_table(lenders.DATA, lenders.SCHEMA))


def plain(loans: Sequence[Loan], column: str) -> np.ndarray:
    return np.array([float(loan[column]) for loan in loans])


def test_the_shipped_data_are_all_there(loans: list[dict[str, str]]) -> None:
    assert len(loans) == 9857
    assert len(loans[0]) == 23
    assert "MIT License" in (lenders.DATA.parent / "NOTICE").read_text("utf-8")


def test_shards_hold_every_loan_once(loans: list[dict[str, str]], shards: Path) -> None:
    parts = {path.stem: read(path) for path in shards.iterdir()}
    assert set(parts) == set(LENDERS)
    assert sorted(tuple(loan.items()) for part in parts.values() for loan in part) == sorted(
        tuple(loan.items()) for loan in loans
    )
    assert all(
        loan["addr_state"] in lenders.REGIONS[name].split() for name, part in parts.items() for loan in part
    )
    assert all(0 < len(part) <= lenders.MAX_LOANS for part in parts.values())


def test_every_loan_is_within_the_public_bounds(rows: np.ndarray, parts: list[np.ndarray]) -> None:
    for index, column in enumerate(COLUMNS, 1):
        assert rows[:, index].min() >= 0, column.name
        assert rows[:, index].max() <= column.upper * 10**column.decimals, column.name
    for part in parts:
        assert lenders.statistics(part).min() >= 0
        assert lenders.statistics(part).max() <= lenders.UPPER


def test_one_column_alone_is_rounded(loans: list[dict[str, str]], rows: np.ndarray) -> None:
    for index, column in enumerate(COLUMNS, 1):
        if column.codes:
            continue
        scale = 10**column.decimals
        exact = [Decimal(loan[column.name]) * scale for loan in loans]
        assert any(value != int(value) for value in exact) == (column.name == ROUNDED), column.name
        assert rows[:, index].tolist() == [math.floor(value + Decimal("0.5")) for value in exact], column.name


def test_the_bounds_leave_no_room_for_an_overflow() -> None:
    encoding = Encoding.plan(
        length=LENGTH, lower=0, upper=lenders.UPPER, precision=None, parties=len(LENDERS)
    )
    assert len(LENDERS) * lenders.UPPER < 1 << encoding.modulus_bits
    assert len(LENDERS) * lenders.UPPER < 1 << 63


def test_sums_of_lenders_are_those_of_the_pooled_loans(total: list[int], rows: np.ndarray) -> None:
    whole = rows.astype(object)
    pooled = (whole.T @ whole)[np.triu_indices(lenders.WIDTH)]
    assert total == list(pooled)


def test_means_and_variances_are_numpys(loans: list[dict[str, str]], total: list[int]) -> None:
    fitted = regression.fit(total)
    assert fitted.loans == len(loans)
    numeric = [column for column in COLUMNS if not column.codes]
    assert len(numeric) == 17
    for column in numeric:
        values = plain(loans, column.name)
        if column.name == ROUNDED:
            values = np.floor(values + 0.5)
        assert fitted.means[column.name] == pytest.approx(values.mean(), rel=1e-12), column.name
        assert fitted.variances[column.name] == pytest.approx(values.var(ddof=1), rel=1e-11), column.name
    sixty = np.array([loan["term"] == "term_60" for loan in loans])
    assert fitted.means["term_60_months"] == pytest.approx(sixty.mean(), rel=1e-14)


def test_a_mean_is_correctly_rounded(loans: list[dict[str, str]], total: list[int]) -> None:
    cents = sum(round(float(loan["int_rate"]) * 100) for loan in loans)
    assert regression.fit(total).means["int_rate"] == cents / (100 * len(loans))


def test_the_regression_is_least_squares_on_the_pooled_rows(
    loans: list[dict[str, str]], total: list[int], rows: np.ndarray
) -> None:
    fitted = regression.fit(total)
    design = np.column_stack(
        [
            np.ones(len(loans)),
            *(
                [column.codes[loan[column.heading]] for loan in loans]
                if column.codes
                else np.floor(plain(loans, column.name) * 10**column.decimals + 0.5) / 10**column.decimals
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
    for coefficients in (
        fitted.coefficients,
        dict(zip(fitted.coefficients, expected.tolist(), strict=True)),
    ):
        score = regression.score(coefficients, rows)
        assert score.rmse == pytest.approx(math.sqrt(float((residual**2).mean())), rel=1e-12)
        assert score.r2 == pytest.approx(1 - residual.var() / target.var(), rel=1e-12)
    pooled = regression.pooled_fit(rows)
    np.testing.assert_allclose(list(pooled.values()), expected, rtol=1e-9)


def test_sums_without_one_best_fit_are_refused(rows: np.ndarray) -> None:
    def fit(changed: np.ndarray) -> regression.Fit:
        return regression.fit(lenders.statistics(changed).tolist())

    names = ["one", *(column.name for column in COLUMNS)]
    term, other, target = (names.index(name) for name in ("term_60_months", "inq_fi", TARGET.name))
    for column, name in ((term, "term_60_months"), (target, TARGET.name)):
        same = rows.copy()
        same[:, column] = 1
        with pytest.raises(ConfigError, match=f"{name} is the same in all loans"):
            fit(same)
    dependent = rows.copy()
    dependent[:, other] = 3 * dependent[:, term] + dependent[:, names.index("open_il_6m")]
    with pytest.raises(ConfigError, match="depend linearly"):
        fit(dependent)
    with pytest.raises(ConfigError, match="1 loans have no variance"):
        fit(rows[:1])
    with pytest.raises(ConfigError, match="275 sums, 276 are needed"):
        regression.fit([1] * (LENGTH - 1))


def collect(
    folder: Path,
    killed: str | None,
    *,
    total: int = 9,
    absent: Sequence[str] = (),
    last: dict[str, object] | None = None,
) -> dict[str, Any]:
    """Return the result of lenders that have written the same, but for the `last` one."""
    survivors = [name for name in LENDERS if name not in absent]
    common: dict[str, object] = {"fixed_point": [9], "survivors": survivors, "absent": [*absent]}
    files = Files(folder)
    files.result("any").parent.mkdir()
    # A killed lender has written nothing.
    writers = [name for name in LENDERS if name != killed]
    for name in writers:
        edited = common if name != writers[-1] else common | (last or {})
        files.result(name).write_text(json.dumps(edited), "utf-8")
    return _collect(files, [total], killed)


@pytest.mark.parametrize("killed", ["mountain", None])
def test_the_one_result_of_all_lenders_is_taken(tmp_path: Path, killed: str | None) -> None:
    absent = [] if killed is None else [killed]
    assert collect(tmp_path, killed, absent=absent)["absent"] == absent


@pytest.mark.parametrize(
    "given",
    [{"last": {"fixed_point": [8]}}, {"last": {"survivors": [*LENDERS[1:]]}}, {"total": 8}],
    ids=["sum", "survivors", "aggregator"],
)
def test_results_that_differ_are_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    """Between lenders, and between them and the aggregator."""
    with pytest.raises(VerificationError, match="do not have the same result") as refused:
        collect(tmp_path, None, **given)
    assert refused.value.check == Check.WRONG_RESULT


def test_a_killed_lender_in_the_result_is_refused(tmp_path: Path) -> None:
    """Though all others and the aggregator agree on it."""
    with pytest.raises(VerificationError, match="mountain was to be killed") as refused:
        collect(tmp_path, "mountain")
    assert refused.value.check == Check.WRONG_RESULT


def test_the_report_fits_into_80_columns(parts: list[np.ndarray], total: list[int]) -> None:
    fitted = regression.fit(total)
    score = regression.score(fitted.coefficients, parts[0])
    vectors = {name: lenders.statistics(part).tolist() for name, part in zip(LENDERS, parts, strict=True)}
    demonstration = Demonstration(
        equal=LENGTH - 1,
        result={
            "survivors": list(LENDERS),
            "absent": ["mountain"],
            "fixed_point": total,
            "privacy": {"claim": "a claim", "not_protected": ["a limit"]},
        },
        fitted=fitted,
        scores=Scores(score, score, dict.fromkeys(LENDERS, score), score),
        largest_gap=0.0,
        received={name: [2**56 - 1] * LENGTH for name in LENDERS if name != "mountain"},
        modulus_bits=56,
        loans={name: len(part) for name, part in zip(LENDERS, parts, strict=True)},
        true_vectors=vectors,
        killed="mountain",
        seconds=1.0,
    )
    file = io.StringIO()
    report(Console(file=file, width=80), demonstration)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    assert "275 of 276 sums are equal" in file.getvalue()
    assert "Result NOT EXACT, in 1.0 s." in lines
    received = next(line for line in lines if line.startswith("pacific "))
    assert received.split() == ["pacific", "f" * 14, "f" * 14, "1,724", "21,692.77"]
    assert "mountain (killed)" in file.getvalue()


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("annual_inc", "1000001", "annual_inc: 1 values are outside the bounds"),
        ("delinq_2yrs", "-1", "delinq_2yrs: 1 values are outside the bounds"),
        ("int_rate", "nan", "int_rate: 1 values are missing, or no number"),
        ("int_rate", "high", "int_rate: 1 values are missing, or no number"),
        ("term", "term_48", "term: 1 values are no declared category"),
    ],
)
def test_a_bad_value_is_refused_and_named(
    loans: list[dict[str, str]], tmp_path: Path, column: str, value: str, message: str
) -> None:
    shard = write(tmp_path / "shard.csv", [loans[0], {**loans[1], column: value}])
    with pytest.raises(PrivacyError, match=f"mountain: not the agreed loans: {message}"):
        lenders.read_loans(shard, "mountain")


def test_a_file_that_is_no_shard_is_refused(loans: list[dict[str, str]], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="2501 private rows, max_rows is 2500"):
        lenders.read_loans(write(tmp_path / "long.csv", loans[:2501]))
    shard = write(tmp_path / "shard.csv", loans[:20])
    assert lenders.read_loans(shard).rows == 20
    with shard.open("a", encoding="utf-8") as file:
        file.write("1,2\n")
    with pytest.raises(PrivacyError, match="1 lines have other cells than the header"):
        lenders.read_loans(shard)
    with pytest.raises(LocalError, match="cannot be read"):
        lenders.read_loans(tmp_path / "absent.csv")
    with pytest.raises(LocalError, match="cannot write the loans"):
        lenders.write_shards(tmp_path / "absent")
