"""Cheats of parties where each coordinate has bounds of its own: what they say instead, one thing each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.capabilities.gopa.verifiable.statements import NOISE, RANGE, SUM
from smpc_dp.crypto import proofs
from smpc_dp_lab.vectors.verifiable_cheat import BOX_BASE, Cheat
from smpc_dp_lab.vectors.verifiable_parties import (
    CHEAT,
    at,
    excluded,
    off_by_one,
    out_of_range,
    swapped_noise,
    with_noise,
)
from smpc_dp_lab.vectors.verifiable_runs import BOX, BOX_INPUTS, Cheater, Tamper, parameters


def all_cheats() -> Iterator[Cheat]:
    """Yield every cheat of a party whose coordinates have bounds of their own: 1 to 4, and -1 to 3."""
    boxed = partial(excluded, setting=BOX, base=BOX_BASE)
    yield boxed(
        "box-below-its-own-range",
        "The first value is below its bounds, and within those of the second.",
        RANGE,
        out_of_range(_on_grid((0, 2))),
    )
    yield boxed(
        "box-above-its-own-range",
        "The second value is above its bounds, and within those of the first.",
        RANGE,
        out_of_range(_on_grid((4, 4))),
    )
    yield boxed(
        "box-coordinates-swapped",
        "The vector that is committed to has the coordinates of the proven one, exchanged.",
        RANGE,
        out_of_range(_on_grid(BOX_INPUTS[CHEAT][::-1])),
    )
    lows, highs = _box()
    yield boxed(
        "box-ranges-swapped",
        "A proof that each value is within the bounds of the other coordinate, which is true.",
        RANGE,
        _proven((0, 4), lows[::-1], highs[::-1]),
    )
    yield boxed(
        "box-range-of-all",
        "A proof that all values are within the widest bounds, which is true.",
        RANGE,
        _proven((-1, 4), 0, max(highs)),
    )
    yield boxed(
        "box-one-range-wider",
        "A proof about bounds of which one is wider by a step, which is true.",
        RANGE,
        _proven((4, 4), lows, (highs[0], highs[1] + 1)),
    )
    yield boxed(
        "box-ranges-moved",
        "A proof about values and bounds that are all one step lower than those of the commitment.",
        RANGE,
        _proven((4, 2), [low - 1 for low in lows], [high - 1 for high in highs], shift=-1),
    )
    yield boxed(
        "box-noise-swapped",
        "With bounds for each coordinate, the coordinates of the noise are exchanged.",
        NOISE,
        with_noise(swapped_noise),
    )
    yield boxed(
        "box-sum-off-by-one",
        "With bounds for each coordinate, x_hat is one more than the sum.",
        SUM,
        off_by_one,
    )


def _box() -> tuple[tuple[int, ...], tuple[int, ...]]:
    lows, highs = parameters(BOX).encoding.sides
    return tuple(lows), tuple(highs)


def _on_grid(values: Sequence[int]) -> list[int]:
    """Return what is committed to: steps above the lowest value of all coordinates."""
    return [value - parameters(BOX).encoding.lowest for value in values]


def _proven(values: Sequence[int], low: proofs.Bound, high: proofs.Bound, shift: int = 0) -> Tamper:
    """Commit to these values, and prove of them, moved by `shift`, that they are within other bounds."""

    def change(party: Cheater, message: v.Commit) -> v.Commit:
        on_grid = _on_grid(values)
        value = party.use_values(on_grid)
        proof = party.prove_range([number + shift for number in on_grid], low, high)
        return replace(message, value=value, range_proof=proof)

    return at(v.COMMIT, change)
