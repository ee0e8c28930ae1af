"""Outcome of a successful run, with its claim and its evidence."""

from __future__ import annotations

from collections.abc import Collection
from itertools import compress
from typing import Any, cast

import msgspec
import numpy as np

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
    """Return the total that the aggregator sent in `message`; raise PeerFault if it is malformed."""
    try:
        return member.parameters.encoding.unpack(packed)
    except ValueError as error:
        raise member.refuse(f"malformed {type(message).__name__}: {error}", Check.MALFORMED) from None


def signed_result(
    member: Member[SumParameters], state: PartyState, participation: Participation, body: bytes
) -> SignedResult:
    """Return the message with the total that a state expects, as evidence."""
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
    """Decode the sum of the survivors and add its claim and its evidence; `total` must not change any more.

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


def _split(context: Context, survivors: Collection[int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the survivors and those of the other parties, in roster order."""
    if isinstance(survivors, PartySet):
        inside = survivors.flags()
    else:
        inside = np.zeros(len(context.names), dtype=np.bool_)
        inside[np.fromiter(survivors, np.intp, len(survivors)) - 1] = True
    return tuple(compress(context.names, inside.tolist())), tuple(compress(context.names, (~inside).tolist()))
