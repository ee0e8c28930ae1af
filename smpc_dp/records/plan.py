"""Plans one request: the integers that parties add up, the noise, and the error of each answer.

All coordinates of the vector have one noise deviation in the ring. A block's scale, fine or coarse, makes it
the block's own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import msgspec
import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.guarantee import PlainStruct, PrivacyGuarantee
from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
from smpc_dp.privacy.mechanisms.distributed import DistributedSum
from smpc_dp.privacy.mechanisms.laplace_shares import LaplaceShare, least_scale
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.privacy.search import bisect
from smpc_dp.records.ask import Ask, read_ask
from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import Block
from smpc_dp.records.registered import statistic_of
from smpc_dp.records.result import NO_PRIVACY, Answers, Estimate, not_protected
from smpc_dp.records.schema import Schema
from smpc_dp.records.sensitivity import Scaled, l1_sensitivity, row_l1, sensitivity_of
from smpc_dp.records.split import deviations
from smpc_dp.records.table import Integers, Table
from smpc_dp.records.terms import Term, is_public

# The deviation of the noise in ring steps: at most, and with less the grid would be coarser than the noise.
MOST_BITS = 32
LEAST_BITS = 8
# Sums with their noise stay below this; the noise is below 40 of its deviations.
SUM_BITS = 61
# Scales are multiples of a power of two, to within a part in 2^7.
SCALE_BITS = 8
# With fewer bits than these, scales from this one on are integers.
COARSE_BITS, WHOLE_SCALE = 11, 3.0
MAX_LENGTH = 1 << 22
# The deviation of discrete Laplace noise in ring steps: its shares take a draw for each doubling.
LAPLACE_BITS = 12
# A standard error above this share of the range is warned of.
LARGE = 0.1


class PlannedError(PlainStruct, frozen=True):
    """The standard error of one answer, from noise and rounding, before anything is charged.

    Attributes:
        text: the answer.
        standard_error: in the unit of the answer; None where it depends on a number of rows that is not
            declared.
        range: the declared range of the answer: of one row for counts and sums.
        relative: the standard error over the range, for totals over that of all rows.
        rows: the number of rows that it is stated for, None where it needs none.
        expected: whether that number is `rows_expected`, and not a public one.
        assumed: what else it is stated for.
    """

    text: str
    standard_error: float | None
    range: float
    relative: float | None
    rows: int | None
    expected: bool
    assumed: str


class Priced:
    """What is planned at a price: warns of large errors, and refuses them.

    Attributes:
        shares: the sum of shares of noise, with the counted ones; None for exact sums.
        steps: the requests that it takes, one after the other.
        central: whether there is one share for all, which servers draw.
    """

    schema: Schema
    shares: DistributedSum | None
    epsilon: float
    delta: float
    steps: int
    central: bool = False

    @property
    def mechanism(self) -> DistributedSum:
        """The sum of shares of noise; raises ConfigError for exact sums."""
        if self.shares is None:
            raise ConfigError("exact sums have no noise", ConfigCheck.UNSUPPORTED)
        return self.shares

    def event(self) -> Event:
        """Return what one private request is to a ledger of its unit and relation."""
        return msgspec.structs.replace(self.mechanism.event(), unit=self.schema.unit)

    def guarantee(self) -> PrivacyGuarantee:
        """Return what all requests together guarantee to one unit."""
        exact = self.mechanism.guarantee(self.delta)
        return msgspec.structs.replace(exact, epsilon=self.epsilon, protects=self.schema.unit)

    def errors(self, present: int, rows: int | None = None) -> list[PlannedError]:
        """Return the standard error of each answer with so many shares of noise in the sum."""
        raise NotImplementedError

    def following(self, answers: Answers) -> Self:  # noqa: ARG002
        """Return the plan of the next step, given the answers of this one."""
        return self

    def answers(
        self,
        estimates: Iterable[Estimate],
        present: int,
        *,
        level: float,
        simultaneous: bool,
        rows: int | None = None,
        following: tuple[int, ...] = (),
    ) -> Answers:
        """Return what is known after a request over so many parties, with what it protects."""
        exact = self.shares is None
        limits = NO_PRIVACY if exact else not_protected(self.schema, central=self.central)
        return Answers(
            estimates=tuple(estimates),
            level=level,
            simultaneous=simultaneous,
            unit=self.schema.unit,
            relation=self.schema.relation,
            present=1 if self.central else present,
            counted=0 if exact else self.mechanism.honest,
            rows=rows,
            guarantee=None if exact else self.guarantee(),
            not_protected=limits.sentences,
            following=following,
        )

    def warnings(self, present: int, rows: int | None = None) -> list[str]:
        """Return a line for each answer whose standard error is above a tenth of its range, or not known."""
        return [line for error in self.errors(present, rows) for line in self._warning(error)]

    def _warning(self, error: PlannedError) -> list[str]:
        if error.relative is None:
            return [f"{error.text}: the error depends on the number of rows: declare rows_expected"]
        if error.relative <= LARGE:
            return []
        percent = 100 * error.relative
        more = math.ceil((error.rows or self.schema.rows_expected or 1) * error.relative / LARGE)
        line = f"{error.text}: the standard error is {percent:.3g} % of the range. It would be a tenth"
        enough = self._epsilon_for(error.relative / LARGE)
        least = "" if enough is None else f" or with epsilon {enough:.3g}"
        return [f"{line} with {more} rows (more parties){least}; fewer statistics in the request help too"]

    def _epsilon_for(self, factor: float) -> float | None:
        """Return the epsilon at which Gaussian noise is smaller by a factor, None where it is above 100."""
        wanted = gaussian_mu(self.epsilon, self.delta) * factor
        if gaussian_mu(100.0, self.delta) < wanted:
            return None
        return bisect(lambda epsilon: gaussian_mu(epsilon, self.delta) < wanted, self.epsilon, 100.0, 50)[1]

    def check_errors(self, most: float | Mapping[str, float], present: int, rows: int | None = None) -> None:
        """Raise ConfigError for each answer whose standard error is above what is accepted.

        `most` is a share of the range of every answer, or a standard error for each text.
        """
        planned = self.errors(present, rows)
        others = sorted({*most} - {error.text for error in planned}) if isinstance(most, Mapping) else []
        issues = [
            ConfigIssue("max_standard_error", f"{text!r} is not asked for", ConfigCheck.UNKNOWN_NAME)
            for text in others
        ]
        for error in planned:
            limit = most.get(error.text) if isinstance(most, Mapping) else most
            stated = error.standard_error if isinstance(most, Mapping) else error.relative
            if limit is None or (stated is not None and stated <= limit):
                continue
            bound, shown = (
                (f"{limit:g}", f"{stated or 0:.3g}")
                if isinstance(most, Mapping)
                else (f"{100 * limit:g} %", f"{100 * (stated or 0):.3g} % of the range")
            )
            shown = "not known without rows_expected" if stated is None else shown
            reason = f"{error.text}: the standard error is {shown}, at most {bound} is accepted"
            issues.append(ConfigIssue("max_standard_error", reason, ConfigCheck.INFEASIBLE))
        if issues:
            raise ConfigError(issues)


@dataclass(frozen=True)
class Plan(Priced):
    """One request, planned; made by `plan_request`.

    Attributes:
        statistics: what is asked for; terms: their numbers.
        blocks: the blocks of the vector, with what multiplies their sums.
        sensitivity: how far one unit moves the vector, in ring steps.
        variance: the variance parameter of each party's share, in squared ring steps, an integer.
        left: the variance of noise that lost parties left in the sum, in squared ring steps.
    """

    schema: Schema
    statistics: tuple[Statistic, ...]
    terms: tuple[Term, ...]
    blocks: tuple[Scaled, ...]
    sensitivity: Sensitivity
    shares: DistributedSum
    variance: Fraction
    epsilon: float
    delta: float
    central: bool = False
    left: int = 0
    steps: int = 1

    @property
    def length(self) -> int:
        """The number of coordinates."""
        return self.sensitivity.dimension

    @functools.cached_property
    def offsets(self) -> dict[Block, tuple[int, Fraction]]:
        """For each block its first coordinate and its scale."""
        result, offset = {}, 0
        for one in self.blocks:
            result[one.block] = (offset, one.scale)
            offset += one.block.cells
        return result

    @functools.cached_property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest value of each coordinate of a party's vector."""
        return _bounds(self.blocks, self.schema)

    def vector(self, table: Table) -> Integers:
        """Return a party's vector of integers, without noise, shape (length,)."""
        values: list[int] = []
        for one in self.blocks:
            values += [round_half_up(total * one.scale) for total in one.block.sums(table)]
        low, high = self.bounds
        exact = [min(max(value, int(a)), int(b)) for value, a, b in zip(values, low, high, strict=True)]
        return np.array(exact, dtype=np.int64)

    @property
    def laplace(self) -> LaplaceShare | None:
        """The share of discrete Laplace noise; None where the noise is Gaussian."""
        share = self.shares.share
        return share if isinstance(share, LaplaceShare) else None

    def worst(self, weights: Mapping[str, float]) -> float:
        """Return the largest weighted error of an answer over its range, with the counted shares alone."""
        present = self.shares.honest
        return max(
            term.groups * math.sqrt(self._square(term, present) * weights.get(term.text, 1.0))
            for term in self.terms
        )

    def scale_texts(self) -> Any:
        """Return the scale of each block and of Laplace noise, which are derived with floating point."""
        texts = [(one.block, f"{one.scale.numerator:x}/{one.scale.denominator:x}") for one in self.blocks]
        return texts if self.laplace is None else [texts, f"{self.laplace.scale.numerator:x}"]

    def with_variance(self, variance: Fraction) -> Plan:
        """Return the plan with shares of a greater variance."""
        share = DiscreteGaussian(self.sensitivity, variance)
        return replace(self, variance=variance, shares=replace(self.shares, share=share))

    def with_left(self, variance: int) -> Plan:
        """Return the plan of a sum in which lost parties left noise of this variance."""
        return replace(self, left=variance)

    def of_one_noise(self, variance: Fraction) -> Plan:
        """Return the plan with one noise for all in the place of shares."""
        return replace(self.with_variance(variance), central=True)

    def deviation(self, present: int) -> float:
        """Return the standard deviation of the noise in a sum over so many parties, in ring steps."""
        return math.sqrt((self.variance if self.central else present * self.variance) + self.left)

    def deviation_of(self, block: Block, present: int) -> float:
        """Return the deviation of the noise in each cell of a block over so many parties, in its own steps.

        Each rounding of a party's sum moves the total by half a ring step at most, and all noise is discrete:
        a step more covers both.
        """
        scaled = Scaled(block, self.offsets[block][1])
        rounding = present / 2 + 1 if scaled.rounded else 1.0
        return (self.deviation(present) + rounding) / float(scaled.scale)

    def _square(self, term: Term, present: int) -> float:
        """Return the square of a term's error over its range, times its number of rows."""
        return sum(
            factor * (self.deviation_of(block, present) / block.greatest(self.schema)) ** 2
            for block, factor in term.squares.items()
            if not is_public(block, self.schema)
        )

    def errors(self, present: int, rows: int | None = None) -> list[PlannedError]:
        """Return the standard error of each answer with so many shares of noise in the sum.

        `rows` is the public number of rows; with private rows it is `rows_expected`.
        """
        expected = self.schema.rows == "private" or rows is None
        number = self.schema.rows_expected if expected else rows
        return [self._error(term, present, number, expected) for term in self.terms]

    def _error(self, term: Term, present: int, rows: int | None, expected: bool) -> PlannedError:
        one_row = math.sqrt(self._square(term, present)) * term.groups
        relative = None if rows is None else one_row / rows
        error = one_row * term.range if term.of_rows else None
        if not term.of_rows and relative is not None:
            error = relative * term.range
        used = None if term.of_rows else rows
        return PlannedError(term.text, error, term.range, relative, used, expected, term.assumed)


