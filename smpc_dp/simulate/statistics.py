"""`simulate.statistics`: a whole session of statistics of records in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, cast

from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.records.answers import DEFAULT_HIDE
from smpc_dp.records.ask import Ask
from smpc_dp.records.party_names import with_party_names
from smpc_dp.records.record_result import RecordResult
from smpc_dp.records.result import Answers
from smpc_dp.records.schema import Schema, schema_of
from smpc_dp.records.table import Source, read_table
from smpc_dp.session.memory.event_loop import run_simulation
from smpc_dp.session.memory.members import refuse_derived, run_members, simulated_session
from smpc_dp.session.memory.simulated_run import party_names
from smpc_dp.session.session import Session


def statistics(
    tables: Sequence[Source],
    ask: Ask,
    *,
    schema: Schema | Mapping[str, object],
    lost: int = 0,
    weights: Mapping[str, float] | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
    hide: float = DEFAULT_HIDE,
    seed_for_simulation: int | None = None,
    **parameters: Any,
) -> Answers:
    """Simulate private statistics of the records in the parties' tables, in this process.

    This process holds all tables and keys: claims hold for a session between hosts, and not here.

    Args:
        tables: one for each party: a path, a pandas table, or arrays by column.
        ask: a text, or a list of them: "mean(age) by sex", "age x sex", "regression(y ~ a + b)".
        schema: the columns, as in a session file; in one of parties they are party-00001, party-00002, ...
        lost: number of parties, the last ones, that are lost before they ask.
        weights: the key `answer_weights` of a session file.
        level, simultaneous, hide: as of `Session.statistics`.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.
        parameters: other keys of the session's `[parameters]`: epsilon and delta, of the whole request, for
            one unit of the schema; steps, dropout, corrupt, max_standard_error, ...

    Raises:
        ConfigError: a table, what is asked, or the plan is refused: a table with more rows than `max_rows`,
            an error above the accepted one.
    """
    refuse_derived(parameters, {"records", "answer_weights", "public_rows"})
    if isinstance(lost, bool) or not isinstance(lost, Integral):
        raise ConfigError.at("lost", f"must be an integer, is {shown(lost)}", ConfigCheck.TYPE)
    tables = list(tables)
    names = party_names(len(tables))
    known = schema_of(schema if isinstance(schema, Schema) else _filled(schema, names))
    read = [
        read_table(table, known, party=f"tables[{index}]", member=names[index])
        for index, table in enumerate(tables)
    ]
    for index, table in enumerate(read):
        table.check_rows(f"tables[{index}]")
    given = {
        **parameters,
        "records": known.to_json(),
        "ask": ask if isinstance(ask, str) else list(ask),
        "answer_weights": weights,
        "public_rows": [table.rows for table in read] if known.rows == "public" else None,
    }
    simulated = simulated_session(
        "secagg",
        given,
        len(tables),
        seed_for_simulation=seed_for_simulation,
        renamed={"roster": "tables", "answer_weights": "weights"},
    )
    planned: Any = simulated.session.checked_parameters
    if not 0 <= lost <= planned.plan.max_dropouts:
        reason = f"must be 0 to {planned.plan.max_dropouts}, as planned, is {lost}"
        raise ConfigError.at("lost", reason, ConfigCheck.RANGE)
    absent = simulated.parties[len(tables) - int(lost) :]
    simulated.shared.connections.kill = dict.fromkeys(absent, 1)
    by_party = dict(zip(simulated.parties, read, strict=True))

    async def take_part(session: Session) -> RecordResult:
        table = by_party[session.party]
        return await session.statistics(table, level=level, simultaneous=simultaneous, hide=hide)

    return run_simulation(lambda: run_members(simulated, take_part)).result().answers


def _filled(schema: Mapping[str, object], names: Sequence[str]) -> Mapping[str, object]:
    """Return a schema with the simulated parties filled in; raise ConfigError where it has other ones."""
    filled, issues = with_party_names(schema, names, "schema")
    if issues:
        raise ConfigError(issues)
    return cast("Mapping[str, object]", filled)
