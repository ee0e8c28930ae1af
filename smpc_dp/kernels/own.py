"""A party's own kernel: a plain function over small domains, or a circuit from the builder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from smpc_dp.circuits.builder import Bits, Builder
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.kernels.compiled import compile_kernel, evaluate
from smpc_dp.kernels.fields import Codes, Field, nearest_codes
from smpc_dp.kernels.kernel import MAX_STEPS, Kernel
from smpc_dp.kernels.on_bits import MAX_TABLE_BITS, Gadget, Record, minimum, table

# Inputs on which a circuit is compared with its meaning where its inputs are too many for all of them.
SAMPLES = 20_000


def table_kernel(
    name: str,
    function: Callable[[tuple[float, ...], tuple[float, ...]], float],
    *fields: Field,
    low: float,
    high: float,
    unit: float = 1.0,
    lipschitz: float | None = None,
) -> Kernel:
    """Return the kernel of a plain function on two records, compiled through a table of all its values.

    `function` takes two records, each the tuple of its fields' values, and returns a number, which is
    rounded to the nearest low + unit * j. It is called on every pair of records, so it must be pure; its
    range and its symmetry are checked on all of them; `lipschitz` is not checked.

    Raises ConfigError for two records of more than 16 bits, for a value that is not a finite number in
    [low, high], naming the records that give it, and for a unit that does not divide high - low.
    """
    bits = 2 * sum(field.bits for field in fields)
    if not fields or bits > MAX_TABLE_BITS:
        reason = f"two records have {bits} bits, a table is for 2 to {MAX_TABLE_BITS}: take coarser grids"
        raise ConfigError.at(f"kernel {name}", reason, ConfigCheck.TOO_LARGE)
    steps = _steps(name, low, high, unit)
    grids = [field.values(np.arange(field.steps + 1, dtype=np.int64)) for field in fields]
    shape = tuple(len(grid) for grid in grids)
    records = [tuple(float(g[p]) for g, p in zip(grids, index, strict=True)) for index in np.ndindex(shape)]
    flat = np.empty((len(records), len(records)), np.int64)
    for row, x in enumerate(records):
        for column, y in enumerate(records):
            flat[row, column] = _checked_integer(name, function(x, y), x, y, low, high, unit)
    integers = flat.reshape(shape + shape)

    def integer(a: Any, b: Any) -> Any:
        """Return the integers of records of codes, from the table."""
        a, b = np.broadcast_arrays(a, b)
        count = len(fields)
        return integers[(*(a[..., p] for p in range(count)), *(b[..., p] for p in range(count)))]

    # The table of the circuit has the first field of the first record in its lowest bits. Patterns that
    # encode no record give 0.
    widths = tuple(1 << field.bits for field in fields)
    padded = np.zeros(widths + widths, np.int64)
    padded[tuple(slice(size) for size in shape + shape)] = integers
    entries = tuple(padded.ravel(order="F").tolist())
    return Kernel(
        name,
        fields,
        low=low,
        unit=unit,
        steps=steps,
        function=lambda a, b: low + unit * integer(nearest_codes(fields, a), nearest_codes(fields, b)),
        integer=integer,
        lipschitz=lipschitz,
        gadget=lambda builder, x, y: table(builder, x, y, entries, steps),
        symmetric=bool((flat == flat.T).all()),
    )


def circuit_kernel(
    name: str,
    gadget: Gadget,
    integer: Callable[[Codes, Codes], Codes],
    *fields: Field,
    low: float,
    high: float,
    unit: float = 1.0,
    lipschitz: float | None = None,
    symmetric: bool = True,
) -> Kernel:
    """Return the kernel of a circuit, made with the builder, and its plain meaning on codes.

    `gadget` takes the builder and the bits of two records and returns the bits of the integer j of
    low + unit * j. What it gives above (high - low) / unit is cut to that in the circuit, so the range
    holds whatever the gadget does. `integer` is the same on arrays of codes, shape (..., len(fields)).

    Raises ConfigError when both disagree, or leave the range, on a pair of records: all pairs are tried up to
    16 bits, and 20,000 beyond.
    """
    steps = _steps(name, low, high, unit)

    def bounded(builder: Builder, x: Record, y: Record) -> Bits:
        """Return the gadget's output, cut to the range."""
        return minimum(builder, gadget(builder, x, y), steps)

    kernel = Kernel(
        name,
        fields,
        low=low,
        unit=unit,
        steps=steps,
        function=lambda a, b: low + unit * integer(nearest_codes(fields, a), nearest_codes(fields, b)),
        integer=integer,
        lipschitz=lipschitz,
        gadget=bounded,
        symmetric=symmetric,
    )
    _compare(kernel, gadget)
    return kernel


