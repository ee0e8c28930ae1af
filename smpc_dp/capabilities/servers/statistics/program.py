"""Run a program on shares: the entry point of every program, called by each server on its own shares."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from smpc_dp.capabilities.pairs.garbled.draw import Pairs, bipartite_matchings, matchings
from smpc_dp.capabilities.pairs.kernels.described import read_kernel
from smpc_dp.capabilities.pairs.kernels.kernel import Kernel
from smpc_dp.capabilities.servers.kernels.share_gadgets import Shared, below_each, number, public
from smpc_dp.capabilities.servers.secret_sharing.params import MAX_PARTNERS
from smpc_dp.capabilities.servers.secret_sharing.terms import ProgramTerms
from smpc_dp.capabilities.servers.statistics.kernels import (
    MAX_PRODUCTS,
    Way,
    by_counts,
    by_sort,
    by_sums,
    by_table,
    cheapest,
    compiled_layers,
    over_circuit,
    over_pairs,
)
from smpc_dp.capabilities.servers.statistics.noise import add_noise, width
from smpc_dp.capabilities.servers.statistics.pairs import each_pair, pair_layers, randomiser_of
from smpc_dp.capabilities.servers.statistics.tables import MASKED, shown_cells
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, Issues

LEAST_SECURITY = 40
"""All masked openings of a program together are within 2**-40 of what can be simulated."""
MAX_PAIRS = 1 << 26
"""Pairs that are gone through one by one, at most: their list is in memory."""
MAX_RECORD_BITS = 1 << 22
"""The most bits of all parties' records: decomposed at once, 600 bytes and 0.1 ms of a server each."""


async def run_program(
    mpc: Any, terms: ProgramTerms, shares: Sequence[Sequence[int]], way: Way | None = None
) -> list[int]:
    """Run a program on shares in mpyc; return the opened integers, then indexes of refused parties.

    Args:
        mpc: mpyc's runtime, started, with as many servers as hold shares, and `terms.security` as its k.
        shares: one row for each party: this server's Shamir shares of the `terms.length` integers of a
            record.
        way: how a statistic's sum is computed, the same for all servers; None takes the cheapest.

    Every value is checked against its bounds in the computation. Inconsistent shares of a party are first
    turned into shares of one value. A party with a value out of bounds is named to all servers, and its whole
    record counts as the lowest values; this shows nothing about other parties' records. Noise is added before
    a result is opened.

    Raises ConfigError where terms, runtime and shares do not fit each other.
    """
    _check(mpc, terms, shares)
    secint = mpc.SecInt(terms.bits, p=terms.prime)
    # A product with shares of 1 is shared anew from all servers' shares: a record has one value afterwards.
    ones = secint.array(public(np.ones((terms.parties, terms.length), dtype=object)))
    records = secint.array(secint.field.array(public([list(row) for row in shares]))) * ones
    codes, bits, refused = await _within_bounds(mpc, terms, records)
    if terms.kind == "pairs":
        outputs = []
        for part in each_pair(mpc, secint, kernel_in(terms), terms.noise[0], bits, design_pairs(terms)):
            # Waiting bounds the number of pending operations.
            outputs += [int(value) for value in await mpc.output(part)]
        return [*outputs, *refused]
    if terms.kind == "tables":
        integers = shown_cells(mpc, terms, bits, codes)
    elif terms.kind == "statistic":
        integers = await _statistic(mpc, terms, bits, codes, way or way_of(terms))
    else:
        integers = _sums(terms, codes)
    spans = output_spans(terms)
    if terms.noise:
        lows = public([low for low, _ in spans])
        distributions = terms.noise * len(spans) if len(terms.noise) == 1 else terms.noise
        shifted = integers - lows
        if len(terms.noise) == 1:
            span_bits = max(high - low for low, high in spans).bit_length()
            integers = await add_noise(mpc, secint, shifted, distributions[0], span_bits)
        else:
            parts = [
                await add_noise(
                    mpc, secint, shifted[index : index + 1], distribution, (high - low).bit_length()
                )
                for index, (distribution, (low, high)) in enumerate(zip(distributions, spans, strict=True))
            ]
            integers = np.concatenate(parts)
        # A Gaussian's result is on a coarser grid: it stays relative to the least value.
        integers = integers + public(
            [
                0 if distribution.distribution == "gaussian" else low
                for distribution, (low, _) in zip(distributions, spans, strict=True)
            ]
        )
    opened = await mpc.output(integers)
    return [*(int(value) for value in opened), *refused]


