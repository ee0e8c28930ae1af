"""Translate an operation into a program's terms, and opened integers into an answer."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import cast

import msgspec
import numpy as np

from smpc_dp.capabilities.pairs.kernels.described import describe, read_kernel
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.pairs.statistics.compiled import plan_statistic
from smpc_dp.capabilities.pairs.ustatistic.estimate import Estimate, estimate
from smpc_dp.capabilities.pairs.ustatistic.plan import StatisticPlan
from smpc_dp.capabilities.servers.secret_sharing.terms import (
    NoiseTerms,
    ProgramKind,
    ProgramTerms,
    modulus_for,
)
from smpc_dp.capabilities.servers.statistics.noise import noise_terms
from smpc_dp.capabilities.servers.statistics.pairs import PAIR_DISTRIBUTIONS, pair_terms
from smpc_dp.capabilities.servers.statistics.program import (
    LEAST_SECURITY,
    count_pairs,
    design_pairs,
    kernel_in,
    needed_bits,
    output_spans,
    pair_issues,
    size_issues,
)
from smpc_dp.capabilities.servers.statistics.tables import MASKED
from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks
from smpc_dp.privacy.central_gaussian import WideGaussian
from smpc_dp.privacy.central_noise import CentralNoise, CoarseGaussian
from smpc_dp.privacy.central_pairwise import CentralDistribution, design_central, split, sum_sensitivity
from smpc_dp.privacy.circuit_noise import PairDistribution

# Sets of servers that each add to a mask, as a power of 2: 462 sets for eleven servers.
MASKS_LOG = 10
MAX_PARTIES = 1_000_000


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A computation on shares: its terms, its noise and privacy budget; exact if there is no noise.

    `plan` describes the outputs of pairs with noise of their own; None for one noise on the whole.
    """

    terms: ProgramTerms
    noise: tuple[CentralNoise, ...] = ()
    plan: StatisticPlan | None = None
    epsilon: float | None = None
    delta: float = 0.0

    @property
    def noises(self) -> tuple[CentralNoise, ...]:
        """The noise on the whole of each opened integer; empty if exact, or if each pair has its own."""
        count = len(output_spans(self.terms))
        return self.noise * count if len(self.noise) == 1 else self.noise


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a program on shares in the user's units: values, errors of noise, refused parties.

    Attributes:
        values: sums or means, one for each value of a record (a weight has none), or the one statistic.
        noise_error: standard deviation of the noise in each, as far as the noise alone decides it.
        refused: parties whose record was out of bounds, as indexes; their records counted as the least
            values.
        weight: opened sum of weights. positives: opened number of records of label 1. Both may be noisy.
        auc: from the noisy sum and the noisy number, with private labels; None where that is undefined.
        result: the estimate from pairs that were opened one by one, which knows its own error; else None.
    """

    values: list[float]
    noise_error: list[float]
    refused: list[int]
    weight: float | None = None
    positives: float | None = None
    auc: float | None = None
    result: Estimate | None = None


def statistic_program(
    kernel: Kernel,
    parties: int,
    epsilon: float | None,
    delta: float = 0.0,
    *,
    distribution: CentralDistribution | PairDistribution = "laplace",
    public_labels: Sequence[int] = (),
    partners: int = 0,
    design: bytes = b"",
) -> Program:
    """Return the program on shares of a pairwise statistic over all pairs, or over drawn pairs.

    `epsilon` None is for an exact result. A `distribution` of single pairs adds noise to each pair, as the
    two-party protocol does, and opens them all: `partners` is then 1 to 32. `public_labels` are public
    labels, 0 or 1, for a kernel with such. With `partners` above 0 each party is in that many pairs at most,
    and `design` is a public seed of 32 bytes that does not depend on the records. Raises ConfigError.
    """
    described = describe(kernel)
    kernel = read_kernel(described)
    checks = ArgumentChecks()
    if not 2 <= parties <= MAX_PARTIES:
        checks.add_issue("parties", f"{parties} is not 2 to {MAX_PARTIES}", ConfigCheck.RANGE)
    if (kernel.labels == "public") != bool(public_labels):
        checks.add_issue(
            "public_labels", f"'{kernel.name}' has {kernel.labels} labels", ConfigCheck.UNSUPPORTED
        )
    elif public_labels and (len(public_labels) != parties or set(public_labels) != {0, 1}):
        checks.add_issue(
            "public_labels", f"not {parties} labels that are 0 or 1, at least one of each", ConfigCheck.RANGE
        )
    if not 0 <= partners <= max(0, parties - 1):
        checks.add_issue("partners", f"{partners} is not 0 to {parties - 1}", ConfigCheck.RANGE)
    elif partners and len(design) != 32:
        checks.add_issue("design", f"{len(design)} bytes, not 32", ConfigCheck.SHAPE)
    checks.raise_issues()
    tops = tuple(field.steps for field in kernel.fields)
    bare = _set_field_size(
        ProgramTerms(
            kind="statistic",
            parties=parties,
            length=len(tops),
            modulus="1",
            bits=1,
            lower=(0,) * len(tops),
            upper=tops,
            security=_security(parties * len(tops)),
            kernel=kernel.name,
            kernel_terms=json.dumps(described, sort_keys=True, separators=(",", ":")),
            public_labels=tuple(int(public_label) for public_label in public_labels),
            partners=partners,
            design=design.hex(),
        )
    )
    if issues := size_issues(bare):
        raise ConfigError(issues)
    if distribution in PAIR_DISTRIBUTIONS:
        return _pairs_program(kernel, bare, distribution, epsilon, delta)
    if issues := pair_issues(kernel, bare):
        raise ConfigError(issues)
    if epsilon is None:
        return Program(terms=bare)
    sides = (sum(bare.public_labels), parties - sum(bare.public_labels)) if public_labels else None
    moved = [sum_sensitivity(kernel.steps, parties, sides, partners), 1]
    spans = [high for _, high in output_spans(bare)]
    noise = design_central(
        cast("CentralDistribution", distribution), moved[: len(spans)], spans, epsilon, delta
    )
    return _with_noise(bare, noise, epsilon, delta)


def _pairs_program(
    kernel: Kernel, bare: ProgramTerms, distribution: str, epsilon: float | None, delta: float
) -> Program:
    """Return the program that opens each pair's value with noise of its own; raise ConfigError."""
    if epsilon is None:
        raise ConfigError.at("epsilon", "pairs that are opened one by one have noise", ConfigCheck.CONFLICT)
    plan = plan_statistic(
        kernel, bare.parties, epsilon, delta, partners=bare.partners, noise=PAIR_DISTRIBUTIONS[distribution]
    )
    terms = _set_field_size(msgspec.structs.replace(bare, kind="pairs", noise=(pair_terms(plan.noise),)))
    if issues := pair_issues(kernel, terms):
        raise ConfigError(issues)
    return Program(terms=terms, plan=plan, epsilon=float(epsilon), delta=float(delta))


