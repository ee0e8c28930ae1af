"""Plans one request: the integers that parties add up, the noise, and the error of each answer.

All coordinates of the vector have one noise deviation in the ring. A block's scale, fine or coarse, makes it
the block's own.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self

import msgspec
import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue
from smpc_dp.privacy.accountant.events import Event
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.gaussian import gaussian_mu
from smpc_dp.privacy.guarantee import LEAST_DELTA, PlainStruct, PrivacyGuarantee
from smpc_dp.privacy.mechanisms.additive import DiscreteGaussian
from smpc_dp.privacy.mechanisms.distributed import DistributedSum
from smpc_dp.privacy.mechanisms.laplace_shares import LaplaceShare, least_scale
from smpc_dp.privacy.mechanisms.mixed_shares import MixedShare
from smpc_dp.privacy.mechanisms.sensitivity import Sensitivity
from smpc_dp.privacy.search import bisect
from smpc_dp.records.ask import Ask, read_ask
from smpc_dp.records.asked import Statistic
from smpc_dp.records.features import Block, Lacking
from smpc_dp.records.registered import statistic_of, terms_of
from smpc_dp.records.result import NO_PRIVACY, Answers, Estimate, not_protected
from smpc_dp.records.schema import Schema
from smpc_dp.records.sensitivity import (
    Scaled,
    block_distance,
    greatest_of_row,
    l1_moves,
    l1_sensitivity,
    row_l1,
    sensitivity_of,
)
from smpc_dp.records.split import Split, SplitName, balanced_weights, deviations, split_with_laplace
from smpc_dp.records.table import Integers, Table
from smpc_dp.records.terms import Term, is_public, noisy_blocks, with_lacking_choices

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
# A share of both laws: the variance of the Gaussian one is searched for in such parts of a first guess, until
# delta is above this part of the greatest one, so often at most; how delta falls with the variance at first.
SEARCH_PARTS, CLOSE, SEARCHES, STEEP = 4096, 0.97, 12, -20.0
# Losses above this take the accountant long to compose.
MOST_MIXED = 10.0
# A standard error above this share of the range is warned of.
LARGE = 0.1


class PlannedError(PlainStruct, frozen=True):
    """Standard error of one answer, from noise and rounding, as predicted before a request is made.

    Attributes:
        text: the answer.
        standard_error: in the unit of the answer, or in that which `assumed` states; None where it depends on
            a number of rows that is not declared.
        range: the declared range of the answer: of one row for counts and sums.
        relative: the standard error over the range, for totals over that of all rows.
        rows: the number of rows that it is stated for, None where it needs none.
        expected: whether that number is `rows_expected`, and not a public one.
        assumed: what else it is stated for.
        asked: the text of the statistic that the answer is a number of.
    """

    text: str
    standard_error: float | None
    range: float
    relative: float | None
    rows: int | None
    expected: bool
    assumed: str
    asked: str = ""


class Priced:
    """Base class of plans of private requests: reports their privacy cost, and warns of large errors.

    Attributes:
        statistics: what is asked for.
        shares: the sum of shares of noise, with the counted ones; None for exact sums.
        steps: the requests that it takes, one after the other.
        central: whether there is one share for all, which servers draw.
    """

    schema: Schema
    statistics: tuple[Statistic, ...]
    shares: DistributedSum | None
    epsilon: float
    delta: float
    steps: int
    central: bool = False

    @property
    def mechanism(self) -> DistributedSum:
        """The noise mechanism, a sum of the parties' shares of noise; raises ConfigError for exact sums."""
        if self.shares is None:
            raise ConfigError("exact sums have no noise", ConfigCheck.UNSUPPORTED)
        return self.shares

    def event(self) -> Event:
        """Return the privacy loss of one request as a ledger records it, for a record or a person."""
        return msgspec.structs.replace(self.mechanism.event(), unit=self.schema.unit)

    @functools.cached_property
    def guarantee(self) -> PrivacyGuarantee:
        """The (epsilon, delta) guarantee of all requests together to one record or person."""
        exact = self.mechanism.guarantee(self.delta)
        return msgspec.structs.replace(exact, epsilon=self.epsilon, protects=self.schema.unit)

    def errors(self, present: int, rows: int | None = None) -> list[PlannedError]:
        """Return the planned standard error of each answer; this base raises NotImplementedError."""
        raise NotImplementedError

    def following(self, answers: Answers) -> Self:  # noqa: ARG002
        """Return the next step's plan; this base, for a single request, returns the plan unchanged."""
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
        """Return estimates together with their privacy guarantee, and with what is not protected."""
        exact = self.shares is None
        limits = NO_PRIVACY if exact else not_protected(self.schema, self.statistics, central=self.central)
        return Answers(
            estimates=tuple(
                msgspec.structs.replace(one, noise=self.noise_of(one.statistic)) for one in estimates
            ),
            level=level,
            simultaneous=simultaneous,
            unit=self.schema.unit,
            relation=self.schema.relation,
            present=1 if self.central else present,
            counted=0 if exact else self.mechanism.honest,
            rows=rows,
            guarantee=None if exact else self.guarantee,
            not_protected=limits.sentences,
            following=following,
        )

    def noise_of(self, statistic: str) -> str:  # noqa: ARG002
        """Return the distribution of the noise in a statistic, "normal", or empty for exact sums."""
        return "" if self.shares is None else "normal"

    def warnings(self, present: int, rows: int | None = None) -> list[str]:
        """Return a warning for each answer whose standard error is above a tenth of its range, or unknown."""
        return [line for error in self.errors(present, rows) for line in self._warning(error)]

    def _warning(self, error: PlannedError) -> list[str]:
        """Return one warning, with more rows or epsilon that would help, or none for a small error."""
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
        """Return the epsilon at which Gaussian noise is smaller by a factor, None if it is above 100."""
        wanted = gaussian_mu(self.epsilon, self.delta) * factor
        if gaussian_mu(100.0, self.delta) < wanted:
            return None
        return bisect(lambda epsilon: gaussian_mu(epsilon, self.delta) < wanted, self.epsilon, 100.0, 50)[1]

    def check_errors(self, most: float | Mapping[str, float], present: int, rows: int | None = None) -> None:
        """Raise ConfigError, naming each answer whose standard error is above `most`, or unknown.

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
    """Plan of one request with noise: sums that parties make of their tables, their scales, and the noise.

    Attributes:
        statistics: what is asked for; terms: their numbers.
        blocks: the blocks of the vector, with what multiplies their sums.
        sensitivity: how far one unit moves the vector, in ring steps.
        variance: the variance parameter of each party's share, in squared ring steps, an integer; of both
            laws that of the Gaussian one.
        weights: for texts of answers, what their squared error over its range is multiplied by in the split.
        laplace_blocks: those with Laplace noise.
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
    weights: Mapping[str, float]
    laplace_blocks: frozenset[Block] = frozenset()
    central: bool = False
    left: int = 0
    steps: int = 1

    @property
    def length(self) -> int:
        """The number of entries of each party's vector of sums."""
        return self.sensitivity.dimension

    @functools.cached_property
    def offsets(self) -> dict[Block, tuple[int, Fraction]]:
        """Map from each block of sums to its first index in the vector and its scale."""
        result, offset = {}, 0
        for one in self.blocks:
            result[one.block] = (offset, one.scale)
            offset += one.block.cells
        return result

    @functools.cached_property
    def bounds(self) -> tuple[Integers, Integers]:
        """The least and the greatest value that each entry of a party's vector may have."""
        return _bounds(self.blocks, self.schema)

    def vector(self, table: Table) -> Integers:
        """Return a party's exact sums over its table, scaled to integers and clipped, without noise."""
        values: list[int] = []
        for one in self.blocks:
            values += [round_half_up(total * one.scale) for total in one.block.sums(table)]
        low, high = self.bounds
        exact = [min(max(value, int(a)), int(b)) for value, a, b in zip(values, low, high, strict=True)]
        return np.array(exact, dtype=np.int64)

    @property
    def laplace(self) -> LaplaceShare | None:
        """Each party's share of discrete Laplace noise; None where all noise is Gaussian."""
        share = self.shares.share
        if isinstance(share, MixedShare):
            return share.laplace
        return share if isinstance(share, LaplaceShare) else None

    @property
    def is_mixed(self) -> bool:
        """Whether some blocks have Gaussian noise, and others Laplace noise."""
        return isinstance(self.shares.share, MixedShare)

    def noise_of(self, statistic: str) -> str:
        """Return the distribution of the noise in a statistic, "laplace" or "normal"."""
        return "laplace" if statistic in self._with_laplace else "normal"

    @functools.cached_property
    def _with_laplace(self) -> frozenset[str]:
        """The texts of the statistics whose sums have Laplace noise."""
        blocks = {
            one.text: {block for term in terms_of(one, self.schema) for block in term.squares}
            for one in self.statistics
        }
        lacking = (block for block in self.laplace_blocks if isinstance(block, Lacking))
        laplace = self.laplace_blocks | {block.others for block in lacking}
        return frozenset(text for text, own in blocks.items() if own & laplace)

    def worst(self, weights: Mapping[str, float] | None = None) -> float:
        """Return the largest weighted error of the answers over their ranges, with honest shares alone.

        `weights`: in the place of those of the plan.
        """
        present, weights = self.shares.honest, self.weights if weights is None else weights
        return max(
            term.groups * math.sqrt(self._square(term.every, present) * weights.get(term.text, 1.0))
            for term in self.terms
        )

    def scale_texts(self) -> Any:
        """Return as JSON data the blocks' and Laplace noise's scales, on which parties must agree."""
        texts = [
            (described(one.block), f"{one.scale.numerator:x}/{one.scale.denominator:x}")
            for one in self.blocks
        ]
        return texts if self.laplace is None else [texts, f"{self.laplace.scale.numerator:x}"]

    def with_variance(self, variance: Fraction) -> Plan:
        """Return a copy of the plan with Gaussian shares of noise alone, of this variance."""
        share = DiscreteGaussian(self.sensitivity, variance)
        return replace(self, variance=variance, shares=replace(self.shares, share=share))

    def with_left(self, variance: int) -> Plan:
        """Return a copy of the plan for a sum with extra noise of this variance, left by lost parties."""
        return replace(self, left=variance)

    def of_one_noise(self, variance: Fraction) -> Plan:
        """Return a copy of the plan with one central noise of this variance, not parties' shares."""
        return replace(self.with_variance(variance), central=True)

    def deviation(self, present: int) -> float:
        """Return the noise's standard deviation in a sum over `present` parties, in ring steps.

        Of both laws that of the Gaussian one.
        """
        return math.sqrt((self.variance if self.central else present * self.variance) + self.left)

    def variance_of(self, block: Block) -> Fraction | float:
        """Return the variance of one party's noise in a block's cells, in squared ring steps."""
        share = self.shares.share
        if isinstance(share, MixedShare) and block in self.laplace_blocks:
            return share.laplace.variance
        return self.variance

    def deviation_of(self, block: Block, present: int) -> float:
        """Return the deviation of noise and rounding in a block's cells, in units of the block's sums.

        Each rounding of a party's sum moves the total by half a ring step at most, and all noise is discrete:
        a step more covers both.
        """
        scaled = Scaled(block, self.offsets[block][1])
        rounding = present / 2 + 1 if scaled.rounded else 1.0
        shares = 1 if self.central else present
        noise = math.sqrt(shares * self.variance_of(block) + self.left)
        return (noise + rounding) / float(scaled.scale)

    def _square(self, squares: Mapping[Block, float], present: int) -> float:
        """Return the squared error of an answer's number over its range, if there were one row.

        `squares`: the factors of an error model.
        """
        return sum(
            factor * (self.deviation_of(block, present) / block.greatest(self.schema)) ** 2
            for block, factor in squares.items()
            if not is_public(block, self.schema)
        )

    def errors(self, present: int, rows: int | None = None) -> list[PlannedError]:
        """Return the planned standard error of each answer with noise of `present` parties in the sum.

        `rows` is the public number of rows; with private rows it is `rows_expected`.
        """
        expected = self.schema.rows == "private" or rows is None
        number = self.schema.rows_expected if expected else rows
        asked = [one.text for one in self.statistics for _ in terms_of(one, self.schema)]
        return [
            msgspec.structs.replace(self._error(term, present, number, expected), asked=text)
            for term, text in zip(self.terms, asked, strict=True)
        ]

    def _error(self, term: Term, present: int, rows: int | None, expected: bool) -> PlannedError:
        """Return the planned standard error of one number of an answer, with noise of `present` parties.

        `rows` is None if their number is unknown; `expected`: it is the schema's `rows_expected`.
        """
        one_row = math.sqrt(self._square(term.squares, present)) * term.groups
        relative = one_row / rows if rows else None
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
    split: SplitName = "range",
) -> Plan:
    """Plan one request for statistics of tables: choose sums, scales and noise for (epsilon, delta).

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
        split: whether the largest error over its range is the least, or, "balanced", the largest one over
            that of the answer asked for alone.

    Raises:
        ConfigError: what is asked for, or the budget, is refused; sums do not fit into the ring.
        PrivacyError: no noise suffices.
    """
    statistics = read_ask(ask, schema)
    answers = [terms_of(one, schema) for one in statistics]
    eligible = [laplace and statistic_of(one).any_noise for one in statistics]
    _check(epsilon, delta, itertools.chain.from_iterable(answers), weights or {})
    _check_cells(noisy_blocks(answers, schema))
    honest = parties, missing, corrupt
    request = _Request(schema, statistics, weights or {}, epsilon, delta, honest, max_bits, replaced)
    if split == "range":
        return request.plan(answers, eligible)
    choices = with_lacking_choices(answers, eligible) if schema.rows == "private" else [answers]
    return min((request.balanced(choice, eligible) for choice in choices), key=Plan.worst)


