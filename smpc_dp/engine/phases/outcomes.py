"""Outcome of a successful run, with its claim and its evidence."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import compress
from typing import Any, cast

import msgspec
import numpy as np

from smpc_dp.decoding import decode_msgpack
from smpc_dp.encoding import RingVector
from smpc_dp.engine.party import Member, PartyState
from smpc_dp.engine.phases.certified_set import Participation
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.result import Certificate, Evidence, Outcome
from smpc_dp.engine.signed_result import SignedResult
from smpc_dp.errors import Check
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import Context


def unpack_total(
    member: Member[SumParameters], message: msgspec.Struct, packed: bytes | memoryview
) -> RingVector:
    """Return the total, as ring elements, in the aggregator's message; raise PeerFault for a wrong length."""
    try:
        return member.parameters.encoding.unpack(packed)
    except ValueError as error:
        raise member.refuse(f"malformed {type(message).__name__}: {error}", Check.MALFORMED) from None


def signed_result(
    member: Member[SumParameters], state: PartyState, participation: Participation, body: bytes
) -> SignedResult:
    """Return the aggregator's signed message with the total, as evidence to keep with the result."""
    context, roots = member.context, participation.party_roots
    _, signature = state.progress.received[state.step]
    return SignedResult(context.request, context.operation, roots, member.name, body, signature)


def outcome(
    context: Context,
    parameters: SumParameters,
    run_id: bytes,
    total: RingVector,
    participation: Participation,
    *,
    survivors: Collection[int],
    survivors_certificate: Certificate | None = None,
    faults: tuple[str, ...] = (),
    residual_pairs: int = 0,
    signed_result: SignedResult | None = None,
) -> Outcome:
    """Return the result of a run: the decoded sum of the survivors, with its privacy claim and evidence.

    `residual_pairs` counts the pairs of which only one end is in the sum and whose term was left in it.
    """
    grid, weight = parameters.decode(total, len(survivors))
    packed = survivors.packed if isinstance(survivors, PartySet) else pack_set(survivors, len(context.names))
    present, absent = context.remember(("split", packed), lambda: _split(context, survivors))
    return Outcome(
        total=cast("Any", grid),
        weight=weight,
        encoding=parameters.encoding,
        survivors=present,
        absent=absent,
        faults=faults,
        privacy=parameters.privacy(len(survivors)),
        noise=parameters.noise(len(survivors), residual_pairs),
        evidence=Evidence(
            protocol=context.protocol,
            version=context.version,
            session_digest=context.session_digest,
            run_id=run_id,
            merkle_commitment=participation.merkle_commitment,
            participating=context.remember(
                ("participants", participation.certificate.set_digest),
                lambda: _split(context, participation.participants),
            )[0],
            participants=participation.certificate,
            survivors=survivors_certificate,
            checked=parameters.is_checked or None,
            signed_result=signed_result,
        ),
    )


class _TotalOf(msgspec.Struct, frozen=True, array_like=True):
    """First field, the total, of any message that contains a total; further fields are ignored."""

    total: bytes


def without_total(outcome: Outcome) -> Outcome:
    """Return a copy of a party's outcome with an empty array as total; `with_total` restores it."""
    return replace(outcome, total=np.empty(0, np.int64))


def with_total(member: Member[SumParameters], outcome: Outcome) -> Outcome:
    """Return a copy of an outcome, the total decoded anew from its signed result, checked before."""
    body = cast("SignedResult", outcome.evidence.signed_result).body
    total = member.parameters.encoding.unpack(decode_msgpack(body, _TotalOf).total)
    grid, _ = member.parameters.decode(total, len(outcome.survivors))
    return replace(outcome, total=cast("Any", grid))


def _split(context: Context, survivors: Collection[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the surviving and of the missing parties, each in roster order."""
    if isinstance(survivors, PartySet):
        inside = survivors.flags()
    else:
        inside = np.zeros(len(context.names), dtype=np.bool_)
        inside[np.fromiter(survivors, np.intp, len(survivors)) - 1] = True
    return tuple(compress(context.names, inside.tolist())), tuple(compress(context.names, (~inside).tolist()))
