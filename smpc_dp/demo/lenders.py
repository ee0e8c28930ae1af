"""The lenders' public agreement, and the vector that each computes from its own loans.

A loan becomes a row of whole numbers: each column in its unit times a power of ten (an interest rate of
13.99 % is 1399). A lender's vector is the upper triangle of the cross products of its rows, a column of ones
included: the number of loans, every sum, every sum of squares, and X'X, X'y and y'y. Means, variances and the
least-squares fit all follow from the sum of these vectors, and that sum is exact.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError, PrivacyError

Loan = Mapping[str, str]

DATA = Path(__file__).parent / "data" / "lending_club.csv"
DATA_SOURCE = "Lending Club, first quarter of 2016, from the R package modeldata (MIT)"

# Each lender holds the loans of a group of states: the divisions of the US Census Bureau, two of them joined.
REGIONS = {
    "new-england": "CT ME MA NH RI VT",
    "middle-atlantic": "NJ NY PA",
    "south-atlantic": "DE DC FL GA MD NC SC VA WV",
    "east-n-central": "IL IN MI OH WI",
    "west-n-central": "IA KS MN MO NE ND SD",
    "south-central": "AL AR KY LA MS OK TN TX",
    "mountain": "AZ CO ID MT NV NM UT WY",
    "pacific": "AK CA HI OR WA",
}
LENDERS = tuple(REGIONS)
_LENDER_OF = {state: name for name, states in REGIONS.items() for state in states.split()}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the agreement.

    Attributes:
        name: what it is called in tables; the CSV column, unless `source` says another.
        unit: of the values, as people read it.
        upper: largest value in that unit; the smallest is 0. Public, and not taken from anyone's data.
        decimals: digits after the point that are kept.
        rounds: whether further digits are rounded away; otherwise they are refused.
        codes: for a category, the number that stands for each of its labels.
    """

    name: str
    unit: str
    upper: int
    decimals: int = 0
    rounds: bool = False
    source: str = ""
    codes: Mapping[str, int] = field(default_factory=dict)

    def grid(self, loan: Loan) -> int:
        """Return the column's value in a loan as a whole number of 10^-decimals units.

        Raises:
            ConfigError: the loan has no such column, or no number or known label in it.
            PrivacyError: the value is outside of [0, upper], or has more digits than the agreement keeps.
        """
        heading = self.source or self.name
        text = loan.get(heading)
        if text is None:
            raise ConfigError.at(heading, "the loan has no such column", ConfigCheck.UNKNOWN_KEY)
        if self.codes:
            if text not in self.codes:
                raise ConfigError.at(
                    heading, f"unknown label, the known ones are {', '.join(self.codes)}", ConfigCheck.CHOICE
                )
            return self.codes[text]
        try:
            scaled = Decimal(text).scaleb(self.decimals)
        except InvalidOperation:
            raise ConfigError.at(heading, "not a number", ConfigCheck.TYPE) from None
        if not scaled.is_finite() or not 0 <= scaled <= self.upper * 10**self.decimals:
            raise PrivacyError(f"{heading}: a value is outside [0, {self.upper}] {self.unit}".rstrip())
        whole = round(scaled)
        if whole != scaled and not self.rounds:
            raise PrivacyError(f"{heading}: a value has more than {self.decimals} decimals")
        return whole


_AMOUNT, _COUNT = 1_000_000, 1_000
_YEARS = {f"emp_{years}": years for years in range(1, 10)} | {"emp_lt_1": 0, "emp_ge_10": 10, "emp_unk": 0}
_STATUSES = ("Not_Verified", "Source_Verified", "Verified")


def _indicator(name: str, source: str, label: str, labels: Iterable[str]) -> Column:
    """Return the column that is 1 for loans with this label, else 0."""
    return Column(name, "0 or 1", 1, source=source, codes={other: int(other == label) for other in labels})


TARGET = Column("int_rate", "%", 100, decimals=2)

