"""Kernels by name, as sessions and commands take them, and as plain data that another host can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from smpc_dp.errors import ConfigError, Fault
from smpc_dp.statistics.kernels import (
    Field,
    Kernel,
    auc,
    auc_private_labels,
    collision,
    gini_mean_difference,
    kendall_tau,
    variance,
)

_MAKERS: Mapping[str, tuple[Callable[..., Kernel], int]] = {
    "kendall_tau": (kendall_tau, 2),
    "gini_mean_difference": (gini_mean_difference, 1),
    "variance": (variance, 1),
    "collision": (collision, 1),
    "auc": (auc, 1),
    "auc_private_labels": (auc_private_labels, 1),
}
ALIASES: Mapping[str, str] = {
    "gini": "gini_mean_difference",
    "mann_whitney": "auc",
    "renyi_2": "collision",
}
MAX_NAME = 40
NEEDS_FIELDS = ("gini_mean_difference", "variance")
NAMES = (*_MAKERS, *ALIASES)


def find_kernel(kernel: str | Kernel, *fields: Field) -> Kernel:
    """Return a kernel: itself, or the one of this name on these fields (none: integers of 32 bits).

    Raises ConfigError for an unknown name, a wrong number of fields, or none where the range depends on them.
    """
    if isinstance(kernel, Kernel):
        return kernel
    name = ALIASES.get(kernel, kernel) if isinstance(kernel, str) else ""
    if name not in _MAKERS:
        raise ConfigError([Fault("kernel", f"{kernel!r} is none of {', '.join(NAMES)}, and no Kernel")])
    make, count = _MAKERS[name]
    if not fields and name in NEEDS_FIELDS:
        what = (
            f"'{name}' needs the bounds of its values: statistics.kernels.{make.__name__}(Field(low, high))"
        )
        raise ConfigError([Fault("kernel", what)])
    if fields and len(fields) != count:
        raise ConfigError([Fault("kernel", f"'{name}' has {count} fields, {len(fields)} are given")])
    return make(*fields)


def kernel_of(terms: Mapping[str, Any]) -> Kernel:
    """Return the kernel of this package that `Kernel.terms` describes. Raises ConfigError for others."""
    fields, name = read_fields(terms), terms.get("kernel")
    if not isinstance(name, str) or name not in _MAKERS:
        raise ConfigError([Fault("kernel", f"no kernel {name!r}")])
    return find_kernel(name, *fields[: _MAKERS[name][1]])


def read_fields(terms: Mapping[str, Any]) -> list[Field]:
    """Return the fields of the kernel that `Kernel.terms` describes. Raises ConfigError."""
    try:
        names = [str(f["name"]) for f in terms["fields"]]
        if not all(name.isprintable() and len(name) <= MAX_NAME for name in names):
            raise ValueError(f"names of fields must be printable, {MAX_NAME} characters at most")
        return [
            Field(float(f["low"]), float(f["high"]), float(f["step"]), str(f["name"]), bool(f["exact"]))
            for f in terms["fields"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError([Fault("kernel", f"not a kernel's description ({error})")]) from None


def is_known(kernel: Kernel) -> bool:
    """Whether a kernel is the one of this package by its name, and not by its name alone: by its code."""
    try:
        made = kernel_of(kernel.terms())
    except ConfigError:
        return False
    return made.terms() == kernel.terms() and all(
        getattr(getattr(kernel, part), "__code__", part) == getattr(getattr(made, part), "__code__", None)
        for part in ("integer", "definition", "gadget")
    )
