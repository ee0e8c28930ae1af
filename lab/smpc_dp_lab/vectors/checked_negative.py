"""Negative vectors of checked totals, one fault each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from smpc_dp.crypto import commit
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp.wire.sets import pack_set
from smpc_dp_lab.vectors.checked_runs import SCENARIOS
from smpc_dp_lab.vectors.fault import KINDS, ORDER, Base, Kinds, Negative, flip

CHECKED_KINDS: Kinds = {
    **KINDS,
    m.ADVERTISE: m.CheckedAdvertise,
    m.MERKLE_COMMITMENT: m.CheckedMerkleCommitment,
    m.MASKED: m.CheckedMasked,
    m.RESULT: m.CheckedResult,
}
OF_MANY: Kinds = {
    **CHECKED_KINDS,
    m.ATTEST_SURVIVORS: m.Attestation,
    m.TOTAL: m.CheckedResult,
    m.ATTEST_TOTAL: m.Attestation,
    m.RESULT: m.CertifiedResult,
}
# Of the run in which some check for all: a party that does, one that does not, and those that attest.
CHECKER, OTHER, ATTESTING = "alice", "carol", ("alice", "erin")
SIZE = m.OPENING_BYTES
GROUP_ORDER = (1 << 252) + 27742317777372353535851937790883648493


def all_faults() -> Iterator[Negative]:
    """Yield all negative test vectors of checked totals: one changed message, and who must refuse it."""
    base = Base("checked", SCENARIOS, kinds=CHECKED_KINDS)
    yield from _roots(base)
    yield from _masked(base)
    yield from _results(base)
    early = base.sign(base.find(m.RESULT)[1], step=m.TOTAL)
    about = "A party of few is shown the total as if it checked for others."
    yield base.made("checked-total-of-few", about, base.find(m.RESULT)[0], early, ORDER)
    yield from _totals(Base("checked-checkers", SCENARIOS, kinds=OF_MANY, victim=CHECKER))
    yield from _certified(Base("checked-checkers", SCENARIOS, kinds=OF_MANY, victim=OTHER))


def _roots(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the Merkle root over vector commitments, or in its proof."""
    for name, about, fields in (
        ("root", "Under the root of values alice has another commitment.", {"values_root": flip}),
        ("proof", "One bit of the proof under the root of values is flipped.", {"values_proof": flip}),
        ("proof-missing", "There is no proof under the root of values.", {"values_proof": b""}),
    ):
        yield base.fault(f"checked-roll-{name}", about, m.MERKLE_COMMITMENT, fields)


