"""What session and operation of a log fix: quorum, grid, bounds and noise of a verifiable average.

Specification: protocols/gopa/verifiable.md, docs/proofs/verifiable-plan.md, docs/proofs/learning.md,
docs/proofs/records.md.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from smpc_dp_verify.asked import MOST_LENGTH
from smpc_dp_verify.columns import with_parties
from smpc_dp_verify.encodings import tuple_hash
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.gaussian import gaussian_epsilon, gaussian_mu
from smpc_dp_verify.learner import read_learner
from smpc_dp_verify.noise import ROUNDED, Noise
from smpc_dp_verify.record_plan import Request, check_errors, read_request
from smpc_dp_verify.schedule import group_of
from smpc_dp_verify.session import TOLERANT, VERIFIABLE, Session, with_corrupt

OPERATION = re.compile(r"(?s:(.*) )?(0|[1-9a-f][0-9a-f]*)/(0|[1-9a-f][0-9a-f]*)( of group [0-9a-f]{64})?")
MOST_PARTIES, MOST_BITS = 10_000, 1 << 16
# Parties of a session of statistics of records, which are all neighbours.
MOST_COMPLETE = 200
# Bits of each coordinate that a grid is made for which the session does not give.
GRID_BITS = 256
# The number of standard deviations that no noise is beyond.
TAIL = 40
# Of pairwise noise that is drawn.
MOST_VARIANCE = 1 << 100
# How often the noise of one average of a learner is enlarged, by which factor, and its least delta.
TRIALS, SHRINK, LEAST_DELTA = 60, 0.999, 1e-10
Number = int | float
# Parameters that only a right value is known of: the first is the default.
CHOICES: dict[str, tuple[object, ...]] = {
    "verifiable": (True,),
    "on_dropout": ("keep",),
    "topology": ("relay",),
    "max_weight": (0,),
    "kind": ("real", "integer"),
    "total": ("unchecked",),
}
# Bounds of the others that are numbers, both included.
RANGES = {
    "precision": (2.0**-1000, 2.0**960),
    "dropout": (0.0, math.nextafter(0.5, 0)),
    "corrupt": (0.0, math.nextafter(1.0, 0)),
    "security": (20.0, 128.0),
    "epsilon": (0.0, 100.0),
    "delta": (0.0, 1.0),
}
BOUNDS = ("lower", "upper", "l2_bound")
# Parameters of statistics of records alone.
OF_RECORDS = (
    "records",
    "ask",
    "answer_weights",
    "max_standard_error",
    "public_rows",
    "hidden_totals",
    "split",
)
# Sessions that have pairwise statistics through an aggregator.
STATISTICS = {(protocol, version) for protocol, last in TOLERANT.items() for version in range(1, last + 1)}


@dataclass(frozen=True)
class Grid:
    """Bounds of a vector of `length` coordinates in integer steps; `squared` bounds its squared norm too."""

    low: list[int]
    high: list[int]
    length: int
    fractional_bits: int = 0
    squared: int | None = None


@dataclass(frozen=True)
class Terms:
    """All that a session and a run's question fix: parties, grid, bounds, noise, tolerated losses.

    `names` are of the parties, all or a group; `scope` is that of the session log. `bits` of noise each
    coordinate; `range` of what is committed to, one for all or one for each coordinate;
    `squared` in its place bounds the sum of squares. `lowest`: the value on the grid that x̂ counts from;
    `centre`: what x̂ is above the committed value. `request`: of statistics of records.
    """

    names: list[str]
    scope: bytes
    corrupt: int
    lost: int
    length: int
    fractional_bits: int
    lowest: int
    centre: int
    range: tuple[tuple[int, ...], tuple[int, ...]]
    squared: int | None
    bits: int
    pair_variance: int
    highest: int
    noise: Noise
    request: Request | None

    @property
    def most_delta(self) -> int:
        """The greatest permitted absolute value of an edge's pairwise noise in a coordinate."""
        return TAIL * (1 + math.isqrt(self.pair_variance))

    @property
    def most_x_hat(self) -> int:
        """The greatest absolute value of an honest published coordinate (x̂), whatever others do."""
        return self.highest + self.bits + (len(self.names) - 1) * self.most_delta

    @property
    def most_x_hat_before(self) -> int:
        """Session version 2's bound on a published coordinate, too low for some honest values."""
        return self.highest + self.bits + TAIL * (1 + math.isqrt(len(self.names) * self.pair_variance))

    @property
    def range_bits(self) -> int:
        """The number of binary digits that a range proof about one vector covers."""
        each = [(high - low).bit_length() for low, high in zip(*self.range, strict=True)]
        return sum(each) * (self.length // len(each))

    def least_left(self, false: int) -> int:
        """Return the least number of parties that must remain when `false` ones were excluded."""
        return len(self.names) - self.lost - min(false, max(self.corrupt, 1))


def read_terms(session: Session, request: int, operation: str) -> Terms:
    """Return what session and question fix for a verifiable average; raise Refused for other runs."""
    asked = OPERATION.fullmatch(operation)
    if asked is None:
        raise Refused("the question")
    own, pair = int(asked[2], 16), int(asked[3], 16)
    try:
        if session.protocol == "learn":
            return _of_group(session, request, operation, own, pair)
        kind = (session.protocol, session.version, session.parameters.get("verifiable"))
        required(
            kind in {("gopa", version, True) for version in (*VERIFIABLE, TOLERANT["gopa"])},
            "a session without verifiable averages",
        )
        required(kind[2] is True, "the parameter verifiable")
        named = asked[4] in (None, f" of group {group_digest(session.names)}")
        required(named and len(session.names) <= MOST_PARTIES, "the question")
        if "records" in session.parameters:
            terms = _of_records(session, asked[1] or "", own, pair)
        else:
            _check_settings(session.parameters)
            terms = _terms(session.names, session.digest, with_corrupt(session), own, pair)
        terms.noise.check(4 * own, pair)
        return terms
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise Refused("the session is malformed") from None


def _check_settings(parameters: dict[str, Any]) -> None:
    """Raise Refused if parameters are unknown or out of range [docs/reference/session-file.md]."""
    required({*parameters} <= {"length", *CHOICES, *RANGES, *BOUNDS}, "a parameter that is unknown")
    for name, choices in CHOICES.items():
        value = parameters.get(name, choices[0])
        required(any(type(value) is type(one) and value == one for one in choices), f"the parameter {name}")
    for name, (low, high) in RANGES.items():
        required(name not in parameters or _is_number(parameters[name], low, high), f"the parameter {name}")
    is_whole = parameters.get("kind") == "integer"
    required(not (is_whole and "precision" in parameters), "the parameter precision")
    required("l2_bound" not in parameters or not {"lower", "upper"} & {*parameters}, "the bounds")
    for name in BOUNDS:
        bound = parameters.get(name, 0)
        is_list = isinstance(bound, list) and name != "l2_bound"
        required(not is_list or len(bound) == parameters["length"], "the bounds")
        for value in bound if is_list else [bound]:
            # A bound on the norm is a float64, that of an integer is whole.
            fits = float(value) == value if name == "l2_bound" else not is_whole or float(value).is_integer()
            required(_is_number(value) and fits, "the bounds")


def _of_records(session: Session, asked: str, own: int, pair: int) -> Terms:
    """Return the terms of statistics of records; bounds and moves follow from columns and question."""
    given, parties = with_parties(with_corrupt(session), session.names), len(session.names)
    required(parties <= MOST_COMPLETE, "the number of parties")
    required(
        {*given} <= {*OF_RECORDS, *RANGES, *CHOICES} - {"precision", "max_weight", "kind", "total"},
        "a parameter that is unknown",
    )
    for name in {*RANGES, *CHOICES} & {*given}:
        is_right = (
            given[name] == CHOICES[name][0] if name in CHOICES else _is_number(given[name], *RANGES[name])
        )
        required(is_right, f"the parameter {name}")
    required(given["epsilon"] > 0 and 0 < given["delta"] < 1, "epsilon and delta")
    counted = parties - _lost(given, parties) - max(_corrupt(given, parties), 1)
    required(counted >= 2, "epsilon, delta and honest parties")
    request = read_request(given, parties, counted)
    # A label may be between the two.
    is_asked = asked.startswith("statistics ") and asked.endswith(f" {request.text}")
    required(is_asked, "the question of what the session asks")
    check_errors(request, given, own, parties)
    grid = Grid(request.low, request.high, len(request.low))
    return _on_grid(session.names, session.digest, given, grid, (own, pair), request)


def _is_number(value: object, low: float = -math.inf, high: float = math.inf) -> bool:
    return type(value) in (int, float) and low <= value <= high and math.isfinite(float(value))  # type: ignore


def group_digest(names: list[str]) -> str:
    """Return the hex digest of a group's names, as a run's question states it."""
    return tuple_hash("group", *(name.encode() for name in names)).hex()


def corrupt_of(session: Session) -> int:
    """Return the tolerated number c of corrupt parties of a session with pairwise statistics."""
    kind = (session.protocol, session.version)
    is_direct = session.protocol == "gopa" and session.parameters.get("topology") == "direct"
    required(kind in STATISTICS and not is_direct, "a session without verifiable runs")
    corrupt = with_corrupt(session)["corrupt"]
    required(_is_number(corrupt, *RANGES["corrupt"]), "the session is malformed")
    return _part(corrupt, len(session.names))


def _of_group(session: Session, request: int, operation: str, own: int, pair: int) -> Terms:
    """Return the terms of a learner's average over a group; Refused unless the noise is as planned."""
    learner = read_learner(session)
    group, count = group_of(session.parameters, len(session.names), request)
    names, size = [session.names[index] for index in group], len(group)
    required(size <= MOST_PARTIES, "the roster")
    required(operation == f"average {own:x}/{pair:x} of group {group_digest(names)}", "the question")
    parameters = {
        "length": learner.length,
        "l2_bound": learner.clip,
        "corrupt": learner.colluders / size,
        "dropout": learner.missing / size,
    }
    scope = tuple_hash("sub-session", session.digest, *(name.encode() for name in names))
    epsilon, delta = learner.epsilon, learner.delta
    single = max(delta / (2 * count), LEAST_DELTA)
    each = gaussian_epsilon(single, gaussian_mu(epsilon, delta) / math.sqrt(count))
    for _ in range(TRIALS):
        terms = _terms(names, scope, {**parameters, "epsilon": each, "delta": single}, own, pair)
        bits = terms.noise.planned_bits()
        if terms.noise.all_of(count, bits, delta) <= epsilon * (1 + ROUNDED):
            required((4 * own, pair) == (bits, terms.noise.pair), "the noise that the session plans")
            return terms
        each *= SHRINK
    raise Refused("the noise that the session plans")


def _corrupt(parameters: dict[str, Any], parties: int) -> int:
    return _part(parameters["corrupt"], parties)


def _lost(parameters: dict[str, Any], parties: int) -> int:
    return _part(parameters.get("dropout", max(0.1, 1 / parties) if parties >= 5 else 0.1), parties)


def _part(fraction: Number, parties: int) -> int:
    return math.floor(fraction * parties + 1e-9)


def _terms(names: list[str], scope: bytes, parameters: dict[str, Any], own: int, pair: int) -> Terms:
    """Return the terms of an average of vectors; the caller checks that the noise is the planned one."""
    parties, length = len(names), parameters["length"]
    required(type(length) is int and 1 <= length <= MOST_LENGTH, "the length of vectors")
    bound = parameters.get("l2_bound")
    lows, highs = ([-bound], [bound]) if bound is not None else _sides(parameters, length)
    widths = [high - low for low, high in zip(lows, highs, strict=True)]
    required(all(0 < width < math.inf for width in widths), "the bounds")
    bits = 0
    if parameters.get("kind", "real") == "real":
        precision = parameters.get("precision")
        if precision is None:
            precision = _precision(parameters, parties, length, widths)
        bits = 1 - math.frexp(precision)[1]
    scale = Fraction(2) ** bits
    # Python rounds half to even, as the grid does.
    low, high = ([round(Fraction(value) * scale) for value in side] for side in (lows, highs))
    squared = None if bound is None else math.floor((Fraction(bound) * scale) ** 2)
    return _on_grid(names, scope, parameters, Grid(low, high, length, bits, squared), (own, pair))


def _on_grid(
    names: list[str],
    scope: bytes,
    parameters: dict[str, Any],
    grid: Grid,
    noise: tuple[int, int],
    request: Request | None = None,
) -> Terms:
    """Return the terms of vectors on this grid; raise Refused if bounds or numbers are out of range.

    `noise`: the variance of a party's own, and of pairwise noise. `request`: of which the noise protects a
    unit of rows; None: a party's vector.
    """
    low, high, length, (own, pair) = grid.low, grid.high, grid.length, noise
    parties, lowest = len(names), min(low)
    required(0 < length <= MOST_LENGTH, "the length of vectors")
    required(own > 0 and 4 * own * length <= MOST_BITS, "bits of noise")
    counted = (tuple(value - lowest for value in low), tuple(value - lowest for value in high))
    width = sum((b - a).bit_length() for a, b in zip(*counted, strict=True)) * (length // len(low))
    required(width + (grid.squared or 0).bit_length() <= MOST_BITS, "bits of the values")
    required(all(a < b for a, b in zip(low, high, strict=True)) and grid.squared != 0, "the bounds")
    corrupt, lost = _corrupt(parameters, parties), _lost(parameters, parties)
    # Who stays can certify, whoever is corrupt [docs/proofs/secagg-plan.md].
    required(parties >= 3 and parties - corrupt - 2 * lost >= 2, "corrupt parties and losses")
    farthest = max(abs(lowest), abs(max(high)))
    required(parties * farthest < 1 << 63 and parties * (max(high) - lowest) < 1 << 64, "the bounds")
    widths = tuple(b - a for a, b in zip(*counted, strict=True))
    count, moves, bound, hidden = length, widths, grid.squared, None
    if request is not None:
        count, moves, bound, hidden = request.length, request.moves, request.squared, request.hidden
    epsilon, delta = parameters["epsilon"], parameters["delta"]
    planned = Noise(parties, corrupt, lost, epsilon, delta, count, moves, bound, hidden=hidden)
    terms = Terms(
        names=names,
        scope=scope,
        corrupt=corrupt,
        lost=lost,
        length=length,
        fractional_bits=grid.fractional_bits,
        lowest=lowest,
        centre=0 if grid.squared is None else -lowest,
        range=counted,
        squared=grid.squared,
        bits=4 * own,
        pair_variance=pair,
        highest=max(high) - lowest,
        noise=planned,
        request=request,
    )
    required(parties * (terms.most_x_hat + farthest) < 1 << 63 and pair <= MOST_VARIANCE, "the bounds")
    return terms


def _sides(parameters: dict[str, Any], length: int) -> tuple[list[Number], list[Number]]:
    """Return the lower and upper bounds as lists: one entry for all coordinates, or one for each."""
    sides = [parameters["lower"], parameters["upper"]]
    lists = [list(side) if isinstance(side, list) else [side] for side in sides]
    count = max(map(len, lists))
    required(count in (1, length) and {*map(len, lists)} <= {1, count}, "the bounds")
    lower, upper = (side * (count // len(side)) for side in lists)
    return lower, upper


def _precision(parameters: dict[str, Any], parties: int, length: int, widths: list[Number]) -> float:
    """Return the default grid step: about `GRID_BITS` bits of noise, and at least two steps a range."""
    epsilon, delta = parameters["epsilon"], parameters["delta"]
    required(0 < epsilon < 1000 and 0 < delta < 1, "epsilon and delta")
    bits = min(GRID_BITS, MOST_BITS / length)
    alike = "l2_bound" not in parameters and len(widths) == 1
    mu = gaussian_mu(epsilon, max(delta, 1e-290))
    steps = mu * math.sqrt(bits * parties / (4 * (length if alike else 1))) / 2
    if "l2_bound" in parameters:
        widths = [2 * parameters["l2_bound"]]
    precision = math.hypot(*widths) / max(steps, 1.0)
    if len(widths) > 1:
        precision = min(precision, min(widths) / 2)
    return max(precision, 2.0**-900)
