"""Commitments by which each receiver checks the total of a sum.

A party commits to what it masks before any commitment is shown, and shows its own with its masked vector. The
commitments of all survivors add up to the commitment to the total with the sum of their blindings. Of many
parties some survivors check that for all, and more of them attest it than may be corrupt.
Specification: protocols/secagg/checked.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from smpc_dp.crypto import commit
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.prg import add_masks
from smpc_dp.crypto.vector_commitments import IN_PROCESS, Generators, Integers
from smpc_dp.encoding import RingVector
from smpc_dp.engine.party import Member
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.certify import check_certificate
from smpc_dp.engine.phases.masks import Masks
from smpc_dp.engine.phases.merkle_commitments import MerkleCommitment
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.engine.signed_result import RunRoots
from smpc_dp.engine.state import Secret
from smpc_dp.errors import Check, Code, PeerFault, VerificationError
from smpc_dp.wire.sets import PartySet
from smpc_dp.wire.signing import Context

# Of one commitment or check.
THREADS = 2


class Committed(Secret, frozen=True):
    """A party's commitment to its vector, with the secret blinding that opens it."""

    point: bytes
    blinding: bytes


class Certified(NamedTuple):
    """Values of a run certified to be equal for all parties: Merkle roots, participants, survivors."""

    roots: RunRoots
    participants: bytes
    survivors: PartySet


class Opened(msgspec.Struct, frozen=True):
    """A survivor's commitment to its vector, shown with its signature, and the masked blinding."""

    shown: bytes
    blinding: bytes


# The party's side


def commit_vector(member: Member[SumParameters], vector: RingVector) -> tuple[RingVector, Committed | None]:
    """Return a copy of the vector with fresh noise, and its commitment; the vector, None if unchecked."""
    if not member.parameters.is_checked:
        return vector, None
    noisy = vector.copy()
    member.parameters.add_noise(noisy, member.random)
    blinding = commit.fresh_blinding(member.random)
    return noisy, Committed(commitment_to(member.parameters, noisy, blinding), blinding)


def open_commitment(
    member: Member[SumParameters],
    run_id: bytes,
    participants_digest: bytes,
    committed: Committed,
    masks: Masks,
) -> tuple[bytes, bytes, bytes]:
    """Return a party's commitment, its blinding under masks of the vector's seeds, and the signature."""
    statement = keys.value_opening(member.context, run_id, participants_digest, member.name, committed.point)
    masked = _with_masks(member.parameters, committed.blinding, masks)
    return committed.point, masked, member.identity.sign(statement)


def check_result(
    member: Member[SumParameters],
    run_id: bytes,
    certified: Certified,
    message: m.Result,
    total: RingVector,
) -> None:
    """Raise PeerFault naming the aggregator unless the survivors' commitments add up to the total's.

    The aggregator has to check the same before it sends a result.
    """
    context, parameters = member.context, member.parameters
    try:
        context.remember(
            ("checked", run_id, certified.participants, certified.survivors.packed, message),
            lambda: check_commitments(
                context, parameters, run_id, certified, cast(m.CheckedResult, message), total
            ),
        )
    except VerificationError as error:
        raise member.refuse(str(error), error.check) from None


def check_commitments(
    context: Context,
    parameters: SumParameters,
    run_id: bytes,
    certified: Certified,
    message: m.CheckedResult,
    total: RingVector,
) -> None:
    """Raise VerificationError unless the survivors' signed commitments add up to the total's."""
    members, survivors = certified.roots.advertised, certified.survivors
    absent = len(members) - len(survivors)
    if (len(message.openings), len(message.hidden)) != (
        m.OPENING_BYTES * len(survivors),
        m.POINT_BYTES * absent,
    ):
        raise VerificationError("shows other than one commitment of each party", Check.NOT_ONE_EACH)
    openings = iter(m.pieces(message.openings, m.OPENING_BYTES))
    hidden = iter(m.pieces(message.hidden, m.POINT_BYTES))
    given: dict[int, bytes] = {}
    points: list[bytes] = []
    for party in members:
        name = context.names[party - 1]
        if party in survivors:
            shown = next(openings)
            _check_signed(context, run_id, certified.participants, name, shown)
            points.append(shown[: m.POINT_BYTES])
            given[party] = keys.value_commitment(context, run_id, name, points[-1])
        else:
            given[party] = next(hidden)
    if MerkleCommitment(context, Label.VALUES, given).root != certified.roots.values_root:
        raise VerificationError("shows commitments that are not under the certified root", Check.NOT_IN_TREE)
    commit.check_blinding(message.blinding)
    check_total(parameters, total, message.blinding, points)


def check_total(
    parameters: SumParameters, total: RingVector, blinding: bytes, points: Sequence[bytes]
) -> None:
    """Raise VerificationError unless the sum of `points` is the commitment to `total` with `blinding`."""
    integers, generators, width = _integers(parameters, total)
    try:
        generators.check_totals(integers, width, blinding, points, THREADS)
    except VerificationError as error:
        if error.check != Check.BAD_OPENING:
            raise
        raise VerificationError("the total is not that of the commitments", Check.WRONG_TOTAL) from None


def commitment_to(parameters: SumParameters, vector: RingVector, blinding: bytes) -> bytes:
    """Return the (curve point) commitment to a vector of ring elements with this blinding."""
    integers, generators, width = _integers(parameters, vector)
    return generators.commit(integers, width, blinding, THREADS)