def _masked(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the commitment that a party opens to the aggregator."""
    other = base.read(m.MASKED, "bob")
    for name, about, fields in (
        ("of-another", "Carol shows bob's commitment.", {"point": other.point}),
        ("not-advertised", "Carol shows another commitment than she advertised.", {"point": commit.IDENTITY}),
        ("blinding-too-large", "The masked blinding is the order of the group.", {"blinding": _order()}),
        ("not-signed", "One bit of the signature of the commitment is flipped.", {"signature": flip}),
        ("signed-by-another", "The signature of the commitment is bob's.", {"signature": other.signature}),
    ):
        yield base.fault(f"checked-masked-{name}", about, m.MASKED, fields)


def _results(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the result message that a party gets."""

    def changed(name: str, about: str, fields: Mapping[str, object]) -> Negative:
        return base.fault(f"checked-result-{name}", about, m.RESULT, fields)

    one_more = "The first element of the total is greater by one."
    yield changed("total", one_more, {"total": lambda total: _added(total, 1)})
    yield changed("blinding", "The sum of the blindings is another one.", {"blinding": _next})
    wide = "The sum of the blindings is as large as the order of the group and more."
    yield changed("blinding-too-large", wide, {"blinding": lambda given: _added(given, GROUP_ORDER)})
    yield changed("opening-missing", "Bob's opening is missing.", {"openings": lambda all_: all_[SIZE:]})
    yield changed(
        "openings-swapped",
        "The openings of alice and bob have changed places.",
        {"openings": lambda all_: all_[SIZE : 2 * SIZE] + all_[:SIZE] + all_[2 * SIZE :]},
    )
    yield changed(
        "not-signed", "A bit of a signature is flipped.", {"openings": lambda all_: flip(all_, SIZE - 1)}
    )
    hidden = "Of dave, who is no survivor, another hash is shown."
    yield changed("other-hash", hidden, {"hidden": flip})
    yield changed("hash-missing", "Of dave, who is no survivor, nothing is shown.", {"hidden": b""})
    yield _other_commitment(base)


def _other_commitment(base: Base) -> Negative:
    """Return a result with another commitment of carol, who helps the aggregator, than she advertised."""
    context, run_id = base.run.context, base.find(m.RESULT)[1].run_id
    result = base.read(m.RESULT)
    digest = base.read(m.ATTEST_PARTICIPANTS).set_digest
    start = 2 * SIZE
    more = commit.combine([result.openings[start : start + m.POINT_BYTES], commit.commit([1], bytes(32))])
    signature = base.run.signers["carol"].sign(keys.value_opening(context, run_id, digest, "carol", more))
    return base.fault(
        "checked-result-other-commitment",
        "Carol, who helps the aggregator, signs another commitment than she advertised.",
        m.RESULT,
        {"openings": result.openings[:start] + more + signature},
    )


def _totals(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in what a checking party is shown, signs, and gets at the end."""
    for name, about, fields in (
        ("total", "The first element is greater by one.", {"total": lambda total: _added(total, 1)}),
        ("blinding", "The sum of the blindings is another one.", {"blinding": _next}),
        ("opening-missing", "Alice's opening is missing.", {"openings": lambda all_: all_[SIZE:]}),
    ):
        yield base.fault(f"checked-total-{name}", f"To a checker: {about}", m.TOTAL, fields)
    about = "A checker gets another total than it was shown and has attested."
    fields = {"total": lambda total: _added(total, 1)}
    yield base.fault("checked-total-not-that-of-the-result", about, m.RESULT, fields)
    about = "A checker attests another total than it was shown."
    yield base.fault(
        "checked-attests-another-total", about, m.ATTEST_TOTAL, {"set_digest": flip}, sender="frank"
    )
    index, envelope = base.find(m.ATTEST_TOTAL, "alice")
    about = "Dave, who was not shown the total, attests it."
    asked = base.sign(envelope, sender="dave")
    yield base.made("checked-attests-without-being-asked", about, index, asked)


def _certified(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in a result that checking parties have signed."""
    run, result = base.run, base.read(m.RESULT)
    run_id = base.find(m.RESULT)[1].run_id
    digest = base.read(m.ATTEST_TOTAL, "alice").set_digest
    survivors = base.read(m.ATTEST_SURVIVORS, "alice").set_digest
    aggregator = run.context.aggregator

    def signed(digest: bytes, run_id: bytes = run_id, step: str = m.ATTEST_TOTAL) -> bytes:
        """Return the signatures of both checkers."""
        message = m.Attestation(digest)
        sent = [
            run.context.write(run.signers[name], run_id, step, (aggregator,), message) for name in ATTESTING
        ]
        return b"".join(envelope.signature for [envelope] in sent)

    def certificate(**fields: bytes) -> dict[str, object]:
        return {"certificate": msgspec.structs.replace(result.certificate, **fields)}

    names, shown = run.context.names, result.certificate.signatures
    one = pack_set([1 + names.index(ATTESTING[0])], len(names))
    other_blinding = keys.total_digest(run.context, run_id, survivors, result.total, _next(result.blinding))
    other_survivors = keys.total_digest(run.context, run_id, flip(survivors), result.total, result.blinding)
    for name, about, fields in (
        ("total", "Another total than the checkers attest.", {"total": lambda total: _added(total, 1)}),
        ("blinding", "Another sum of the blindings than the checkers attest.", {"blinding": _next}),
        (
            "below-the-quorum",
            "As many attest the total as may be corrupt.",
            certificate(signers=one, signatures=shown[: m.SIGNATURE_BYTES]),
        ),
        (
            "with-a-repeated-signature",
            "Alice's signature stands for erin's too.",
            certificate(signatures=shown[: m.SIGNATURE_BYTES] * 2),
        ),
        (
            "of-another-run",
            "The checkers attest the total of another run.",
            certificate(signatures=signed(digest, flip(run_id))),
        ),
        (
            "of-other-survivors",
            "The checkers attest the total of other survivors.",
            certificate(signatures=signed(other_survivors)),
        ),
        (
            "of-another-blinding",
            "The checkers attest the total with another sum of the blindings.",
            certificate(signatures=signed(other_blinding)),
        ),
        (
            "of-another-step",
            "The signatures are of another step.",
            certificate(signatures=signed(digest, step=m.ATTEST_SURVIVORS)),
        ),
    ):
        yield base.fault(f"checked-certified-{name}", about, m.RESULT, fields)


def _order() -> bytes:
    """Return the order of the group as 32 little-endian bytes: the least invalid scalar."""
    return GROUP_ORDER.to_bytes(32, "little")


def _added(data: bytes, more: int) -> bytes:
    """Return a little-endian integer plus `more`, in as many bytes."""
    return (int.from_bytes(data, "little") + more).to_bytes(len(data), "little")


def _next(scalar: bytes) -> bytes:
    """Return the scalar plus 1."""
    return commit.add_blindings([scalar, _added(bytes(32), 1)])
