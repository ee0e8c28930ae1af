"""Negative vectors of checked totals, one fault each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from smpc_dp.crypto import commit
from smpc_dp.engine.phases import keys
from smpc_dp.engine.phases import messages as m
from smpc_dp_lab.vectors.checked_runs import SCENARIOS
from smpc_dp_lab.vectors.fault import KINDS, Base, Kinds, Negative, flip

CHECKED_KINDS: Kinds = {
    **KINDS,
    m.ADVERTISE: m.CheckedAdvertise,
    m.MERKLE_COMMITMENT: m.CheckedMerkleCommitment,
    m.MASKED: m.CheckedMasked,
    m.RESULT: m.CheckedResult,
}
SIZE = m.OPENING_BYTES
ORDER = (1 << 252) + 27742317777372353535851937790883648493


def all_faults() -> Iterator[Negative]:
    """Yield every negative vector."""
    base = Base("checked", SCENARIOS, kinds=CHECKED_KINDS)
    yield from _roots(base)
    yield from _masked(base)
    yield from _results(base)


def _roots(base: Base) -> Iterator[Negative]:
    """Yield the faults of the root of values."""
    for name, about, fields in (
        ("root", "Under the root of values alice has another commitment.", {"values_root": flip}),
        ("proof", "One bit of the proof under the root of values is flipped.", {"values_proof": flip}),
        ("proof-missing", "There is no proof under the root of values.", {"values_proof": b""}),
    ):
        yield base.fault(f"checked-roll-{name}", about, m.MERKLE_COMMITMENT, fields)


def _masked(base: Base) -> Iterator[Negative]:
    """Yield the faults of an opening, to the aggregator."""
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
    """Yield the faults of a result, to a party."""

    def changed(name: str, about: str, fields: Mapping[str, object]) -> Negative:
        return base.fault(f"checked-result-{name}", about, m.RESULT, fields)

    one_more = "The first element of the total is greater by one."
    yield changed("total", one_more, {"total": lambda total: _added(total, 1)})
    yield changed("blinding", "The sum of the blindings is another one.", {"blinding": _next})
    wide = "The sum of the blindings is as large as the order of the group and more."
    yield changed("blinding-too-large", wide, {"blinding": lambda given: _added(given, ORDER)})
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


def _order() -> bytes:
    """Return the order of the group as a scalar would be."""
    return ORDER.to_bytes(32, "little")


def _added(data: bytes, more: int) -> bytes:
    """Return a little-endian integer with another one added."""
    return (int.from_bytes(data, "little") + more).to_bytes(len(data), "little")


def _next(scalar: bytes) -> bytes:
    """Return another scalar."""
    return commit.add_blindings([scalar, _added(bytes(32), 1)])
