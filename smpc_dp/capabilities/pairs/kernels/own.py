"""A party's own kernel: a plain function over small domains, or a circuit from the builder."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from smpc_dp.capabilities.pairs.kernels.compiled import (
    check_symmetry,
    compile_kernel,
    evaluate,
    format_pair,
    sample_pairs,
)
from smpc_dp.capabilities.pairs.kernels.fields import Codes, Field, nearest_codes
from smpc_dp.capabilities.pairs.kernels.kernel import MAX_STEPS, Kernel
from smpc_dp.capabilities.pairs.kernels.on_bits import MAX_TABLE_BITS, Gadget, limited, table
from smpc_dp.errors import ConfigCheck, ConfigError


def table_kernel(
    name: str,
    function: Callable[[tuple[float, ...], tuple[float, ...]], float],
    *fields: Field,
    low: float,
    high: float,
    unit: float = 1.0,
    lipschitz: float | None = None,
) -> Kernel:
    """Return a custom kernel made from a plain Python function of two records, through a value table.

    `function` takes two records, each the tuple of its fields' values, and returns a number, which is
    rounded to the nearest low + unit * j. It is called on every pair of records, so it must be pure; its
    range, its symmetry and `lipschitz` are checked on all of them.

    Raises ConfigError for two records of more than 16 bits, for a value that is not a finite number in
    [low, high], naming the records that give it, for a unit that does not divide high - low, and for a
    `lipschitz` of several fields, or one that neighbouring values exceed.
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
    kernel = Kernel(
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
    every = np.arange(len(records))
    _check_lipschitz(kernel, every[:-1, None, None], every[None, :, None])
    return kernel


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
    """Return a custom kernel made from a circuit builder and the Python function that it computes.

    `gadget` takes the builder and the bits of two records and returns the bits of the integer j of
    low + unit * j. What it gives above (high - low) / unit is cut to that in the circuit, so the range
    holds whatever the gadget does. `integer` is the same on arrays of codes, shape (..., len(fields)).

    Raises ConfigError when both disagree, leave the range, differ between the two orders of a pair without
    `symmetric=False`, or exceed `lipschitz` (for one field alone), on a pair of records: all pairs are tried
    up to 16 bits, and 20,000 beyond.
    """
    steps = _steps(name, low, high, unit)

    kernel = Kernel(
        name,
        fields,
        low=low,
        unit=unit,
        steps=steps,
        function=lambda a, b: low + unit * integer(nearest_codes(fields, a), nearest_codes(fields, b)),
        integer=integer,
        lipschitz=lipschitz,
        gadget=limited(gadget, steps),
        symmetric=symmetric,
    )
    _compare(kernel, gadget)
    return kernel


def _steps(name: str, low: float, high: float, unit: float) -> int:
    """Return the number of grid steps (high - low) / unit; raise ConfigError unless it is a whole number."""
    if not (math.isfinite(low) and math.isfinite(high) and low < high and unit > 0):
        reason = f"needs finite low < high and unit > 0, has {low!r}, {high!r}, {unit!r}"
        raise ConfigError.at(f"kernel {name}", reason, ConfigCheck.RANGE)
    steps = round((high - low) / unit)
    if not 1 <= steps <= MAX_STEPS or abs(steps * unit - (high - low)) > 1e-9 * unit * steps:
        reason = f"unit = {unit:g} does not divide high - low = {high - low:g} into 1 to {MAX_STEPS} steps"
        raise ConfigError.at(f"kernel {name}", reason, ConfigCheck.RANGE)
    return steps


def _checked_integer(name: str, value: Any, x: Any, y: Any, low: float, high: float, unit: float) -> int:
    """Convert a kernel's value on two records to an integer; raise ConfigError if it is out of range."""
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
    """Raise ConfigError, with a pair of records, if a custom circuit differs from its Python function."""
    circuit = compile_kernel(replace(kernel, gadget=gadget), None)
    a, b = sample_pairs(kernel.fields)
    wanted = np.asarray(kernel.integer(a, b), dtype=np.int64)
    if wanted.shape != (len(a),) or (wanted < 0).any() or (wanted > kernel.steps).any():
        reason = f"its meaning leaves the range: integers 0 to {kernel.steps}"
        raise ConfigError.at(f"kernel {kernel.name}", reason, ConfigCheck.RANGE)
    differing = np.flatnonzero(evaluate(circuit, a, b) != wanted)
    if differing.size:
        reason = f"circuit and meaning differ on the codes {format_pair(a, b, int(differing[0]))}"
        raise ConfigError.at(f"kernel {kernel.name}", reason, ConfigCheck.DIFFERS)
    check_symmetry(kernel, a, b)
    below = a < [field.steps for field in kernel.fields]
    _check_lipschitz(kernel, a[below.all(axis=1)], b[below.all(axis=1)])


def _check_lipschitz(kernel: Kernel, a: Codes, b: Codes) -> None:
    """Raise ConfigError if the kernel breaks its declared Lipschitz constant between codes a and a + 1."""
    if kernel.lipschitz is None:
        return
    if len(kernel.fields) > 1 or not kernel.lipschitz >= 0:
        reason = f"lipschitz = {kernel.lipschitz!r} is for kernels of one field, and at least 0"
        raise ConfigError.at(f"kernel {kernel.name}", reason, ConfigCheck.RANGE)
    changes = np.abs(kernel.integer(a + 1, b) - kernel.integer(a, b))
    step = kernel.fields[0].step
    if changes.size and changes.max() * kernel.unit > kernel.lipschitz * step * (1 + 1e-9):
        reason = f"changes by {changes.max() * kernel.unit:g} within a step of {step:g}"
        raise ConfigError.at(
            f"kernel {kernel.name}", f"{reason}: lipschitz = {kernel.lipschitz:g} is less", ConfigCheck.RANGE
        )


def _format_record(record: tuple[float, ...]) -> str:
    """Return a record as text, for error messages."""
    return "(" + ", ".join(f"{value:g}" for value in record) + ")"
