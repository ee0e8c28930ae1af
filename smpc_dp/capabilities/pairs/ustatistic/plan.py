"""Plan of a pairwise statistic: a circuit, the decoding of its outputs, and the privacy budget."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.active.claims import CHEAT
from smpc_dp.capabilities.pairs.active.plan import plan_evaluation
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
    """Plan of a pairwise statistic, equal at all parties: kernel, noise, budget, and their circuit.

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
        malicious: whether each evaluation is secure against a malicious garbler too, without copies.
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
    malicious: bool = False

    @cached_property
    def digest(self) -> bytes:
        """Hash of 32 bytes of the plan's terms and circuit, which parties compare."""
        return digest(Label.STATISTIC_TERMS, self.canonical(), self.circuit.digest)

    def canonical(self) -> bytes:
        """The plan's terms as canonical bytes, which are equal at all parties."""
        return json.dumps(self.terms, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()

    @property
    def evaluator_inputs(self) -> list[int]:
        """Numbers of the circuit's input values that the second party (evaluator) gives."""
        half = len(self.fields) + 1
        return list(range(half, 2 * half))

    def evaluation(self, garbler: str, evaluator: str, instances: int = 1, mode: Mode | None = None) -> Plan:
        """Return the plan of one pair's two-party evaluation, whose output the aggregator learns."""
        parameters = PairwiseParameters(
            circuit="",
            garbler=garbler,
            evaluator=evaluator,
            digest=self.circuit.digest.hex(),
            instances=instances,
            evaluator_inputs=self.evaluator_inputs,
            output="aggregator",
            mode=mode or ("unique" if self.malicious else "tile"),
            covert=self.covert,
            random_inputs=[len(self.fields), 2 * len(self.fields) + 1] if self._draws else [],
            security="malicious" if self.malicious else None,
        )
        return plan_evaluation(self.circuit, parameters)

    @property
    def _draws(self) -> bool:
        """Whether the evaluation's protocol itself draws the random bits, as for covert or malicious."""
        return bool(self.covert) or self.malicious

    @property
    def statistical(self) -> float:
        """Bound on the probability that a cheat passes in any evaluation of a party; 0 unless `malicious`.

        It is a part of the delta of the party's record; 0 for garblers that are semi-honest or deterred.
        """
        return self.partners * CHEAT if self.malicious else 0.0

    def inputs(self, codes: NDArray[np.int64], randomness: Randomness) -> list[Rows]:
        """Return one party's packed circuit inputs: encoded records, and fresh random bits if semi-honest.

        In covert evaluations, and with security against malicious garblers, the protocol draws them.
        """
        words = np.ascontiguousarray(codes.astype("<u8"))
        count, width = len(codes), self.noise.joint_bits
        rows = [
            pack_bytes(np.ascontiguousarray(words[:, index]).view(np.uint8).reshape(count, 8), bits)
            for index, bits in enumerate(self.fields)
        ]
        if self._draws:
            return rows
        size = -(-width // 8)
        drawn = np.frombuffer(randomness.bytes(size * count), np.uint8).reshape(count, size)
        return [*rows, pack_bytes(drawn, width)]

    def raw(self, rows: Rows, instances: int) -> Raw:
        """Return the circuit's packed outputs as unsigned integers, one for each instance."""
        octets = np.zeros((instances, 8), np.uint8)
        octets[:, : -(-len(rows) // 8)] = unpack_bytes(rows, instances)
        return octets.view("<u8").astype(np.uint64).reshape(instances)
