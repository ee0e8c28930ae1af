"""Noise of answers that take several requests, which are alike in it [docs/proofs/records.md]."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from smpc_dp_verify.asked import EFFECTS, Asked, read_loop
from smpc_dp_verify.columns import Table, read_budget, read_table
from smpc_dp_verify.encodings import tuple_hash, uint
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.formula import check_coefficients
from smpc_dp_verify.gaussian import gaussian_delta, gaussian_mu
from smpc_dp_verify.joint import NEAR
from smpc_dp_verify.record_plan import FINE, LEAST, SUM, near
from smpc_dp_verify.split import UP, of_integers

# Parts of the shift of one of several equal requests that are tried in turn.
PARTS = (1 - 1e-6, 1 - 1e-4, 0.99, 0.95, 0.9, 0.8, 0.65, 0.5)
STEPS, MOST_STEPS, MOST_COEFFICIENTS = 5, 50, 30
# Parts of their bounds to which scores and weights of rows are rounded; the square of the sensitivity of the
# information over that of the score.
GRID, SHARE = 1 << 30, 0.5
# Of random effects the requests, the deviations of the sums of the first within a factor, and how far one
# value more and one that is exchanged move them.
REQUESTS = 2
SPREAD = (1.7, 4.5, 3.2, 1.0, 3.2)
ONE_MORE, EXCHANGED = (3.0, 2.0, 1.0, 1.0, 1.0), (4.0, 0.0, 1.0, 2.0, 0.0)


class Step(NamedTuple):
    """One of several requests, which are alike.

    `l2`: how far a unit moves its vector of `length` coordinates; `mu`: the shift that it may show.
    `digest_of`: returns the digest of the question, given the numbers that it takes from earlier requests.
    """

    l2: float
    mu: float
    length: int
    table: Table
    digest_of: Callable[[list[int]], str]


class _Moved(NamedTuple):
    """How far a unit moves a vector in L2, and the scales of its sums."""

    l2: float
    length: int
    scales: Sequence[Fraction]


def read_step(given: dict[str, Any], parties: int) -> Step:
    """Return the requests that parameters fix, each of which is as every other one."""
    table = read_table(given["records"])
    one = read_loop(given["ask"], table)
    steps = REQUESTS if one.kind == EFFECTS else given.get("steps", STEPS)
    required(type(steps) is int and 1 <= steps <= MOST_STEPS, "the parameter steps")
    required((one.kind == EFFECTS) <= ("steps" not in given), "the parameter steps")
    mu = _shift(*read_budget(given, in_steps=True), steps)
    moved = (_effects if one.kind == EFFECTS else _newton)(one, table, parties, mu)
    asked = {
        "text": one.text,
        "kind": one.kind,
        "columns": one.columns,
        "by": one.by,
        "levels": one.levels,
        "bins": None,
        "edges": one.edges,
        "least": one.bins or 1,
        "products": one.products,
        "where": one.where,
        "condition": one.condition,
        "part_of": "",
    }
    scales = [f"{scale.numerator:x}/{scale.denominator:x}" for scale in moved.scales]

    def digest_of(begins: list[int]) -> str:
        fields: dict[str, Any] = {"fit": asked, "steps": steps, "scales": scales, "at": begins}
        if one.kind == EFFECTS:
            fields = {"effects": asked, "scales": scales, "at": begins[0] if begins else None}
        return tuple_hash("record-plan", b"secagg", uint(1), msgspec.json.encode(fields)).hex()

    return Step(moved.l2, mu, moved.length, table, digest_of)


def _shift(epsilon: float, delta: float, steps: int) -> float:
    """Return the shift of one request with which all together stay within epsilon and delta."""
    whole = gaussian_mu(epsilon, delta)
    for part in PARTS:
        mu, left = part * whole / math.sqrt(steps), epsilon - steps * NEAR
        together = math.exp(steps * NEAR) * gaussian_delta(left, mu * math.sqrt(steps)) if left > 0 else 1.0
        if together <= delta:
            return mu
    raise Refused("the parameter steps")


def _newton(one: Asked, table: Table, parties: int, mu: float) -> _Moved:
    """Return how far a unit moves score and information, given the shift of a step."""
    size = check_coefficients(one.columns, one.products, table)
    required(size <= MOST_COEFFICIENTS, "coefficients")
    # of the indicators of a product one at most is 1
    most = 1 + len(one.products)
    upper, length, spread = most * (most + 1) / 2, size + size * (size + 1) // 2, math.sqrt(most) / mu
    bits = min(FINE - math.log2(spread), _room(table, parties, spread, SUM))
    required(bits >= LEAST, "sums do not fit")
    scales = near(2.0**bits / GRID), near(math.sqrt(SHARE * most / upper) * 2.0**bits / GRID)
    score, weight = (float(scale) * GRID for scale in scales)
    row = math.sqrt(_row_square(one.kind, most * score**2, upper * weight**2))
    row += math.sqrt(length) / 2 * float(max(scales))
    signs = 2 if table.public else 1
    furthest = math.ceil(table.rows_of_unit * signs * max(scales) * GRID)
    return _Moved(_l2(table, row * signs, furthest, length), length, scales)


def _row_square(kind: str, score: float, information: float) -> float:
    """Return the square of the length of a row, of those of its score and its information at most."""
    if kind == "poisson":
        return score + information
    parts = [1.0]
    # where 2 t^2 - 3 t + 1 + A / (16 B) = 0
    if (inner := 9 - 8 * (1 + score / (16 * information))) >= 0:
        parts += [(3 + sign * math.sqrt(inner)) / 4 for sign in (1, -1)]
    return max(t * t * (score + 16 * information * (1 - t) ** 2) for t in parts if 0 <= t <= 1)


def _effects(_: Asked, table: Table, parties: int, mu: float) -> _Moved:
    """Return how far a unit moves the sums of both requests, given the shift of one."""
    required(parties > 1, "what is asked")
    moves = [EXCHANGED, ONE_MORE] if table.public else [ONE_MORE]

    def row(scales: Sequence[float]) -> float:
        return max(math.hypot(*map(float.__mul__, each, scales)) for each in moves)

    spread = row([1 / part for part in SPREAD]) / mu
    # the scale of the second request is less than 8 times the largest one of the first
    bits = min(FINE - math.log2(spread), _room(table, parties, spread, SUM - 3))
    required(bits >= LEAST, "sums do not fit")
    scales = [near(2.0**bits / part) for part in SPREAD]
    first = row([float(scale) for scale in scales])
    second = near(first)
    products = [Fraction(move) * scale for each in moves for move, scale in zip(each, scales, strict=True)]
    furthest = math.ceil(table.rows_of_unit * max(second, *products))
    return _Moved(
        _l2(table, max(first, float(second)), furthest, len(SPREAD)), len(SPREAD), [*scales, second]
    )


def _room(table: Table, parties: int, spread: float, bits: float) -> float:
    """Return the bits for which sums and their noise stay below 2^bits."""
    return bits - math.log2(parties * table.max_rows + 80 * parties * spread)


def _l2(table: Table, row: float, furthest: int, length: int) -> float:
    """Return how far a unit moves a vector whose sums are rounded, given how far a row does."""
    l2 = table.parties_of_unit * (table.rows_of_unit * row + math.sqrt(length)) * UP
    most = max(1, table.parties_of_unit * furthest)
    return of_integers(max(1.0, l2), float(most), length)[0]