def output_spans(terms: ProgramTerms) -> list[tuple[int, int]]:
    """Return (least, greatest) of each integer that a program opens, before noise on the whole."""
    if terms.kind == "pairs":
        top = (1 << randomiser_of(terms.noise[0]).output_bits(kernel_in(terms).steps)) - 1
        return [(0, top)] * count_pairs(terms)
    if terms.kind == "statistic":
        kernel, pairs = kernel_in(terms), count_pairs(terms)
        spans = [(0, kernel.steps * pairs)]
        return [*spans, (0, terms.parties)] if kernel.labels == "private" else spans
    bounds = list(zip(terms.lower, terms.upper, strict=True))
    if terms.kind == "tables":
        return [(0, 1)] * terms.length + [(0, terms.parties * high) for _, high in bounds]
    if terms.kind == "weighted-mean":
        low_weight, high_weight = bounds[-1]
        corners = [
            [value * weight for value in pair for weight in (low_weight, high_weight)] for pair in bounds[:-1]
        ]
        bounds = [*((min(products), max(products)) for products in corners), bounds[-1]]
    return [(terms.parties * low, terms.parties * high) for low, high in bounds]


def kernel_in(terms: ProgramTerms) -> Kernel:
    """Return the kernel that a program's terms describe; raise ConfigError for invalid ones."""
    try:
        described = json.loads(terms.kernel_terms)
    except (ValueError, RecursionError) as error:
        raise ConfigError.at("kernel_terms", f"not JSON ({error})", ConfigCheck.FORMAT) from None
    kernel = read_kernel(described) if isinstance(described, dict) else None
    if kernel is None or kernel.name != terms.kernel:
        raise ConfigError.at("kernel_terms", f"do not describe {terms.kernel!r}", ConfigCheck.DIFFERS)
    return kernel


def design_pairs(terms: ProgramTerms) -> Pairs:
    """Return the pairs of parties that a program compares, shape (pairs, 2), label 1 first."""
    if terms.partners:
        seed = bytes.fromhex(terms.design)
        if terms.public_labels:
            return bipartite_matchings(seed, terms.public_labels, terms.partners).reshape(-1, 2)
        return matchings(seed, terms.parties, terms.partners).reshape(-1, 2)
    if terms.public_labels:
        high, low = (np.flatnonzero(np.array(terms.public_labels) == label) for label in (1, 0))
        return np.stack(np.meshgrid(high, low, indexing="ij"), axis=-1).reshape(-1, 2)
    return np.stack(np.triu_indices(terms.parties, 1), axis=-1).astype(np.int64, copy=False)


