"""The table of answers: estimates with intervals, and what they protect and do not."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from smpc_dp.optional import import_optional
from smpc_dp.privacy.guarantee import PlainStruct, PrivacyGuarantee
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.records.asked import Statistic
from smpc_dp.records.intervals import INFINITE, Interval, within
from smpc_dp.records.population import Sampling
from smpc_dp.records.schema import Schema
from smpc_dp.report.table1 import table_lines
from smpc_dp.report.texts import AT_MOST, LEAST_P_VALUE, follow_up_lines, without_numbers

# Names that are a question themselves: a count, or a statistic of columns.
_CALL = re.compile(r"count|\w+\([^()]*\)")
# Where the groups and the condition of a question begin.
_GROUPS = re.compile(r"\s(?:by|where)\s")
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
    """Return a warning note if an estimate of a nonnegative number is within two errors of 0, else empty.

    From two standard errors on a number that is cut at 0 is too large by less than a hundredth of one.
    """
    if value > 2 * error:
        return ""
    return f"{PROJECTED}; {NEAR_ZERO}" if value < 0 else NEAR_ZERO


def not_protected(
    schema: Schema, statistics: Iterable[Statistic], *, central: bool = False
) -> NamedSentences:
    """Return sentences that tell readers what the privacy guarantee of answers to questions leaves open."""
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
        sampling="intervals of the noise say nothing about how the rows were sampled; those of noise and "
        "sampling, and p-values, hold for rows that are independent draws from one population",
        unit="one record is protected, not all records of one person"
        if schema.unit == "record"
        else f"that a person is in at most {schema.party_factor} parties is declared, not checked",
        public_rows="the number of rows of each party is public" if schema.rows == "public" else None,
        single_parties=f"answers about values of {schema.party_column} are about the rows of single parties: "
        "each record is protected, and what all records of a party have in common is told"
        if any(schema.party_column in one.used for one in statistics)
        else None,
        filled="rows beyond rows_per_person, or without an id, are in the public number of rows: answers "
        f"over it take them as the middle of {', '.join(schema.filled)} (missing = false), which no interval "
        "covers"
        if schema.filled
        else None,
    )


class Estimate(PlainStruct, frozen=True, kw_only=True):
    """One estimated number of an answer, with intervals for the noise and the population, unit and note.

    Attributes:
        statistic: the text that was asked for; name: which of its numbers.
        cell: for tables and groups the category or the bin of each column.
        value: None where there is none: `note` says why.
        low, high: the ends of the interval, from the noise alone; None where it is not bounded. Of what is
            not shown if its count is within the noise: given that it is shown; of a count that is not shown
            over all releases.
        standard_error: of the noise, to first order; none of quantiles, whose error has steps.
        sampling_error: the standard error of the rows as a sample of a population, independent of each
            other, where it is known: apart from the noise, and not in `low` and `high`.
        population_low, population_high: the ends of the interval for noise and sampling together, None where
            there is none, or an end is not bounded.
        p_value: of a test, the noise included; None of other numbers. With Laplace noise 1e-10 is an upper
            bound: it stands for each smaller one.
        unreconciled: of a count that was made to agree with others the noisy count as it was released; None
            of other numbers.
        unit: what the value is counted in.
        over: the number of values that it is computed from, with its noise; None for counts and sums.
        note: flags.
        noise: the law of its noise: "laplace", or "normal" of noise that is Gaussian or taken for that; "" of
            exact answers.
        part_of: the question, `table1(...) by ...`, that `statistic` is a part of; "" of others.
        follow_up: of the intercept of a linear regression the question for its robust sampling errors, to ask
            in a second request; "" of others.
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
    noise: str = ""
    population_low: float | None = None
    population_high: float | None = None
    p_value: float | None = None
    unreconciled: float | None = None
    part_of: str = ""
    follow_up: str = ""

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
        sampled: Sampling | None = None,
        over: float | None = None,
        unreconciled: float | None = None,
        possible: Interval = INFINITE,
        note: str = "",
    ) -> Estimate:
        """Return an estimate with its interval, a value outside `possible` moved to the nearest bound."""
        inside = None if value is None else min(max(value, possible[0]), possible[1])
        sampled = sampled or Sampling()
        population = INFINITE if sampled.ends is None else within(sampled.ends, *possible)
        return cls(
            statistic=statistic.text,
            name=name,
            cell=cell or {},
            value=inside,
            low=finite(ends[0]),
            high=finite(ends[1]),
            standard_error=None if error is None else finite(error),
            sampling_error=None if sampled.error is None else finite(sampled.error),
            unit=unit,
            over=over,
            note=note or ("" if inside == value else PROJECTED),
            population_low=finite(population[0]),
            population_high=finite(population[1]),
            p_value=sampled.p_value,
            unreconciled=unreconciled,
            part_of=statistic.part_of,
        )


def lost_note(names: Collection[str]) -> str:
    """Return the note of an answer that is refused because rows of these parties are not in the sum."""
    return f"refused: no rows of {', '.join(sorted(names))} are in the sum"


