"""How a run ends well: with an outcome, its claim and its evidence."""

from __future__ import annotations

from collections.abc import Collection

from smpc_dp.encoding import Lanes
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.result import Certificate, Evidence, Outcome, Privacy
from smpc_dp.protocols.secagg.params import SumParameters


def privacy_of(parameters: SumParameters, survivors: int) -> Privacy:
    """Return the claim of a run: exact sum, no differential privacy, and what is not protected."""
    plan = parameters.plan
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
            "the sum is exact: it has no differential privacy, and sums over two differing survivor sets "
            "reveal the difference",
            "a party may lie about its input, and an aggregator about the sum that it reports",
            "who takes part, when, and the length of the vectors are visible",
        ),
    )


def outcome(
    context: Context,
    parameters: SumParameters,
    run_id: bytes,
    total: Lanes,
    roll: bytes,
    participants: Collection[int],
    survivors: Collection[int],
    participants_certificate: Certificate,
    survivors_certificate: Certificate,
    faults: tuple[str, ...] = (),
) -> Outcome:
    """Decode the sum of the survivors and put its claim and its evidence beside it."""
    grid, weight = parameters.encoding.decode(total, len(survivors))
    present, absent = context.remember(
        ("survivors", survivors_certificate.set_digest), lambda: _split(context, survivors)
    )
    return Outcome(
        total=grid,
        weight=weight,
        encoding=parameters.encoding,
        survivors=present,
        absent=absent,
        faults=faults,
        privacy=privacy_of(parameters, len(survivors)),
        evidence=Evidence(
            protocol=context.protocol,
            version=context.version,
            session_digest=context.session_digest,
            run_id=run_id,
            roll=roll,
            participating=context.remember(
                ("participants", participants_certificate.set_digest), lambda: _split(context, participants)
            )[0],
            participants=participants_certificate,
            survivors=survivors_certificate,
        ),
    )


def _split(context: Context, survivors: Collection[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the survivors and those of the others, in roster order."""
    inside = frozenset(survivors)
    return (
        tuple(context.names[party - 1] for party in sorted(inside)),
        tuple(name for party, name in enumerate(context.names, 1) if party not in inside),
    )
