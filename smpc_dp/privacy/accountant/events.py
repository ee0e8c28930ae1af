"""Descriptions of releases for the accountant: data that a ledger stores and anybody can compose again.

An event holds one or more descriptions of the same release. Each is a valid upper bound by itself, and the
accountant takes the one with the smallest result.
"""

from __future__ import annotations

import functools
import math
import re
from fractions import Fraction
from typing import Annotated, Any, get_args

import msgspec
from msgspec import Meta
from msgspec.structs import fields, force_setattr

from smpc_dp.errors import ConfigCheck, ConfigError, PrivacyError
from smpc_dp.privacy.distributions import AnyDistribution
from smpc_dp.privacy.guarantee import Relation, Unit
from smpc_dp.privacy.response import ResponseDistribution
from smpc_dp.values import plain_value

NonNegative = Annotated[float, Meta(ge=0, le=1e9)]
Probability = Annotated[float, Meta(ge=0, lt=1)]
Count = Annotated[int, Meta(ge=1, le=1 << 40)]
Text = Annotated[str, Meta(max_length=200)]
_RATIO = re.compile(r"(0|[1-9][0-9]{0,399})/([1-9][0-9]{0,399})")


@functools.cache
def _number_fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """Return name and type (int or float) of each numeric field of a struct class."""
    kinds = [(field.name, (get_args(field.type) or (field.type,))[0]) for field in fields(kind)]
    return tuple((name, number) for name, number in kinds if number in (int, float))


def _check_numbers(struct: msgspec.Struct, owner: str) -> None:
    """Convert a struct's NumPy numbers to Python's, in place; raise ConfigError for numbers out of range.

    A number is wrong if it is negative, not finite, or, as a probability, 1 or more.
    """
    for name, kind in _number_fields(type(struct)):
        value = plain_value(getattr(struct, name))
        if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            wanted = "a whole number" if kind is int else "a number"
            raise ConfigError.at(name, f"of {owner}: must be {wanted}, is {value!r:.80}", ConfigCheck.TYPE)
        # What a ledger can store; the least float above it is refused.
        whole = 1e15 if kind is int else math.nextafter(1e9, math.inf)
        most = 1.0 if name in ("delta", "slack") else whole
        if not 0 <= value < most:
            raise ConfigError.at(
                name, f"of {owner}: must be 0 or more and below {most:g}, is {value}", ConfigCheck.RANGE
            )
        force_setattr(struct, name, value)


class Description(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """Base of bounds on the privacy loss of one release between neighbouring inputs, for an accountant.

    Raises ConfigError, naming the field, for numbers out of range.
    """

    def __post_init__(self) -> None:
        _check_numbers(self, type(self).__name__)

    def two_steps_apart(self) -> Description:
        """Return the bound for inputs two neighbouring steps apart; here NotImplementedError."""
        raise NotImplementedError


class Pure(Description, frozen=True, tag="pure"):
    """Bound on a release of which only (epsilon, delta)-differential privacy is known."""

    epsilon: NonNegative
    delta: Probability = 0.0

    def two_steps_apart(self) -> Pure:
        """Return the group-privacy bound (2 epsilon, (1 + e^epsilon) delta), or raise PrivacyError."""
        # group privacy: P <= e^eps R + d <= e^2eps Q + (1 + e^eps) d
        delta = (1 + math.exp(min(self.epsilon, 700))) * self.delta if self.delta else 0.0
        if delta >= 1:
            raise PrivacyError(f"({self.epsilon}, {self.delta}) says nothing about two steps")
        return Pure(2 * self.epsilon, delta)


class Gaussian(Description, frozen=True, tag="gaussian"):
    """Bound of the Gaussian mechanism, for neighbouring means at most `mu` standard deviations apart.

    `closeness` bounds the range of log(true density / density of a post-processed Gaussian mechanism) over
    all outputs: 0 for the Gaussian itself; see docs/proofs/accounting.md for the discrete one.
    """

    mu: NonNegative
    closeness: NonNegative = 0.0

    def two_steps_apart(self) -> Gaussian:
        """Return the bound for inputs two neighbouring steps apart: `mu` and `closeness` doubled."""
        # a discrete distribution is close in every coordinate that moves: twice as many may
        return Gaussian(2 * self.mu, 2 * self.closeness)


class Shift(Description, frozen=True, tag="shift", rename={"distribution": "law"}):
    """Bound for a vector with integer noise; up to `coordinates` entries move, each by at most `shift`.

    Between neighbours at most `coordinates` of them move, each by `shift` at most. `closeness` is that of
    `Gaussian`.
    """

    distribution: AnyDistribution
    shares: Count
    shift: Count
    coordinates: Count = 1
    dimension: Count = 1
    closeness: NonNegative = 0.0

    def two_steps_apart(self) -> Shift:
        """Return the bound for two neighbouring steps: twice the shift, in up to twice the coordinates."""
        # two steps move at most twice as many coordinates, each at most twice as far
        moved = min(2 * self.coordinates, self.dimension)
        return Shift(
            self.distribution, self.shares, 2 * self.shift, moved, self.dimension, 2 * self.closeness
        )


class Shifts(Description, frozen=True, tag="shifts", rename={"distribution": "law"}):
    """Bound for a vector with integer noise, as pairs (shift, number of entries that move by at most it).

    Between neighbours, for each (shift, coordinates) of `moves`, so many of them move by that much at most.
    `closeness` is that of `Gaussian`.
    """

    distribution: AnyDistribution
    shares: Count
    moves: Annotated[tuple[tuple[Count, Count], ...], Meta(min_length=1, max_length=64)]
    closeness: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "moves", plain_value(self.moves))
        for number in (number for pair in self.moves for number in pair):
            if type(number) is not int or number < 1:
                reason = f"of Shifts: must be pairs of whole numbers of 1 or more, has {number!r:.80}"
                raise ConfigError.at("moves", reason, ConfigCheck.RANGE)

    def two_steps_apart(self) -> Shifts:
        """Return the bound for inputs two neighbouring steps apart: every shift doubled."""
        moves = tuple((2 * shift, coordinates) for shift, coordinates in self.moves)
        return Shifts(self.distribution, self.shares, moves, 2 * self.closeness)


