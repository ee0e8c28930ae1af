"""Kernels of pairwise statistics: what each means in plain arithmetic, its range and its Lipschitz constant.

A record is one value, or a few, each on a declared grid (`Field`). On the grid a kernel is an integer
0..steps, which its circuit computes exactly: h = low + unit * integer [Bellet 2021, 3.3.1].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smpc_dp.circuits import definitions
from smpc_dp.circuits.definitions import Definition
from smpc_dp.circuits.kernels import Gadget, as_circuit
from smpc_dp.errors import ConfigError, Fault, PrivacyError

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Pairwise = Callable[[Any, Any], Any]
Labels = Literal["none", "private", "public"]

MAX_BITS = 32
"""Bits of one value of a record on its grid, at most."""
MAX_STEPS = 1 << 40
"""Greatest integer of a kernel."""


@dataclass(frozen=True)
class Field:
    """One value of a record: a number from `low` to `high` on a grid of width `step`.

    Values are rounded to the grid, or with `exact` refused unless they lie on it. `low`, `high` and `step`
    are taken as the decimals that they are written as. Raises ConfigError unless they are finite, low < high,
    step > 0, and (high - low) / step is an integer below 2**32.
    """

    low: float
    high: float
    step: float = 1.0
    name: str = "value"
    exact: bool = False

    def __post_init__(self) -> None:
        numbers = {"low": self.low, "high": self.high, "step": self.step}
        for key, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise ConfigError([Fault(f"{self.name}.{key}", f"{value!r} is not a finite number")])
        if not self.low < self.high:
            raise ConfigError([Fault(f"{self.name}.high", f"{self.high} is not above low = {self.low}")])
        if not self.step > 0:
            raise ConfigError([Fault(f"{self.name}.step", f"{self.step} is not above 0")])
        steps = (_exact(self.high) - _exact(self.low)) / _exact(self.step)
        if steps.denominator != 1 or steps >= 1 << MAX_BITS:
            what = f"{self.step} does not divide high - low = {self.high - self.low:g} into an integer"
            raise ConfigError([Fault(f"{self.name}.step", f"{what} of steps below 2**{MAX_BITS}")])

    @property
    def steps(self) -> int:
        """The greatest code: the number of grid points less one."""
        return int((_exact(self.high) - _exact(self.low)) / _exact(self.step))

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return max(1, self.steps.bit_length())

    def codes(self, values: ArrayLike) -> Codes:
        """Return the nearest grid point of each value as an integer 0..steps, of the shape of `values`.

        Raises PrivacyError for a value out of bounds, not a finite number, or with `exact` off the grid;
        nothing is clipped.
        """
        try:
            array = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise PrivacyError(f"{self.name}: not an array of numbers") from None
        bad = ~((array >= self.low) & (array <= self.high))
        if bad.any():
            what = "not a number" if np.isnan(array[bad]).any() else "out of bounds"
            raise PrivacyError(
                f"{self.name}: {int(bad.sum())} of {bad.size} values are {what}; "
                f"the domain is {self.low:g} to {self.high:g}"
            )
        places = (array - self.low) / self.step
        codes: Codes = np.rint(places).astype(np.int64)
        if self.exact and (off := np.abs(places - codes) > 1e-9).any():
            raise PrivacyError(
                f"{self.name}: {int(off.sum())} of {off.size} values are no multiples of {self.step:g} from "
                f"{self.low:g} to {self.high:g}"
            )
        return codes

    def values(self, codes: Codes) -> Floats:
        """Return the values of codes."""
        return self.low + self.step * codes.astype(np.float64)

    def terms(self) -> dict[str, object]:
        """Return what two sides compare, as plain data."""
        return {
            "name": self.name,
            "low": repr(float(self.low)),
            "high": repr(float(self.high)),
            "step": repr(float(self.step)),
            "exact": self.exact,
        }


@dataclass(frozen=True)
class Kernel:
    """A kernel h on pairs of records.

    Attributes:
        name: as in "kendall_tau".
        fields: the values of a record, in order.
        low: its least value; high: its greatest. Over the grid both are right: no value lies outside.
        unit, steps: h = low + unit * j for an integer j in 0..steps.
        lipschitz: a constant L with |h(x, y) - h(x', y)| <= L |x - x'| in the fields' unit, over the whole
            domain; None where there is none.
        function: h on values: takes two arrays of shape (..., len(fields)), broadcast against each other,
            and returns float64 of shape (...). Any real values serve, grid or not.
        integer: j on codes, int64: what the circuit computes; shapes as for `function`.
        definition: j in an arithmetic that circuits and programs on shares are made from; None for a kernel
            of which there is a circuit alone, or nothing.
        gadget: j as a circuit on the bits of two records: that of the definition unless it is given.
        symmetric: whether h(x, y) = h(y, x).
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
    symmetric: bool = True
    labels: Labels = "none"
    definition: Definition | None = None
    gadget: Gadget | None = None

    def __post_init__(self) -> None:
        if self.gadget is None and self.definition is not None:
            object.__setattr__(self, "gadget", as_circuit(self.definition))
        if not 1 <= self.steps <= MAX_STEPS:
            what = f"{self.steps} steps between its least and its greatest value, not 1 to {MAX_STEPS}"
            raise ConfigError([Fault(f"kernel {self.name}", f"{what}: take a coarser grid")])

    @property
    def high(self) -> float:
        """The greatest value."""
        return self.low + self.unit * self.steps

    @property
    def width(self) -> float:
        """Greatest less least value: what noise is scaled to."""
        return self.unit * self.steps

    def codes(self, records: ArrayLike | Sequence[ArrayLike]) -> Codes:
        """Return the codes of records, shape (n, len(fields)).

        `records` has that shape, or is a tuple of one array (n,) for each field. Raises PrivacyError for a
        value out of its domain (NaN, a label that is neither 0 nor 1), ConfigError for a wrong shape.
        """
        columns = self._columns(records)
        return np.stack(
            [field.codes(column) for field, column in zip(self.fields, columns, strict=True)], axis=-1
        )

    def values(self, codes: Codes) -> Floats:
        """Undo `codes`, as far as the grid allows: shape (n, len(fields))."""
        columns = [field.values(codes[..., place]) for place, field in enumerate(self.fields)]
        return np.stack(columns, axis=-1)

    def decode(self, integers: Any) -> Any:
        """Return the kernel's values for its integers; works for noisy ones as well."""
        return self.low + self.unit * np.asarray(integers, dtype=np.float64)

    def terms(self) -> dict[str, object]:
        """Return what two sides compare, as plain data."""
        return {
            "kernel": self.name,
            "fields": [field.terms() for field in self.fields],
            "low": repr(float(self.low)),
            "unit": repr(float(self.unit)),
            "steps": self.steps,
            "labels": self.labels,
        }

    def _columns(self, records: ArrayLike | Sequence[ArrayLike]) -> list[Any]:
        count = len(self.fields)
        if isinstance(records, tuple):
            columns = [as_array("data", column) for column in records]
        else:
            array = as_array("data", records)
            if array.ndim == 1 and count == 1:
                array = array[:, None]
            columns = [array[:, place] for place in range(array.shape[1])] if array.ndim == 2 else []
        shapes = {column.shape for column in columns}
        if len(columns) != count or len(shapes) != 1 or columns[0].ndim != 1:
            names = ", ".join(field.name for field in self.fields)
            what = f"not {count} values ({names}) for each record: shape (n, {count}), or a tuple of arrays"
            raise ConfigError([Fault("data", what)])
        return columns


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return values as an array; raise ConfigError, naming them, for lists of different lengths."""
    try:
        return np.asarray(values)
    except ValueError:
        raise ConfigError([Fault(name, "its rows are not equally long")]) from None


def kendall_tau(x: Field | None = None, y: Field | None = None) -> Kernel:
    """Kendall's tau: sign(x - x') sign(y - y'), ties counted as 0 [Bellet 2021, 3.4].

    Fields are by default integers of 32 bits; only the order of the grid points matters.
    """

    def function(a: Any, b: Any) -> Any:
        return np.sign(a[..., 0] - b[..., 0]) * np.sign(a[..., 1] - b[..., 1]) * 1.0

    return Kernel(
        "kendall_tau",
        (x or _integers("x"), y or _integers("y")),
        low=-1.0,
        unit=1.0,
        steps=2,
        function=function,
        integer=lambda a, b: 1 + np.sign(a[..., 0] - b[..., 0]) * np.sign(a[..., 1] - b[..., 1]),
        definition=definitions.kendall_tau,
    )


def gini_mean_difference(x: Field) -> Kernel:
    """Gini's mean difference: |x - x'|."""
    return Kernel(
        "gini_mean_difference",
        (x,),
        low=0.0,
        unit=x.step,
        steps=x.steps,
        function=lambda a, b: np.abs(a[..., 0] - b[..., 0]) * 1.0,
        integer=lambda a, b: np.abs(a[..., 0] - b[..., 0]),
        definition=definitions.absolute_difference(x.steps),
        lipschitz=1.0,
    )


def variance(x: Field) -> Kernel:
    """The sample variance: (x - x')**2 / 2."""
    return Kernel(
        "variance",
        (x,),
        low=0.0,
        unit=x.step**2 / 2,
        steps=x.steps**2,
        function=lambda a, b: (a[..., 0] - b[..., 0]) ** 2 / 2,
        integer=lambda a, b: (a[..., 0] - b[..., 0]) ** 2,
        definition=definitions.squared_difference(x.steps),
        lipschitz=float(x.high - x.low),
    )


def collision(x: Field | None = None) -> Kernel:
    """Whether two records are equal; minus the logarithm of the mean is the Rényi-2 entropy.

    The mean times n (n - 1) / 2 is the number of duplicate pairs.
    """
    return Kernel(
        "collision",
        (x or _integers("x"),),
        low=0.0,
        unit=1.0,
        steps=1,
        function=lambda a, b: (a[..., 0] == b[..., 0]) * 1.0,
        integer=lambda a, b: (a[..., 0] == b[..., 0]).astype(np.int64),
        definition=definitions.collision,
    )


def auc(score: Field | None = None) -> Kernel:
    """The area under the ROC curve with public labels: 1 where the first score is greater, 1/2 for ties.

    The first argument is a record of label 1, the second one of label 0. n+ n- times the mean is the
    statistic of Mann and Whitney.
    """

    def compared(a: Any, b: Any) -> Any:
        return 1 + np.sign(a[..., 0] - b[..., 0])

    return Kernel(
        "auc",
        (score or _integers("score"),),
        low=0.0,
        unit=0.5,
        steps=2,
        function=lambda a, b: compared(a, b) / 2.0,
        integer=compared,
        definition=definitions.auc,
        symmetric=False,
        labels="public",
    )


def auc_private_labels(score: Field | None = None) -> Kernel:
    """The area under the ROC curve times the share of pairs with two labels; labels are private.

    A record is (score, label). 1 where the labels differ and the record of label 1 has the greater score,
    1/2 for equal scores, 0 otherwise and for equal labels. AUC = mean * n (n - 1) / (2 n+ n-).
    """

    def compared(a: Any, b: Any) -> Any:
        difference = (a[..., 1] - b[..., 1]) * np.sign(a[..., 0] - b[..., 0])
        return np.where(a[..., 1] != b[..., 1], 1 + difference, 0)

    return Kernel(
        "auc_private_labels",
        (score or _integers("score"), Field(0, 1, name="label", exact=True)),
        low=0.0,
        unit=0.5,
        steps=2,
        function=lambda a, b: compared(a, b) / 2.0,
        integer=compared,
        definition=definitions.auc_private_labels,
        labels="private",
    )


def _integers(name: str) -> Field:
    return Field(-(1 << 31), (1 << 31) - 1, name=name, exact=True)


def _exact(value: float) -> Fraction:
    """Return the decimal that a number is written as: 1/10 for 0.1."""
    return Fraction(str(value))


def checked_labels(labels: ArrayLike | None, count: int) -> Codes:
    """Return labels as integers, (n,); raise ConfigError unless all are 0 or 1, and both occur."""
    if labels is None:
        raise ConfigError([Fault("labels", "public labels are needed, 0 or 1 for each record")])
    array = as_array("labels", labels)
    if array.shape != (count,):
        raise ConfigError([Fault("labels", f"shape {array.shape}, not ({count},)")])
    if array.dtype.kind not in "iufb" or not np.isin(array, (0, 1)).all():
        raise ConfigError([Fault("labels", "must all be 0 or 1")])
    if len(np.unique(array)) < 2:
        raise ConfigError([Fault("labels", "all are the same: there is no pair to compare")])
    return array.astype(np.int64)
