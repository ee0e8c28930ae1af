"""What the file of a session says of its sums through an aggregator [docs/reference/session-file.md]."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from smpc_dp_verify.encodings import tuple_hash
from smpc_dp_verify.errors import Refused, required
from smpc_dp_verify.session import Session, read_session, with_corrupt

# What a session of sums with noise has: any of these parameters, or this protocol.
NOISY = {"epsilon", "delta", "mechanism", "l2_bound", "complete_graph", "budget"}
VERSIONS = {("secagg", 2), ("secagg", 3), ("gopa", 4), ("gopa", 5)}
LONGEST_SESSION = 64 << 20
# The default of `precision` of sums with noise is this part of the widest range, and at least 2^-900.
STEPS = 1 << 20
# Without `total`, totals of so many parties and elements are checked.
MOST_SHOWN, MOST_BY_DEFAULT = 10_000, 100_000


@dataclass(frozen=True)
class Sums:
    """Parameters of a session's secure sums: session, tolerance, quorum, bounds, and how totals are checked.

    Attributes:
        session: names, keys and aggregator.
        corrupt, least, quorum: c, n - D and q.
        is_checked: whether totals are checked; where it is by default and elements are not known, `of_total`
            says it. is_certified: whether survivors are.
        is_noisy: whether elements are read as two's complement. width: of an element, in bytes.
        elements: of a vector, the weight's included; None of statistics of records, whose number follows from
            what is asked.
        lows, highs: bounds of each coordinate in whole steps, or of all; None of statistics of records.
        sides: the same as written. bits: a step is 2^-bits.
        norm: the bound on the norm of vectors, where it stands in the place of these.
        most_weight: 0: there are no weights.
    """

    session: Session
    corrupt: int
    least: int
    quorum: int
    is_checked: bool
    is_certified: bool
    is_noisy: bool
    width: int
    elements: int | None = None
    lows: tuple[int, ...] = ()
    highs: tuple[int, ...] = ()
    sides: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    bits: int = 0
    norm: float | None = None
    most_weight: int = 0

    @property
    def has_records(self) -> bool:
        """Whether the session's totals are statistics of records, not sums of vectors."""
        return self.elements is None

    @property
    def radii(self) -> list[int]:
        """The one or two possible greatest norms of privately weighted vectors, in steps, ascending.

        There are two where floats, as the sums have them, round the half diagonal to one or the other.
        """
        scale = Fraction(4) ** self.bits
        if self.norm is not None:
            return [math.isqrt(math.floor(Fraction(self.norm) ** 2 * scale))]
        half = [Fraction((high - low) / 2) for low, high in zip(*self.sides, strict=True)]
        many = (self.elements or 1) - 1
        square = sum(one * one for one in half) * (many // len(half)) * Fraction(1 + 1e-12) ** 2 * scale
        # Roundings of floats: one for each coordinate, and of root and product.
        relative = Fraction(many + 8, 1 << 53)
        bounds = (square * (1 - relative) ** 2, square * (1 + relative) ** 2)
        return sorted({math.isqrt(math.floor(bound)) for bound in bounds})

    @property
    def has_checkers(self) -> bool:
        """Whether some survivors check the total for all, since there are many parties."""
        return self.is_checked and len(self.session.names) > MOST_SHOWN

    def of_total(self, elements: int) -> Sums:
        """Return the parameters for a total of this many elements, which decide if it is checked."""
        if self.elements is not None or "total" in self.session.parameters:
            return self
        return replace(self, is_checked=self.is_checked and elements <= MOST_BY_DEFAULT)


def read_file(text: bytes) -> Session | bytes:
    """Parse a session file; return its session, or its digest if nobody signs its totals, or raise Refused.

    Raises Refused for another file.
    """
    try:
        required(len(text) <= LONGEST_SESSION, "the session file is too long")
        document = tomllib.loads(text.decode("utf-8"))
        document.pop("timeouts", None)
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
        roles = {member["role"] for member in document["roster"]}
        if "party" in roles and ("aggregator" not in roles or "server" in roles):
            return tuple_hash("session-digest", canonical.encode())
        return read_session(canonical)
    except (LookupError, TypeError, ValueError, RecursionError):
        raise Refused("the session file is malformed") from None


def read_sums(session: Session) -> Sums:
    """Return the parameters of a session's sums; raise Refused if no aggregator signs their totals."""
    given, parties = session.parameters, len(session.names)
    is_signed = given.get("topology", "relay") != "direct" and given.get("verifiable", False) is False
    required((session.protocol, session.version) in VERSIONS and is_signed, "no total is signed")
    try:
        is_noisy = session.protocol == "gopa" or "records" in given or bool(NOISY & {*given})
        corrupt = _part(with_corrupt(session)["corrupt"], parties)
        common: dict[str, Any] = {
            "session": session,
            "corrupt": corrupt,
            "least": parties - _part(given.get("dropout", _default_dropout(given, parties)), parties),
            "quorum": (parties + corrupt) // 2 + 1,
            "is_checked": _is_checked(session),
            "is_certified": session.protocol == "secagg" or _unmasks_lost(given),
            "is_noisy": is_noisy,
        }
        if "records" in given:
            return Sums(**common, width=8)
        return _of_vectors(given, parties, is_noisy, common)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise Refused("the session is malformed") from None


def _is_checked(session: Session) -> bool:
    """Tell whether totals are checked: as set, or by default for few elements and parties."""
    given = session.parameters
    if "total" in given:
        return bool(given["total"] == "checked")
    elements = 0 if "records" in given else given["length"] + (given.get("max_weight", 0) > 0)
    has_checks = session.protocol == "secagg" or (_unmasks_lost(given) and "records" not in given)
    return bool(has_checks and elements <= MOST_BY_DEFAULT and len(session.names) <= MOST_SHOWN)


def _unmasks_lost(given: dict[str, Any]) -> bool:
    """Tell whether GOPA removes lost parties' pairwise noise from the total ("roll-back")."""
    return bool(given.get("on_dropout", "roll-back" if "records" in given else "keep") == "roll-back")


def _default_dropout(given: dict[str, Any], parties: int) -> float:
    if given.get("same_survivors", True) is False:
        return 0.0
    return max(0.1, 1 / parties) if parties >= 5 else 0.1


def _part(fraction: float, parties: int) -> int:
    return math.floor(fraction * parties + 1e-9)


def _of_vectors(given: dict[str, Any], parties: int, is_noisy: bool, common: dict[str, Any]) -> Sums:
    length, weight = given["length"], given.get("max_weight", 0)
    is_whole = given.get("kind", "real") == "integer"
    norm = given.get("l2_bound")
    sides = ([-norm], [norm]) if norm is not None else (given["lower"], given["upper"])
    lists = [list(side) if isinstance(side, list) else [side] for side in sides]
    many = max(map(len, lists))
    lower, upper = (side if len(side) == many else side * many for side in lists)
    bits = 0
    if not is_whole:
        widest = max(abs(top - low) for low, top in zip(lower, upper, strict=True))
        precision = given["precision"] if "precision" in given else max(widest / STEPS, 2.0**-900)
        bits = 1 - math.frexp(precision)[1]
    scale = Fraction(2) ** bits
    # Python rounds half to even, as the grid does.
    lows, highs = (tuple(round(Fraction(value) * scale) for value in side) for side in (lower, upper))
    most = parties * max(1, weight)
    largest = max(most * (max(highs) - min(lows)), most if weight else 0)
    width = 8 if is_noisy else (largest.bit_length() + 7) // 8
    return Sums(
        **common,
        width=width,
        elements=length + (weight > 0),
        lows=lows,
        highs=highs,
        sides=(tuple(lower), tuple(upper)),
        bits=bits,
        norm=norm,
        most_weight=weight,
    )
