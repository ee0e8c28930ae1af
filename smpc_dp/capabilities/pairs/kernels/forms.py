"""Kernels independent of their fields' grids: factories that make a kernel of given fields.

A `Form` is a factory with one definition, from which the kernel on any grid follows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from smpc_dp.capabilities.pairs.kernels.definitions import Definition
from smpc_dp.capabilities.pairs.kernels.fields import Field
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel, Labels
from smpc_dp.capabilities.pairs.kernels.on_arrays import as_function
from smpc_dp.errors import ConfigCheck, ConfigError

LABEL = Field(0, 1, name="label", exact=True)


@dataclass(frozen=True)
class KernelFactory:
    """Base class of kernels whose fields are not yet known; called with fields it returns a `Kernel`.

    Another package derives a class from it, with `make`.

    Attributes:
        name: that of the kernels.
        fields: names of the values of a record; a private label comes behind them.
    """

    name: str
    fields: tuple[str, ...]

    @property
    def requires_fields(self) -> bool:
        """Whether the caller must name the fields; here true: there is no default."""
        return True

    def make(self, *fields: Field) -> Kernel:
        """Return the kernel on these fields, plus a private label if it has one; subclasses implement this.

        Raises ConfigError for fields that it is not for.
        """
        raise NotImplementedError

    def __call__(self, *fields: Field) -> Kernel:
        """Return the kernel on these fields, 32-bit integers for missing ones; may raise ConfigError."""
        if self.requires_fields and not fields:
            reason = f"'{self.name}' needs the bounds of its values: kernels.{self.name}(Field(low, high))"
            raise ConfigError.at("kernel", reason, ConfigCheck.MISSING)
        if len(fields) > len(self.fields):
            reason = f"'{self.name}' has {len(self.fields)} fields, {len(fields)} are given"
            raise ConfigError.at("kernel", reason, ConfigCheck.SHAPE)
        integers = (Field(-(1 << 31), (1 << 31) - 1, name=n, exact=True) for n in self.fields[len(fields) :])
        return self.make(*fields, *integers)


@dataclass(frozen=True)
class Form(KernelFactory):
    """Factory of a built-in kernel h = low + scale * definition, for fields that the caller names.

    Attributes, beside those of `KernelFactory`:
        define: the definition for a first field whose greatest code is given.
        degree: the definition is at most the first field's width to this power; 0: at most `steps`.
        labels: as of `Kernel`.
    """

    define: Callable[[int], Definition]
    low: float = 0.0
    scale: float = 1.0
    degree: int = 0
    steps: int = 1
    symmetric: bool = True
    labels: Labels = "none"

    @property
    def requires_fields(self) -> bool:
        """Whether the caller must name the fields, since the kernel's range depends on the first."""
        return self.degree > 0

    @functools.lru_cache(maxsize=64)  # noqa: B019 - of the few forms that a process has
    def make(self, *fields: Field) -> Kernel:
        """Return the kernel on these fields, cached; raise ConfigError for fields that do not fit."""
        whole = (*fields, *([LABEL] if self.labels == "private" else []))
        first, lipschitz = whole[0], None
        # A product is inf, and refused, where a power raises OverflowError.
        if self.degree:
            width = float(first.high) - float(first.low)
            lipschitz = self.scale * self.degree * math.prod([width] * (self.degree - 1))
        definition = self.define(first.steps)
        return Kernel(
            self.name,
            whole,
            low=self.low,
            unit=self.scale * math.prod([first.step] * self.degree),
            steps=first.steps**self.degree if self.degree else self.steps,
            function=self.value,
            integer=as_function(definition),
            definition=definition,
            lipschitz=lipschitz,
            symmetric=self.symmetric,
            labels=self.labels,
        )

    def value(self, a: Any, b: Any) -> Any:
        """Return the kernel's real value on two records, or arrays of records, in the clear."""
        return self.low + self.scale * as_function(self.define(0))(a, b)

    def high(self, width: float) -> float:
        """Return the kernel's greatest value if its first field has this width."""
        return self.low + self.scale * (math.prod([width] * self.degree) if self.degree else self.steps)