def count_pairs(terms: ProgramTerms) -> int:
    """Return how many pairs of parties a program compares."""
    high = sum(terms.public_labels)
    low = len(terms.public_labels) - high
    if terms.partners:
        return terms.partners * (min(high, low) if terms.public_labels else terms.parties // 2)
    return high * low if terms.public_labels else terms.parties * (terms.parties - 1) // 2


def way_of(terms: ProgramTerms) -> Way:
    """Return the cheapest way (by pairs, counts, sorting, ...) to compute a statistic of these terms."""
    return cheapest(kernel_in(terms), terms.parties, count_pairs(terms), not terms.partners)


def _sums(terms: ProgramTerms, codes: Shared) -> Shared:
    """Return the shared sum of each column; for a weighted mean, of values times weights, and of weights."""
    values = codes + public(terms.lower)
    if terms.kind == "weighted-mean":
        weights = values[:, -1:]
        weighted = (weights.T @ values[:, :-1]).reshape(terms.length - 1)
        return np.concatenate((weighted, np.sum(weights, axis=0)))
    return np.sum(values, axis=0)


async def _statistic(mpc: Any, terms: ProgramTerms, bits: list[Shared], codes: Shared, way: Way) -> Shared:
    """Return a statistic's shared sum over pairs, and a shared count where labels are private."""
    kernel = kernel_in(terms)
    match way:
        case "sums":
            total = by_sums(codes)
        case "counts" if kernel.definition is None:
            total = by_table(kernel, bits)
        case "counts":
            total = by_counts(kernel, bits, codes, terms.public_labels)
        case "sort":
            total = by_sort(mpc, kernel, bits, terms.public_labels)
        case _:
            total, pairs = 0, design_pairs(terms)
            compiled = way == "circuit"
            parts = over_circuit(kernel, bits, pairs) if compiled else over_pairs(kernel, bits, codes, pairs)
            for part in parts:
                # Waiting bounds the number of pending operations.
                await mpc.gather(part)
                total = part + total
    if kernel.labels == "private":
        return np.concatenate((total, np.sum(codes[:, 1:2], axis=0)))
    return total


async def _within_bounds(
    mpc: Any, terms: ProgramTerms, records: Shared
) -> tuple[Shared, list[Shared], list[int]]:
    """Check shared records against their bounds; return codes, their bits, and refused parties."""
    tops = [high - low for low, high in zip(terms.lower, terms.upper, strict=True)]
    codes = records - public(terms.lower)
    indices: dict[int, list[int]] = {}
    for index, top in enumerate(tops):
        indices.setdefault(max(1, top.bit_length()), []).append(index)
    columns: list[Shared] = [None] * terms.length
    good = np.ones(terms.parties, dtype=bool)
    for size, alike in indices.items():
        # True bits of some number, whatever was shared; the number is the code only if that has `size` bits.
        bits = mpc.np_to_bits(codes[:, alike], size)
        result = number(bits)
        off = await mpc.output(codes[:, alike] - result)
        good &= (public(off) == 0).all(axis=1)
        for column, index in enumerate(alike):
            columns[index] = bits[:, column]
            if tops[index] != (1 << size) - 1:
                inside = await mpc.output(below_each(bits[:, column], [tops[index] + 1]))
                good &= (public(inside) == 1).all(axis=1)
    keep = public(good.astype(int))[:, None]
    columns = [column * keep for column in columns]
    retained = np.stack([number(column) for column in columns], axis=1)
    return retained, columns, [int(party) for party in np.flatnonzero(~good)]


def _check(mpc: Any, terms: ProgramTerms, shares: Sequence[Sequence[int]]) -> None:
    """Raise ConfigError unless terms, runtime and shares fit; later checks rely on earlier ones."""
    issues = _shape_issues(mpc, terms, shares) or size_issues(terms) or _kind_issues(terms)
    if issues := issues or _room_issues(mpc, terms):
        raise ConfigError(issues)


def _shape_issues(mpc: Any, terms: ProgramTerms, shares: Sequence[Sequence[int]]) -> list[ConfigIssue]:
    """Return the faults where the shares' shape or the runtime's settings do not fit the terms."""
    servers = len(mpc.parties)
    issues = Issues()
    if servers > 1 and mpc.threshold < 1:
        issues.add_issue(
            "threshold", f"{mpc.threshold} of {servers} servers: a single one knows all", ConfigCheck.RANGE
        )
    if mpc.options.sec_param != terms.security:
        issues.add_issue(
            "security", f"{terms.security}, the runtime has {mpc.options.sec_param}", ConfigCheck.DIFFERS
        )
    if len(shares) != terms.parties or any(len(row) != terms.length for row in shares):
        issues.add_issue("shares", f"not {terms.parties} rows of {terms.length}", ConfigCheck.SHAPE)
    elif any(not 0 <= value < terms.prime for row in shares for value in row):
        issues.add_issue("shares", "not all in the field", ConfigCheck.RANGE)
    if len(terms.lower) != terms.length or len(terms.upper) != terms.length:
        issues.add_issue("lower", f"not {terms.length} bounds", ConfigCheck.SHAPE)
    elif any(low >= high for low, high in zip(terms.lower, terms.upper, strict=True)):
        issues.add_issue("upper", "not all above the lower bounds", ConfigCheck.SHAPE)
    return issues


def _kind_issues(terms: ProgramTerms) -> list[ConfigIssue]:
    """Return the faults in a program's terms that depend on its kind (sum, mean, statistic, ...)."""
    if terms.kind in ("statistic", "pairs"):
        return _check_statistic(terms)
    if terms.kind == "tables":
        return _check_tables(terms)
    if terms.kind == "weighted-mean" and (terms.length < 2 or terms.lower[-1] < 0):
        return [ConfigIssue("length", "no value before the weight, or a weight below 0", ConfigCheck.RANGE)]
    return []


def _check_tables(terms: ProgramTerms) -> list[ConfigIssue]:
    """Return the faults in the terms of exact tables: no rule, noise, or counts that do not begin at 0."""
    issues = Issues()
    if terms.smallest_count < 1 or terms.least_parties < 1:
        issues.add_issue("smallest_count", "is none, or without least_parties", ConfigCheck.RANGE)
    if any(terms.lower):
        issues.add_issue("lower", "is not 0 for each count", ConfigCheck.RANGE)
    if terms.noise:
        issues.add_issue("noise", "exact tables have none", ConfigCheck.CONFLICT)
    return issues


def _room_issues(mpc: Any, terms: ProgramTerms) -> list[ConfigIssue]:
    """Return the faults where integers or masks have too few bits, or noise is missing for some."""
    issues = Issues()
    # mpyc's masks are sums of one number for each set of servers that lacks t: all but one may be known.
    masks = math.comb(len(mpc.parties), mpc.threshold)
    # The opened outputs of pairs are the program's result: they need no masking.
    openings = terms.parties * terms.length + (0 if terms.kind == "pairs" else len(output_spans(terms)))
    openings += MASKED * terms.length if terms.kind == "tables" else 0
    left = terms.security - masks.bit_length() - openings.bit_length() - 1
    if left < LEAST_SECURITY:
        reason = f"{terms.security} leaves {left} bits for {openings} masked values, not {LEAST_SECURITY}"
        issues.add_issue("security", reason, ConfigCheck.SHAPE)
    needed = needed_bits(terms)
    if terms.bits < needed:
        issues.add_issue("bits", f"{terms.bits}, the integers need {needed}", ConfigCheck.RANGE)
    if len(terms.noise) not in (0, 1, len(output_spans(terms))):
        issues.add_issue(
            "noise", f"{len(terms.noise)} for {len(output_spans(terms))} integers", ConfigCheck.SHAPE
        )
    return issues


def needed_bits(terms: ProgramTerms) -> int:
    """Return how many bits mpyc's secure integers need for a program of these terms.

    Other integers may wrap around in the field.
    """
    spans = [*output_spans(terms), *zip(terms.lower, terms.upper, strict=True)]
    exact = max(max(abs(low), abs(high), high - low).bit_length() for low, high in spans)
    exact = max(exact, terms.parties.bit_length(), terms.smallest_count.bit_length())
    # Laplace noise has a result of `bits` bits in all; Gaussian noise is less than the integer, or a table.
    noisy = max((max(width(distribution), exact) + 1 for distribution in terms.noise), default=exact)
    return noisy + 2


def _check_statistic(terms: ProgramTerms) -> list[ConfigIssue]:
    """Return the faults in the terms of a pairwise statistic."""
    kernel = kernel_in(terms)
    issues = Issues()
    paired = [distribution.paired for distribution in terms.noise]
    if any(paired) if terms.kind == "statistic" else paired != [True]:
        issues.add_issue(
            "noise", f"{len(paired)} laws, not those of a program of kind {terms.kind}", ConfigCheck.SHAPE
        )
    tops = tuple(field.steps for field in kernel.fields)
    if terms.lower != (0,) * len(tops) or terms.upper != tops:
        issues.add_issue(
            "upper", f"not 0 to {', '.join(map(str, tops))}, the grids of {kernel.name}", ConfigCheck.RANGE
        )
    if (kernel.labels == "public") != bool(terms.public_labels) or len(terms.public_labels) not in (
        0,
        terms.parties,
    ):
        issues.add_issue(
            "public_labels",
            f"{len(terms.public_labels)} public labels for {terms.parties} parties",
            ConfigCheck.SHAPE,
        )
    elif terms.public_labels and len(set(terms.public_labels)) < 2:
        issues.add_issue("public_labels", "not at least one of each", ConfigCheck.RANGE)
    if terms.parties < 2:
        issues.add_issue("parties", f"{terms.parties}, a pair needs 2", ConfigCheck.RANGE)
    if terms.partners and len(terms.design) != 64:
        issues.add_issue("design", "not 32 bytes in hex", ConfigCheck.FORMAT)
    return issues or pair_issues(kernel, terms)


def size_issues(terms: ProgramTerms) -> list[ConfigIssue]:
    """Return the faults if a program has too many or too large records to be checked on shares."""
    spans = zip(terms.lower, terms.upper, strict=True)
    each = sum(max(1, (high - low).bit_length()) for low, high in spans)
    if terms.parties * each <= MAX_RECORD_BITS:
        return []
    reason = f"{terms.parties} records of {each} bits; at most {MAX_RECORD_BITS} bits in all"
    return [
        ConfigIssue(
            "parties", f"{reason}: take fewer parties, fewer values, or coarser grids", ConfigCheck.TOO_LARGE
        )
    ]


def pair_issues(kernel: Kernel, terms: ProgramTerms) -> list[ConfigIssue]:
    """Return the faults of a statistic's pairs: too many to compute, or in no known order."""
    pairs, complete = count_pairs(terms), not terms.partners
    where = f"kernel {kernel.name}"
    if terms.kind == "pairs":
        if not 1 <= terms.partners <= MAX_PARTNERS:
            return [
                ConfigIssue(
                    "partners",
                    f"{terms.partners} is not 1 to {MAX_PARTNERS}, for noise in each pair",
                    ConfigCheck.RANGE,
                )
            ]
        each = pair_layers(kernel, terms.noise[0]).products
    elif kernel.definition is not None:
        if pairs > MAX_PAIRS and cheapest(kernel, terms.parties, pairs, complete) == "pairs":
            reason = f"{pairs} pairs one by one; at most {MAX_PAIRS}"
            return [
                ConfigIssue(
                    "parties", f"{reason}: take fewer pairs, `P`, or coarser grids", ConfigCheck.TOO_LARGE
                )
            ]
        return []
    elif complete and not kernel.symmetric and terms.parties > 2:
        reason = "is not symmetric: the pairs of `P` partners have an order, all pairs have none"
        return [ConfigIssue(where, reason, ConfigCheck.UNSUPPORTED)]
    elif cheapest(kernel, terms.parties, pairs, complete) == "counts":
        return []
    else:
        each = compiled_layers(kernel).products
    if each * pairs > MAX_PRODUCTS:
        reason = f"its circuit has {each} products, times {pairs} pairs; at most {MAX_PRODUCTS}"
        return [
            ConfigIssue(
                where, f"{reason} in all: take fewer pairs, `P`, or a smaller circuit", ConfigCheck.TOO_LARGE
            )
        ]
    return []
