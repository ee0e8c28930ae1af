"""The noise of statistics of records in secure sums [docs/proofs/records.md, "Noise and its split"].

Planned are requests with the split `range`, whose noise is of one law, of `MOST_LENGTH` coordinates at most.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from smpc_dp_verify.asked import LOOPS, ROBUST_LOOP
from smpc_dp_verify.columns import Block, Table, number, with_parties
from smpc_dp_verify.errors import Refused, TooMany, required
from smpc_dp_verify.gaussian import gaussian_mu
from smpc_dp_verify.record_plan import FINE, Given, digest_of, read_given, scaled_blocks, term_error
from smpc_dp_verify.split import Moves, Scaled, deviations
from smpc_dp_verify.sums import Sums

PLANNED = re.compile(r"statistics (?:.* )?([1-9a-f][0-9a-f]*)/1 ([0-9a-f]{64})", re.DOTALL)
# Above so many parties not all are neighbours, and fewer shares of noise may count.
MOST_COMPLETE = 200
LAPLACE_BITS = 12.0
# Statistics that are one sum of which all noise is the answer's.
LINEAR = {"count", "table", "histogram", "sum", "mean"}
# Parts by which the variance of shares may be below that of continuous Gaussian noise, and above it.
BELOW, ABOVE = 1e-9, 1e-3


@dataclass(frozen=True)
class Shares:
    """One party's noise in a planned session: bounds of its variance, digest of scales, shares counted.

    `least`, `most`: bounds of its variance in squared ring steps. `digest`: of all scales. `counted`: how
    many shares the guarantee counts on. `rows`: public numbers of rows.
    """

    least: int
    most: int
    digest: str
    counted: int
    rows: list[int] | None

    def check(self, operation: str) -> None:
        """Raise Refused unless a run's question has the planned variance and scales."""
        asked = PLANNED.fullmatch(operation)
        required(asked is not None, "the question")
        variance, digest = int(asked[1], 16), asked[2]  # type: ignore[index]
        required(self.least <= variance <= self.most, "the noise of the question")
        required(digest == self.digest, "the scales of the question")


def read_shares(sums: Sums) -> Shares | None:
    """Return the noise that a session with records fixes; None if not planned here; Refused if malformed."""
    session, given = sums.session, sums.session.parameters
    asked = given["ask"] if isinstance(given["ask"], list) else [given["ask"]]
    is_stepped = any(word in text for text in asked for word in (*LOOPS, "random_effects"))
    is_stepped |= any(ROBUST_LOOP.match(text) for text in asked)
    is_planned = (
        session.protocol == "secagg" and "epsilon" in given and given.get("split", "range") == "range"
    )
    if not is_planned or is_stepped or "smallest_count" in given or len(session.names) > MOST_COMPLETE:
        return None
    # one share is known to whoever looks, a corrupt party's or its own
    counted = sums.least - max(sums.corrupt, 1)
    required(counted >= 1, "the parameter corrupt")
    try:
        request = read_given(with_parties(given, session.names), len(session.names))
        gaussian, error = _gaussian(request, given, counted)
        other = _laplace(request, given, counted)
    except TooMany:
        return None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise Refused("the session is malformed") from None
    return other[0] if other is not None and other[1] < error else gaussian


def _gaussian(request: Given, given: Mapping[str, Any], counted: int) -> tuple[Shares, float]:
    """Return shares of Gaussian noise, and the largest weighted standard error of an estimate."""
    mu = gaussian_mu(given["epsilon"], given["delta"])
    spread = deviations(request.terms, request.blocks, request.table, request.weights)
    scaled = scaled_blocks(request, [one / mu for one in spread], FINE)
    l2, _ = Moves(request.blocks, request.table).norms(scaled)
    variance = l2 * l2 / (mu * mu * counted)
    least, most = (math.ceil(variance * (1 + part)) for part in (-BELOW, ABOVE))
    shares = Shares(least, most, digest_of(scaled, "secagg", 1), counted, request.public_rows)
    return shares, _worst(request, scaled, math.ceil(variance), counted)


def _laplace(request: Given, given: Mapping[str, Any], counted: int) -> tuple[Shares, float] | None:
    """Return shares of discrete Laplace noise, and the largest error; None unless answers are one sum."""
    table, largest = request.table, dict.fromkeys(request.blocks, 0.0)
    if any(one.kind not in LINEAR for one in request.asked):
        return None
    for term in request.terms:
        used = [block for block in term.factors if not table.is_public(block)]
        if len(used) != 1:
            return None
        factor = term.factors[used[0]] * term.groups**2 * request.weights.get(term.text, 1.0)
        largest[used[0]] = max(largest[used[0]], factor)
    epsilon = number(given["epsilon"])
    whole = sum(_of_a_row(block, table) * math.sqrt(largest[block]) for block in request.blocks)
    spread = [math.sqrt(2.0) * whole / (epsilon * math.sqrt(largest[block])) for block in request.blocks]
    scaled = scaled_blocks(request, spread, LAPLACE_BITS)
    scale = math.ceil(Fraction(_l1(scaled, table)) / Fraction(epsilon))
    ratio = math.exp(-1 / scale)
    variance = math.ceil(2 * ratio / (1 - ratio) ** 2 / counted)
    # floats that differ in their last digits may be rounded up to two integers
    least, most = variance - 1 - variance // 10**9, variance + 1 + variance // 10**9
    shares = Shares(least, most, digest_of(scaled, "secagg", 1, f"{scale:x}"), counted, request.public_rows)
    return shares, _worst(request, scaled, variance, counted)


def _of_a_row(block: Block, table: Table) -> int:
    """Return the greatest L1 distance, 1 or 2, of neighbours in a block whose greatest value is 1."""
    several = block.has_odd_power or any(one.cells > 1 for one in block.selectors)
    return 2 if table.public and several else 1


def _l1(scaled: Sequence[Scaled], table: Table) -> int:
    """Return the greatest L1 distance by which one unit can move the scaled vector, in steps."""
    rows = sum(one.scale * table.greatest(one.block) * _of_a_row(one.block, table) for one in scaled)
    each = (2 if table.public else 1) * table.rows_of_unit
    touched = sum(min(one.block.cells, each) for one in scaled if one.is_rounded)
    whole = table.parties_of_unit * (math.ceil(table.rows_of_unit * rows) + touched)
    # rounding moves one coordinate no further than it may move
    furthest = max(1, table.parties_of_unit * max(map(Moves([], table).furthest, scaled)))
    return min(whole, sum(one.block.cells for one in scaled) * furthest)


def _worst(request: Given, scaled: Sequence[Scaled], variance: int, counted: int) -> float:
    """Return the largest standard error of an estimate over its range, times its weight's root."""
    by_block = {one.block: one for one in scaled}
    return max(
        term_error(term, by_block, request.table, variance, counted)
        * math.sqrt(request.weights.get(term.text, 1.0))
        for term in request.terms
    )
