"""The lenders' public agreement, and the vector that each computes from its own loans.

The columns are declared and read as those of statistics of records, which have noise; here they are exact.
A loan becomes a row of whole numbers: each column in its unit times a power of ten (an interest rate of
13.99 % is 1399). A lender's vector is the upper triangle of the cross products of its rows, a column of ones
included: the number of loans, every sum, every sum of squares, and X'X, X'y and y'y. Means, variances and the
least-squares fit all follow from the sum of these vectors, and that sum is exact.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import LocalError, PrivacyError
from smpc_dp.records.requests.records_task import dropped_lines
from smpc_dp.records.schema import read_schema
from smpc_dp.records.table import Table, read_table

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


@dataclass(frozen=True, slots=True)
class Column:
    """Description of one column of the lenders' data: source, unit, public bounds and decimals.

    Attributes:
        name: what it is called in tables; the CSV column, unless `source` says another.
        unit: of the values, as people read it.
        upper: largest value in that unit; the smallest is 0. Public, and not taken from anyone's data.
        decimals: digits after the point that are kept; further ones are rounded.
        codes: for a category, the number that stands for each of its labels.
    """

    name: str
    unit: str
    upper: int
    decimals: int = 0
    source: str = ""
    codes: Mapping[str, int] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The heading of the column in a lender's CSV file."""
        return self.source or self.name

    @property
    def declared(self) -> Mapping[str, object]:
        """The column's entry in the session's schema, as plain data."""
        if self.codes:
            return {"values": [*self.codes]}
        return {"lower": 0, "upper": self.upper, "step": 10.0**-self.decimals}

    def values(self, loans: Table) -> NDArray[np.int64]:
        """Return a column of the loans as integers, in units of 10^-decimals, shape (loans,)."""
        if self.codes:
            return np.array([*self.codes.values()])[loans.codes[self.heading]]
        return loans.grid(self.name)


_AMOUNT, _COUNT = 1_000_000, 1_000
_YEARS = {f"emp_{years}": years for years in range(1, 10)} | {"emp_lt_1": 0, "emp_ge_10": 10, "emp_unk": 0}
_STATUSES = ("Not_Verified", "Source_Verified", "Verified")


def _indicator(name: str, source: str, label: str, labels: Iterable[str]) -> Column:
    """Return the description of a column that is 1 for loans with `label`, 0 for the others of `labels`."""
    return Column(name, "0 or 1", 1, source=source, codes={other: int(other == label) for other in labels})


# Its cents are rounded away; no other column has digits beyond those that are kept.
ROUNDED = "annual_inc"
TARGET = Column("int_rate", "%", 100, decimals=2)

# All numeric columns of the data but the target, then categories as numbers. `sub_grade` is left out, because
# the rate follows from it, and `Class`, because it is known only after the loan.
FEATURES = (
    Column("funded_amnt", "$", _AMOUNT),
    Column(ROUNDED, "$", _AMOUNT),
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
SCHEMA = read_schema(
    {
        "columns": {column.heading: column.declared for column in COLUMNS},
        "max_rows": MAX_LOANS,
    }
)


def read_loans(path: str | os.PathLike[str], party: str = "lender") -> Table:
    """Read a lender's loans from a CSV file with headings; PrivacyError if they are not as agreed.

    Raises:
        LocalError, ConfigError: as of `records.table.read_table`; ConfigError for more than MAX_LOANS loans.
        PrivacyError: a value is missing, out of bounds or no known label; names each such column.
    """
    loans = read_table(path, SCHEMA, party=party)
    loans.check_rows(party)
    faults = dropped_lines(loans)[1:]
    if faults:
        raise PrivacyError(f"{party}: not the agreed loans: {'; '.join(faults)}")
    return loans


def write_shards(folder: Path) -> None:
    """Write the loans of each lender's region to NAME.csv in a folder; raise LocalError on failure."""
    heading, *lines = DATA.read_text("utf-8").splitlines(keepends=True)
    state = heading.split(",").index("addr_state")
    try:
        for name, states in REGIONS.items():
            own = [line for line in lines if line.split(",")[state] in states.split()]
            (folder / f"{name}.csv").write_text(heading + "".join(own), "utf-8")
    except OSError as error:
        raise LocalError(f"{folder}: cannot write the loans ({error.strerror})") from None


def rows(loans: Table) -> NDArray[np.int64]:
    """Return the loans as integers, shape (loans, WIDTH): a one, the features, the target."""
    ones = np.ones(loans.rows, dtype=np.int64)
    return np.stack([ones, *(column.values(loans) for column in COLUMNS)], axis=1)


def statistics(matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sums of products of each two columns (upper triangle), for a regression.

    Exact in int64 for up to MAX_LOANS rows a lender, and for all lenders together.
    """
    return (matrix.T @ matrix)[np.triu_indices(WIDTH)]
