"""What a pairwise statistic is to the protocol: a circuit, how its outputs are read, and what it claims."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from smpc_dp.circuits.circuit import Circuit
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.privacy.circuit_noise import Noise

PROTOCOL = "pairwise-statistic"
VERSION = 1
MAX_PARTNERS = 1000


@dataclass(frozen=True)
class StatisticPlan:
    """A kernel with its noise, compiled; the same for everybody who takes part.

    Attributes:
        circuit: takes the fields of the first record and the first party's random bits, then the second's.
        fields: bits of each field of a record.
        noise: the law of the noise, which the circuit realises.
        low, unit: a kernel value is low + unit * integer.
        partners: evaluations of each party, at most; P.
        epsilon, delta: for all evaluations of one party together.
        bipartite: whether the first record is always of label 1 and the second of label 0, which are public.
        terms: kernel, noise and budget as plain data, which everybody compares.
    """

    circuit: Circuit
    fields: tuple[int, ...]
    noise: Noise
    low: float
    unit: float
    partners: int
    epsilon: float
    delta: float
    bipartite: bool
    terms: Mapping[str, object] = field(repr=False)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that bind terms and circuit."""
        return digest(Label.STATISTIC_TERMS, self.canonical(), self.circuit.digest)

    def canonical(self) -> bytes:
        """Return the terms as bytes, the same for everybody."""
        return json.dumps(self.terms, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

    @property
    def evaluator_inputs(self) -> list[int]:
        """Places of the second party's input values in the circuit."""
        half = len(self.fields) + 1
        return list(range(half, 2 * half))
