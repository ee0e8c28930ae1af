"""Published ranges of common quantities, by the names of columns: help in choosing public bounds.

A range comes from its source alone, and no party's row is read. It says what one survey or data set had, and
not what other populations can have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from smpc_dp.records.schema import Column, Number

_NHANES = "NHANES 2017-March 2020, https://wwwn.cdc.gov/Nchs/Nhanes/2017-2018/"
_CALMENT = "the longest life known, https://doi.org/10.1093/gerona/glz198"
_MIMIC = "valid values in intensive care, https://doi.org/10.1038/s41597-019-0103-9"
# Bounds so many times as wide as the published range, or as narrow, are warned of.
_WIDE, _NARROW = 2.0, 4.0
# Bounds have another unit than the name of their column says if they share less than the first part with the
# range in that unit, and more than the second part with the range in another one. Where the name says no
# unit, the third part is enough.
_APART, _ALIKE, _SOME = 0.1, 0.3, 0.06


class _Unit(NamedTuple):
    """Unit of a quantity: a value in it is `factor` times that in the first unit, plus `offset`.

    `suffixes`: how names of columns in this unit end, after an underscore.
    """

    name: str
    suffixes: tuple[str, ...]
    factor: float = 1.0
    offset: float = 0.0


class PublishedRange(NamedTuple):
    """Range of a quantity in one unit as its source gives it; `stated`: the column's name has the unit."""

    quantity: str
    unit: str
    lower: float
    upper: float
    source: str
    stated: bool

    @property
    def width(self) -> float:
        """The greatest value less the least one."""
        return self.upper - self.lower

    def __str__(self) -> str:
        return f"{self.quantity} in {self.unit} is from {self.lower:.4g} to {self.upper:.4g} ({self.source})"

    def shared(self, column: Number) -> float:
        """Return the length that bounds and range have in common, over that of both together."""
        common = min(self.upper, column.upper) - max(self.lower, column.lower)
        return max(common, 0.0) / (max(self.upper, column.upper) - min(self.lower, column.lower))


class _Quantity(NamedTuple):
    """Quantity with its least and greatest published value in the first of its units.

    `names`: of columns, without a unit.
    """

    name: str
    names: tuple[str, ...]
    lower: float
    upper: float
    units: tuple[_Unit, ...]
    source: str

    def ranges(self, column: str) -> Iterator[PublishedRange]:
        """Yield the ranges in the units that a column's name allows; none if it names something else."""
        name = column.lower()
        for unit in self.units:
            stated = any(name == f"{each}_{suffix}" for each in self.names for suffix in unit.suffixes)
            if stated or name in self.names:
                yield self._in_unit(unit, stated)

    def all_ranges(self) -> Iterator[PublishedRange]:
        """Yield the published range in each unit."""
        for unit in self.units:
            yield self._in_unit(unit, stated=False)

    def _in_unit(self, unit: _Unit, stated: bool) -> PublishedRange:
        """Return the published range in a unit."""
        lower, upper = (float(f"{unit.factor * one + unit.offset:.4g}") for one in (self.lower, self.upper))
        return PublishedRange(self.name, unit.name, lower, upper, self.source, stated)


