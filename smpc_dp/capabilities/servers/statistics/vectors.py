"""The programs of sums whose noise is planned beforehand: of a learner's group, and of records."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from smpc_dp.capabilities.servers.secret_sharing.params import VectorParameters
from smpc_dp.capabilities.servers.secret_sharing.records import SharedRecordParameters
from smpc_dp.capabilities.servers.secret_sharing.tables import TableParameters
from smpc_dp.capabilities.servers.statistics.plan import Program, sum_program, table_program, wide_sum_program
from smpc_dp.records.exact import LEAST_PARTIES


@functools.lru_cache(maxsize=16)
def vector_program(parameters: VectorParameters, parties: int) -> Program:
    """Return the program on shares of a sum of `parties` vectors, with the planned noise if any."""
    encoding, noise = parameters.sum_encoding, parameters.noise
    bounds = [(0, encoding.highest - encoding.lowest)] * encoding.length
    if noise is None or parameters.epsilon is None:
        return sum_program("sum", parties, bounds, None)
    return wide_sum_program(parties, bounds, noise, parameters.epsilon, parameters.delta)


def record_program(parameters: SharedRecordParameters, parties: int) -> Program:
    """Return the program on shares of statistics of records; ConfigError if servers cannot compute it."""
    budget = parameters.request.epsilon, parameters.request.delta
    return wide_sum_program(parties, parameters.bounds, parameters.noise, *budget)


def exact_program(parameters: TableParameters, parties: int) -> Program:
    """Return the program on shares of exact tables; ConfigError if servers cannot compute the tables."""
    most, smallest = parameters.schema.max_rows, parameters.request.smallest
    return table_program(parties, parameters.request.length, most, smallest, LEAST_PARTIES)


PROGRAMS: dict[str, Callable[[Any, int], Program]] = {
    "norm": vector_program,
    "records": record_program,
    "tables": exact_program,
}
"""By `SharedParameters.program`."""
