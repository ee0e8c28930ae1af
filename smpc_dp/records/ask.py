"""Reads what is asked of the records: "mean(age) by sex", "age x sex", "regression(y ~ a + b)"."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues
from smpc_dp.records.asked import Reader, Statistic
from smpc_dp.records.checks import check_cells
from smpc_dp.records.registered import BUILT_IN, LOOPS, RESERVED, check_registered, statistic_of
from smpc_dp.records.schema import Schema

Ask = str | Sequence[str]

MAX_STATISTICS = 1000
# A column may have such a name.
_LOOP = re.compile(rf"\s*({'|'.join(LOOPS)})\s*\(")


def read_ask(ask: Ask, schema: Schema) -> tuple[Statistic, ...]:
    """Read what is asked for, a text or a list of them; raise ConfigError with every fault.

    In one text, statistics are separated by semicolons.
    """
    texts = ask.split(";") if isinstance(ask, str) else list(ask)
    statistics: list[Statistic] = []
    issues = Issues()
    for name in sorted(RESERVED & {*schema.statistics}):
        issues.add_issue(f"records.statistics.{name}", "is a name of this package", ConfigCheck.CONFLICT)
    for text in texts:
        where = f"ask: {shown(text)}"
        try:
            if not isinstance(text, str):
                raise ConfigError.at(where, "must be a text", ConfigCheck.TYPE)
            one = _read(Reader(text.strip()), schema, where)
            _check(one, schema, where)
            statistics.append(one)
        except ConfigError as error:
            issues += [ConfigIssue(issue.where or where, issue.reason, issue.check) for issue in error.issues]
    if len({one.text for one in statistics}) < len(statistics):
        issues.add_issue("ask", "the same is asked for twice", ConfigCheck.DUPLICATE)
    if not 1 <= len(texts) <= MAX_STATISTICS:
        reason = f"1 to {MAX_STATISTICS} statistics, not {len(texts)}"
        issues.add_issue("ask", reason, ConfigCheck.RANGE)
    issues.raise_issues()
    return tuple(statistics)


def asked_loop(ask: object) -> str | None:
    """Return the kind of what takes several requests, as it is written; None if there is none."""
    texts = ask.split(";") if isinstance(ask, str) else ask if isinstance(ask, Sequence) else ()
    matches = (_LOOP.match(text) for text in texts if isinstance(text, str))
    return next((match[1] for match in matches if match), None)


def _read(reader: Reader, schema: Schema, where: str) -> Statistic:
    """Read a whole text."""
    result = _called(reader, schema, where) if reader.tokens[1:2] == ["("] else _bare(reader)
    if reader.accepts("by"):
        result = msgspec.structs.replace(result, by=reader.names("x"))
    if reader.next < len(reader.tokens):
        raise reader.error(f"{reader.tokens[reader.next]!r} is not expected")
    return result


def _bare(reader: Reader) -> Statistic:
    if reader.tokens == ["count"] or reader.tokens[:2] == ["count", "by"]:
        reader.take()
        return Statistic(reader.text, "count")
    columns = reader.names("x")
    return Statistic(reader.text, "table" if len(columns) > 1 else "histogram", columns)


def _called(reader: Reader, schema: Schema, where: str) -> Statistic:
    kind = reader.name()
    reader.take("(")
    statistic = BUILT_IN.get(kind)
    if statistic is None and kind in schema.statistics:
        statistic = check_registered(kind, schema.statistics[kind], where)
    if statistic is None or statistic.read is None:
        raise reader.error(f"{kind!r} is no statistic")
    result = statistic.read(reader, kind)
    reader.take(")")
    return result


def _check(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError, naming the statistic, for what the columns do not allow."""
    statistic = statistic_of(one)
    for name in (*one.columns, *one.by):
        schema.column(name, where)
    for name in one.columns if statistic.numeric else ():
        schema.number(name, where)
    if len(set(one.columns)) < len(one.columns) or len(set(one.by)) < len(one.by):
        raise ConfigError.at(where, "a column is there twice", ConfigCheck.DUPLICATE)
    if statistic.several and len(one.columns) < 2:
        raise ConfigError.at(where, "needs two columns at least", ConfigCheck.SHAPE)
    if one.by and not statistic.groups:
        raise ConfigError.at(where, f"a {one.kind} has no groups", ConfigCheck.UNSUPPORTED)
    statistic.check(one, schema, where)
    check_cells(one.by, schema, where)
