"""Plan of a pairwise statistic: a circuit, the decoding of its outputs, and the privacy budget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, pack_bytes, unpack_bytes
from smpc_dp.capabilities.pairs.garbled.params import Mode, PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.plan import Plan, Rows
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.transcript import digest
from smpc_dp.privacy.circuit_noise import Noise, Raw

MAX_PARTNERS = 1000

# Who computes a statistic: each pair by garbled circuits, or servers on shares.
Engine = Literal["garbled", "mpyc"]


@dataclass(frozen=True)
class StatisticPlan:
    """Kernel with its noise, compiled; the same for all parties.

    Attributes:
        circuit: takes the fields of the first record and the first party's random bits, then the second's.
        fields: bits of each field of a record.
        noise: the distribution of the noise, which the circuit realises.
        low, unit: a kernel value is low + unit * integer.
        partners: evaluations of each party, at most; P.
        epsilon, delta: for all evaluations of one party together.
        bipartite: whether the first record is always of label 1 and the second of label 0, which are public.
        terms: kernel, noise, budget and copies as plain data, which all members compare.
        covert: copies of each garbled evaluation, of which all but one are checked; 0: one, unchecked.
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
    covert: int = 0

    @cached_property
    def digest(self) -> bytes:
        """The 32-byte digest of terms and circuit."""
        return digest(Label.STATISTIC_TERMS, self.canonical(), self.circuit.digest)

    def canonical(self) -> bytes:
        """Return the terms as bytes, the same for all."""
        return json.dumps(self.terms, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

    @property
    def evaluator_inputs(self) -> list[int]:
        """Indices of the second party's input values in the circuit."""
        half = len(self.fields) + 1
        return list(range(half, 2 * half))

    def evaluation(self, garbler: str, evaluator: str, instances: int = 1, mode: Mode = "tile") -> Plan:
        """Return the plan of the two-party evaluations of one pair, whose output the aggregator learns."""
        parameters = PairwiseParameters(
            circuit="",
            garbler=garbler,
            evaluator=evaluator,
            digest=self.circuit.digest.hex(),
            instances=instances,
            evaluator_inputs=self.evaluator_inputs,
            output="aggregator",
            mode=mode,
            covert=self.covert,
            random_inputs=[len(self.fields), 2 * len(self.fields) + 1] if self.covert else [],
        )
        return Plan(self.circuit, parameters)

    def inputs(self, codes: NDArray[np.int64], randomness: Randomness) -> list[Rows]:
        """Return one party's input rows: its records, shape (instances, fields), and fresh random bits.

        In covert evaluations the protocol draws the random bits.
        """
        words = np.ascontiguousarray(codes.astype("<u8"))
        count, width = len(codes), self.noise.joint_bits
        rows = [
            pack_bytes(np.ascontiguousarray(words[:, index]).view(np.uint8).reshape(count, 8), bits)
            for index, bits in enumerate(self.fields)
        ]
        if self.covert:
            return rows
        size = -(-width // 8)
        drawn = np.frombuffer(randomness.bytes(size * count), np.uint8).reshape(count, size)
        return [*rows, pack_bytes(drawn, width)]

    def raw(self, rows: Rows, instances: int) -> Raw:
        """Return the outputs of the circuit as unsigned integers."""
        octets = np.zeros((instances, 8), np.uint8)
        octets[:, : -(-len(rows) // 8)] = unpack_bytes(rows, instances)
        return octets.view("<u8").astype(np.uint64).reshape(instances)
