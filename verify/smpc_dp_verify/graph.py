"""How many honest shares of noise any sum has that can be opened [docs/proofs/secagg-plan.md]."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache

from smpc_dp_verify.draws import log_choose
from smpc_dp_verify.errors import required

# Above so many parties not all are neighbours.
MOST_COMPLETE = 200
SECURITY = 40.0
# A term below this part of a tail is not added.
NEGLIGIBLE = 2.0**-40


def honest_in_sums(parties: int, corrupt: int, lost: int, security: float = SECURITY) -> int:
    """Return the fewest honest parties in a sum: max(floor((n - c)/2), t - c) + 1 for the threshold t."""
    held = parties - 1 - lost
    chosen = None if parties <= MOST_COMPLETE else sparse_threshold(parties, corrupt, lost, security)
    required(chosen is not None or 2 * held > parties - 1 + corrupt, "the parameter corrupt")
    threshold = held if chosen is None else chosen
    return max((parties - corrupt) // 2, threshold - corrupt) + 1


@cache
def sparse_threshold(parties: int, corrupt: int, lost: int, security: float) -> int | None:
    """Return the threshold of the graph with the fewest draws that is secure; None if that is complete."""
    target = -security * math.log(2)
    for degree in range(2, parties - 1):
        threshold = _best(parties, corrupt, lost, degree, target)
        if threshold is not None:
            return threshold
    return None


def _best(parties: int, corrupt: int, lost: int, degree: int, target: float) -> int | None:
    """Return the threshold with the least bound, the greatest of equals; None if none meets the target."""
    best, least, lowest = None, target, max(2, degree // 2 + 1)

    def too_few(threshold: int) -> float:
        return math.log(parties) + _tail(parties - 1, lost, degree, degree - threshold + 1)

    # the chance that too few shares are left only falls with the threshold
    thresholds = range(lowest, degree + 1)
    highest = lowest - 1 + bisect_left(thresholds, True, key=lambda threshold: too_few(threshold) > target)
    for threshold in range(highest, lowest - 1, -1):
        holders = math.log(parties) + _tail(parties - 1, corrupt, degree, 2 * threshold - degree)
        few = [holders, too_few(threshold)]
        if holders > least:
            # it only grows as the threshold falls
            break
        if _sum(few) > least:
            continue
        opened = _opened(parties, corrupt, degree, threshold, least)
        if opened > least:
            break
        together = _sum([*few, opened])
        if together < least or (best is None and together == least):
            best, least = threshold, together
    return best


def _opened(parties: int, corrupt: int, degree: int, threshold: int, most: float) -> float:
    """Return the logarithm of the bound on a group that can be opened, or of a part of it above `most`."""
    terms: list[float] = []
    inside, tail = -1, 0.0
    for size in range(1, parties // 2 + 1):
        others = min(corrupt + size - 1, (parties + corrupt) // 2 - 1)
        if others != inside:
            inside, tail = others, _tail(parties - 1, others, degree, threshold)
        terms.append(log_choose(parties, size) + size * tail)
        if terms[-1] > most:
            return terms[-1]
    return _sum(terms)


def _tail(population: int, marked: int, draws: int, least: int) -> float:
    """Return ln P[Hyp(population, marked, draws) >= least]; 0 up to the mode, where no bound is needed."""
    if least <= (draws + 1) * (marked + 1) // (population + 2):
        return 0.0
    if least > min(marked, draws):
        return -math.inf
    first = log_choose(marked, least) + log_choose(population - marked, draws - least)
    first -= log_choose(population, draws)
    total = term = 1.0
    at = least
    while at < min(marked, draws) and term > total * NEGLIGIBLE:
        term *= (marked - at) * (draws - at) / ((at + 1) * (population - marked - draws + at + 1))
        total += term
        at += 1
    return min(0.0, first + math.log(total))


def _sum(logs: list[float]) -> float:
    """Return the logarithm of a sum, given those of its parts."""
    top = max(logs)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(one - top) for one in logs))
