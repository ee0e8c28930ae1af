"""Privacy claim of a run of secure aggregation, and its limits."""

from __future__ import annotations

from smpc_dp.privacy.secagg_plan import SecAggPlan
from smpc_dp.protocols.result import Privacy


def privacy_of(plan: SecAggPlan, survivors: int, *, same: bool = True) -> Privacy:
    """Return the claim of a run: exact sum, no differential privacy, and what is not protected.

    `same`: all exact sums of the session are over the same survivors.
    """
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
        f"an aggregator that deviates and up to {plan.max_corrupt} parties that collude with it learn"
        if plan.max_corrupt
        else "an aggregator that deviates, without any party that colludes with it, learns"
    )
    return Privacy(
        epsilon=None,
        delta=None,
        claim=(
            f"an exact sum over {survivors} survivors: the aggregator learns it and every party is told it; "
            f"{adversary} at most one sum, over at least {plan.min_honest_in_sum} honest parties, and "
            f"nothing else about their vectors{failure}"
        ),
        assumptions=(
            f"at most {plan.max_corrupt} of {plan.parties} parties are corrupt, fixed before the run; the "
            "aggregator may be malicious and collude with them",
            "computational: X25519, HKDF-SHA256, AES-256-CTR, XChaCha20-Poly1305, Ed25519, TupleHash256",
        ),
        not_protected=(
            "the sum is exact: it has no differential privacy",
            differences,
            "a party may lie about its input, and an aggregator about the sum that it reports",
            "who takes part, when, and the length of the vectors are visible",
        ),
    )
