"""The table of answers: estimates with intervals, and what they protect and do not."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from smpc_dp.optional import import_optional
from smpc_dp.privacy.guarantee import PlainStruct, PrivacyGuarantee
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.records.asked import Statistic
from smpc_dp.records.intervals import INFINITE, Interval
from smpc_dp.records.schema import Schema

HIDDEN = "not shown: within the noise"
WITHIN_NOISE = "none: the count is within the noise"
PROJECTED = "projected into what is possible"
NEAR_ZERO = "within its noise: cut at 0, it is too large on average"
TOO_MANY_ROWS = (
    "that more rows of a party count than max_rows: it stops before it connects, so its absence may say so, "
    "a bit of each session, which no epsilon covers: sessions with other max_rows tell the number"
)
NO_PRIVACY = NamedSentences.of(
    exact="sums are exact: they have no differential privacy, and those of all steps are seen",
    any_vector="a party may add any vector within its bounds",
    reading_time="how long a party takes to read and sum its rows: others see it while they wait",
    many_rows=TOO_MANY_ROWS,
)


def near_zero(value: float, error: float) -> str:
    """Return the note of a number of 0 or more, given its estimate without that bound; none if it is clear.

    From two standard errors on a number that is cut at 0 is too large by less than a hundredth of one.
    """
    if value > 2 * error:
        return ""
    return f"{PROJECTED}; {NEAR_ZERO}" if value < 0 else NEAR_ZERO


def not_protected(schema: Schema, *, central: bool = False) -> NamedSentences:
    """Return what a reader of the answers should be told; `central`: servers draw one noise for all."""
    noise = (
        "the servers draw the noise together"
        if central
        else "or no noise; noise is counted on from all but as many parties as are planned to be corrupt, "
        "and with none planned from every party but the one that looks"
    )
    return NamedSentences.of(
        any_vector=f"a party may add any vector within its bounds{';' if central else ','} {noise}",
        reading_time="how long a party takes to read and sum its rows: others see it where it does so while "
        "they wait",
        many_rows=TOO_MANY_ROWS,
        columns="the columns, bounds, categories and what is asked for are public",
        hidden_counts="that counts within the noise are not shown is presentation, and protects nothing",
        sampling="intervals are about the noise; they say nothing about how the rows were sampled",
        unit="one record is protected, not all records of one person"
        if schema.unit == "record"
        else f"that a person is in at most {schema.party_factor} parties is declared, not checked",
        public_rows="the number of rows of each party is public" if schema.rows == "public" else None,
        filled="rows beyond rows_per_person, or without an id, are in the public number of rows: answers "
        f"over it take them as the middle of {', '.join(schema.filled)} (missing = false), which no interval "
        "covers"
        if schema.filled
        else None,
    )


class Estimate(PlainStruct, frozen=True, kw_only=True):
    """One number.

    Attributes:
        statistic: the text that was asked for; name: which of its numbers.
        cell: for tables and groups the category or the bin of each column.
        value: None where there is none: `note` says why.
        low, high: the ends of the interval, from the noise alone; None where it is not bounded. Of what is
            not shown if its count is within the noise: given that it is shown; of a count that is not shown
            over all releases.
        standard_error: of the noise, to first order; none of quantiles, whose error has steps.
        sampling_error: the standard error of the rows as a sample of a population, independent of each
            other, where it is known: apart from the noise, and not in the interval.
        unit: what the value is counted in.
        over: the number of values that it is computed from, with its noise; None for counts and sums.
        note: flags.
    """

    statistic: str
    name: str
    cell: dict[str, str]
    value: float | None
    low: float | None
    high: float | None
    standard_error: float | None
    sampling_error: float | None
    unit: str
    over: float | None = None
    note: str = ""

    @classmethod
    def of(
        cls,
        statistic: Statistic,
        name: str,
        unit: str,
        ends: Interval,
        *,
        cell: dict[str, str] | None = None,
        value: float | None = None,
        error: float | None = None,
        sampled: float | None = None,
        over: float | None = None,
        possible: Interval = INFINITE,
        note: str = "",
    ) -> Estimate:
        """Return a number with its interval; one outside what is possible is projected, with a note."""
        inside = None if value is None else min(max(value, possible[0]), possible[1])
        return cls(
            statistic=statistic.text,
            name=name,
            cell=cell or {},
            value=inside,
            low=finite(ends[0]),
            high=finite(ends[1]),
            standard_error=None if error is None else finite(error),
            sampling_error=None if sampled is None else finite(sampled),
            unit=unit,
            over=over,
            note=note or ("" if inside == value else PROJECTED),
        )


class Answers(PlainStruct, frozen=True, kw_only=True):
    """The answers of one request.

    Attributes:
        estimates: all numbers.
        level: of each interval; of all together where `simultaneous`.
        unit: what is protected: record or person.
        relation: add-remove, or substitution within a party.
        present, counted: shares of noise in the sum, and those that the guarantee counts on.
        rows: the public number of rows; None where it is private.
        guarantee: of the request; None for exact tables, which have no differential privacy.
        not_protected: what a reader should be told.
        following: of a regression by steps the coefficients at which the next one begins.
    """

    estimates: tuple[Estimate, ...]
    level: float
    simultaneous: bool
    unit: str
    relation: str
    present: int
    counted: int
    rows: int | None
    guarantee: PrivacyGuarantee | None
    not_protected: tuple[str, ...]
    following: tuple[int, ...] = ()

    def of(self, statistic: str) -> tuple[Estimate, ...]:
        """Return the estimates of one statistic, by its text."""
        return tuple(one for one in self.estimates if one.statistic == statistic)

    def to_pandas(self) -> Any:
        """Return a pandas table with a row for each estimate."""
        rows = [{**msgspec.structs.asdict(one), "cell": cell_text(one.cell)} for one in self.estimates]
        return import_optional("pandas").DataFrame(rows)

    def to_csv(self) -> str:
        """Return the estimates as CSV."""
        file = io.StringIO()
        names = list(Estimate.__struct_fields__)
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for one in self.estimates:
            row = {**msgspec.structs.asdict(one), "cell": cell_text(one.cell)}
            writer.writerow(["" if row[name] is None else row[name] for name in names])
        return file.getvalue()

    def __str__(self) -> str:
        exact = self.guarantee is None
        lines = [estimate_line(msgspec.structs.asdict(one), exact) for one in self.estimates]
        if self.guarantee is None:
            lines.append("exact: no differential privacy")
        else:
            epsilon, delta = self.guarantee.epsilon, self.guarantee.delta
            lines.append(
                f"({epsilon:g}, {delta:g})-differential privacy for each {self.unit} ({self.relation})"
            )
            lines.append(level_line(self.level, self.simultaneous))
        lines += [f"not protected: {line}" for line in self.not_protected]
        return "\n".join(lines)


def estimate_line(one: Mapping[str, Any], exact: bool) -> str:
    """Return an estimate, as `Estimate.to_json` gives it, in one line: the noise and the sampling apart."""
    name = f"{one['name']} [{cell_text(one['cell'])}]" if one["cell"] else one["name"]
    over = "" if one["over"] is None else f" over {one['over']:.6g} values"
    noise = [] if one["standard_error"] is None else [f"standard error {one['standard_error']:.3g}"]
    if not one["low"] is one["high"] is None:
        noise.append(f"in [{_shown(one['low'])}, {_shown(one['high'])}]")
    sampling = one["sampling_error"]
    parts = [
        f"{name}: {_shown(one['value'])} {one['unit']}".rstrip() + over,
        *([f"noise: {', '.join(noise)}"] if noise and not exact else []),
        *([] if sampling is None else [f"sampling: standard error {sampling:.3g}"]),
    ]
    return "; ".join(parts) + (f" ({one['note']})" if one["note"] else "")


def level_line(level: float, simultaneous: bool) -> str:
    """Return what intervals cover, and what they do not."""
    which = "all intervals together" if simultaneous else "each interval"
    return (
        f"level of {which}: {level:g}, for the noise alone: a population that the rows are a sample of is "
        "not covered"
    )


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def cell_text(cell: Mapping[str, str]) -> str:
    """Return the cell of a table as text."""
    return ", ".join(f"{name} = {value}" for name, value in cell.items())


def finite(value: float) -> float | None:
    """Return a number, None for one that is not finite."""
    return value if math.isfinite(value) else None
