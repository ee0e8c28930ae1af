"""Privacy claim of a run of secure aggregation, and its limits."""

from __future__ import annotations

from smpc_dp.engine.result import Claim
from smpc_dp.privacy.guarantee import PrivacyGuarantee
from smpc_dp.privacy.named_sentences import NamedSentences
from smpc_dp.privacy.secagg_plan import SecAggPlan

# What of a later total over the same vectors the aggregator cannot choose.
FRESH_NOISE = ", but for the fresh noise in it"


def sum_claim(
    plan: SecAggPlan, survivors: int, *, same: bool = True, checked: bool = False, by_some: bool = False
) -> Claim:
    """Return the privacy claim of an exact sum: no differential privacy, and what is not protected.

    `same`: all exact sums of the session are over the same survivors. `checked`, `by_some`: each receiver
    checks the total, or some for all.
    """
    claim = _unchecked_claim(plan, survivors, same)
    later = "; no later sum of the session goes on without it" if same else ""
    return with_check(claim, plan, "vectors", later=later, by_some=by_some) if checked else claim


def _unchecked_claim(plan: SecAggPlan, survivors: int, same: bool) -> Claim:
    """Return the privacy claim of a sum in which no party can check the aggregator's total."""
    differences = (
        "sums of other sessions, or of this one with parties that have connected anew, may be over another "
        "survivor set, and two sums over differing sets reveal the difference"
        if same
        else "same_survivors = false: any two sums over differing survivor sets, also of this session, "
        "reveal the difference"
    )
    failure = (
        ""
        if plan.failure_bits is None
        else f", except with probability 2^-{plan.failure_bits:.1f} an attempt"
    )
    adversary = (
        f"an aggregator that deviates and up to {plan.max_corrupt} of {plan.parties} parties that collude "
        "with it learn"
        if plan.max_corrupt
        else "an aggregator that deviates, without any party that colludes with it, learns"
    )
    return Claim(
        clauses=NamedSentences.of(
            sum=_sum_clause("an exact", survivors),
            adversary=f"{adversary} at most one sum, over at least {plan.min_honest_in_sum} honest parties, "
            f"and nothing else about their vectors{failure}",
        ),
        premises=NamedSentences.of(
            corrupt=f"at most {plan.max_corrupt} of {plan.parties} parties are corrupt, fixed before the "
            "run; the aggregator may be malicious and collude with them",
            computational="computational: X25519, HKDF-SHA256, AES-256-CTR, XChaCha20-Poly1305, Ed25519, "
            "TupleHash256",
        ),
        limits=NamedSentences.of(
            exact="the sum is exact: it has no differential privacy",
            differences=differences,
            lies="a party may lie about its input, and an aggregator about the sum that it reports",
            visible="who takes part, when, and the length of the vectors are visible",
        ),
    )


def noisy_claim(
    plan: SecAggPlan,
    survivors: int,
    guarantee: PrivacyGuarantee,
    private: str,
    inputs: NamedSentences,
    *,
    checked: bool = False,
    by_some: bool = False,
) -> Claim:
    """Return the privacy claim of a sum with noise: the guarantee, and what is not protected.

    Args:
        private: the clause about epsilon, which ends with a colon.
        inputs: limits of what is known about a party's input and noise.
        checked, by_some: whether each receiver checks the total, or some for all.
    """
    exact = _unchecked_claim(plan, survivors, same=True)
    claim = Claim(
        clauses=NamedSentences.of(private=private)
        + exact.clauses.replaced(sum=_sum_clause("a noisy", survivors)),
        premises=exact.premises,
        limits=inputs
        + exact.limits.without("exact", "differences")
        + NamedSentences.of(samplers="samplers do not run in constant time"),
        guarantee=guarantee,
    )
    vectors = "vectors with their noise"
    return with_check(claim, plan, vectors, fresh=FRESH_NOISE, by_some=by_some) if checked else claim


def with_check(
    claim: Claim,
    plan: SecAggPlan,
    vectors: str,
    *,
    fresh: str = "",
    later: str = "",
    word: str = "lies",
    by_some: bool = False,
) -> Claim:
    """Return a privacy claim, extended by sentences on what parties' checks of the total guarantee.

    Args:
        vectors: what parties commit to.
        fresh: what of a later total over the same vectors cannot be chosen, "" if all can.
        later: what a total that does not open the commitments does to other requests.
        word: name of the limit that says what an aggregator may report, which another takes the place of.
        by_some: whether some survivors check the total for all.
    """
    if plan.max_corrupt:
        adversary = f" and up to {plan.max_corrupt} of {plan.parties} parties that collude with it"
        committed = (
            f"the honest survivors' {vectors} and of one vector for each corrupt survivor, fixed before the "
            "first honest commitment was shown; which of them survive is chosen later, before the total is "
            "seen"
        )
    else:
        adversary, committed = ", without any party that colludes with it", f"the survivors' {vectors}"
    checked = "every party checks the total"
    if by_some:
        least = plan.check_quorum
        checked = (
            f"some survivors check the total for all, and a party takes it from {least} of them at least"
        )
    lies = (
        "a party may lie about its input: a corrupt one may commit to any vector, also beyond the bounds, "
        "that leaves the total in range"
    )
    return Claim(
        clauses=claim.clauses
        + NamedSentences.of(
            total=f"{checked}: what an honest one accepts is the sum of {committed}, against an aggregator "
            f"that deviates{adversary}"
        ),
        premises=claim.premises
        + NamedSentences.of(
            commitments="for the check of the total: discrete logarithms in ristretto255 are hard, "
            "TupleHash256 is a random oracle, and no certificate is false"
        ),
        limits=claim.limits.replaced(**{word: lies})
        + NamedSentences.of(
            first="the aggregator sees the total first and may stop the request; with a corrupt party it can "
            f"make a later request over the same vectors give any total in range{fresh}",
            unopened="one party that masks another vector than it had committed to, or one that makes the "
            "sum too large, makes the request fail after the aggregator has seen a total, and is not "
            f"found{later}",
            checkers="survivors that check the total for all see it before the others, and alone where too "
            "few of them attest it"
            if by_some
            else None,
        ),
        guarantee=claim.guarantee,
    )


def _sum_clause(kind: str, survivors: int) -> str:
    """Return the clause of a claim on what a run releases; `kind` is "an exact" or "a noisy"."""
    return f"{kind} sum over {survivors} survivors: the aggregator learns it and every party is told it"
