"""Descriptions of kernels as plain data: this package's kernels by name, a party's own by circuit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from smpc_dp.capabilities.pairs.circuits.bristol import format_bristol, parse_bristol
from smpc_dp.capabilities.pairs.circuits.builder import Bits, Builder
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.kernels.compiled import check_symmetry, compile_kernel, evaluate, sample_pairs
from smpc_dp.capabilities.pairs.kernels.fields import Codes, Field, nearest_codes
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.kernels.named import MAX_NAME, is_known, kernel_of, read_fields
from smpc_dp.capabilities.pairs.kernels.on_bits import MAX_TABLE_BITS, Record, minimum
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue

MAX_CIRCUIT = 60_000
"""Bytes of a party's circuit in Bristol Fashion: every party sends it to every server."""
MAX_OUTPUT_BITS = 62
"""Bits of what a party's circuit gives, before it is cut to its range, at most."""


@dataclass(frozen=True)
class CircuitKernel(Kernel):
    """Kernel that was read from a received description, which it keeps as canonical JSON."""

    description: str = ""


_KEYS = frozenset(("kernel", "fields", "low", "unit", "steps", "labels", "symmetric", "circuit", "digest"))


def describe(kernel: Kernel) -> dict[str, object]:
    """Return plain data that describes a kernel to other members; a custom kernel's includes its circuit.

    Raises ConfigError for a kernel without a circuit or with labels of its own, for a circuit that is too
    large, and for one that leaves the declared range.
    """
    if isinstance(kernel, CircuitKernel):
        known: dict[str, object] = json.loads(kernel.description)
        return known
    if is_known(kernel):
        return kernel.terms()
    circuit = compile_kernel(kernel, None)
    text = format_bristol(circuit)
    if len(text) > MAX_CIRCUIT:
        reason = f"its circuit has {circuit.n_gates} gates, {len(text)} bytes in Bristol Fashion"
        raise ConfigError.at(
            f"kernel {kernel.name}", f"{reason}; at most {MAX_CIRCUIT} bytes are sent", ConfigCheck.TOO_LARGE
        )
    described = {
        **kernel.terms(),
        "symmetric": kernel.symmetric,
        "circuit": text.decode("ascii"),
        "digest": circuit.digest.hex(),
    }
    read_kernel(described)
    return described


def read_kernel(described: Mapping[str, Any]) -> Kernel:
    """Return the kernel that plain data from `describe` stands for; raise ConfigError if it is invalid.

    Its integer is that of the circuit. Where two records have at most 16 bits all patterns of bits are tried,
    and a circuit that leaves the declared range is refused. Beyond that the integer is cut to the range by
    gates that are added here. One that is declared symmetric, and is not on a pair that is tried, is refused:
    all pairs up to 16 bits, 20,000 beyond.
    """
    if "circuit" not in described:
        return kernel_of(described)
    try:
        canonical = json.dumps({key: described[key] for key in _KEYS}, sort_keys=True)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError.at("kernel", f"not a kernel's description ({error})", ConfigCheck.FORMAT) from None
    return _of_circuit(canonical)


def table_of(kernel: Kernel) -> Codes | None:
    """Return a kernel's integers on all pairs of encoded records, as a matrix; None beyond 16 bits.

    The code of a record has its first field in the lowest bits; rows are of the first record. Codes that
    encode no record count as the greatest one of their field.
    """
    widths = [field.bits for field in kernel.fields]
    if 2 * sum(widths) > MAX_TABLE_BITS:
        return None
    codes = np.arange(1 << sum(widths))
    starts = np.cumsum([0, *widths[:-1]])
    columns = [
        np.minimum(codes >> start & (1 << field.bits) - 1, field.steps)
        for start, field in zip(starts, kernel.fields, strict=True)
    ]
    records = np.stack(columns, axis=-1)
    return np.asarray(kernel.integer(records[:, None, :], records[None, :, :]), np.int64)


