"""Degree, threshold and quorum of a secure aggregation, and how likely at most the choice is to fail.

Each of n parties draws k of the n - 1 others, deals its secrets to exactly those k with threshold t, and
shares a mask with everyone it drew or was drawn by [Bonawitz 2017; Bell 2020]. Three things must not happen;
their probabilities are bounded here, added up over all parties. The bounds hold for every number of corrupt
parties up to c, which is why n stands where n - c would do for exactly c:

  holders      a party drew more than c_d corrupt holders         n P[Hyp(n-1, c, k) > c_d]
  shares       fewer than t holders of a party stay               n P[k - Hyp(n-1, D, k) < t]
  graph        some honest group of s, at most half of the honest parties, can be opened on its own
               sum over s <= n/2 of C(n, s) P[Hyp(n-1, min(c+s-1, (n+c)/2-1), k) >= t]^s

The first and the third would cost privacy, the second only stops the run. docs/proofs/secagg-plan.md has the
proofs.
"""

from __future__ import annotations

import math
from fractions import Fraction

import msgspec
import numpy as np

from smpc_dp.errors import ConfigCheck, ConfigError
from smpc_dp.privacy.arguments import ArgumentChecks, checks_numbers, is_number
from smpc_dp.privacy.certificates import DIGEST, certificate_bytes, proof_nodes
from smpc_dp.privacy.hypergeometric import Floats, Ints, LogBinomials, mode

MAX_PARTIES = 1_000_000
# Up to here everyone is everyone's neighbour: it costs little, needs no drawing, and bears more collusion.
SMALL_SESSION = 64
# From here on a session tolerates a loss unless its file says otherwise.
FEWEST_WITH_LOSS = 5
# From here on it tolerates a party that colludes with the aggregator; with fewer there is no session.
FEWEST_WITH_CORRUPT = 3

# Sizes on the wire, in bytes; the formulas that use them are in `communication`.
PARTY = 2
SHARE_SEALED = 1 + 2 * (2 + 32) + (2 + 64) + 40 + 2  # both shares, the dealer's signature, XChaCha20-Poly1305
ADVERTISEMENT = 1 + 3 * (2 + 32)  # a key, the commitments to the list and to the masking key
KEY = 32  # a masking key, shown after all are committed to
FORWARDED = 1 + 3 + 2 * 3 + 64  # a party's number and its signature around a message that it signed
UNMASK_RECORD = 2 + 32 + 32 + 64  # dealer, share, digest of the other share, the dealer's signature
ENVELOPE = 160  # signature, run, step, names and lengths around each message
MESSAGES = 8  # each way
# Where totals are checked: commitments and blindings, and a commitment to a vector with its signature.
FIELD, OPENING = 2 + 32, 32 + 64
# Kinds of messages, up and down, that are there only if shares are dealt.
OF_SHARES = ("deal", "unmask", "deliver", "survivors")


class SecAggPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Plan of a secure sum: neighbours and secret-sharing threshold, and bounds on failure.

    Probabilities are given as log2 of an upper bound; None means that the event cannot happen.
    """

    parties: int
    """n, the size of the roster, at least 3."""
    dropout: float
    """Planned fraction of parties that drop out during the run, in [0, 0.5)."""
    corrupt: float
    """Fraction of parties that may collude with the aggregator, in [0, 1)."""
    security: float
    """Bits asked for: all failures together were to have probability at most 2**-security."""
    degree: int
    """k, how many others each party draws and deals its shares to."""
    threshold: int
    """t, how many of those k shares open a secret; 2 t > k + corrupt_holders."""
    quorum: int
    """q, signatures that certify the survivor set; 2 q > n + max_corrupt."""
    corrupt_holders: int
    """c_d, the most corrupt holders that a party may have before the plan fails."""
    max_dropouts: int
    """D = floor(dropout n), corrupt parties that fall silent included."""
    max_corrupt: int
    """c = floor(corrupt n)."""
    min_survivors: int
    """n - D; with fewer the run stops."""
    min_honest_in_sum: int
    """Every sum that colluders can learn is over at least this many honest parties."""
    complete: bool
    """True if everyone is everyone's neighbour (k = n - 1): nothing is drawn."""
    mask_degree: float
    """Expected number of pairwise masks per party, 2k - k**2 / (n - 1)."""
    holders_log2: float | None
    """Some honest party has more than c_d corrupt holders (privacy)."""
    shares_log2: float | None
    """Some party keeps fewer than t holders (the run stops, nothing is revealed)."""
    graph_log2: float | None
    """Some group of at most half of the honest parties can be opened on its own (privacy)."""
    failure_bits: float | None
    """-log2 of the sum of the three bounds."""

    @property
    def sufficient(self) -> bool:
        """Whether the three bounds on failure add up to at most 2**-security."""
        return self.failure_bits is None or self.failure_bits >= self.security

    @property
    def check_quorum(self) -> int:
        """How many checkers must attest a total, so that one at least is honest: c + 1."""
        return self.max_corrupt + 1

    @property
    def least_to_check(self) -> int:
        """Least number of parties of which enough honest ones remain to check totals: 2c + D + 1."""
        return self.max_corrupt + self.check_quorum + self.max_dropouts

    def checkers(self, lost: int = 0) -> int:
        """Return how many parties check a total for all others, when `lost` parties are gone.

        A quorum of them answers if all corrupt parties are among them and silent, and as many others drop out
        as the plan tolerates.
        """
        return self.max_corrupt + self.check_quorum + max(0, self.max_dropouts - lost)


