"""Negative vectors of two-party evaluations: faults in messages to and from a third party."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from smpc_dp.capabilities.pairs.garbled import messages as m
from smpc_dp.crypto.seal import NONCE_BYTES, seal, unseal
from smpc_dp_lab.vectors.fault import CONTENT, ORDER, Fields, flip
from smpc_dp_lab.vectors.pairwise_fault import TRANSCRIPT, Base, Fault
from smpc_dp_lab.vectors.pairwise_runs import AGGREGATOR, EVALUATOR, GARBLER


class _Given:
    """Source of randomness whose `bytes(n)` returns the first n of prescribed bytes, on each call."""

    def __init__(self, drawn: bytes) -> None:
        self._drawn = drawn

    def bytes(self, n: int) -> bytes:
        return self._drawn[:n]


def inside(base: Base, sender: str, step: str, change: Callable[[bytes], bytes]) -> Fields:
    """Return a change inside a party's encrypted message to the third party, which is encrypted again."""
    key, context = base.run.roles[sender].seal_terms(AGGREGATOR, sender, AGGREGATOR, step, 0)

    def reseal(sealed: bytes) -> bytes:
        return seal(key, change(unseal(key, sealed, context)), context, _Given(sealed[:NONCE_BYTES]))

    return {"sealed": reseal}


def at_the_third_party(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in outputs sealed for the third party, and in its receipt."""

    def made(name: str, about: str, step: str, fields: Fields, layer: str = CONTENT, **expect: Any) -> Fault:
        sender = EVALUATOR if step in (m.LABELS, m.HELLO) else GARBLER
        return base.claimed(name, about, step, fields, layer, sender=sender, receiver=AGGREGATOR, **expect)

    # The hashes come first, and are looked at when the labels are there too.
    for step, later in ((m.HASHES, 1), (m.LABELS, 0)):
        flipped: Fields = {"sealed": lambda sealed: flip(sealed, 30)}
        about = "One bit of what is sealed is flipped."
        yield made(f"{step}-seal-flipped", about, step, flipped, later=later)
        about = "What is sealed has no byte."
        yield made(f"{step}-seal-empty", about, step, {"sealed": b""}, later=later)
        about, other = "It is of the block after.", {"block": 1}
        yield made(f"{step}-of-another-block", about, step, other, ORDER, later=later)
    about = (
        "The evaluator signs another hash of the pieces than the garbler, which is taken to be semi-honest: "
        "who is wrong cannot be seen."
    )
    yield made("labels-with-another-hash", about, m.LABELS, {"transcript": flip}, TRANSCRIPT)

    def labels(name: str, about: str, change: Callable[[bytes], bytes]) -> Fault:
        return made(name, about, m.LABELS, inside(base, EVALUATOR, m.LABELS, change))

    def hashes(name: str, about: str, change: Callable[[bytes], bytes], culprit: str = GARBLER) -> Fault:
        fields = inside(base, GARBLER, m.HASHES, change)
        return made(name, about, m.HASHES, fields, culprit=culprit, later=1)

    about = "An output label matches neither of the garbler's hashes: the evaluator does not have it."
    yield labels("label-matches-neither-hash", about, lambda packed: flip(packed, 3, 0x40))
    about = "An output label has the other colour: it is not the other label."
    yield labels("label-of-the-other-colour", about, flip)
    about = "The labels of the first two instances of the first output are exchanged."
    yield labels("labels-exchanged", about, lambda packed: packed[16:32] + packed[:16] + packed[32:])
    about = "There is a label fewer than output bits."
    yield labels("labels-too-few", about, lambda packed: packed[:-16])
    about = "There is a label more than output bits."
    yield labels("labels-too-many", about, lambda packed: packed + packed[:16])
    about = "The colours of the labels of 0 are missing."
    yield hashes("hashes-without-colours", about, lambda packed: packed[:-1])
    about = "A padding bit of the colours is one."
    yield hashes("hashes-with-padding", about, lambda packed: flip(packed, -1, 0x80))
    about = (
        "Both hashes of an output are other ones: it is the garbler's doing, but the evaluator is blamed, "
        "because the garbler is taken to be semi-honest."
    )
    yield hashes("hashes-of-other-labels", about, lambda packed: flip(flip(packed), 16), EVALUATOR)
    about = (
        "The evaluator gives the third party another nonce than the garbler. The next message is of another "
        "run, and its sender is named: whose hello it was cannot be seen."
    )
    expect = {"culprit": GARBLER, "later": 1}
    yield made("hello-differs-between-receivers", about, m.HELLO, {"nonce": flip}, ORDER, **expect)
    about = (
        "The garbler gives the third party another start than the evaluator: what it seals itself does not "
        "open any more."
    )
    yield made("start-differs-between-receivers", about, m.START, {"start": flip}, later=2)
    yield base.claimed(
        "receipt-with-another-hash",
        "The third party's receipt has another hash of the pieces.",
        m.RECEIPT,
        {"transcript": flip},
        TRANSCRIPT,
        sender=AGGREGATOR,
        receiver=GARBLER,
    )
