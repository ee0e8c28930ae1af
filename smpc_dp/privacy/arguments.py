"""Checks of arguments that planners share; each fault names argument and bound, all are raised at once."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import ParamSpec, TypeGuard, TypeVar, cast

import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError, Issues

P = ParamSpec("P")
R = TypeVar("R")

GREATEST_EPSILON = 100.0
# Numerical methods convolve probabilities in floating point; below this their rounding would count.
LEAST_NUMERICAL_DELTA = 1e-10


class ArgumentChecks(Issues):
    """Collector of faults in a function's arguments, with a method for each kind of check."""

    def require_positive(self, name: str, value: object, most: float = 1e12, where: str = "") -> None:
        """Record a fault unless 0 < value <= most."""
        if not is_number(value) or not 0 < value <= most:
            self.add_issue(
                name, f"{value!r} is not a number above 0 and at most {most:g}{where}", ConfigCheck.RANGE
            )

    def require_within(self, name: str, value: object, low: float, high: float) -> None:
        """Record a fault unless low <= value <= high."""
        if not is_number(value) or not low <= value <= high:
            self.add_issue(name, f"{value!r} is not a number in [{low:g}, {high:g}]", ConfigCheck.RANGE)

    def require_integer(self, name: str, value: object, low: int, high: int, where: str = "") -> None:
        """Record a fault unless value is an integer from low to high."""
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.add_issue(name, f"{value!r} is not an integer in {low}..{high}{where}", ConfigCheck.RANGE)

    def require_choice(self, name: str, value: object, among: Sequence[str], where: str = "") -> None:
        """Record a fault unless value is one of the texts in `among`."""
        if value not in among:
            self.add_issue(name, f"{value!r} is not one of {', '.join(among)}{where}", ConfigCheck.CHOICE)

    def require_budget(self, epsilon: object, delta: object | None = None, *, least: float = 1e-300) -> None:
        """Record faults unless 0 < epsilon <= 100 and, if delta is given, least <= delta < 1."""
        self.require_positive("epsilon", epsilon, GREATEST_EPSILON)
        if delta is not None and (not is_number(delta) or not least <= delta < 1):
            self.add_issue("delta", f"{delta!r} is not a number in [{least:g}, 1)", ConfigCheck.RANGE)


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a finite real number (not a bool)."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        # An integer beyond float64.
        return False


def checks_numbers(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function: NumPy integers become int, and an error due to non-numbers becomes ConfigError.

    What the function checks itself, and bounds in its errors, are left to it. Looked at are parameters with
    an annotation of `_NUMBERS`, with None or without. Numbers of other libraries are numbers; the function
    gets their integers as int, which does not overflow.
    """
    kinds = {name: str(one.annotation) for name, one in inspect.signature(function).parameters.items()}

    @functools.wraps(function)
    def checked(*args: P.args, **given: P.kwargs) -> R:
        try:
            # ParamSpec has no word for arguments that are as before but for the type of integers.
            any_function = cast("Callable[..., R]", function)
            named = {name: _with_python_integers(value) for name, value in given.items()}
            return any_function(*map(_with_python_integers, args), **named)
        except (TypeError, ValueError, ArithmeticError) as error:
            checks = ArgumentChecks()
            # Too many arguments are the function's affair.
            for name, value in (*zip(kinds, args, strict=False), *given.items()):
                kind = kinds.get(name, "")
                fit = _NUMBERS.get(kind.removesuffix(" | None"))
                if fit is None or fit(value) or (value is None and kind.endswith(" | None")):
                    continue
                expected = "a number" if fit is _is_real else "numbers"
                checks.add_issue(name, f"must be {expected} of float64, is {value!r:.80}", ConfigCheck.TYPE)
            if checks:
                raise ConfigError(checks) from error
            raise

    return checked


def _with_python_integers(value: object) -> object:
    """Convert integers of other libraries (NumPy) to int, also in lists; return other values as they are."""
    if type(value) is list:
        return [_with_python_integers(one) for one in value]
    return int(value) if isinstance(value, Integral) and not isinstance(value, int) else value


def _is_real(value: object) -> bool:
    """Tell whether a value is a real number (not a bool) that fits a float."""
    if not isinstance(value, Real) or isinstance(value, bool):
        return False
    return not isinstance(value, int) or abs(value) <= sys.float_info.max


def _are_real(values: object) -> bool:
    """Tell whether a value is a sequence or array of real numbers."""
    return isinstance(values, Sequence | np.ndarray) and all(map(_is_real, values))


_NUMBERS: Mapping[str, Callable[[object], bool]] = {
    "int": _is_real,
    "float": _is_real,
    "Sequence[int]": _are_real,
    "Sequence[float]": _are_real,
}


def delta_warnings(delta: float, parties: int) -> list[str]:
    """Return a warning if delta exceeds 1 / parties, else an empty list.

    A mechanism that publishes one random party's data would satisfy such a delta.
    """
    if delta <= 1 / parties:
        return []
    return [
        f"delta {delta:g} is above 1/parties = {1 / parties:g}: "
        "publishing a random party's data would satisfy it"
    ]