@dataclass(frozen=True)
class _Request:
    """What is planned for one request, whichever sums its answers are computed from.

    `honest`: the parties, those that may be missing, and those that may be corrupt. Others as of
    `plan_request`.
    """

    schema: Schema
    statistics: tuple[Statistic, ...]
    weights: Mapping[str, float]
    epsilon: float
    delta: float
    honest: tuple[int, int, int]
    max_bits: float
    replaced: bool

    def plan(self, answers: Sequence[Sequence[Term]], eligible: Sequence[bool]) -> Plan:
        """Return the plan with the noise, of one law, by which the largest error over its range is less."""
        plan = self._gaussian(answers, noisy_blocks(answers, self.schema))
        return _better(plan, _with_laplace(plan) if any(eligible) else None)

    def balanced(self, answers: Sequence[Sequence[Term]], eligible: Sequence[bool]) -> Plan:
        """Return the plan with the noise, of one law or of both, by which the largest ratio is less."""
        schema, blocks = self.schema, noisy_blocks(answers, self.schema)
        budget = self.epsilon, self.delta
        weights = balanced_weights(answers, schema, self.weights, *budget, eligible)
        plan = replace(self, weights=weights)._gaussian(answers, blocks)
        if not any(eligible):
            return plan
        division = split_with_laplace(answers, blocks, schema, weights, *budget, eligible)
        return _better(plan, _of_split(plan, division))

    def _gaussian(self, answers: Sequence[Sequence[Term]], blocks: Sequence[Block]) -> Plan:
        """Return the plan with Gaussian noise alone."""
        schema, terms = self.schema, tuple(itertools.chain.from_iterable(answers))
        parties, missing, corrupt = self.honest
        mu = gaussian_mu(self.epsilon, self.delta)
        spread = [one / mu for one in deviations(terms, blocks, schema, self.weights)]
        scaled = _scaled(blocks, spread, schema, parties, self.max_bits)
        sensitivity = sensitivity_of(scaled, schema)
        if self.replaced:
            counted = parties - missing - corrupt
            variance = Fraction(math.ceil(sensitivity.l2**2 / (mu * mu * counted)))
        else:
            mechanism = DistributedSum.calibrate(
                DiscreteGaussian,
                self.epsilon,
                self.delta,
                sensitivity,
                parties=parties,
                missing=missing,
                corrupt=corrupt,
            )
            variance = Fraction(math.ceil(mechanism.share.distribution.value))
        _check_room(scaled, schema, parties, variance)
        return Plan(
            schema=schema,
            statistics=self.statistics,
            terms=terms,
            blocks=tuple(scaled),
            sensitivity=sensitivity,
            shares=DistributedSum(DiscreteGaussian(sensitivity, variance), parties, missing, corrupt),
            variance=variance,
            epsilon=self.epsilon,
            delta=self.delta,
            weights=self.weights,
        )