class _Limits(msgspec.Struct, frozen=True):
    """Checked request for a secure sum's plan: parties, dropouts, corrupt parties, and the quorum."""

    requested: dict[str, float]
    n: int
    dropouts: int
    corrupt: int
    quorum: int


def default_dropout(parties: int) -> float:
    """Return the fraction of parties that may drop out, by default, in a session of this size.

    A tenth of the parties, and from `FEWEST_WITH_LOSS` parties up at least one.
    """
    return max(0.1, 1 / parties) if parties >= FEWEST_WITH_LOSS else 0.1


def default_corrupt(parties: int) -> float:
    """Return the fraction of parties that may collude, by default, in a session of this size.

    A tenth of the parties, and from `FEWEST_WITH_CORRUPT` parties up at least one.
    """
    return max(0.1, 1 / parties) if parties >= FEWEST_WITH_CORRUPT else 0.1


@checks_numbers
def plan_secagg(
    parties: int,
    *,
    dropout: float = 0.1,
    corrupt: float = 0.1,
    security: float = 40,
    least_degree: int = 2,
) -> SecAggPlan:
    """Plan the fewest neighbours per party of a secure sum that fails with at most 2**-security.

    Arguments as in `SecAggPlan`; parties in 3..1,000,000, security in 20..128. Every degree is ruled in or
    out on its own, so no smaller one satisfies the same bound. Of the thresholds the one with the smallest
    bound is taken, the largest of equals. The complete graph is taken for up to `SMALL_SESSION` parties, and
    where no sparse one suffices (a sparse one always sends less); its threshold is the largest that dropouts
    allow, which bears the most collusion. `least_degree` is the least degree that other parts of the protocol
    need. Raises ConfigError, naming the parameter and its bound, if no graph can serve.
    """
    limits = _limits(parties, dropout, corrupt, security)
    logs = LogBinomials(parties)
    n, held = limits.n, limits.n - 1 - limits.dropouts
    complete = (n - 1, held) if 2 * held > n - 1 + limits.corrupt else None
    if complete and n <= SMALL_SESSION:
        chosen: tuple[int, int] | None = complete
    else:
        chosen = _smallest_sparse(logs, limits, -security * math.log(2), least_degree)
        chosen = chosen or complete
    if chosen is None:
        reason = (
            f"no threshold t <= {held} (the holders that {limits.dropouts} dropouts leave) has "
            f"2 t > {n - 1} + {limits.corrupt} (corrupt holders) in the complete graph, and no "
            "sparse one suffices; plan for fewer lost or colluding parties"
        )
        raise ConfigError.at("corrupt", reason, ConfigCheck.INFEASIBLE)
    return _plan(logs, limits, *chosen)