def plan_request(
    schema: Schema,
    ask: Ask,
    *,
    epsilon: float,
    delta: float,
    parties: int,
    missing: int = 0,
    corrupt: int = 0,
    weights: Mapping[str, float] | None = None,
    max_bits: float = MOST_BITS,
    laplace: bool = False,
    replaced: bool = False,
) -> Plan:
    """Plan what is asked for, at (epsilon, delta) for one unit of the schema.

    Args:
        schema: the columns and the unit.
        ask: what is asked for; see `read_ask`.
        epsilon, delta: of the whole request.
        parties: vectors in the sum; of these `missing` and `corrupt` bring no noise that counts.
        weights: for texts of answers, how much their squared error counts beside that of others; 1 otherwise.
        laplace: whether shares may be of discrete Laplace noise, where that makes the largest error less.
        replaced: whether noise of another law takes the place of the shares: these then have the variance of
            continuous Gaussian ones, and no guarantee.
        max_bits: log2 of the deviation of the noise in ring steps; less makes a coarser grid and shorter
            elements.

    Raises:
        ConfigError: what is asked for, or the budget, is refused; sums do not fit into the ring.
        PrivacyError: no noise suffices.
    """
    statistics = read_ask(ask, schema)
    terms = tuple(term for one in statistics for term in statistic_of(one).terms(one, schema))
    _check(epsilon, delta, terms, weights or {})
    blocks = list(dict.fromkeys(block for term in terms for block in term.squares))
    blocks = [block for block in blocks if not is_public(block, schema)]
    weights = weights or {}
    if not blocks:
        raise ConfigError.at(
            "ask", "the number of rows is public: nothing else is asked for", ConfigCheck.INFEASIBLE
        )
    if sum(block.cells for block in blocks) > MAX_LENGTH:
        raise ConfigError.at("ask", f"more than {MAX_LENGTH} cells", ConfigCheck.TOO_LARGE)
    mu = gaussian_mu(epsilon, delta)
    spread = [one / mu for one in deviations(terms, blocks, schema, weights)]
    scaled = _scaled(blocks, spread, schema, parties, max_bits)
    sensitivity = sensitivity_of(scaled, schema)
    if replaced:
        counted = parties - missing - corrupt
        variance = Fraction(math.ceil(sensitivity.l2**2 / (mu * mu * counted)))
    else:
        mechanism = DistributedSum.calibrate(
            DiscreteGaussian, epsilon, delta, sensitivity, parties=parties, missing=missing, corrupt=corrupt
        )
        variance = Fraction(math.ceil(mechanism.share.distribution.value))
    _check_room(scaled, schema, parties, variance)
    plan = Plan(
        schema=schema,
        statistics=statistics,
        terms=terms,
        blocks=tuple(scaled),
        sensitivity=sensitivity,
        shares=DistributedSum(DiscreteGaussian(sensitivity, variance), parties, missing, corrupt),
        variance=variance,
        epsilon=epsilon,
        delta=delta,
    )
    other = _with_laplace(plan, weights) if laplace else None
    return plan if other is None or other.worst(weights) >= plan.worst(weights) else other


