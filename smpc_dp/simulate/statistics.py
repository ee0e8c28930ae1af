"""Statistics of records in one process: all parties' sums with their shares of the noise, and the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from smpc_dp.crypto.noise import KEY_BYTES
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.privacy.secagg_plan import SecAggPlan, plan_secagg
from smpc_dp.protocols.secagg.noisy import counted_shares
from smpc_dp.records.answers import DEFAULT_HIDE, estimate
from smpc_dp.records.ask import Ask
from smpc_dp.records.plan import Plan, plan_request
from smpc_dp.records.result import Answers
from smpc_dp.records.schema import Schema, schema_of
from smpc_dp.records.table import Integers, Source, read_table
from smpc_dp.simulate.randomness import SeededRandomnessForSimulation


def statistics(  # noqa: PLR0913 - the keys of a session file, and what a simulation has beside them
    tables: Sequence[Source],
    ask: Ask,
    *,
    schema: Schema | Mapping[str, object],
    epsilon: float,
    delta: float,
    lost: int = 0,
    dropout: float = 0.1,
    corrupt: float = 0.1,
    weights: Mapping[str, float] | None = None,
    max_standard_error: float | Mapping[str, float] | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
    hide: float = DEFAULT_HIDE,
    seed_for_simulation: int | None = None,
) -> Answers:
    """Release what is asked of the records of all tables, as one request of a secure sum would.

    The sum is that of a session, whose masks cancel; `simulate.average` plays its messages too.

    Args:
        tables: one for each party: a path, a pandas table, or arrays by column.
        ask: a text, or a list of them: "mean(age) by sex", "age x sex", "regression(y ~ a + b)".
        schema: the columns, as in a session file.
        epsilon, delta: of the whole request, for one unit of the schema.
        lost: so many of the parties, the last ones, drop out with their rows and their noise.
        dropout, corrupt: fractions of the parties that the noise is planned for.
        weights, max_standard_error: see `plan_request` and `Plan.check_errors`.
        level, simultaneous, hide: see `estimate`.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.

    Raises:
        ConfigError: a table, what is asked, or the plan is refused, or the error is above the accepted one.
        PrivacyError: no noise suffices.
    """
    known = schema_of(schema)
    sums = plan_secagg(len(tables), dropout=dropout, corrupt=corrupt)
    if not 0 <= lost <= sums.max_dropouts:
        reason = f"must be 0 to {sums.max_dropouts}, as planned, is {lost}"
        raise ConfigError.at("lost", reason, ConfigCheck.RANGE)
    plan = plan_records(known, ask, sums, epsilon=epsilon, delta=delta, weights=weights)
    read = [read_table(table, known, party=f"tables[{index}]") for index, table in enumerate(tables)]
    present = len(tables) - lost
    rows = sum(table.rows for table in read[:present]) if known.rows == "public" else None
    if max_standard_error is not None:
        plan.check_errors(max_standard_error, present, rows)
    total = np.zeros(plan.length, dtype=np.int64)
    for index, table in enumerate(read[:present]):
        total += plan.vector(table) + share_of_noise(plan, _randomness(seed_for_simulation, f"party {index}"))
    return estimate(plan, total, present, rows=rows, level=level, simultaneous=simultaneous, hide=hide)


def plan_records(
    schema: Schema, ask: Ask, sums: SecAggPlan, *, epsilon: float, delta: float, weights: Any = None
) -> Plan:
    """Plan a request for the shares of noise that are counted in a secure sum."""
    looking = max(sums.max_corrupt, 1)
    return plan_request(
        schema,
        ask,
        epsilon=epsilon,
        delta=delta,
        parties=sums.parties,
        missing=sums.parties - looking - counted_shares(sums),
        corrupt=looking,
        weights=weights,
    )


def share_of_noise(plan: Plan, randomness: Randomness) -> Integers:
    """Return one party's share of the noise, in ring steps."""
    source = NoiseSource.keyed(randomness.bytes(KEY_BYTES), b"records", b"noise")
    return plan.mechanism.share.noise(source, plan.length)


def _randomness(seed_for_simulation: int | None, name: str) -> Randomness:
    if seed_for_simulation is None:
        return SystemRandomness()
    return SeededRandomnessForSimulation(seed_for_simulation, f"records {name}")