# Its bounds are an age that rows were chosen by, most often: narrow ones are no mistake.
_AGE = "age"
_CENTIMETRES = _Unit("cm", ("cm",)), _Unit("m", ("m",), 0.01), _Unit("inches", ("in", "inches"), 1 / 2.54)
_PRESSURE = _Unit("mmHg", ("mmhg",)), _Unit("kPa", ("kpa",), 0.133322)
_CHOLESTEROL = _Unit("mg/dL", ("mgdl", "mg_dl")), _Unit("mmol/L", ("mmol", "mmoll", "mmol_l"), 1 / 38.67)
_QUANTITIES = (
    _Quantity(
        _AGE, ("age",), 0, 122, (_Unit("years", ("years",)), _Unit("months", ("months",), 12)), _CALMENT
    ),
    _Quantity("body height", ("height", "body_height"), 78.3, 199.6, _CENTIMETRES, f"{_NHANES}P_BMX.htm"),
    _Quantity(
        "body weight",
        ("weight", "body_weight"),
        3.2,
        254.3,
        (_Unit("kg", ("kg",)), _Unit("pounds", ("lb", "lbs", "pounds"), 2.20462), _Unit("g", ("g",), 1000)),
        f"{_NHANES}P_BMX.htm",
    ),
    _Quantity(
        "body mass index",
        ("bmi", "body_mass_index"),
        11.9,
        92.3,
        (_Unit("kg/m2", ("kg_m2", "kgm2")),),
        f"{_NHANES}P_BMX.htm",
    ),
    _Quantity(
        "waist circumference",
        ("waist", "waist_circumference"),
        40,
        187.5,
        _CENTIMETRES,
        f"{_NHANES}P_BMX.htm",
    ),
    _Quantity(
        "systolic blood pressure",
        ("sbp", "systolic", "systolic_bp", "systolic_pressure", "systolic_blood_pressure"),
        52,
        225,
        _PRESSURE,
        f"{_NHANES}P_BPXO.htm",
    ),
    _Quantity(
        "diastolic blood pressure",
        ("dbp", "diastolic", "diastolic_bp", "diastolic_pressure", "diastolic_blood_pressure"),
        31,
        151,
        _PRESSURE,
        f"{_NHANES}P_BPXO.htm",
    ),
    _Quantity(
        "heart rate",
        ("heart_rate", "heartrate", "pulse", "pulse_rate"),
        34,
        142,
        (_Unit("beats a minute", ("bpm",)),),
        f"{_NHANES}P_BPXO.htm",
    ),
    _Quantity(
        "body temperature",
        ("body_temperature", "body_temp"),
        26,
        45,
        (_Unit("degrees C", ("c", "celsius")), _Unit("degrees F", ("f", "fahrenheit"), 1.8, 32)),
        _MIMIC,
    ),
    _Quantity(
        "haemoglobin A1c",
        ("hba1c", "a1c", "glycohemoglobin"),
        2.8,
        16.2,
        # the master equation, https://ngsp.org/ifcc.asp
        (_Unit("%", ("percent", "pct")), _Unit("mmol/mol", ("mmol", "mmol_mol"), 10.93, -23.5)),
        f"{_NHANES}P_GHB.htm",
    ),
    _Quantity(
        "total cholesterol",
        ("cholesterol", "total_cholesterol"),
        71,
        446,
        _CHOLESTEROL,
        f"{_NHANES}P_TCHOL.htm",
    ),
    _Quantity("HDL cholesterol", ("hdl", "hdl_cholesterol"), 5, 189, _CHOLESTEROL, f"{_NHANES}P_HDL.htm"),
    _Quantity(
        "fasting glucose",
        ("glucose", "fasting_glucose"),
        47,
        524,
        (_Unit("mg/dL", ("mgdl", "mg_dl")), _Unit("mmol/L", ("mmol", "mmoll", "mmol_l"), 1 / 18.016)),
        f"{_NHANES}P_GLU.htm",
    ),
    _Quantity(
        "haemoglobin",
        ("hemoglobin", "haemoglobin"),
        5.4,
        19.9,
        (_Unit("g/dL", ("gdl", "g_dl")), _Unit("g/L", ("gl", "g_l"), 10)),
        f"{_NHANES}P_CBC.htm",
    ),
)
KNOWN_NAMES = tuple(name for each in _QUANTITIES for name in each.names[:1])


def published_range(column: str) -> PublishedRange | None:
    """Return the published range of the quantity that a column's name says; None if it names none.

    A name as `height_cm` says the unit; without one the range is in the first unit of the quantity.
    """
    return next((one for each in _QUANTITIES for one in each.ranges(column)), None)


def bound_warnings(columns: Mapping[str, Column]) -> list[str]:
    """Return a warning for each column whose bounds do not suit the quantity and unit that its name says."""
    numbers = ((name, one) for name, one in columns.items() if isinstance(one, Number))
    return [line for name, one in numbers if not one.is_indicator for line in _warning(name, one)]


def _warning(name: str, column: Number) -> Iterator[str]:
    """Yield a warning on a column's bounds: another unit, much too wide, or much too narrow."""
    quantity = next((one for one in _QUANTITIES if any(one.ranges(name))), None)
    if quantity is None:
        return
    bounds = f"{name}: bounds from {column.lower:g} to {column.upper:g}"
    named, *_ = quantity.ranges(name)
    alike = max(quantity.all_ranges(), key=lambda one: one.shared(column))
    is_apart = named.shared(column) < _APART
    other = alike if is_apart and alike.shared(column) > (_ALIKE if named.stated else _SOME) else None
    nearest = named if other is None or named.stated else other
    ratio = column.width / nearest.width
    if other is not None and named.stated:
        yield f"{bounds} are as in {other.unit}, the column's name says {named.unit}: {named}"
    elif not nearest.shared(column):
        yield f"{bounds} have no value of the published range between them: {nearest}"
    elif ratio > _WIDE:
        apart = f"{ratio:.3g} times as far apart as published values"
        yield f"{bounds} are {apart}, and noise grows in proportion to the width: {nearest}"
    elif ratio < 1 / _NARROW and quantity.name != _AGE:
        close = f"{1 / ratio:.3g} times as close together as published values"
        rare = "right only if rows have no others: a value beyond a bound counts as the bound"
        yield f"{bounds} are {close}, {rare}: {nearest}"
