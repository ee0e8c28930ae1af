"""How a run ends: with an outcome and its claim, or with an error that travels to the others."""

from __future__ import annotations

from collections.abc import Collection

from smpc_dp.encoding import Lanes
from smpc_dp.errors import ConfigError, LocalError, PeerFault, PrivacyError, SmpcError, TimeoutFault
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.result import Certificate, Evidence, Outcome, Privacy
from smpc_dp.protocols.secagg.messages import Abort
from smpc_dp.protocols.secagg.params import SecAggParameters

_REASON_LIMIT = 500


def abort_of(error: SmpcError) -> Abort:
    """Return what others are told of an error: never more than names and one line."""
    reason = " ".join(str(error).split())[:_REASON_LIMIT]
    if isinstance(error, PeerFault):
        return Abort("peer", error.culprit, [], error.reason[:_REASON_LIMIT])
    if isinstance(error, TimeoutFault):
        return Abort("timeout", "", sorted(error.missing), error.step)
    if isinstance(error, PrivacyError):
        # What is wrong with a private value is the party's own business.
        return Abort("local", "", [], "its input was refused")
    if isinstance(error, ConfigError):
        return Abort("config", "", [], reason)
    return Abort("local", "", [], reason)


def error_of(abort: Abort, context: Context) -> SmpcError:
    """Return the error that an aggregator's `Abort` stands for; names must be in the roster."""
    teller = context.aggregator
    known = set(context.names) | {teller}
    if abort.kind == "peer" and abort.culprit in known:
        return PeerFault(abort.culprit, f"{abort.reason} (said by {teller})")
    if abort.kind == "timeout" and set(abort.missing) <= known:
        return TimeoutFault(abort.missing, abort.reason, f"said by {teller}")
    if abort.kind in ("local", "config"):
        return PeerFault(teller, f"stopped the run: {abort.reason}")
    return PeerFault(teller, "sent a malformed abort")


def privacy_of(parameters: SecAggParameters, survivors: int) -> Privacy:
    """Return the claim of a run: exact sum, no differential privacy, and what is not protected."""
    plan = parameters.plan
    chance = (
        "perfectly connected (complete graph)" if plan.complete else f"failure at most 2^-{plan.security:g}"
    )
    return Privacy(
        epsilon=None,
        delta=None,
        claim=(
            f"the aggregator and up to {plan.max_corrupt} colluding parties learn the sum over {survivors} "
            f"survivors, at least {plan.min_honest_in_sum} of them honest, and nothing else "
            f"of an honest party's vector ({chance})"
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
    parameters: SecAggParameters,
    run_id: bytes,
    total: Lanes,
    survivors: Collection[int],
    participants_certificate: Certificate,
    survivors_certificate: Certificate,
    faults: tuple[str, ...] = (),
) -> Outcome:
    """Decode the sum of the survivors and put its claim and its evidence beside it."""
    grid, weight = parameters.encoding.decode(total, len(survivors))
    return Outcome(
        total=grid,
        weight=weight,
        encoding=parameters.encoding,
        survivors=tuple(context.names[party - 1] for party in sorted(survivors)),
        absent=tuple(name for party, name in enumerate(context.names, 1) if party not in survivors),
        faults=faults,
        privacy=privacy_of(parameters, len(survivors)),
        evidence=Evidence(
            protocol=context.protocol,
            version=context.version,
            session_digest=context.session_digest,
            run_id=run_id,
            participants=participants_certificate,
            survivors=survivors_certificate,
        ),
    )