def _steps(name: str, low: float, high: float, unit: float) -> int:
    """Return (high - low) / unit; raise ConfigError unless it is a whole number in range."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high and unit > 0):
        reason = f"needs finite low < high and unit > 0, has {low!r}, {high!r}, {unit!r}"
        raise ConfigError.at(f"kernel {name}", reason, ConfigCheck.RANGE)
    steps = round((high - low) / unit)
    if not 1 <= steps <= MAX_STEPS or abs(steps * unit - (high - low)) > 1e-9 * unit * steps:
        reason = f"unit = {unit:g} does not divide high - low = {high - low:g} into 1 to {MAX_STEPS} steps"
        raise ConfigError.at(f"kernel {name}", reason, ConfigCheck.RANGE)
    return steps


def _checked_integer(name: str, value: Any, x: Any, y: Any, low: float, high: float, unit: float) -> int:
    """Return the integer of a value; raise ConfigError, naming the records, unless it is in [low, high]."""
    where = f"of records {_format_record(x)} and {_format_record(y)}"
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ConfigError.at(
            f"kernel {name}", f"{value!r} {where} is not a number", ConfigCheck.TYPE
        ) from None
    # Written so that NaN fails.
    if not low <= number <= high:
        reason = f"{number:g} {where} is not in its range {low:g} to {high:g}"
        raise ConfigError.at(f"kernel {name}", reason, ConfigCheck.RANGE)
    return round((number - low) / unit)


def _compare(kernel: Kernel, gadget: Gadget) -> None:
    """Compare a circuit, its output not yet cut, with its plain meaning; raise ConfigError if they differ."""
    circuit = compile_kernel(replace(kernel, gadget=gadget), None)
    tops = [field.steps for field in kernel.fields] * 2
    if sum(circuit.inputs) <= MAX_TABLE_BITS:
        indices = np.indices([top + 1 for top in tops]).reshape(len(tops), -1)
    else:
        # Nothing here is secret: corners first, then multiples of the golden ratio, spread over every range.
        slopes = 0.6180339887498949 ** np.arange(1, 1 + len(tops))
        parts = np.outer(slopes, np.arange(SAMPLES)) % 1.0
        indices = np.floor(parts * (np.array(tops)[:, None] + 1)).astype(np.int64)
        corners = np.indices([2] * len(tops)).reshape(len(tops), -1)[:, : SAMPLES // 2]
        indices[:, : corners.shape[1]] = corners * np.array(tops)[:, None]
    half = len(kernel.fields)
    wanted = np.asarray(kernel.integer(indices[:half].T, indices[half:].T), dtype=np.int64)
    if wanted.shape != (indices.shape[1],) or (wanted < 0).any() or (wanted > kernel.steps).any():
        reason = f"its meaning leaves the range: integers 0 to {kernel.steps}"
        raise ConfigError.at(f"kernel {kernel.name}", reason, ConfigCheck.RANGE)
    differing = np.flatnonzero(evaluate(circuit, indices[:half].T, indices[half:].T) != wanted)
    if differing.size:
        at = [int(code) for code in indices[:, differing[0]]]
        reason = f"circuit and meaning differ on the codes {at[:half]} and {at[half:]}"
        raise ConfigError.at(f"kernel {kernel.name}", reason, ConfigCheck.DIFFERS)


def _format_record(record: tuple[float, ...]) -> str:
    """Format a record for messages."""
    return "(" + ", ".join(f"{value:g}" for value in record) + ")"
