"""The request of a session of statistics of records [protocols/records/README.md]."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from smpc_dp_verify.asked import MOST_LENGTH, Asked, Term, all_terms, read_ask, terms_of
from smpc_dp_verify.columns import Block, Table, number, read_budget, read_table
from smpc_dp_verify.division import balanced, blocks_of, deviations
from smpc_dp_verify.encodings import tuple_hash, uint
from smpc_dp_verify.errors import TooMany, required
from smpc_dp_verify.gaussian import gaussian_mu
from smpc_dp_verify.split import Moves, Scaled

# log2 of the deviation in steps: of grids that are tried, of a fine one, and at least where more was asked.
BITS = [3.0 + step / 2 for step in range(15)]
FINE, LEAST, COARSE, SUM = 32.0, 8.0, 11, 60
# A scale that is an integer on a coarse grid, and bits of others.
WHOLE, SCALE_BITS = 3.0, 8
MOST_FLIPS, FLIPS_OVER, WORTH = 1 << 15, 1.25, 0.15
LOOSE, MOST_WIDTHS, MOST_TEXT = 1.2, 16, 640
MOST_WEIGHT, MOST_HIDDEN = 1e6, 1000.0


@dataclass(frozen=True)
class Request:
    """Planned request for statistics of records: blocks with scales, bounds, and how far a unit moves them.

    `low`, `high`: bounds of each coordinate. `length`, `moves`, `squared`: what a unit moves, as of `Noise`.
    `text`: as the question has it. `hidden`: the least variance of pairwise noise.
    """

    table: Table
    asked: list[Asked]
    terms: list[Term]
    blocks: list[Scaled]
    low: list[int]
    high: list[int]
    length: int
    moves: tuple[int, ...]
    squared: int | None
    text: str
    hidden: int
    public_rows: list[int] | None

    @functools.cached_property
    def scaled(self) -> dict[Block, Scaled]:
        """The blocks with their scales, as a mapping from block to scaled block."""
        return {one.block: one for one in self.blocks}

    def error(self, term: Term, variance: float, parties: int) -> float:
        """Return an estimate's standard error over its range, times rows, for this variance of a share."""
        return term_error(term, self.scaled, self.table, variance, parties)


class Given(NamedTuple):
    """Checked question of a session before noise is planned: statistics, estimates, blocks and weights."""

    table: Table
    asked: list[Asked]
    terms: list[Term]
    blocks: list[Block]
    weights: dict[str, float]
    public_rows: list[int] | None
    parties: int


def term_error(
    term: Term, scaled: Mapping[Block, Scaled], table: Table, variance: float, parties: int
) -> float:
    """Return an estimate's standard error over its range, times rows, for this variance of a share."""
    return mixed_error(term, scaled, table, lambda _: variance, parties)


def mixed_error(
    term: Term,
    scaled: Mapping[Block, Scaled],
    table: Table,
    variance_of: Callable[[Block], float],
    parties: int,
) -> float:
    """Return what `term_error` does, of shares whose variance depends on the block."""
    total = 0.0
    for block, factor in term.factors.items():
        if not table.is_public(block):
            deviation = deviation_of(scaled[block], parties * variance_of(block), parties)
            total += factor * (deviation / table.greatest(block)) ** 2
    return math.sqrt(total) * term.groups


def deviation_of(one: Scaled, variance: float, parties: int) -> float:
    """Return the deviation of a block's sum, unscaled, from a coordinate's noise variance and rounding."""
    rounding = parties / 2 + 1 if one.is_rounded else 1.0
    return (math.sqrt(variance) + rounding) / float(one.scale)