def _with_laplace(plan: Plan, weights: Mapping[str, float]) -> Plan | None:
    """Return the plan with shares of discrete Laplace noise; None unless each answer is of one block.

    Each block's deviation makes the largest error of its answers that of all others, which is the least.
    """
    if not all(statistic_of(one).linear for one in plan.statistics):
        return None
    schema, factors = plan.schema, dict.fromkeys((one.block for one in plan.blocks), 0.0)
    for term in plan.terms:
        blocks = [block for block in term.squares if not is_public(block, schema)]
        if len(blocks) != 1:
            return None
        factor = term.squares[blocks[0]] * term.groups**2 * weights.get(term.text, 1.0)
        factors[blocks[0]] = max(factors[blocks[0]], factor)
    whole = sum(row_l1(block, schema) * math.sqrt(factor) for block, factor in factors.items())
    spread = [math.sqrt(2.0) * whole / (plan.epsilon * math.sqrt(factor)) for factor in factors.values()]
    parties = plan.shares.parties
    scaled = tuple(_scaled(list(factors), spread, schema, parties, LAPLACE_BITS))
    sensitivity = l1_sensitivity(scaled, schema)
    counted = plan.shares.honest
    share = LaplaceShare(sensitivity, least_scale(sensitivity.l1, plan.epsilon), counted)
    variance = Fraction(math.ceil(share.variance))
    _check_room(scaled, schema, parties, variance)
    shares = replace(plan.shares, share=share)
    return replace(plan, blocks=scaled, sensitivity=sensitivity, shares=shares, variance=variance)


