"""Names of undeclared categories in one process: all parties' reports together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.sampling import NoiseSource
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation

if TYPE_CHECKING:
    from smpc_dp.capabilities.reports.local_names import NamedCategories
    from smpc_dp.records.schema import Schema
    from smpc_dp.records.table import Source


def names(
    tables: Sequence[Source],
    undeclared: Sequence[str],
    *,
    schema: Schema | Mapping[str, object],
    epsilon: float,
    delta: float,
    seed_for_simulation: int | None = None,
) -> NamedCategories:
    """Simulate the release of undeclared category names by parties' reports; return the released names.

    Args:
        tables: the rows of each party, as of `simulate.statistics`.
        undeclared: the columns of categories of which names are released.
        schema: the columns and the unit, as of `simulate.statistics`.
        epsilon, delta: of each unit, for all columns together.
        seed_for_simulation: makes the run reproducible and thereby insecure; None uses real randomness.

    Raises ConfigError for an argument that is wrong, or a table without such a column.
    """
    # Not at the top: tables take a while to load.
    from smpc_dp.capabilities.reports.local_names import LocalNames
    from smpc_dp.records.schema import schema_of

    if not tables:
        raise ConfigError.at("tables", "needs one party at least", ConfigCheck.SHAPE)
    plan = LocalNames.plan(schema_of(schema), undeclared, epsilon, delta)
    source = None
    if seed_for_simulation is not None:
        randomness = SeededRandomnessForSimulation(seed_for_simulation, "names")
        source = NoiseSource.keyed(randomness.bytes(32), b"names")
    parties = tuple(f"party {number}" for number in range(1, len(tables) + 1))
    counts = [plan.counts(table, party) for party, table in zip(parties, tables, strict=True)]
    reports = [plan.randomise(one, source=source) for one in counts]
    return plan.merged(reports, parties, (), ())