def _check_terms(described: Mapping[str, Any]) -> tuple[float, float]:
    """Return (lowest value, unit) of a described kernel; raise ConfigError that lists all faults."""
    name, issues = described["kernel"], []
    if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= MAX_NAME:
        issues.append(
            ConfigIssue(
                "kernel", f"a name is printable and of 1 to {MAX_NAME} characters", ConfigCheck.FORMAT
            )
        )
    if described["labels"] != "none":
        issues.append(
            ConfigIssue("kernel.labels", "only kernels of this package have labels", ConfigCheck.UNSUPPORTED)
        )
    if not isinstance(described["symmetric"], bool):
        issues.append(ConfigIssue("kernel.symmetric", "not true or false", ConfigCheck.TYPE))
    if not isinstance(described["circuit"], str) or len(described["circuit"]) > MAX_CIRCUIT:
        issues.append(
            ConfigIssue(
                "kernel.circuit", f"not a text of at most {MAX_CIRCUIT} characters", ConfigCheck.FORMAT
            )
        )
    try:
        low, unit = float(described["low"]), float(described["unit"])
    except (TypeError, ValueError, OverflowError):
        low = unit = np.nan
    if not (np.isfinite(low) and np.isfinite(unit) and unit > 0) or type(described["steps"]) is not int:
        issues.append(
            ConfigIssue(
                "kernel", "its range is not a number, a unit above 0 and a number of steps", ConfigCheck.TYPE
            )
        )
    if issues:
        raise ConfigError(issues)
    return low, unit


def _read_circuit(text: str, digest: object, widths: Sequence[int]) -> Circuit:
    """Parse the circuit of a described kernel; raise ConfigError for another digest or other widths."""
    # First, for a header may claim millions of wires.
    if text.split("\n", 2)[1:2] != [" ".join(map(str, (len(widths), *widths)))]:
        raise ConfigError.at(
            "kernel.circuit", f"does not take the bits of two records, {widths}", ConfigCheck.SHAPE
        )
    circuit = parse_bristol(text.encode("ascii", "replace"), "kernel.circuit")
    if circuit.digest.hex() != digest:
        raise ConfigError.at("kernel.digest", "is not that of the circuit", ConfigCheck.DIFFERS)
    if len(circuit.outputs) != 1:
        raise ConfigError.at(
            "kernel.circuit", f"gives {len(circuit.outputs)} values, not one", ConfigCheck.SHAPE
        )
    if circuit.n_outputs > MAX_OUTPUT_BITS:
        reason = f"gives a number of {circuit.n_outputs} bits, at most {MAX_OUTPUT_BITS}"
        raise ConfigError.at("kernel.circuit", reason, ConfigCheck.TOO_LARGE)
    return circuit


@lru_cache(maxsize=16)
def _of_circuit(canonical: str) -> Kernel:
    """Return the custom kernel of a description with a circuit, cached by its JSON text."""
    described = json.loads(canonical)
    name, fields = described["kernel"], tuple(read_fields(described))
    low, unit = _check_terms(described)
    widths = tuple(field.bits for field in fields) * 2
    circuit = _read_circuit(described["circuit"], described["digest"], widths)
    steps, symmetric = described["steps"], described["symmetric"]
    small = sum(widths) <= MAX_TABLE_BITS
    if small:
        _check(name, circuit, fields, steps)

    def integer(a: Any, b: Any) -> Any:
        return np.minimum(evaluate(circuit, a, b).astype(np.int64), steps)

    def gadget(builder: Builder, x: Record, y: Record) -> Bits:
        (value,) = builder.insert(circuit, [*x, *y])
        # On a small domain the bits above were seen to be 0 for every pattern.
        return value[: steps.bit_length()] if small else minimum(builder, value, steps)

    kernel = CircuitKernel(
        name,
        fields,
        low=low,
        unit=unit,
        steps=steps,
        function=lambda a, b: low + unit * integer(nearest_codes(fields, a), nearest_codes(fields, b)),
        integer=integer,
        symmetric=symmetric,
        gadget=gadget,
        description=canonical,
    )
    check_symmetry(kernel, *sample_pairs(fields))
    return kernel


def _check(name: str, circuit: Circuit, fields: Sequence[Field], steps: int) -> None:
    """Raise ConfigError if a circuit gives an integer above `steps` for any two inputs; tries all."""
    sizes = [1 << field.bits for field in fields]
    records = np.indices(sizes).reshape(len(sizes), -1).T
    result = evaluate(circuit, records[:, None, :], records[None, :, :]).astype(np.int64)
    worst = np.unravel_index(int(result.argmax()), result.shape)
    if result[worst] > steps:
        x, y = (records[index].tolist() for index in worst)
        reason = f"gives {result[worst]} on the codes {x} and {y}, above its declared range 0 to {steps}"
        raise ConfigError.at(f"kernel {name}", reason, ConfigCheck.RANGE)
