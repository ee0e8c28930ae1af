"""What the header of a log fixes: parties, keys, quorum, grid, bounds and noise.

The variances of the noise are those of the question, which the run id binds; ε and δ are not planned anew.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from smpc_dp_verify import ristretto
from smpc_dp_verify.encodings import read_value, tuple_hash
from smpc_dp_verify.errors import Refused, Unsupported, required

OPERATION = re.compile(r"(?s:.* )?(0|[1-9a-f][0-9a-f]*)/(0|[1-9a-f][0-9a-f]*)( of group [0-9a-f]{64})?")
STATISTIC = re.compile("pairwise-statistic [0-9a-f]{64}")
MEMBER = {"name", "role", "public_key", "certificate"}
MOST_PARTIES, MOST_BITS, MOST_LENGTH = 10_000, 1 << 16, 4096
# Bits of each coordinate that a grid is made for which the session does not give.
GRID_BITS = 256
# The number of standard deviations that no noise is beyond.
TAIL = 40
Number = int | float
Range = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Terms:
    """What all entries of a log are checked against.

    `bits` of noise each coordinate; `range` of what is committed to, one for all or one for each coordinate;
    `squared` in its place bounds the sum of squares. `lowest`: the value on the grid that x̂ counts from;
    `centre`: what x̂ is above the committed value.
    """

    digest: bytes
    names: list[str]
    aggregator: str
    checkpoint_key: bytes | None
    keys: dict[str, Ed25519PublicKey]
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

    @property
    def quorum(self) -> int:
        """How many signatures certify a set."""
        return (len(self.names) + self.corrupt) // 2 + 1

    @property
    def most_delta(self) -> int:
        """The greatest magnitude of a right pairwise term."""
        return TAIL * (1 + math.isqrt(self.pair_variance))

    @property
    def most_x_hat(self) -> int:
        """The greatest magnitude of a right coordinate of x̂."""
        return self.highest + self.bits + TAIL * (1 + math.isqrt(len(self.names) * self.pair_variance))

    @property
    def range_bits(self) -> int:
        """Binary digits in a range proof."""
        each = [(high - low).bit_length() for low, high in zip(*self.range, strict=True)]
        return sum(each) * (self.length // len(each))

    def least_left(self, false: int) -> int:
        """How many parties are due when so many were shown false."""
        return len(self.names) - self.lost - min(false, max(self.corrupt, 1))


def read_terms(text: str, operation: str) -> Terms:
    """Return the terms of a session and question; raise Refused, or Unsupported for other kinds of runs."""
    try:
        session = json.loads(text)
        spelt = json.dumps(session, sort_keys=True, separators=(",", ":"), allow_nan=False)
        required(spelt == text, "the format")
        required(list(session) == ["parameters", "protocol", "roster", "version"], "the format")
        if STATISTIC.fullmatch(operation) and session["protocol"] != "learn":
            raise Unsupported("the log of a pairwise statistic")
        asked = OPERATION.fullmatch(operation)
        required(asked and len(operation) <= 1024, "the question")
        if session["protocol"] == "learn" or (asked and asked[3]):
            raise Unsupported("the log of a learner's group")
        parameters = session["parameters"]
        kind = (session["protocol"], session["version"], parameters.get("verifiable"))
        required(kind == ("gopa", 2, True), "a session without verifiable averages")
        keys, names, aggregator, checkpoint_key = _roster(session["roster"])
        own, pair = (int(asked[i], 16) for i in (1, 2)) if asked else (0, 0)
        return _terms(
            tuple_hash("session-digest", text.encode()),
            keys,
            names,
            aggregator,
            checkpoint_key,
            parameters,
            own,
            pair,
        )
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise Refused("the session is malformed") from None


def _roster(roster: list[dict[str, Any]]) -> tuple[dict[str, Ed25519PublicKey], list[str], str, bytes | None]:
    keys: dict[str, bytes] = {}
    roles: dict[str, list[str]] = {"aggregator": [], "party": []}
    addresses = []
    checkpoint_key: bytes | None = None
    for member in roster:
        required({*member} - {"address", "checkpoint_key"} == MEMBER, "a member of the roster")
        name, key = read_value(member["name"], "name"), read_value(member["public_key"], "hash")
        required(name not in keys and key not in keys.values(), "two members of one name or key")
        required(not has_small_order(key), "a key of small order")
        keys[name] = key
        roles[member["role"]].append(name)
        addresses += [member["address"]] if "address" in member else []
        if "checkpoint_key" in member:
            required(member["role"] == "aggregator", "a key of checkpoints")
            checkpoint_key = read_value(member["checkpoint_key"], "hash")
    required(len({*addresses}) == len(addresses), "two members of one address")
    required(len(roles["aggregator"]) == 1 and 0 < len(roles["party"]) <= MOST_PARTIES, "the roster")
    required(checkpoint_key not in keys.values(), "two members of one name or key")
    loaded = {name: Ed25519PublicKey.from_public_bytes(key) for name, key in keys.items()}
    return loaded, roles["party"], roles["aggregator"][0], checkpoint_key


def has_small_order(encoded: bytes) -> bool:
    """Tell whether a point of Ed25519 is no point, in another encoding, or of small order."""
    y = int.from_bytes(encoded, "little") % 2**255
    if y >= ristretto.P:
        return True
    square, x = ristretto.sqrt_ratio(y * y - 1, ristretto.D * y * y + 1)
    point = (x, y, 1, x * y % ristretto.P)
    for _ in range(3):
        point = ristretto.add(point, point)
    return not square or point[0] % ristretto.P == 0


def _part(fraction: Number, parties: int) -> int:
    return math.floor(fraction * parties + 1e-9)


def _terms(
    digest: bytes,
    keys: dict[str, Ed25519PublicKey],
    names: list[str],
    aggregator: str,
    checkpoint_key: bytes | None,
    parameters: dict[str, Any],
    own: int,
    pair: int,
) -> Terms:
    parties, length = len(names), parameters["length"]
    required(type(length) is int and 1 <= length <= MOST_LENGTH, "the length of vectors")
    required(own > 0 and 4 * own * length <= MOST_BITS, "bits of noise")
    bound = parameters.get("l2_bound")
    lows, highs = ([-bound], [bound]) if bound is not None else _sides(parameters, length)
    widths = [high - low for low, high in zip(lows, highs, strict=True)]
    required(all(0 < width < math.inf for width in widths), "the bounds")
    bits = 0
    if parameters.get("kind", "real") == "real":
        precision = parameters.get("precision")
        bits = (
            1
            - math.frexp(_precision(parameters, parties, length, widths) if precision is None else precision)[
                1
            ]
        )
    scale = Fraction(2) ** bits
    # Python rounds half to even, as the grid does.
    low, high = ([round(Fraction(value) * scale) for value in side] for side in (lows, highs))
    lowest, squared = min(low), None if bound is None else math.floor((Fraction(bound) * scale) ** 2)
    counted = (tuple(value - lowest for value in low), tuple(value - lowest for value in high))
    width = sum((b - a).bit_length() for a, b in zip(*counted, strict=True)) * (length // len(widths))
    required(width + (squared or 0).bit_length() <= MOST_BITS, "bits of the values")
    return Terms(
        digest=digest,
        names=names,
        aggregator=aggregator,
        checkpoint_key=checkpoint_key,
        keys=keys,
        corrupt=_part(parameters.get("corrupt", 0.1), parties),
        lost=_part(parameters.get("dropout", max(0.1, 1 / parties) if parties >= 5 else 0.1), parties),
        length=length,
        fractional_bits=bits,
        lowest=lowest,
        centre=0 if bound is None else -lowest,
        range=counted,
        squared=squared,
        bits=4 * own,
        pair_variance=pair,
        highest=max(high) - lowest,
    )


def _sides(parameters: dict[str, Any], length: int) -> tuple[list[Number], list[Number]]:
    """Return the bounds of all coordinates, or of each if one of the two is a list."""
    sides = [parameters["lower"], parameters["upper"]]
    lists = [list(side) if isinstance(side, list) else [side] for side in sides]
    count = max(map(len, lists))
    required(count in (1, length) and {*map(len, lists)} <= {1, count}, "the bounds")
    lower, upper = (side * (count // len(side)) for side in lists)
    return lower, upper


def _precision(parameters: dict[str, Any], parties: int, length: int, widths: list[Number]) -> float:
    """Return the step of a session that gives none: about `GRID_BITS` bits of noise, at least two steps."""
    epsilon, delta = parameters["epsilon"], parameters["delta"]
    required(0 < epsilon < 1000 and 0 < delta < 1, "epsilon and delta")
    bits = min(GRID_BITS, MOST_BITS / length)
    alike = "l2_bound" not in parameters and len(widths) == 1
    mu = _gaussian_mu(epsilon, max(delta, 1e-290))
    steps = mu * math.sqrt(bits * parties / (4 * (length if alike else 1))) / 2
    if "l2_bound" in parameters:
        widths = [2 * parameters["l2_bound"]]
    precision = math.hypot(*widths) / max(steps, 1.0)
    if len(widths) > 1:
        precision = min(precision, min(widths) / 2)
    return max(precision, 2.0**-900)


def _gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the greatest shift of a standard Gaussian that is (ε, δ)-private [Balle, Wang 2018]."""

    def tail(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    def spent(mu: float) -> float:
        second = tail(epsilon / mu + mu / 2)
        moved = math.exp(min(epsilon + math.log(second), 0.0)) if second else 0.0
        return tail(epsilon / mu - mu / 2) - moved

    low, high = 0.0, 1.0
    while spent(high) <= delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if spent(middle) <= delta else (low, middle)
    return low