def sum_program(
    kind: ProgramKind,
    parties: int,
    bounds: Sequence[tuple[int, int]],
    epsilon: float | None,
    delta: float = 0.0,
    *,
    distribution: CentralDistribution = "laplace",
) -> Program:
    """Return the program on shares of a sum or (weighted) mean of integer records, noisy if epsilon is set.

    `bounds` are the least and the greatest value of each integer; the last of "weighted-mean" is the weight,
    which is not negative. Noise is scaled to all of a record: with Laplace noise each integer gets an equal
    share of epsilon. Raises ConfigError.
    """
    checks = ArgumentChecks()
    if kind not in ("sum", "mean", "weighted-mean"):
        checks.add_issue("kind", f"{kind!r} is no sum", ConfigCheck.CHOICE)
    if not 1 <= parties <= MAX_PARTIES:
        checks.add_issue("parties", f"{parties} is not 1 to {MAX_PARTIES}", ConfigCheck.RANGE)
    if not bounds or any(not low < high for low, high in bounds):
        checks.add_issue(
            "bounds", "none, or not all with the least below the greatest value", ConfigCheck.SHAPE
        )
    elif kind == "weighted-mean" and (len(bounds) < 2 or bounds[-1][0] < 0):
        checks.add_issue(
            "bounds", "a weighted mean has a value and a weight of at least 0", ConfigCheck.SHAPE
        )
    checks.raise_issues()
    bare = _set_field_size(
        ProgramTerms(
            kind=kind,
            parties=parties,
            length=len(bounds),
            modulus="1",
            bits=1,
            lower=tuple(low for low, _ in bounds),
            upper=tuple(high for _, high in bounds),
            security=_security(parties * len(bounds)),
        )
    )
    if issues := size_issues(bare):
        raise ConfigError(issues)
    if epsilon is None:
        return Program(terms=bare)
    spans = [high - low for low, high in output_spans(bare)]
    moved = [span // parties for span in spans]
    if distribution == "gaussian":
        noise: list[CentralNoise] = _gaussians(moved, spans, epsilon, delta)
    else:
        (part,) = split(epsilon, [Fraction(1, len(spans))])
        noise = _design_each(
            moved, spans, lambda m, s: design_central(distribution, [m], [s], part, delta)[0]
        )
    return _with_noise(bare, noise, epsilon, delta)


def table_program(parties: int, length: int, most: int, smallest: int, least_parties: int) -> Program:
    """Return the program on shares of exact tables, which opens only cells with large enough counts.

    Cells of fewer than `smallest` records, or of records of fewer than `least_parties` parties, stay shared.
    Raises ConfigError.
    """
    bare = sum_program("sum", parties, [(0, most)] * length, None).terms
    terms = msgspec.structs.replace(
        bare,
        kind="tables",
        smallest_count=smallest,
        least_parties=least_parties,
        security=_security(length * (parties + MASKED)),
    )
    return Program(terms=_set_field_size(terms))


def wide_sum_program(
    parties: int, bounds: Sequence[tuple[int, int]], noise: WideGaussian, epsilon: float, delta: float
) -> Program:
    """Return the program of a sum of vectors of bounded norm, with wide Gaussian noise on shares.

    `bounds` as of `sum_program`; they are checked on shares, the norm is each party's own affair. Raises
    ConfigError.
    """
    bare = sum_program("sum", parties, bounds, None).terms
    return _with_noise(bare, [noise] * len(bounds), epsilon, delta)


def read_answer(program: Program, opened: Sequence[int], level: float = 0.95) -> Answer:
    """Convert the integers that a program on shares has opened to the result in the user's units.

    `level` is of an interval from many pairs. Raises ConfigError for too few integers, and for integers that
    no program opens.
    """
    terms, noises = program.terms, program.noises
    spans = output_spans(terms)
    if len(opened) < len(spans):
        raise ConfigError.at(
            "opened", f"{len(opened)} integers, the program opens {len(spans)}", ConfigCheck.SHAPE
        )
    refused = [int(party) for party in opened[len(spans) :]]
    if not all(0 <= party < terms.parties for party in refused):
        raise ConfigError.at(
            "opened", f"refuses others than parties 0 to {terms.parties - 1}", ConfigCheck.RANGE
        )
    if any(abs(value) >> terms.bits for value in opened[: len(spans)]):
        raise ConfigError.at("opened", f"integers of more than {terms.bits} bits", ConfigCheck.RANGE)
    if program.plan is not None:
        return _of_pairs(program.plan, terms, opened, refused, level)
    sums, errors = [], []
    for index, (low, _) in enumerate(spans):
        value = Fraction(opened[index])
        if noises:
            noise = noises[index]
            shift = low if isinstance(noise, CoarseGaussian) else 0
            value = noise.read(opened[index]) + shift
        sums.append(value)
        errors.append(math.sqrt(noises[index].variance) if noises else 0.0)
    if terms.kind == "statistic":
        return _statistic(terms, sums, errors, refused)
    if terms.kind == "weighted-mean":
        weight = sums[-1]
        means = [float(value / weight) if weight > 0 else math.nan for value in sums[:-1]]
        # To first order: of the numerator, and of the weight times the mean.
        spread = [
            math.hypot(error, mean * errors[-1]) / float(weight) if weight > 0 else math.nan
            for error, mean in zip(errors[:-1], means, strict=True)
        ]
        return Answer(values=means, noise_error=spread, refused=refused, weight=float(weight))
    over = terms.parties if terms.kind == "mean" else 1
    return Answer(
        values=[float(value / over) for value in sums],
        noise_error=[error / over for error in errors],
        refused=refused,
    )


def _statistic(terms: ProgramTerms, sums: list[Fraction], errors: list[float], refused: list[int]) -> Answer:
    """Convert the opened noisy sum over pairs (and number of records of label 1) to the estimate."""
    kernel, pairs = kernel_in(terms), count_pairs(terms)
    value = kernel.low + kernel.unit * float(sums[0] / pairs)
    answer = Answer(values=[value], noise_error=[kernel.unit * errors[0] / pairs], refused=refused)
    if kernel.labels != "private":
        return answer
    high = sums[1]
    mixed = 2 * high * (terms.parties - high)
    auc = None
    if 0 < high < terms.parties:
        # Over a part of the pairs the sum stands for all of them.
        auc = float(sums[0] * terms.parties * (terms.parties - 1) / (2 * pairs) / mixed)
    return msgspec.structs.replace(answer, positives=float(high), auc=auc)


def _of_pairs(
    plan: StatisticPlan, terms: ProgramTerms, opened: Sequence[int], refused: list[int], level: float
) -> Answer:
    """Return the answer from opened noisy values of single pairs; ConfigError if one is out of range."""
    count = count_pairs(terms)
    raw, top = opened[:count], (1 << plan.noise.output_bits) - 1
    if not all(0 <= value <= top for value in raw):
        raise ConfigError.at("opened", f"not all of {plan.noise.output_bits} bits", ConfigCheck.RANGE)
    result = estimate(plan, design_pairs(terms), np.array(raw, np.uint64), level=level)
    return Answer(values=[result.value], noise_error=[result.noise_error], refused=refused, result=result)


def _gaussians(moved: list[int], spans: list[int], epsilon: float, delta: float) -> list[CentralNoise]:
    """Return Gaussian noise of integers opened together under (epsilon, delta); ConfigError for delta 0."""
    if not 0 < delta < 1:
        raise ConfigError.at(
            "delta", f"{delta!r}: above 0 for Gaussian noise, and for that alone", ConfigCheck.UNSUPPORTED
        )
    count = len(moved)
    if len(set(zip(moved, spans, strict=True))) == 1:
        return [CoarseGaussian.design(moved[0], spans[0], epsilon, delta, count)] * count
    (part,), (loss,) = split(epsilon, [Fraction(1, count)]), split(delta, [Fraction(1, count)])
    return _design_each(moved, spans, lambda m, s: CoarseGaussian.design(m, s, part, loss))


def _design_each(
    moved: list[int], spans: list[int], design: Callable[[int, int], CentralNoise]
) -> list[CentralNoise]:
    """Return the noise of each integer, designed once for equal sensitivities and spans.

    A design takes long, and most integers of a vector have the same.
    """
    known = functools.cache(design)
    return [known(m, s) for m, s in zip(moved, spans, strict=True)]


def _with_noise(bare: ProgramTerms, noise: list[CentralNoise], epsilon: float, delta: float) -> Program:
    """Return a program made of terms without noise and this noise, which is added to the terms."""
    one = len(set(noise)) == 1
    retained = noise[:1] if one else noise
    distributions: tuple[NoiseTerms, ...] = tuple(noise_terms(design) for design in retained)
    terms = _set_field_size(msgspec.structs.replace(bare, noise=distributions))
    return Program(terms=terms, noise=tuple(retained), epsilon=float(epsilon), delta=float(delta))


def _security(values: int) -> int:
    """Return mpyc's security parameter for a program that checks so many values of records."""
    return LEAST_SECURITY + MASKS_LOG + (values + 2 * values.bit_length()).bit_length()


def _set_field_size(terms: ProgramTerms) -> ProgramTerms:
    """Return the terms with a field that is large enough for their integers."""
    bits = needed_bits(terms)
    return msgspec.structs.replace(terms, bits=bits, modulus=modulus_for(bits, terms.security))