def read_given(
    given: dict[str, Any], parties: int, longest: int = MOST_LENGTH, most_blocks: int = MOST_LENGTH
) -> Given:
    """Parse what a session's parameters ask of records; raise Refused or TooMany if it is invalid.

    `longest`: the most coordinates.
    """
    table = read_table(given["records"])
    asked = read_ask(given["ask"], table, most_blocks)
    terms = all_terms(asked, table)
    weights = {text: number(weight) for text, weight in given.get("answer_weights", {}).items()}
    required({*weights} <= {term.text for term in terms}, "the parameter answer_weights")
    required(all(0 < weight <= MOST_WEIGHT for weight in weights.values()), "the parameter answer_weights")
    rows, blocks = read_rows(given, table, parties), blocks_of(terms, table)
    required(blocks, "what is asked")
    if sum(block.cells for block in blocks) > longest or len(blocks) > most_blocks:
        raise TooMany("the number of cells")
    return Given(table, asked, terms, blocks, weights, rows, parties)


def read_request(given: dict[str, Any], parties: int, counted: int) -> Request:
    """Return the request, with scales, that parameters determine; `counted` parties' noise counts."""
    epsilon, delta = read_budget(given)
    asks = read_given(given, parties)
    table, asked, terms, blocks, weights, rows, _ = asks
    mu = gaussian_mu(epsilon, delta)
    split = given.get("split", "range")
    required(split in ("range", "balanced"), "the parameter split")
    if split == "balanced":
        each = [terms_of(one, table) for one in asked]
        weights = balanced(each, table, weights, mu, epsilon, [False] * len(asked))
    spread = [one / mu for one in deviations(terms, blocks, table, weights)]
    # the log of a session that parties planned is judged, however long that takes
    moves = Moves(blocks, table, math.inf)

    def on_grid(bits: float) -> tuple[Request, float, float]:
        """Return the request, the variance of a share, and the largest weighted error."""
        scaled = scaled_blocks(asks, spread, bits)
        l2, most = moves.norms(scaled)
        variance = float(math.ceil(l2 * l2 / (mu * mu * counted)))
        request = _request(table, asked, terms, scaled, (l2, most, moves.of_a_row(scaled)), rows)
        worst = max(
            request.error(term, variance, counted) * math.sqrt(weights.get(term.text, 1.0)) for term in terms
        )
        return request, variance, worst

    _, _, fine = on_grid(FINE)
    chosen: Request | None = None
    for bits in BITS:
        request, variance, worst = on_grid(bits)
        if 4 * FLIPS_OVER * variance * len(request.low) > MOST_FLIPS:
            break
        chosen = request
        if worst <= (1 + WORTH) * fine:
            break
    required(chosen, "what is asked takes too many bits of noise")
    return _hiding(chosen, given, counted)  # type: ignore[arg-type]


def check_errors(request: Request, given: dict[str, Any], variance: int, parties: int) -> None:
    """Raise Refused if an answer's standard error is above the session's max_standard_error."""
    most = given.get("max_standard_error")
    if most is None:
        return
    by_text = most if isinstance(most, dict) else dict.fromkeys((one.text for one in request.terms), most)
    required({*by_text} <= {one.text for one in request.terms}, "the parameter max_standard_error")
    rows = request.table.expected if request.public_rows is None else sum(request.public_rows)
    for term in request.terms:
        if term.text not in by_text:
            continue
        each = request.error(term.value, variance, parties)
        error = each / rows if rows else math.inf
        if isinstance(most, dict):
            error = (each if term.is_total else error) * term.range
        limit = number(by_text[term.text])
        required(limit > 0 and error <= limit * (1 + 1e-9), "an error above max_standard_error")


def read_rows(given: dict[str, Any], table: Table, parties: int) -> list[int] | None:
    """Return the public numbers of rows; None where they are private."""
    rows = given.get("public_rows")
    required((rows is None) != table.public, "the parameter public_rows")
    if rows is None:
        return None
    fits = isinstance(rows, list) and len(rows) == parties
    required(fits and all(type(one) is int and 0 <= one <= table.max_rows for one in rows), "public_rows")
    return list(rows)


def scaled_blocks(asks: Given, spread: list[float], most: float) -> list[Scaled]:
    """Return blocks with scales by which noise of so many bits gives each the planned deviation."""
    total = asks.parties * asks.table.max_rows / min(spread)
    bits = min(most, math.floor(SUM - math.log2(total + 80 * asks.parties)))
    required(bits >= min(most, LEAST), "sums do not fit")
    return [
        Scaled(block, near(2.0**bits / (one * asks.table.greatest(block)), is_coarse=bits < COARSE))
        for block, one in zip(asks.blocks, spread, strict=True)
    ]


