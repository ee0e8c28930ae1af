"""The program of a group's sum of vectors, from a learner's plan."""

from __future__ import annotations

import functools

from smpc_dp.protocols.secret_sharing.params import VectorParameters
from smpc_dp.statistics.shared.plan import Program, sum_program, wide_sum_program


@functools.lru_cache(maxsize=16)
def vector_program(parameters: VectorParameters, parties: int) -> Program:
    """Return the program for so many parties, with the noise that was planned; raise ConfigError."""
    encoding, noise = parameters.sum_encoding, parameters.noise
    bounds = [(0, encoding.highest - encoding.lowest)] * encoding.length
    if noise is None or parameters.epsilon is None:
        return sum_program("sum", parties, bounds, None)
    return wide_sum_program(parties, bounds, noise, parameters.epsilon, parameters.delta)
