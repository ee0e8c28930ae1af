"""Quantiser of Algorithm 3.3: rounds records to k categories, simply or at random [Bellet 2021, 3.3.2]."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, get_args

import numpy as np

from smpc_dp.capabilities.pairs.kernels.fields import Codes, Field, Floats
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.local_pairwise import plan_quantisation, variance_bound

Rounding = Literal["simple", "randomised"]

MAX_CATEGORIES = 2_048
"""The kernel's matrix has the square of it."""


@dataclass(frozen=True)
class Quantiser:
    """Map from records to finitely many categories: each field's values are cut or rounded to bins.

    The last field counts fastest. simple: the grid of a field is cut into `bins` runs of points as equal as
    possible, each standing for its centre. randomised: `bins` knots from end to end, at least 2; a value goes
    to one of the two knots beside it, by a coin that makes the expectation exact. With as many bins as grid
    points either is the identity. Raises ConfigError, also for more than 2,048 categories, or fewer than 2.
    """

    fields: tuple[Field, ...]
    bins: tuple[int, ...]
    rounding: Rounding = "simple"

    def __post_init__(self) -> None:
        checks = ArgumentChecks()
        if self.rounding not in get_args(Rounding):
            checks.add_issue(
                "rounding", f"must be simple or randomised, is {self.rounding!r}", ConfigCheck.CHOICE
            )
        if len(self.bins) != len(self.fields):
            checks.add_issue(
                "bins", f"{len(self.bins)} numbers for {len(self.fields)} fields", ConfigCheck.SHAPE
            )
        for field, bins in zip(self.fields, self.bins, strict=False):
            least = 2 if self.rounding == "randomised" else 1
            checks.require_integer(f"bins of {field.name}", bins, least, field.steps + 1)
        if not checks and not 2 <= self.categories <= MAX_CATEGORIES:
            reason = f"{self.categories} categories, not 2 to {MAX_CATEGORIES}"
            checks.add_issue("bins", f"{reason}: choose the number of bins of each field", ConfigCheck.RANGE)
        checks.raise_issues()

    @property
    def categories(self) -> int:
        """The number k of categories: the product of the bins of all fields."""
        return math.prod(self.bins)

    def categorise(self, codes: Codes, randomness: Randomness | None = None) -> Codes:
        """Return the category of each encoded record, rounded at random if the plan says so.

        The coins of randomised rounding are exact. Privacy rests on none of them: it is the response's.
        """
        category = np.zeros(len(codes), dtype=np.int64)
        for index, (field, bins) in enumerate(zip(self.fields, self.bins, strict=True)):
            column = codes[:, index]
            if self.rounding == "simple":
                chosen = column * bins // (field.steps + 1)
            else:
                chosen, rest = np.divmod(column * (bins - 1), field.steps)
                chosen = chosen + (_uniform(randomness or SystemRandomness(), len(codes), field.steps) < rest)
            category = category * bins + chosen
        return category

    def points(self) -> Floats:
        """Return the record that stands for each category, shape (k, fields)."""
        axes = [
            field.values(self._positions(field, bins))
            for field, bins in zip(self.fields, self.bins, strict=True)
        ]
        return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=-1)

    def matrix(self, kernel: Kernel) -> Floats:
        """Return the kernel's values between all categories, shape (k, k); ConfigError if out of range."""
        points = self.points()
        rows = [np.asarray(kernel.function(point, points), dtype=np.float64) for point in points]
        matrix = np.stack(rows)
        slack = 1e-9 * kernel.width
        if not (matrix.min() >= kernel.low - slack and matrix.max() <= kernel.high + slack):
            reason = f"has values outside of its range, {kernel.low:g} to {kernel.high:g}"
            raise ConfigError.at(f"kernel {kernel.name}", reason, ConfigCheck.RANGE)
        return matrix

    def _positions(self, field: Field, bins: int) -> Floats:
        """Return where the bins of a field lie on its grid, in steps from its low end."""
        if self.rounding == "randomised":
            return np.arange(bins, dtype=np.float64) * (field.steps / (bins - 1))
        # The least code c with c * bins // points = i is ceil(i * points / bins).
        edges = -(-np.arange(bins + 1) * (field.steps + 1) // bins)
        centres: Floats = (edges[:-1] + edges[1:] - 1) / 2
        return centres

    def bias(self, kernel: Kernel, density_lipschitz: float | None = None) -> float | None:
        """Return a bound on the estimate's error due to rounding to categories; None where unknown.

        A grid without rounding: 0. One field and a Lipschitz kernel: each argument moves by half a cell at
        most, under randomised rounding by half a knot's distance in expectation. Simple rounding and
        `density_lipschitz`, the constant of the records' density where the field is scaled to [0, 1], for a
        kernel that is the mean of itself over two cells (signs of differences are): width L / (3 k).
        """
        if all(bins == field.steps + 1 for field, bins in zip(self.fields, self.bins, strict=True)):
            return 0.0
        if len(self.fields) > 1:
            return None
        (field,), (bins,) = self.fields, self.bins
        bounds = []
        if kernel.lipschitz is not None:
            if self.rounding == "simple":
                reach = field.step * (-(-(field.steps + 1) // bins) - 1)
            else:
                reach = field.step * field.steps / (bins - 1)
            bounds.append(kernel.lipschitz * reach)
        if density_lipschitz is not None and self.rounding == "simple":
            bounds.append(kernel.width * density_lipschitz / (3 * bins))
        return min(bounds, default=None)


def choose_bins(
    kernel: Kernel,
    epsilon: float,
    parties: int | None = None,
    density_lipschitz: float | None = None,
) -> tuple[int, ...]:
    """Return the bins of each field that balance noise and rounding, or the whole grid; or ConfigError.

    For one field and a Lipschitz kernel or density the number of cells of least proven error: Corollary 3.1
    with its constants worked out, for any epsilon; or the whole grid where that is better. Otherwise the
    whole grid. Raises ConfigError where that is too large and nothing else is known.
    """
    whole = tuple(field.steps + 1 for field in kernel.fields)
    (field, *more) = kernel.fields
    if not more and parties is not None and (kernel.lipschitz or density_lipschitz) is not None:
        scale = None
        if kernel.lipschitz is not None and density_lipschitz is None:
            scale = kernel.lipschitz * field.step * (field.steps + 1) / kernel.width
        bins, error = plan_quantisation(
            parties, epsilon, lipschitz=scale, density_lipschitz=density_lipschitz
        )
        if whole[0] > MAX_CATEGORIES or error < variance_bound(parties, whole[0], epsilon):
            return (min(max(bins, 2), whole[0], MAX_CATEGORIES),)
    if math.prod(whole) > MAX_CATEGORIES:
        why = "nothing is known that says how many: give bins"
        if parties is None and not more:
            why = "give bins, or parties and a Lipschitz kernel or density"
        raise ConfigError.at("bins", f"the grid has {math.prod(whole)} points; {why}", ConfigCheck.TOO_LARGE)
    return whole


def bins_of(kernel: Kernel, bins: int | Sequence[int]) -> tuple[int, ...]:
    """Return each field's bins: as listed, or one number, cut to each grid; ConfigError for other types."""
    if isinstance(bins, Integral) and not isinstance(bins, bool):
        return tuple(min(int(bins), field.steps + 1) for field in kernel.fields)
    if isinstance(bins, Sequence) and not isinstance(bins, str):
        return tuple(int(number) if isinstance(number, Integral) else number for number in bins)
    raise ConfigError.at("bins", f"must be an integer, or one for each field, is {bins!r}", ConfigCheck.TYPE)


def _uniform(randomness: Randomness, count: int, below: int) -> Codes:
    """Return uniform random integers in 0..below-1, drawn by rejection from 32-bit words."""
    limit = (1 << 32) // below * below
    drawn = np.zeros(count, dtype=np.int64)
    waiting = np.arange(count)
    while len(waiting):
        words = np.frombuffer(randomness.bytes(4 * len(waiting)), dtype="<u4").astype(np.int64)
        good = words < limit
        drawn[waiting[good]] = words[good] % below
        waiting = waiting[~good]
    return drawn
