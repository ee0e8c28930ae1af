"""Statistics of records in one process: all parties' sums with their shares of the noise, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from smpc_dp.crypto.noise import KEY_BYTES
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.records.answers import DEFAULT_HIDE
from smpc_dp.records.ask import Ask
from smpc_dp.records.result import Answers
from smpc_dp.records.schema import Schema, schema_of
from smpc_dp.records.table import Source, Table, read_table
from smpc_dp.secagg.records import RecordSumParameters, SteppedParameters, check_records
from smpc_dp.session.memory.randomness import randomness_of


def statistics(  # noqa: PLR0913 - the keys of a session file, and what a simulation has beside them
    tables: Sequence[Source],
    ask: Ask,
    *,
    schema: Schema | Mapping[str, object],
    epsilon: float | None = None,
    delta: float | None = None,
    steps: int | None = None,
    lost: int = 0,
    dropout: float | None = None,
    corrupt: float = 0.1,
    weights: Mapping[str, float] | None = None,
    max_standard_error: float | Mapping[str, float] | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
    hide: float = DEFAULT_HIDE,
    seed_for_simulation: int | None = None,
) -> Answers:
    """Release statistics of the records of all tables, as one request of a session would.

    Plan and noise are those of a session; masks, which cancel, are left out (`simulate.average` has them).

    Args:
        tables: one for each party: a path, a pandas table, or arrays by column.
        ask: a text, or a list of them: "mean(age) by sex", "age x sex", "regression(y ~ a + b)".
        schema: the columns, as in a session file.
        epsilon, delta: of the whole request, for one unit of the schema; of a logistic or Poisson regression
            of all its steps, and without them its sums are exact.
        steps: of such a regression, 5 if None.
        lost: number of parties, the last ones, that drop out with their rows and their noise.
        dropout, corrupt: fractions of the parties that the noise is planned for, as in a session file.
        weights, max_standard_error: see `plan_request` and `Plan.check_errors`.
        level, simultaneous, hide: see `estimate`.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.

    Raises:
        ConfigError: a table, what is asked, or the plan is refused: a table with more rows than `max_rows`,
            an error above the accepted one.
    """
    known = schema_of(schema)
    read = [read_table(table, known, party=f"tables[{index}]") for index, table in enumerate(tables)]
    for index, table in enumerate(read):
        table.check_rows(f"tables[{index}]")
    given: dict[str, object] = {
        "records": known.to_json(),
        "ask": ask if isinstance(ask, str) else list(ask),
        "epsilon": epsilon,
        "delta": delta,
        "steps": steps,
        "corrupt": corrupt,
        "dropout": dropout,
        "answer_weights": weights,
        "max_standard_error": max_standard_error,
        "public_rows": [table.rows for table in read] if known.rows == "public" else None,
    }
    parameters, issues = check_records(
        {key: value for key, value in given.items() if value is not None}, len(tables)
    )
    if parameters is None:
        raise ConfigError(issues)
    if not 0 <= lost <= parameters.plan.max_dropouts:
        reason = f"must be 0 to {parameters.plan.max_dropouts}, as planned, is {lost}"
        raise ConfigError.at("lost", reason, ConfigCheck.RANGE)
    present = read[: len(tables) - lost]
    for step in range(parameters.steps):
        purpose = f"step {step} " if parameters.steps > 1 else ""
        total = _noisy_total(present, parameters, seed_for_simulation, purpose)
        numbers = range(len(present))
        answers = parameters.answers(total, numbers, level=level, simultaneous=simultaneous, hide=hide)
        if step + 1 < parameters.steps:
            parameters = parameters.following(answers)
    return answers


def _noisy_total(
    tables: Sequence[Table],
    parameters: RecordSumParameters | SteppedParameters,
    seed_for_simulation: int | None,
    purpose: str,
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return the sum of the parties' vectors and of their shares of the noise."""
    plan = parameters.request
    total = np.zeros(plan.length, dtype=np.int64)
    for index, table in enumerate(tables):
        key = randomness_of(seed_for_simulation, f"records {purpose}party {index}").bytes(KEY_BYTES)
        source = NoiseSource.keyed(key, b"records", b"noise")
        total += plan.vector(table) + parameters.own_noise(source, plan.length)
    return total