def _better(plan: Plan, other: Plan | None) -> Plan:
    """Return the plan with the smaller largest error, the first one of equals."""
    return plan if other is None or other.worst() >= plan.worst() else other


def _check_cells(blocks: Sequence[Block]) -> None:
    """Raise ConfigError if there are no noisy sums, or too many of them."""
    if not blocks:
        raise ConfigError.at(
            "ask", "the number of rows is public: nothing else is asked for", ConfigCheck.INFEASIBLE
        )
    if sum(block.cells for block in blocks) > MAX_LENGTH:
        raise ConfigError.at("ask", f"more than {MAX_LENGTH} cells", ConfigCheck.TOO_LARGE)


def _with_laplace(plan: Plan) -> Plan | None:
    """Return the plan with Laplace noise alone; None unless each answer depends on one block of sums.

    Each block's deviation makes the largest error of its answers that of all others, which is the least.
    """
    if not all(statistic_of(one).linear for one in plan.statistics):
        return None
    schema, factors = plan.schema, dict.fromkeys((one.block for one in plan.blocks), 0.0)
    for term in plan.terms:
        blocks = [block for block in term.squares if not is_public(block, schema)]
        if len(blocks) != 1:
            return None
        factor = term.squares[blocks[0]] * term.groups**2 * plan.weights.get(term.text, 1.0)
        factors[blocks[0]] = max(factors[blocks[0]], factor)
    whole = sum(row_l1(block, schema) * math.sqrt(factor) for block, factor in factors.items())
    spread = [math.sqrt(2.0) * whole / (plan.epsilon * math.sqrt(factor)) for factor in factors.values()]
    return _all_laplace(plan, spread)


