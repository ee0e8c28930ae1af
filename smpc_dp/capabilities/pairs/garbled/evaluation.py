"""Operation and result of a two-party evaluation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.active.plan import plan_evaluation
from smpc_dp.capabilities.pairs.circuits.bristol import read_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, pack, pack_bytes, unpack, unpack_bytes
from smpc_dp.capabilities.pairs.garbled.params import Security, check_parameters, copies_of
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import Plan, Rows
from smpc_dp.capabilities.pairs.published.library import PUBLISHED, find
from smpc_dp.engine.result import Privacy
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.values import refuse_masked

AnyCircuit = str | os.PathLike[str] | Circuit
Role = Literal["garbler", "evaluator"]
Input = int | np.integer[Any] | Sequence[int] | NDArray[np.integer[Any]]

_WORD = 64


@dataclass(frozen=True, slots=True)
class PairwiseEvidence:
    """Hashes, names and version that bind a two-party result to the run that computed it.

    `circuit` is the circuit's digest, `transcript` the hash of labels and tables, signed by both; in a
    malicious evaluation by the garbler alone, unless an aggregator learns the output.
    """

    protocol: str
    version: int
    session_digest: bytes
    run_id: bytes
    circuit: bytes
    transcript: bytes
    garbler: str
    evaluator: str

    def to_json(self) -> dict[str, object]:
        """Return the evidence of a two-party result as plain JSON data, bytes as hex."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of a two-party evaluation of a circuit: value, privacy claim, and evidence of the run.

    Attributes:
        value: for each output value of the circuit an int, or for a batch an array of shape (instances,),
            uint64 or, above 64 bits, Python ints; unsigned. None for a party that does not learn it.
        privacy: against whom the claim holds, what it assumes, and what it does not protect.
        evidence: what binds the value to its run.
    """

    value: tuple[Any, ...] | None
    privacy: Privacy
    evidence: PairwiseEvidence

    @property
    def claim(self) -> str:
        """One line on the adversary against which the evaluation was secure."""
        return self.privacy.claim

    def to_json(self) -> dict[str, object]:
        """Return the value, privacy claim and evidence of a two-party evaluation as JSON data."""
        value = None if self.value is None else [_plain(value) for value in self.value]
        return {"value": value, "privacy": self.privacy.to_json(), "evidence": self.evidence.to_json()}


@dataclass(frozen=True, slots=True)
class Operation:
    """Checked request for a two-party evaluation: its plan, and the party's own inputs, packed.

    `batch` says whether values are arrays.
    """

    plan: Plan
    rows: tuple[Rows, ...]
    batch: bool

    @classmethod
    def make(
        cls,
        circuit: AnyCircuit,
        inputs: Sequence[Input],
        *,
        garbler: str,
        evaluator: str,
        own: str,
        output: str,
        mode: str | None,
        covert: int | None,
        security: Security | None,
        evaluator_inputs: Sequence[int] | None,
        instances: int | None,
    ) -> Operation:
        """Check a party's arguments for evaluating a circuit; return the request, ready to run.

        Raises:
            ConfigError: the circuit, a parameter or an input is wrong; names it.
            LocalError: the file of a circuit cannot be read.
        """
        built = resolve(circuit)
        count, batch = count_instances(inputs, instances)
        given: dict[str, object] = {
            "circuit": "",
            "digest": built.digest.hex(),
            "garbler": garbler,
            "evaluator": evaluator,
            "instances": count,
            "output": output,
            "covert": copies_of(security, covert),
        }
        if security is not None:
            given["security"] = security
        if mode is not None:
            given["mode"] = mode
        if evaluator_inputs is not None:
            given["evaluator_inputs"] = list(evaluator_inputs)
        parameters, issues = check_parameters(given, 2)
        if parameters is None:
            raise ConfigError(issues)
        if output == "aggregator":
            reason = "'aggregator' needs a session file of the protocol pairwise, with a third party"
            raise ConfigError.at("output", reason, ConfigCheck.UNSUPPORTED)
        for value in evaluator_inputs or ():
            if value >= len(built.inputs):
                reason = f"{value}, but the circuit has {len(built.inputs)} input values"
                raise ConfigError.at("evaluator_inputs", reason, ConfigCheck.RANGE)
        plan = plan_evaluation(built, parameters)
        indices = plan.garbler_values if own == garbler else plan.evaluator_values
        if len(inputs) != len(indices):
            reason = f"{len(inputs)} values of '{own}', the circuit takes {len(indices)} from it"
            raise ConfigError.at("inputs", reason, ConfigCheck.SHAPE)
        rows = tuple(
            _rows(values, built.inputs[index], f"inputs[{number}]")
            for number, (values, index) in enumerate(zip(inputs, indices, strict=True))
        )
        return cls(plan, rows, batch)

    def answer(self, evaluated: Evaluated, session_digest: bytes) -> Evaluation:
        """Convert a finished role's packed outputs into the user's result, with claim and evidence."""
        parameters = self.plan.parameters
        evidence = PairwiseEvidence(
            *self.plan.protocol,
            session_digest,
            evaluated.run_id,
            evaluated.circuit,
            evaluated.transcript,
            parameters.garbler,
            parameters.evaluator,
        )
        rows = evaluated.outputs
        value = None if rows is None else tuple(self._value(row) for row in rows)
        return Evaluation(value, evaluated.privacy, evidence)

    def _value(self, rows: Rows) -> int | NDArray[np.uint64] | NDArray[np.object_]:
        """Return packed output bits as an integer, or as an array for a batch."""
        count = self.plan.parameters.instances
        if not self.batch:
            return unpack(rows, 1)[0]
        if len(rows) > _WORD:
            return np.array(unpack(rows, count), dtype=object)
        octets = np.zeros((count, _WORD // 8), np.uint8)
        octets[:, : -(-len(rows) // 8)] = unpack_bytes(rows, count)
        return octets.view("<u8").astype(np.uint64).reshape(count)


def resolve(circuit: AnyCircuit) -> Circuit:
    """Return the circuit that is given, or of this published name or Bristol file; may raise ConfigError.

    Raises ConfigError for an unknown name, or a file that is no circuit; LocalError for a file that cannot be
    read.
    """
    if isinstance(circuit, Circuit):
        return circuit
    if not isinstance(circuit, str | os.PathLike):
        reason = f"must be a name, a path or a Circuit, is {type(circuit).__name__}"
        raise ConfigError.at("circuit", reason, ConfigCheck.TYPE)
    if isinstance(circuit, str) and circuit in PUBLISHED:
        return find(circuit).build()
    if isinstance(circuit, str) and not Path(circuit).exists():
        reason = f"{circuit!r} is neither a file nor a published circuit ({', '.join(PUBLISHED)})"
        raise ConfigError.at("circuit", reason, ConfigCheck.UNKNOWN_NAME)
    return read_bristol(Path(circuit))


def count_instances(inputs: Sequence[Input], declared: int | None) -> tuple[int, bool]:
    """Return (number of instances, whether results are arrays: not for single integers); or ConfigError."""
    try:
        len(inputs)
        counts = {None if isinstance(values, int | np.integer) else len(values) for values in inputs}
    except TypeError:
        reason = "not a list that has an integer, or integers, for each input value"
        raise ConfigError.at("inputs", reason, ConfigCheck.TYPE) from None
    if len(counts) > 1:
        raise ConfigError.at("inputs", "not all single numbers, or all of one length", ConfigCheck.SHAPE)
    result = next(iter(counts), declared)
    count = 1 if result is None else result
    if declared is not None and count != declared:
        raise ConfigError.at("instances", f"{declared}, but the inputs have {count}", ConfigCheck.DIFFERS)
    return count, result is not None


def _rows(values: Input, width: int, where: str) -> Rows:
    """Return input values packed for a circuit; PrivacyError for masked arrays, else ConfigError."""
    refuse_masked(where, values)
    if isinstance(values, int | np.integer):
        values = [int(values)]
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or not np.issubdtype(values.dtype, np.integer):
            raise ConfigError.at(where, "not integers, or not in one dimension", ConfigCheck.TYPE)
        if width <= _WORD and len(values):
            if values.min() < 0 or int(values.max()).bit_length() > width:
                raise ConfigError.at(
                    where, f"a value is negative or has more than {width} bits", ConfigCheck.RANGE
                )
            return pack_bytes(values.astype("<u8").view(np.uint8).reshape(-1, _WORD // 8), width)
    try:
        return pack([index(value) for value in values], width)
    except ConfigError as error:
        raise ConfigError(
            [ConfigIssue(f"{where}: {issue.where}", issue.reason, issue.check) for issue in error.issues]
        ) from None
    except TypeError:
        raise ConfigError.at(where, "not a number, or a sequence of numbers", ConfigCheck.TYPE) from None


def _plain(value: int | Iterable[int]) -> int | list[int]:
    """Return an integer as it is, or an array or list of integers as a list of Python's."""
    return value if isinstance(value, int) else [int(number) for number in value]