def _integers(parameters: SumParameters, vector: RingVector) -> tuple[Integers, Generators, int]:
    """Return ring elements as integers, the curve generators for them, and the bytes of each element."""
    # A total may be part of a message, where elements begin at any byte.
    wide = np.require(vector, np.uint64, "A")
    integers = wide.view(np.int64) if parameters.is_signed else wide
    return integers, IN_PROCESS.extended(len(vector), THREADS), parameters.encoding.element_bytes


def _check_signed(
    context: Context, run_id: bytes, participants_digest: bytes, name: str, shown: bytes
) -> None:
    """Raise VerificationError unless a party has signed the commitment that is shown as its own."""
    point, signature = shown[: m.POINT_BYTES], shown[m.POINT_BYTES :]
    statement = keys.value_opening(context, run_id, participants_digest, name, point)
    try:
        context.verify(context.keys[name], statement, signature)
    except VerificationError:
        raise VerificationError(f"shows a commitment that {name} did not sign", Check.NOT_SIGNED) from None


# Masks of blindings


def _mask(parameters: SumParameters, seed: bytes) -> bytes:
    """Return the mask that hides a commitment's blinding, derived from a mask seed's keystream."""
    encoding = parameters.encoding
    words: RingVector = np.zeros(commit.WIDE_BYTES // np.dtype(encoding.dtype).itemsize, encoding.dtype)
    add_masks(words, [seed], [1], offset=encoding.ring_length)
    return commit.blinding_from_wide(words.astype(words.dtype.newbyteorder("<"), copy=False).tobytes())


def _with_masks(parameters: SumParameters, blinding: bytes, masks: Masks) -> bytes:
    """Return a blinding with the masks of these seeds added, by their signs."""
    plus, minus = [blinding], list[bytes]()
    for seed, sign in masks.signed:
        (plus if sign > 0 else minus).append(_mask(parameters, seed))
    return commit.add_blindings(plus, minus)


# Of many parties


def attested_digest(
    context: Context, run_id: bytes, survivors: bytes, message: m.CheckedResult | m.CertifiedResult
) -> bytes:
    """Return the digest that the checking parties sign of a total, for these survivors."""
    return keys.total_digest(context, run_id, survivors, message.total, message.blinding)


def check_attested(
    context: Context,
    parameters: SumParameters,
    run_id: bytes,
    digest: bytes,
    survivors: PartySet,
    message: m.CertifiedResult,
) -> None:
    """Raise PeerFault naming the aggregator unless enough survivors have signed the total's digest."""
    least = parameters.plan.check_quorum
    check_certificate(context, least, run_id, m.ATTEST_TOTAL, digest, survivors, message.certificate)


def checkers_of(parameters: SumParameters, run_id: bytes, left: Collection[int]) -> tuple[int, ...]:
    """Return the parties, ascending, that check the total for all; the run id chooses them among `left`.

    As many that a quorum stays if all other dropouts of the plan are among them.
    """
    parties, plan = sorted(left), parameters.plan
    count = min(len(parties), plan.checkers(plan.parties - len(parties)))
    first = int.from_bytes(run_id, "big") % len(parties)
    return tuple(sorted((parties + parties)[first : first + count]))


# The aggregator's side


def accept_opening(
    context: Context,
    run_id: bytes,
    participants_digest: bytes,
    name: str,
    value_commitment: bytes,
    masked: m.CheckedMasked,
) -> Opened:
    """Return a survivor's opened commitment; raise PeerFault unless it is as advertised and signed."""
    if keys.value_commitment(context, run_id, name, masked.point) != value_commitment:
        raise PeerFault(name, "sent another commitment than it had advertised", Check.BAD_OPENING)
    opened = Opened(masked.point + masked.signature, masked.blinding)
    try:
        commit.check_commitment(masked.point)
        commit.check_blinding(masked.blinding)
        _check_signed(context, run_id, participants_digest, name, opened.shown)
    except VerificationError as error:
        raise PeerFault(name, f"malformed Masked: {error}", error.check) from None
    return opened


def unmask_blindings(parameters: SumParameters, opened: Iterable[Opened], masks: Masks) -> bytes:
    """Return the sum of the survivors' blindings, freed from the masks that hid each blinding."""
    masked = commit.add_blindings([each.blinding for each in opened])
    return _with_masks(parameters, masked, masks)


def checked_result(
    parameters: SumParameters,
    total: RingVector,
    blinding: bytes,
    opened: Mapping[int, Opened],
    value_commitments: Mapping[int, bytes],
) -> m.CheckedResult:
    """Return the result message that shows all commitments; raise VerificationError for a wrong total.

    Raises VerificationError if the total is not that of the commitments: a party masked another vector than
    it had committed to, or one with which the sum is not below the modulus of the ring.
    """
    survivors, packed = sorted(opened), parameters.encoding.pack(total)
    shown = b"".join(opened[party].shown for party in survivors)
    points = [opened[party].shown[: m.POINT_BYTES] for party in survivors]
    try:
        # Lanes may be wider than elements: what is packed is reduced.
        check_total(parameters, parameters.encoding.unpack(packed), blinding, points)
    except VerificationError as error:
        raise VerificationError(
            "at least one party masked another vector than it had committed to, or one that makes the sum "
            "too large, and it is not known which; no total is sent",
            error.check,
            code=Code.TOTAL,
        ) from None
    hidden = b"".join(value_commitments[party] for party in sorted(value_commitments.keys() - opened.keys()))
    return m.CheckedResult(packed, blinding, shown, hidden)


def value_commitments_of(advertised: Mapping[int, Any]) -> dict[int, bytes]:
    """Return each party's commitment to its vector; empty if totals are not checked."""
    return {
        party: advertise.value_commitment
        for party, advertise in advertised.items()
        if isinstance(advertise, m.CheckedAdvertise)
    }