def _all_laplace(plan: Plan, spread: Sequence[float]) -> Plan:
    """Return the plan with discrete Laplace noise of these deviations in all blocks of sums."""
    schema, parties = plan.schema, plan.shares.parties
    blocks = [one.block for one in plan.blocks]
    scaled = tuple(_scaled(blocks, spread, schema, parties, LAPLACE_BITS))
    sensitivity = l1_sensitivity(scaled, schema)
    share = LaplaceShare(sensitivity, least_scale(sensitivity.l1, plan.epsilon), plan.shares.honest)
    variance = Fraction(math.ceil(share.variance))
    _check_room(scaled, schema, parties, variance)
    shares = replace(plan.shares, share=share)
    return replace(
        plan,
        blocks=scaled,
        sensitivity=sensitivity,
        shares=shares,
        variance=variance,
        laplace_blocks=frozenset(blocks),
    )


def _of_split(plan: Plan, split: Split) -> Plan | None:
    """Return the plan with the split's Laplace and Gaussian noise; None if all Gaussian, or unaccountable.

    None where all noise is Gaussian there, or epsilon or delta is none for which the accountant composes both
    laws.
    """
    blocks = [one.block for one in plan.blocks]
    if not split.laplace:
        return None
    if len(split.laplace) == len(blocks):
        return _all_laplace(plan, split.deviations)
    if plan.delta < LEAST_DELTA or plan.epsilon > MOST_MIXED:
        return None
    schema, parties = plan.schema, plan.shares.parties
    by_kind: dict[bool, list[Scaled]] = {}
    for pure, bits in ((False, MOST_BITS), (True, LAPLACE_BITS)):
        chosen = [index for index, block in enumerate(blocks) if (block in split.laplace) is pure]
        spread = [split.deviations[index] for index in chosen]
        by_kind[pure] = _scaled([blocks[index] for index in chosen], spread, schema, parties, bits)
    of_block = {one.block: one for each in by_kind.values() for one in each}
    scaled = tuple(of_block[block] for block in blocks)
    l1 = l1_sensitivity(by_kind[True], schema)
    spent = greatest_of_row(
        {
            block: math.sqrt(2.0) * row_l1(block, schema) / deviation
            for block, deviation in zip(blocks, split.deviations, strict=True)
            if block in split.laplace
        }
    )
    laplace = LaplaceShare(l1, least_scale(l1.l1, min(spent, plan.epsilon)), plan.shares.honest)
    sensitivity = sensitivity_of(by_kind[False], schema)
    runs = tuple((one.block.cells, one.block in split.laplace) for one in scaled)
    moves = l1_moves(by_kind[True], schema)

    whole = sensitivity_of(scaled, schema)

    def shares(variance: int) -> DistributedSum:
        gaussian = DiscreteGaussian(sensitivity, Fraction(variance))
        share = MixedShare(whole, gaussian, laplace, runs, moves)
        return replace(plan.shares, share=share)

    variance = _least_variance(shares, plan, sensitivity, split)
    if variance is None:
        return None
    _check_room(scaled, schema, parties, Fraction(variance))
    final = shares(variance)
    return replace(
        plan,
        blocks=scaled,
        sensitivity=whole,
        shares=final,
        variance=Fraction(variance),
        laplace_blocks=split.laplace,
    )


