"""Reads what is asked of the records: "mean(age) by sex", "age x sex", "regression(y ~ a + b)"."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import msgspec

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues
from smpc_dp.records.asked import ROBUST, Reader, Statistic
from smpc_dp.records.checks import check_cells
from smpc_dp.records.conditions import read_conditions
from smpc_dp.records.registered import BUILT_IN, LOOPS, RESERVED, check_registered, statistic_of
from smpc_dp.records.schema import Schema
from smpc_dp.records.table1 import TABLE1, part_texts

Ask = str | Sequence[str]

MAX_STATISTICS = 1000
# A column may have such a name.
_LOOP = re.compile(rf"\s*({'|'.join(LOOPS)})\s*\(")


def read_ask(ask: Ask, schema: Schema) -> tuple[Statistic, ...]:
    """Parse requested statistics, a text or a list of texts; raise ConfigError with every fault.

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
            statistics += _parts(_read(Reader(text.strip()), schema, where), schema, where)
        except ConfigError as error:
            issues += [ConfigIssue(issue.where or where, issue.reason, issue.check) for issue in error.issues]
    for text in [text for text, number in Counter(one.text for one in statistics).items() if number > 1]:
        issues.add_issue("ask", f"the same is asked for twice: {shown(text)}", ConfigCheck.DUPLICATE)
    if not 1 <= (number := max(len(texts), len(statistics))) <= MAX_STATISTICS:
        reason = f"1 to {MAX_STATISTICS} statistics, not {number}"
        issues.add_issue("ask", reason, ConfigCheck.RANGE)
    issues.raise_issues()
    return tuple(statistics)


def asked_loop(ask: object) -> str | None:
    """Return the name of the first requested statistic that takes several requests, None if there is none."""
    texts = ask.split(";") if isinstance(ask, str) else ask if isinstance(ask, Sequence) else ()
    matches = (_LOOP.match(text) for text in texts if isinstance(text, str))
    return next((match[1] for match in matches if match), None)


def _read(reader: Reader, schema: Schema, where: str) -> Statistic:
    """Parse a text that requests one statistic, as `mean(age) by sex where bmi > 25`; or raise an error."""
    result = _called(reader, schema, where) if reader.tokens[1:2] == ["("] else _bare(reader)
    if reader.accepts("by"):
        result = msgspec.structs.replace(result, by=reader.names("x"))
    if reader.accepts("where"):
        reader.in_condition = True
        written, conditions = reader.next, read_conditions(reader, schema, where)
        text = " ".join(reader.tokens[written : reader.next])
        result = msgspec.structs.replace(result, where=conditions, condition=text)
    if reader.next < len(reader.tokens):
        raise reader.error(f"{reader.tokens[reader.next]!r} is not expected")
    return result


def _bare(reader: Reader) -> Statistic:
    """Parse a statistic without parentheses: `count`, or columns for a histogram or a table of counts."""
    if reader.tokens[:1] == ["count"] and reader.tokens[1:2] in ([], ["by"], ["where"]):
        reader.take()
        return Statistic(reader.text, "count")
    columns = reader.names("x")
    return Statistic(reader.text, "table" if len(columns) > 1 else "histogram", columns)


def _called(reader: Reader, schema: Schema, where: str) -> Statistic:
    """Parse a statistic with its arguments, as in `mean(age)`; raise ConfigError for an unknown name."""
    kind = reader.name()
    reader.take("(")
    if kind == TABLE1:
        result = reader.columns(kind)
        reader.take(")")
        return result
    statistic = BUILT_IN.get(kind)
    if statistic is None and kind in schema.statistics:
        statistic = check_registered(kind, schema.statistics[kind], where)
    if statistic is None or statistic.read is None:
        raise reader.error(f"{kind!r} is no statistic")
    result = _robust(statistic.read(reader, kind), reader)
    reader.take(")")
    return result


def _robust(one: Statistic, reader: Reader) -> Statistic:
    """Return the kind with robust errors of a parsed statistic if its last argument says so, else itself.

    Of two columns the last one is a column, whatever its name is. Raises ConfigError if the kind has none.
    """
    kind = f"{ROBUST} {one.kind}"
    if kind not in BUILT_IN:
        if reader.tokens[reader.next : reader.next + 2] == [",", ROBUST]:
            reason = f"{one.kind} has no robust errors: variance, covariance and correlation have"
            raise ConfigError(reason, ConfigCheck.UNSUPPORTED)
        return one
    columns = one.columns
    if len(columns) > 2 and columns[-1] == ROBUST:
        columns = columns[:-1]
    elif reader.accepts(","):
        reader.take(ROBUST)
    else:
        return one
    return msgspec.structs.replace(one, kind=kind, columns=columns)


def _parts(one: Statistic, schema: Schema, where: str) -> list[Statistic]:
    """Return the checked statistics that a parsed one stands for: those of a table of groups, or itself."""
    if one.kind != TABLE1:
        _check(one, schema, where)
        return [one]
    parts = [_read(Reader(text), schema, where) for text in part_texts(one, schema, where)]
    for part in parts:
        _check(part, schema, where)
    return [msgspec.structs.replace(part, part_of=one.text) for part in parts]


def _check(one: Statistic, schema: Schema, where: str) -> None:
    """Raise ConfigError if a requested statistic cannot be computed from the schema's columns."""
    statistic = statistic_of(one)
    if one.kind.startswith(f"{ROBUST} ") and ROBUST in schema.columns:
        reason = f"{ROBUST!r} is a column, and what errors are asked for: call the column otherwise"
        raise ConfigError.at(where, reason, ConfigCheck.CONFLICT)
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
    if one.where and not statistic.conditions:
        raise ConfigError.at(where, f"a {one.kind} has no condition", ConfigCheck.UNSUPPORTED)
    statistic.check(one, schema, where)
    check_cells(one.by, schema, where)