def _check(epsilon: float, delta: float, terms: Sequence[Term], weights: Mapping[str, float]) -> None:
    result = ArgumentChecks()
    result.require_budget(epsilon, delta)
    texts = {term.text for term in terms}
    for text, weight in weights.items():
        if text not in texts:
            result.add_issue("weights", f"{text!r} is not asked for", ConfigCheck.UNKNOWN_NAME)
        result.require_positive("weights", weight, 1e6, f" ({text})")
    result.raise_issues()


def _scaled(
    blocks: Sequence[Block], spread: Sequence[float], schema: Schema, parties: int, max_bits: float
) -> list[Scaled]:
    """Return the blocks with scales that give each the deviation `spread`, in units of its greatest value."""
    total = parties * schema.max_rows / min(spread)
    bits = min(max_bits, math.floor(SUM_BITS - 1 - math.log2(total + 80 * parties)))
    if bits < min(max_bits, LEAST_BITS):
        raise no_room(parties, schema)
    ring = 2.0**bits
    return [
        Scaled(block, near_scale(ring / (one * block.greatest(schema)), bits < COARSE_BITS))
        for block, one in zip(blocks, spread, strict=True)
    ]


def no_room(parties: int, schema: Schema) -> ConfigError:
    """Return the error of rows for which no grid is finer than the noise and fits into the ring."""
    reason = f"sums of {parties} times {schema.max_rows} rows do not fit into the ring with their noise"
    return ConfigError.at("max_rows", reason, ConfigCheck.TOO_LARGE)