class RandomisedResponse(Description, frozen=True, tag="randomised-response"):
    """Bound for randomised response in which `values` answers may change, truth `ratio` times as likely.

    A ratio below 1 costs as much as its inverse.
    """

    categories: Annotated[int, Meta(ge=2, le=1 << 40)]
    ratio: Fraction
    values: Count = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.ratio, Fraction) or self.ratio <= 0:
            reason = f"of RandomisedResponse: must be a fraction above 0, is {self.ratio!r:.80}"
            raise ConfigError.at("ratio", reason, ConfigCheck.TYPE)

    @property
    def distribution(self) -> ResponseDistribution[Fraction]:
        """Distribution of one randomised answer, given the true one, as exact fractions."""
        return ResponseDistribution.of_gain(self.categories, self.ratio - 1)

    def two_steps_apart(self) -> RandomisedResponse:
        """Return the bound for two neighbouring steps: twice as many answers."""
        # any input is a neighbour of any other already; two steps move twice as many answers
        return RandomisedResponse(self.categories, self.ratio, 2 * self.values)


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bound on a Rényi divergence of order alpha that is linear in alpha: offset + slope * alpha."""

    offset: NonNegative
    slope: NonNegative

    def __post_init__(self) -> None:
        _check_numbers(self, "Line")


class Renyi(Description, frozen=True, tag="renyi"):
    """Bound on the Rényi divergence of a release, linear in the order, at integer orders or all orders.

    rho-zCDP is the one line (0, rho) at all orders.
    """

    lines: Annotated[tuple[Line, ...], Meta(min_length=1, max_length=4)]
    all_orders: bool = False

    def two_steps_apart(self) -> Renyi:
        """Return zCDP with 4 rho, for inputs two steps apart; PrivacyError if this is not zCDP."""
        if not self.all_orders or any(line.offset for line in self.lines):
            raise PrivacyError("this Rényi bound has no conversion between neighbouring relations")
        # [Bun and Steinke 2016, Proposition 27]: k steps apart cost k^2 rho
        return Renyi(tuple(Line(0.0, 4 * line.slope) for line in self.lines), all_orders=True)


class Joint(Description, frozen=True, tag="joint"):
    """Bound on several releases of the same inputs with independent noise, one part for each release."""

    parts: Annotated[tuple[Gaussian | Shift | Shifts | Pure, ...], Meta(min_length=2, max_length=4)]

    def two_steps_apart(self) -> Joint:
        """Return the bound with each part converted for inputs two neighbouring steps apart."""
        return Joint(tuple(part.two_steps_apart() for part in self.parts))


class Exact(Description, frozen=True, tag="exact"):
    """Description of the release of an exact value, which has no differential privacy."""

    def two_steps_apart(self) -> Exact:
        """Return this description unchanged: an exact release has no privacy at any distance."""
        return self


AnyDescription = Pure | Gaussian | Shift | Shifts | RandomisedResponse | Renyi | Joint | Exact


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One release of a party's data, as a privacy accountant or ledger needs it for composition.

    Attributes:
        mechanism: the kind of release, in words.
        relation: the neighbouring relation that its sensitivity was taken for.
        descriptions: bounds on it, best first; an exact release has `Exact` alone.
        slack: the probability, at most, that the descriptions do not hold (a bad graph); adds to delta.
        unit: whose data differ between neighbours.
    """

    mechanism: Text
    relation: Relation
    descriptions: Annotated[tuple[AnyDescription, ...], Meta(min_length=1, max_length=4)]
    # By a factory, for no factory's value is a default that is omitted: ledgers of version 1 have it.
    slack: Probability = msgspec.field(default_factory=float)
    unit: Unit = "party"

    def __post_init__(self) -> None:
        _check_numbers(self, self.mechanism)
        if len(self.descriptions) > 1 and self.exact:
            raise ConfigError(
                f"{self.mechanism}: an exact release has no other description", ConfigCheck.UNSUPPORTED
            )

    @property
    def exact(self) -> bool:
        """Whether this is an exact release, without differential privacy."""
        return any(isinstance(description, Exact) for description in self.descriptions)

    def under(self, relation: Relation, unit: Unit = "party") -> Event:
        """Return this release converted to another relation or unit; PrivacyError if not provable.

        Of parties a substitution is a removal and an addition, so a bound for add-remove gives one for two
        steps; nothing follows the other way. Sensitivities of records and persons are derived for each
        relation and never converted. Whoever protects a party protects each of its records, whichever way
        one differs: it changes nothing but what that party gives. Whoever protects a person protects none of
        its records: a person's release counts some of its records alone, so one record more may put another
        one out, and one record exchanged for another may change the records of two persons.
        """
        if unit == "party" == self.unit:
            return self._of_parties(relation)
        if unit == "record" and self.unit == "party":
            # A record more, less or exchanged: the party's data are exchanged for others.
            covering = self._of_parties("substitution")
            return msgspec.structs.replace(covering, relation=relation, unit=unit)
        if unit != self.unit:
            why = ""
            if (unit, self.unit) == ("record", "person"):
                why = (
                    ": one record more may put another one of its person out of those that count, and one "
                    "record exchanged for another may change the records of two persons"
                )
            raise PrivacyError(
                f"{self.mechanism}: its guarantee is for one {self.unit}, and says nothing about one "
                f"{unit}, the ledger's unit{why}"
            )
        if relation != self.relation and not self.exact:
            raise PrivacyError(
                f"{self.mechanism}: its guarantee is for {self.relation} of one {self.unit}, the ledger's "
                f"relation is {relation}: a sensitivity of one {self.unit} is never converted"
            )
        return msgspec.structs.replace(self, relation=relation, unit=unit)

    def _of_parties(self, relation: Relation) -> Event:
        """Return this release, of unit party, under another relation; PrivacyError if not provable."""
        if relation == self.relation or self.exact:
            return msgspec.structs.replace(self, relation=relation)
        if relation == "add-remove":
            raise PrivacyError(
                f"{self.mechanism}: its guarantee is for substitution and says nothing about add-remove"
            )
        if self.slack:
            raise PrivacyError(
                f"{self.mechanism}: a release that may fail has no conversion between relations"
            )
        two_steps_apart = []
        for description in self.descriptions:
            try:
                two_steps_apart.append(description.two_steps_apart())
            except PrivacyError:
                if description is self.descriptions[-1] and not two_steps_apart:
                    raise
        return msgspec.structs.replace(self, relation=relation, descriptions=tuple(two_steps_apart))


def exact_release(mechanism: str, relation: Relation) -> Event:
    """Return the accountant's event for an exact release without DP, such as a plain secure sum."""
    return Event(mechanism, relation, (Exact(),))


def encode_hook(value: Any) -> str:
    """Encode a fraction for JSON as 'numerator/denominator'; NotImplementedError for other values.

    For another value raises NotImplementedError, as msgspec asks of a hook.
    """
    if isinstance(value, Fraction):
        return f"{value.numerator}/{value.denominator}"
    raise NotImplementedError(type(value).__name__)


def decode_hook(kind: type, value: Any) -> Fraction:
    """Decode a positive fraction from 'numerator/denominator'; raise ValueError for other values.

    For another `kind` raises NotImplementedError, as msgspec asks of a hook.
    """
    if kind is not Fraction:
        raise NotImplementedError(kind.__name__)
    match = _RATIO.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"not a fraction: {str(value)[:40]!r}")
    fraction = Fraction(int(match[1]), int(match[2]))
    if fraction <= 0 or encode_hook(fraction) != value:
        raise ValueError(f"not a positive fraction in lowest terms: {value[:40]!r}")
    return fraction
