"""A kernel of pairwise statistics on declared grids: its meaning, its range and its Lipschitz constant.

A record is one value, or a few, each on a grid (`Field`). On the grid a kernel is an integer 0..steps, which
its circuit computes exactly: h = low + unit * integer [Bellet 2021, 3.3.1].
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.capabilities.pairs.kernels.definitions import Definition
from smpc_dp.capabilities.pairs.kernels.fields import Codes, Field, Floats, as_array
from smpc_dp.capabilities.pairs.kernels.on_bits import Gadget, as_circuit
from smpc_dp.errors import ConfigCheck, ConfigError

Pairwise = Callable[[Any, Any], Any]
Labels = Literal["none", "private", "public"]

MAX_STEPS = 1 << 40
"""Greatest integer of a kernel."""


@dataclass(frozen=True)
class Kernel:
    """Bounded function of two records for a private pairwise statistic: fields, range, meaning, circuit.

    Attributes:
        name: as in "kendall_tau".
        fields: the values of a record, in order.
        low: its least value; high: its greatest. Over the grid both are right: no value lies outside.
        unit, steps: h = low + unit * j for an integer j in 0..steps.
        lipschitz: a constant L with `|h(x, y) - h(x', y)| <= L |x - x'|` in the fields' unit, over the whole
            domain; None where there is none.
        function: h on values: takes two arrays of shape (..., len(fields)), broadcast against each other,
            and returns float64 of shape (...). Any real values serve, grid or not.
        integer: j on codes, int64: what the circuit computes; shapes as for `function`.
        definition: j in an arithmetic that circuits and programs on shares are made from; None for a kernel
            of which there is a circuit alone, or nothing.
        gadget: j as a circuit on the bits of two records: that of the definition unless it is given.
        symmetric: whether h(x, y) = h(y, x); has no default.
        labels: "none"; "private": the last field of a record is its label, 0 or 1; "public": the first
            argument is a record with label 1, the second one with label 0, and labels are no part of them.
    """

    name: str
    fields: tuple[Field, ...]
    low: float
    unit: float
    steps: int
    function: Pairwise
    integer: Pairwise
    lipschitz: float | None = None
    symmetric: bool = field(kw_only=True)
    labels: Labels = "none"
    definition: Definition | None = None
    gadget: Gadget | None = None

    def __post_init__(self) -> None:
        if self.gadget is None and self.definition is not None:
            object.__setattr__(self, "gadget", as_circuit(self.definition))
        if not 1 <= self.steps <= MAX_STEPS:
            reason = f"{self.steps} steps between its least and its greatest value, not 1 to {MAX_STEPS}"
            raise ConfigError.at(
                f"kernel {self.name}", f"{reason}: take a coarser grid", ConfigCheck.TOO_LARGE
            )
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.unit >= sys.float_info.min):
            reason = (
                f"float64 cannot hold its range, from {self.low:g} in {self.steps} steps of {self.unit:g}"
            )
            raise ConfigError.at(f"kernel {self.name}", f"{reason}: scale the values", ConfigCheck.RANGE)

    @property
    def high(self) -> float:
        """The greatest value that the kernel may have for any two records: low + unit * steps."""
        return self.low + self.unit * self.steps

    @property
    def width(self) -> float:
        """The greatest possible value less the least one; the noise of the statistic is scaled to this."""
        return self.unit * self.steps

    def codes(self, records: ArrayLike | Sequence[ArrayLike]) -> Codes:
        """Encode records, shape (n, fields); ConfigError for another shape, PrivacyError out of bounds.

        `records` has that shape, or is a tuple of one array (n,) for each field. Raises PrivacyError for a
        value out of its domain (NaN, a label that is neither 0 nor 1), ConfigError for a wrong shape.
        """
        if isinstance(records, tuple):
            return self._codes([as_array("data", column) for column in records])
        array = as_array("data", records)
        if array.ndim == 1 and len(self.fields) == 1:
            array = array[:, None]
        return self._codes(list(array.T) if array.ndim == 2 else [])

    def record(self, data: Any, public_label: int | None) -> tuple[Codes, int]:
        """Encode one record: (codes (1, fields), public label or -1); ConfigError or PrivacyError.

        `data` is a number, or a tuple of one for each field; `public_label`: 0 or 1 for a kernel with public
        labels, else None. Raises as `codes` does, and ConfigError for another label.
        """
        columns = data if isinstance(data, tuple) else (data,)
        codes = self._codes([np.atleast_1d(as_array("data", value)) for value in columns])
        if len(codes) != 1:
            raise ConfigError.at("data", f"one record is due, not {len(codes)}", ConfigCheck.SHAPE)
        whole = isinstance(public_label, int | np.integer) and public_label in (0, 1)
        if whole != (self.labels == "public") or (public_label is not None and not whole):
            raise ConfigError.at(
                "public_label",
                f"{public_label!r}: 0 or 1 for a kernel with public labels, else None",
                ConfigCheck.RANGE,
            )
        return codes, -1 if public_label is None else int(public_label)

    def values(self, codes: Codes) -> Floats:
        """Decode integer codes to records of real values, shape (n, len(fields))."""
        columns = [each.values(codes[..., index]) for index, each in enumerate(self.fields)]
        return np.stack(columns, axis=-1)

    def decode(self, integers: Any) -> Any:
        """Convert the kernel's integers, with noise or without, to its real values."""
        return self.low + self.unit * np.asarray(integers, dtype=np.float64)

    def terms(self) -> dict[str, object]:
        """Return name, fields, range and grid of the kernel as plain data, which members compare."""
        return {
            "kernel": self.name,
            "fields": [each.terms() for each in self.fields],
            "low": repr(float(self.low)),
            "unit": repr(float(self.unit)),
            "steps": self.steps,
            "labels": self.labels,
        }

    def _codes(self, columns: list[NDArray[Any]]) -> Codes:
        """Encode one array of values per field; ConfigError for shapes, PrivacyError out of bounds."""
        count = len(self.fields)
        shapes = {column.shape for column in columns}
        if len(columns) != count or len(shapes) != 1 or columns[0].ndim != 1:
            names = ", ".join(each.name for each in self.fields)
            reason = f"not {count} values ({names}) for each record: shape (n, {count}), or a tuple of arrays"
            raise ConfigError.at("data", reason, ConfigCheck.SHAPE)
        return np.stack(
            [each.codes(column) for each, column in zip(self.fields, columns, strict=True)], axis=-1
        )