def near_scale(scale: float, coarse: bool = False) -> Fraction:
    """Return an integer, or a multiple of a power of two below 1, that is within a part in 2^7 of a scale.

    `coarse`: an integer within a part in 6 where there is one, since rounding costs more than a worse split.
    """
    if coarse and scale >= WHOLE_SCALE:
        return Fraction(round(scale))
    bits = max(0, SCALE_BITS - math.frexp(scale)[1])
    return Fraction(max(1, round(math.ldexp(scale, bits))), 1 << bits)


def round_half_up(value: Fraction) -> int:
    """Return floor(value + 1/2)."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def _bounds(blocks: Sequence[Scaled], schema: Schema) -> tuple[Integers, Integers]:
    cells = [one.block.cells for one in blocks]
    low = [round_half_up(schema.max_rows * one.block.least(schema) * one.scale) for one in blocks]
    high = [round_half_up(schema.max_rows * one.block.greatest(schema) * one.scale) for one in blocks]
    return np.repeat(np.array(low, dtype=np.int64), cells), np.repeat(np.array(high, dtype=np.int64), cells)


def _check_room(blocks: Sequence[Scaled], schema: Schema, parties: int, variance: Fraction) -> None:
    """Raise ConfigError unless sums of all parties and their noise fit into the ring."""
    low, high = _bounds(blocks, schema)
    widest = max(int(high.max()) - int(low.min()), 1)
    if parties * widest + 80 * math.isqrt(math.ceil(parties * variance)) >= 1 << 62:
        raise ConfigError.at("max_rows", "sum and noise need over 63 bits", ConfigCheck.TOO_LARGE)