def without_rows(one: Estimate, parties: Collection[str]) -> Estimate:
    """Return an estimate about the rows of lost parties without any number, and with the reason."""
    return Estimate(
        statistic=one.statistic,
        name=one.name,
        cell=one.cell,
        value=None,
        low=None,
        high=None,
        standard_error=None,
        sampling_error=None,
        unit=one.unit,
        note=lost_note(parties),
        part_of=one.part_of,
    )


class Answers(PlainStruct, frozen=True, kw_only=True):
    """Result of a request for statistics: all estimates, interval level, and the privacy guarantee.

    Attributes:
        estimates: all numbers.
        level: of each interval; of all together where `simultaneous`.
        unit: what is protected: record or person.
        relation: add-remove, or substitution within a party.
        present, counted: shares of noise in the sum, and those that the guarantee counts on.
        rows: the public number of rows; None where it is private.
        guarantee: of the request; None for exact answers, which have no differential privacy.
        not_protected: what a reader should be told.
        following: what the next request takes of this one: of a regression by steps the coefficients at
            which it begins, whether steps are averaged from it on, and the sums of this one.
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
        """Return the estimates of one statistic or table of groups, found by the text that asked for it."""
        return tuple(one for one in self.estimates if statistic in (one.statistic, one.part_of))

    def to_pandas(self) -> Any:
        """Return a pandas table with a row for each estimate."""
        rows = [{**msgspec.structs.asdict(one), "cell": cell_text(one.cell)} for one in self.estimates]
        return import_optional("pandas").DataFrame(rows)

    def to_csv(self) -> str:
        """Return the estimates as CSV text with a header, a line for each estimate."""
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
        lines = estimate_lines([msgspec.structs.asdict(one) for one in self.estimates], exact=exact)
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


def printed_names(estimates: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name of each estimate, given as JSON data, that tells the question and the cell of its number.

    The question stands before a name that is no question itself, as `intercept`, and before a name that
    numbers of several questions have. Of a question for robust sampling errors the numbers are left out,
    unless another one has the same formula and condition.
    """
    asked = without_numbers(estimates)
    texts: dict[tuple[str, str], set[str]] = {}
    for one in estimates:
        if not one["part_of"]:
            texts.setdefault((one["name"], cell_text(one["cell"])), set()).add(one["statistic"])
    names = []
    for one in estimates:
        name, text, cell = one["name"], one["statistic"], cell_text(one["cell"])
        plain = (name.rpartition(" where ")[0] if " where " in text else "") or name
        own = plain in (text, _GROUPS.split(text, maxsplit=1)[0])
        alone = len(texts.get((name, cell), ())) < 2 and _CALL.fullmatch(plain)
        shown = name if own or alone else f"{asked[text]}: {plain}"
        names.append(f"{shown} [{cell}]" if cell else shown)
    return names


def _estimate_line(one: Mapping[str, Any], name: str, exact: bool) -> str:
    """Return one estimate, given as JSON data, as a line of text with its errors and intervals."""
    over = "" if one["over"] is None else f" over {one['over']:.6g} values"
    noise = [] if one["standard_error"] is None else [f"standard error {one['standard_error']:.3g}"]
    if not one["low"] is one["high"] is None:
        noise.append(f"in [{_shown(one['low'])}, {_shown(one['high'])}]")
    sampling, tested = one["sampling_error"], one["p_value"]
    both = [one["population_low"], one["population_high"]]
    parts = [
        f"{name}: {_shown(one['value'])} {one['unit']}".rstrip() + over,
        *([f"noise: {', '.join(noise)}"] if noise and not exact else []),
        *([] if sampling is None else [f"sampling: standard error {sampling:.3g}"]),
        *([] if both == [None, None] else [f"both: in [{_shown(both[0])}, {_shown(both[1])}]"]),
        *([] if tested is None else [f"p {AT_MOST if tested <= LEAST_P_VALUE else f'= {tested:.3g}'}"]),
    ]
    return "; ".join(parts) + (f" ({one['note']})" if one["note"] else "")


def estimate_lines(estimates: Sequence[Mapping[str, Any]], *, exact: bool) -> list[str]:
    """Return a line for each estimate, as `Estimate.to_json` gives them; a table for those that are one."""
    lines: list[str] = []
    named = zip(printed_names(estimates), estimates, strict=True)
    for text, parts in itertools.groupby(named, key=lambda pair: pair[1]["part_of"]):
        together = list(parts)
        each = (_estimate_line(one, name, exact) for name, one in together)
        lines += table_lines(text, [one for _, one in together]) if text else each
    return [*lines, *follow_up_lines(estimates)]


def level_line(level: float, simultaneous: bool) -> str:
    """Return a sentence on what the intervals cover at their level, and what they do not."""
    which = "all intervals together" if simultaneous else "each interval"
    return (
        f"level of {which}: {level:g}, for the noise alone; where it says both, for the noise and for rows "
        "that are independent draws from a population"
    )


def _shown(value: float | None) -> str:
    """Return a number with six significant digits as text, a dash for None."""
    return "-" if value is None else f"{value:.6g}"


def cell_text(cell: Mapping[str, str]) -> str:
    """Return a table cell's columns with their categories or bins as one text."""
    return ", ".join(f"{name} = {value}" for name, value in cell.items())


def finite(value: float) -> float | None:
    """Return a number unchanged, None if it is infinite or NaN, for plain JSON data."""
    return value if math.isfinite(value) else None