def _least_variance(
    shares: Callable[[int], DistributedSum], plan: Plan, sensitivity: Sensitivity, split: Split
) -> int | None:
    """Return nearly the least Gaussian variance that is private beside Laplace noise; None if not found.

    None where the search ends with none.
    """
    squares = (1 / deviation**2 for deviation in split.deviations)
    planned = greatest_of_row(
        {
            one.block: max(block_distance(one.block, plan.schema), 1e-9) * square
            for one, square in zip(plan.blocks, squares, strict=True)
            if one.block not in split.laplace
        }
    )
    part = sensitivity.l2**2 / (planned * plan.shares.honest * SEARCH_PARTS)

    def failing(count: int) -> float:
        return shares(math.ceil(count * part)).delta(plan.epsilon)

    # The guess is near, and the logarithm of delta nearly linear in that of the variance.
    count, last, slope = SEARCH_PARTS, None, STEEP
    for _ in range(SEARCHES):
        delta = failing(count)
        if CLOSE * plan.delta <= delta <= plan.delta:
            break
        here = math.log(count), math.log(max(delta, plan.delta / 1e6))
        if last is not None and last[0] != here[0]:
            slope = min(-1.0, (here[1] - last[1]) / (here[0] - last[0]))
        last, wanted = here, math.log(plan.delta * (1 + CLOSE) / 2)
        step = min(max((wanted - here[1]) / slope, -1.0), 1.0)
        count = math.ceil(math.exp(here[0] + step))
    else:
        if failing(count) > plan.delta:
            return None
    return math.ceil(count * part)