def near(scale: float, *, is_coarse: bool = False) -> Fraction:
    """Return a fraction near a scale: an integer if the grid is coarse, else a multiple of 2^-k."""
    if is_coarse and scale >= WHOLE:
        return Fraction(round(scale))
    bits = max(0, SCALE_BITS - math.frexp(scale)[1])
    return Fraction(max(1, round(math.ldexp(scale, bits))), 1 << bits)


def ends_of(one: Scaled, table: Table) -> tuple[int, int]:
    """Return the least and the greatest value of a coordinate of a party's vector."""
    ends = (table.least(one.block), table.greatest(one.block))
    low, high = (math.floor(table.max_rows * end * one.scale + Fraction(1, 2)) for end in ends)
    return low, high


def _request(
    table: Table,
    asked: list[Asked],
    terms: list[Term],
    blocks: list[Scaled],
    moved: tuple[float, int, list[int]],
    rows: list[int] | None,
) -> Request:
    l2, most, moves = moved
    sides: list[tuple[int, int]] = []
    for one in blocks:
        sides += [ends_of(one, table)] * one.block.cells
    square, squared = l2 * l2 * (1 + 1e-9), None
    length = len(moves)
    if not moves or len({*moves}) > MOST_WIDTHS or sum(move * move for move in moves) > LOOSE * square:
        length, moves = len(sides), [0]
        squared = max(math.ceil(square / 4), math.ceil(most / 2) ** 2)
    bounds = ",".join(f"{count:x}x{low:x}:{high:x}" for (low, high), count in _runs(sides))
    row = f"s{squared:x}" if squared is not None else ""
    row = row or ",".join(f"{count:x}x{move:x}" for move, count in _runs(moves))
    text = f"{bounds};{row}"
    return Request(
        table,
        asked,
        terms,
        blocks,
        [low for low, _ in sides],
        [high for _, high in sides],
        length,
        tuple(moves),
        squared,
        f"{text} {digest_of(blocks, 'gopa', 2)}",
        0,
        rows,
    )


def _hiding(request: Request, given: dict[str, Any], counted: int) -> Request:
    """Return the request with the least variance of pairwise noise that hides each party's totals."""
    required(len(request.text.split(" ")[0]) <= MOST_TEXT, "the length of the bounds")
    hidden, square, at = number(given.get("hidden_totals", 1.0)), 0.0, 0
    required(0 <= hidden <= MOST_HIDDEN, "the parameter hidden_totals")
    for one in request.blocks:
        width = float(request.high[at] - request.low[at])
        square += min(one.block.cells, 2) * width**2
        at += one.block.cells
    deviation = hidden * math.sqrt(square) * math.sqrt(2 / counted)
    return replace(request, hidden=math.ceil(deviation**2))


def _runs(values: Iterable[Any]) -> Iterator[tuple[Any, int]]:
    for value, group in itertools.groupby(values):
        yield value, sum(1 for _ in group)


def _conditions(block: Block) -> list[dict[str, Any]]:
    return [{"column": name, "ranges": ranges} for name, ranges in block.where]


def digest_of(blocks: list[Scaled], protocol: str, version: int, laplace: str | None = None) -> str:
    """Return the hex digest of the blocks and their scales, as parties put it into the question."""
    scales: Any = [
        [
            {
                **({"type": "lacking"} if block.lacking else {}),
                **({"type": "squared influence"} if block.influence is not None else {}),
                "powers": block.powers,
                "present": block.present,
                "selectors": [one._asdict() for one in block.selectors],
                "of_party": block.of_party,
                **({"where": _conditions(block)} if block.where else {}),
                **(block.influence._asdict() if block.influence is not None else {}),
            },
            f"{scale.numerator:x}/{scale.denominator:x}",
        ]
        for block, scale in blocks
    ]
    scales = scales if laplace is None else [scales, laplace]
    return tuple_hash("record-plan", protocol.encode(), uint(version), msgspec.json.encode(scales)).hex()