def check_plan(
    parties: int,
    degree: int,
    threshold: int,
    *,
    dropout: float = 0.1,
    corrupt: float = 0.1,
    security: float = 40,
) -> SecAggPlan:
    """Return a secure sum's plan for this degree and threshold, also if insufficient; or ConfigError.

    degree in 2..parties - 1, threshold in 2..degree with 2 * threshold > degree. Raises ConfigError otherwise
    and where signers or honest survivors are too few for any degree. An insufficient plan is returned.
    """
    limits = _limits(parties, dropout, corrupt, security)
    checks = ArgumentChecks()
    checks.require_integer("degree", degree, 2, parties - 1, " (parties - 1)")
    if not checks:
        checks.require_integer("threshold", threshold, max(2, degree // 2 + 1), degree, " (degree)")
    checks.raise_issues()
    return _plan(LogBinomials(parties), limits, degree, threshold)


def communication(
    plan: SecAggPlan,
    length: int,
    element_bytes: int,
    *,
    shares: bool = True,
    checked: bool = False,
    has_checkers: bool = False,
) -> dict[str, dict[str, int]]:
    """Return a party's expected bytes in a secure sum: sent (up), received (down), expanded (work).

    `shares`: whether shares of secrets are dealt, and survivors certified, so that lost parties' masks are
    taken out. `checked`: whether each receiver checks the total, with the commitments of all parties, or with
    `has_checkers` takes it from those that do; "checker" has what each of these sends and receives besides.

    "up" and "down" list each kind of message and their "total", without frames and TLS records. "work" has
    the masks to expand (the self-mask included) and their bytes. Raises ConfigError unless length >= 1 and
    1 <= element_bytes <= 32.
    """
    checks = ArgumentChecks()
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        checks.add_issue("length", f"{length!r} is not an integer of at least 1", ConfigCheck.RANGE)
    checks.require_integer("element_bytes", element_bytes, 1, 32)
    checks.raise_issues()
    up, down = _control(plan, shares)
    up["masked"] = down["result"] = length * element_bytes
    if checked:
        up["commitments"], down["commitments"] = commitment_bytes(plan, has_checkers)
    masks = math.ceil(plan.mask_degree) + 1
    for direction in (up, down):
        direction["total"] = sum(direction.values())
    cost = {"up": up, "down": down, "work": {"masks": masks, "mask_bytes": masks * length * element_bytes}}
    if checked and has_checkers:
        sent, received = checker_bytes(plan)
        cost["checker"] = {"up": sent, "down": received + length * element_bytes}
    return cost


def mask_degree(parties: int, degree: int) -> float:
    """Return the expected number of parties with whom a party shares a mask, 2k - k**2 / (n - 1).

    A pair is joined unless neither drew the other.
    """
    return float(2 * degree - Fraction(degree**2, parties - 1))


def _control(plan: SecAggPlan, shares: bool) -> tuple[dict[str, int], dict[str, int]]:
    """Return a party's (bytes sent, bytes received) by kind of message but vectors; without `shares` fewer.

    On average k parties drew it.
    """
    n, k, lost = plan.parties, plan.degree, plan.max_dropouts
    # without shares nobody deals, unmasks, or attests survivors
    messages = MESSAGES if shares else MESSAGES - 3
    party_set = 1 + min(PARTY * lost, -(-n // 8))
    rolled = party_set + DIGEST + math.ceil(DIGEST * proof_nodes(n, 1))
    neighbours = mask_degree(n, k)
    reveal = PARTY * k + DIGEST + KEY
    certificate = party_set + math.ceil(certificate_bytes(n - lost, plan.quorum))
    up = {
        "hello": 2 * DIGEST,
        "advertise": ADVERTISEMENT,
        "reveal": reveal,
        "deal": DIGEST + SHARE_SEALED * k,
        "attest": (2 if shares else 1) * DIGEST,
        "unmask": UNMASK_RECORD * k,
        "envelopes": ENVELOPE * messages,
    }
    down = {
        "start": rolled,
        "roll": rolled,
        "neighbours": party_set
        + math.ceil((FORWARDED + ADVERTISEMENT + KEY) * neighbours)
        + (FORWARDED + reveal) * k
        + math.ceil(DIGEST * proof_nodes(n, round(neighbours))),
        "deliver": party_set + (PARTY + SHARE_SEALED) * k,
        "survivors": party_set,
        "certificates": (2 if shares else 1) * certificate,
        "envelopes": ENVELOPE * messages,
    }
    for kind in () if shares else OF_SHARES:
        up.pop(kind, None)
        down.pop(kind, None)
    return up, down


def commitment_bytes(plan: SecAggPlan, has_checkers: bool = False) -> tuple[int, int]:
    """Return the bytes up and down of one party that checking a total by commitments costs.

    Up: the commitment in `advertise`; commitment, blinding and signature in `masked`. Down: root and proof in
    `roll`, the commitments in the neighbours' `advertise`, the openings and the blinding in `result`; or the
    certificate in place of the openings, with `has_checkers`.
    """
    n, claimed = plan.parties, plan.checkers()
    proof = 2 + math.ceil(DIGEST * proof_nodes(n, 1))
    neighbours = math.ceil(FIELD * mask_degree(n, plan.degree))
    shown = OPENING * n
    if has_checkers:
        signers = 1 + min(PARTY * (n - claimed), -(-n // 8))
        shown = signers + math.ceil(certificate_bytes(claimed, plan.check_quorum))
    return 3 * FIELD + 2 + 64, FIELD + proof + neighbours + shown + FIELD


def checker_bytes(plan: SecAggPlan) -> tuple[int, int]:
    """Return a checker's extra bytes up and down for a checked total, without the vector of the total.

    Up: `attest-total`. Down: `total`, with the openings and the blinding.
    """
    return FIELD + ENVELOPE, OPENING * plan.parties + FIELD + ENVELOPE


def commitment_seconds(parties: int, elements: int, element_bytes: int) -> float:
    """Return about how many processor seconds checking a total by commitments costs one party.

    A commitment and a check over all elements, and a signature of each party. Measured, on the machine of
    docs/performance.md.
    """
    return 1e-6 * (55 * parties + (0.6 + 0.53 * element_bytes) * elements)


@checks_numbers
def part_of(parties: int, fraction: float) -> int:
    """Return floor(fraction * parties), without floating-point error.

    0.29 of 100 is 29 and 1/3 of 30 is 10.
    """
    return math.floor(fraction * parties + 1e-9)


def _limits(parties: int, dropout: float, corrupt: float, security: float) -> _Limits:
    """Return how many parties may drop out or be corrupt, and the quorum; ConfigError if infeasible."""
    checks = ArgumentChecks()
    checks.require_integer("parties", parties, 3, MAX_PARTIES)
    for name, value, low, high, bounds in (
        ("dropout", dropout, 0.0, math.nextafter(0.5, 0), "[0, 0.5): more than half must survive to sign"),
        ("corrupt", corrupt, 0.0, math.nextafter(1.0, 0), "[0, 1)"),
        (
            "security",
            security,
            20,
            128,
            "[20, 128]: below, failures are no rarity; above, keys have 128 bits",
        ),
    ):
        if not is_number(value) or not low <= value <= high:
            checks.add_issue(name, f"{value!r} is not a number in {bounds}", ConfigCheck.RANGE)
    checks.raise_issues()
    n, d, c = parties, part_of(parties, dropout), part_of(parties, corrupt)
    quorum = (n + c) // 2 + 1
    if n - d - c < 2:
        checks.add_issue(
            "corrupt",
            f"{c} corrupt and {d} dropped of {n} parties leave {max(n - d - c, 0)} honest survivors, and "
            "a sum over fewer than 2 hides nobody",
            ConfigCheck.INFEASIBLE,
        )
    if quorum > n - d:
        checks.add_issue(
            "dropout",
            f"with {d} of {n} parties dropped {n - d} can sign, but with {c} corrupt a survivor set "
            f"needs {quorum} signatures; {c} and twice {d} must stay below {n}",
            ConfigCheck.INFEASIBLE,
        )
    checks.raise_issues()
    requested = {"dropout": float(dropout), "corrupt": float(corrupt), "security": float(security)}
    return _Limits(requested, n, d, c, quorum)


def _holders(logs: LogBinomials, lim: _Limits, k: int, t: int | Ints) -> Floats:
    """Return ln of a bound on the chance that a party has too many corrupt holders of its shares."""
    return math.log(lim.n) + logs.tail(lim.n - 1, lim.corrupt, k, 2 * np.asarray(t) - k)


def _shares(logs: LogBinomials, lim: _Limits, k: int, t: int | Ints) -> Floats:
    """Return ln of a bound on the chance that too many of a party's share holders drop out."""
    return math.log(lim.n) + logs.tail(lim.n - 1, lim.dropouts, k, k - np.asarray(t) + 1)


def _graph(logs: LogBinomials, lim: _Limits, k: int, t: int) -> float:
    """Return ln of a bound on the chance that the sum of a part of the honest parties can be opened."""
    n, c = lim.n, lim.corrupt
    s = np.arange(1, n // 2 + 1, dtype=np.int64)
    inside = np.minimum(c + s - 1, (n + c) // 2 - 1)
    terms = logs.choose(n, s) + logs.slack + s * logs.tail(n - 1, inside, k, t)
    return _sum(terms)


def _sum(lns: Floats | list[float]) -> float:
    """Return ln of the sum of numbers given by their logarithms, rounded upwards."""
    top = float(np.max(lns))
    if top == -math.inf:
        return top
    total = float(np.sum(np.exp(np.asarray(lns) - top)))
    return top + math.log(total) + math.ldexp(1.0 + abs(top), -48)


def _smallest_sparse(logs: LogBinomials, lim: _Limits, target: float, least: int) -> tuple[int, int] | None:
    """Return (fewest neighbours below n - 1 that meet the target, best threshold); None if none.

    None if there is none.
    """
    block = 1024  # bounds memory; the least k is rarely beyond the first
    for start in range(max(2, least), lim.n - 1, block):
        k = np.arange(start, min(start + block, lim.n - 1), dtype=np.int64)
        # P[X = x] <= P[X >= x]: where one probability is already too large, so is the tail.
        corrupt = _first_rare(logs, lim.n, lim.corrupt, k, target)
        dropped = _first_rare(logs, lim.n, lim.dropouts, k, target)
        low = np.maximum(2, (k + corrupt + 1) // 2)
        high = k - dropped + 1
        for degree, first, last in zip(k, low, high, strict=True):
            if first <= last and (t := _best_threshold(logs, lim, int(degree), first, last, target)):
                return int(degree), t
    return None


def _first_rare(logs: LogBinomials, n: int, marked: int, k: Ints, target: float) -> Ints:
    """Return, for each k, the least count above the mode of which n times the chance is <= e**target.

    By bisection: above the mode the probability falls, to nil at k + 1. Up to the mode n P[X >= x] exceeds 1.
    """
    low, high = mode(n - 1, marked, k) + 1, k + 1
    while np.any(low < high):
        middle = (low + high) // 2
        rare = math.log(n) + logs.pmf(n - 1, marked, k, middle) - logs.slack <= target
        low, high = np.where(rare, low, np.minimum(middle + 1, high)), np.where(rare, middle, high)
    return low


def _best_threshold(
    logs: LogBinomials, lim: _Limits, k: int, first: int, last: int, target: float
) -> int | None:
    """Return the threshold in first..last with the least failure bound; None if none meets the target."""
    t = np.arange(first, last + 1, dtype=np.int64)
    holders, shares = _holders(logs, lim, k, t), _shares(logs, lim, k, t)
    best, least = None, target
    for threshold, one, two in zip(t[::-1], holders[::-1], shares[::-1], strict=True):
        if _sum([one, two]) > least:
            continue
        three = _graph(logs, lim, k, int(threshold))
        if three > least:
            break  # it only grows as the threshold falls
        total = _sum([one, two, three])
        if total < least or (best is None and total == least):
            best, least = int(threshold), total
    return best


def _plan(logs: LogBinomials, lim: _Limits, k: int, t: int) -> SecAggPlan:
    """Return the plan of a secure sum with k neighbours and threshold t, with its failure bounds."""
    n, c = lim.n, lim.corrupt
    lns = [float(_holders(logs, lim, k, t)), float(_shares(logs, lim, k, t)), _graph(logs, lim, k, t)]
    total = _sum(lns)
    holders, shares, graph = (None if x == -math.inf else min(x, 0.0) / math.log(2) for x in lns)
    return SecAggPlan(
        parties=n,
        **lim.requested,
        degree=k,
        threshold=t,
        quorum=lim.quorum,
        corrupt_holders=min(c, 2 * t - k - 1),
        max_dropouts=lim.dropouts,
        max_corrupt=c,
        min_survivors=n - lim.dropouts,
        min_honest_in_sum=max((n - c) // 2, t - c) + 1,
        complete=k == n - 1,
        mask_degree=mask_degree(n, k),
        holders_log2=holders,
        shares_log2=shares,
        graph_log2=graph,
        failure_bits=None if total == -math.inf else max(-total, 0.0) / math.log(2),
    )