# All numeric columns of the data but the target, then categories as numbers. `sub_grade` is left out, because
# the rate follows from it, and `Class`, because it is known only after the loan.
FEATURES = (
    Column("funded_amnt", "$", _AMOUNT),
    Column("annual_inc", "$", _AMOUNT, rounds=True),
    Column("delinq_2yrs", "", _COUNT),
    Column("inq_last_6mths", "", _COUNT),
    Column("revol_util", "%", 1_000, decimals=1),
    Column("acc_now_delinq", "", _COUNT),
    Column("open_il_6m", "", _COUNT),
    Column("open_il_12m", "", _COUNT),
    Column("open_il_24m", "", _COUNT),
    Column("total_bal_il", "$", _AMOUNT),
    Column("all_util", "%", 1_000),
    Column("inq_fi", "", _COUNT),
    Column("inq_last_12m", "", _COUNT),
    Column("delinq_amnt", "$", _AMOUNT),
    Column("num_il_tl", "", _COUNT),
    Column("total_il_high_credit_limit", "$", _AMOUNT),
    _indicator("term_60_months", "term", "term_60", ("term_36", "term_60")),
    _indicator("source_verified", "verification_status", "Source_Verified", _STATUSES),
    _indicator("verified", "verification_status", "Verified", _STATUSES),
    Column("emp_length", "years", 10, codes=_YEARS),
    _indicator("emp_length_unknown", "emp_length", "emp_unk", _YEARS),
)
COLUMNS = (*FEATURES, TARGET)

# Most loans that one lender may hold: with the bounds of the columns, what keeps the sums from overflowing.
MAX_LOANS = 2_500
WIDTH = 1 + len(COLUMNS)
LENGTH = WIDTH * (WIDTH + 1) // 2
UPPER = MAX_LOANS * max(column.upper * 10**column.decimals for column in COLUMNS) ** 2


def read_loans(path: str | os.PathLike[str]) -> list[dict[str, str]]:
    """Return the loans of a CSV file with a heading line.

    Raises LocalError when it cannot be read, ConfigError naming a line that has not one value a column.
    """
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            loans = []
            for loan in reader:
                if None in loan or None in loan.values():
                    issue = ConfigIssue(
                        f"{path}:{reader.line_num}", "not one value for each column", ConfigCheck.SHAPE
                    )
                    raise ConfigError([issue])
                loans.append(loan)
            return loans
    except OSError as error:
        raise LocalError(f"{path}: cannot read the loans ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError.at(str(path), "not UTF-8", ConfigCheck.FORMAT) from None


def write_loans(path: str | os.PathLike[str], loans: Sequence[Loan]) -> None:
    """Write at least one loan as CSV with a heading line; raise LocalError when that fails."""
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(loans[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(loans)
    except OSError as error:
        raise LocalError(f"{path}: cannot write the loans ({error.strerror})") from None


def shards(loans: Sequence[Loan]) -> dict[str, list[Loan]]:
    """Return each lender's loans: those of the states of its region, in the order given.

    Raises ConfigError when `addr_state` is the state of no region.
    """
    parts: dict[str, list[Loan]] = {name: [] for name in LENDERS}
    for loan in loans:
        state = loan["addr_state"]
        if state not in _LENDER_OF:
            raise ConfigError.at("addr_state", f"{state!r} is in no lender's region", ConfigCheck.CHOICE)
        parts[_LENDER_OF[state]].append(loan)
    return parts


def rows(loans: Sequence[Loan]) -> NDArray[np.int64]:
    """Return the loans as whole numbers, shape (loans, WIDTH): a one, the features, the target.

    Raises ConfigError or PrivacyError as `Column.grid` does.
    """
    grid = [[1, *(column.grid(loan) for column in COLUMNS)] for loan in loans]
    return np.array(grid, dtype=np.int64).reshape(len(loans), WIDTH)


def statistics(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the upper triangle of the cross products of rows, row by row, shape (LENGTH,).

    Exact in int64 for up to MAX_LOANS rows a lender, and for all lenders together.
    """
    return (matrix.T @ matrix)[np.triu_indices(WIDTH)]


def lender_vector(loans: Sequence[Loan]) -> NDArray[np.int64]:
    """Return the vector of one lender, shape (LENGTH,), each value in [0, UPPER].

    Raises ConfigError or PrivacyError as `Column.grid` does, PrivacyError also for more than MAX_LOANS loans.
    """
    if len(loans) > MAX_LOANS:
        raise PrivacyError(f"{len(loans)} loans, a lender may contribute at most {MAX_LOANS}")
    return statistics(rows(loans))