def _check(epsilon: float, delta: float, terms: Iterable[Term], weights: Mapping[str, float]) -> None:
    """Raise ConfigError for a bad epsilon, delta or weight, or for a weight of an answer not asked for."""
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
    """Return blocks with scales at which one ring noise gives each its wanted deviation; or ConfigError."""
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
    """Return, without raising it, the error that sums of so many rows and their noise overflow the ring."""
    reason = f"sums of {parties} times {schema.max_rows} rows do not fit into the ring with their noise"
    return ConfigError.at("max_rows", reason, ConfigCheck.TOO_LARGE)


def near_scale(scale: float, coarse: bool = False) -> Fraction:
    """Round a scale to an integer, or a multiple of a power of two below 1, within a part in 2^7.

    `coarse`: an integer within a part in 6 where there is one, since rounding costs more than a worse split.
    """
    if coarse and scale >= WHOLE_SCALE:
        return Fraction(round(scale))
    bits = max(0, SCALE_BITS - math.frexp(scale)[1])
    return Fraction(max(1, round(math.ldexp(scale, bits))), 1 << bits)


def described(block: Block) -> dict[str, Any]:
    """Return a block's definition as JSON data for the digest by which parties compare plans."""
    fields: dict[str, Any] = msgspec.to_builtins(block)
    if not block.where:
        del fields["where"]
    return fields


def round_half_up(value: Fraction) -> int:
    """Return the nearest integer to a fraction, halves rounded up."""
    return (2 * value.numerator + value.denominator) // (2 * value.denominator)


def _bounds(blocks: Sequence[Scaled], schema: Schema) -> tuple[Integers, Integers]:
    """Return the least and the greatest value of each entry of a party's vector, from `max_rows`."""
    cells = [one.block.cells for one in blocks]
    low = [round_half_up(schema.max_rows * one.block.least(schema) * one.scale) for one in blocks]
    high = [round_half_up(schema.max_rows * one.block.greatest(schema) * one.scale) for one in blocks]
    return np.repeat(np.array(low, dtype=np.int64), cells), np.repeat(np.array(high, dtype=np.int64), cells)


def _check_room(blocks: Sequence[Scaled], schema: Schema, parties: int, variance: Fraction) -> None:
    """Raise ConfigError unless the sums of all parties and their noise fit into the ring without overflow."""
    low, high = _bounds(blocks, schema)
    widest = max(int(high.max()) - int(low.min()), 1)
    if parties * widest + 80 * math.isqrt(math.ceil(parties * variance)) >= 1 << 62:
        raise ConfigError.at("max_rows", "sum and noise need over 63 bits", ConfigCheck.TOO_LARGE)
