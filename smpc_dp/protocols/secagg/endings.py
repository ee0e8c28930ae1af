"""How a run ends: with an outcome and its claim, or with an error that travels to the others."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from smpc_dp.encoding import Lanes
from smpc_dp.errors import ConfigError, PeerFault, PrivacyError, SmpcError, TimeoutFault
from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import Context
from smpc_dp.protocols.result import Certificate, Evidence, Outcome, Privacy
from smpc_dp.protocols.secagg.messages import REASON_LIMIT, Abort
from smpc_dp.protocols.secagg.params import SecAggParameters


def equivocation(envelope: Envelope, run_id: bytes, earlier: bytes, signature: bytes) -> PeerFault:
    """Return the fault of a second, different message for one step; both signatures are the evidence.

    `run_id` is that of the first message, `earlier` the SHA-256 of its body.
    """
    return PeerFault(
        envelope.sender,
        f"sent two different messages for step '{envelope.step}'",
        {
            "first run id": run_id,
            "first": earlier,
            "first signature": signature,
            "second run id": envelope.run_id,
            "second": hashlib.sha256(envelope.body).digest(),
            "second signature": envelope.signature,
        },
    )


def abort_of(error: SmpcError) -> Abort:
    """Return what others are told of an error: never more than names and one line."""
    reason = " ".join(str(error).split())[:REASON_LIMIT]
    if isinstance(error, PeerFault):
        return Abort("peer", error.culprit, [], error.reason[:REASON_LIMIT])
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
    reason = _printable(abort.reason)
    if abort.kind == "peer" and abort.culprit in known:
        return PeerFault(abort.culprit, f"{reason} (said by {teller})")
    if abort.kind == "timeout" and set(abort.missing) <= known:
        return TimeoutFault(abort.missing, reason, f"said by {teller}")
    if abort.kind in ("local", "config"):
        return PeerFault(teller, f"stopped the run: {reason}")
    return PeerFault(teller, "sent a malformed abort")


def reason_of(abort: Abort, sender: str, context: Context) -> str:
    """Return in one line why a party leaves; raise PeerFault if it names anyone outside of the roster."""
    if not {abort.culprit, *abort.missing} <= {"", context.aggregator, *context.names}:
        raise PeerFault(sender, "left and named somebody who is not in the roster")
    return f"left: {abort.culprit + ': ' if abort.culprit else ''}{_printable(abort.reason)}"


def _printable(text: str) -> str:
    """Return text of a peer without what a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text)


def privacy_of(parameters: SecAggParameters, survivors: int) -> Privacy:
    """Return the claim of a run: exact sum, no differential privacy, and what is not protected."""
    plan = parameters.plan
    failure = (
        ""
        if plan.failure_bits is None
        else f", except with probability 2^-{plan.failure_bits:.1f} an attempt"
    )
    return Privacy(
        epsilon=None,
        delta=None,
        claim=(
            f"an exact sum over {survivors} survivors: the aggregator learns it and every party is told it; "
            f"an aggregator that deviates and up to {plan.max_corrupt} parties that collude with it learn at "
            f"most one sum, over at least {plan.min_honest_in_sum} honest parties, and nothing else about "
            f"their vectors{failure}"
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
