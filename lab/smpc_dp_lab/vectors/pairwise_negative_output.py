"""Negative vectors of two-party evaluations: faults in what a third party gets, and says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from smpc_dp.crypto.seal import NONCE_BYTES, seal, unseal
from smpc_dp.protocols.pairwise import messages as m
from smpc_dp_lab.vectors.pairwise_fault import (
    CONTENT,
    ORDER,
    TRANSCRIPT,
    Base,
    Fault,
    flip,
    resigned,
)
from smpc_dp_lab.vectors.pairwise_runs import AGGREGATOR, EVALUATOR, GARBLER


class _Given:
    """Bytes that are drawn once."""

    def __init__(self, drawn: bytes) -> None:
        self._drawn = drawn

    def bytes(self, n: int) -> bytes:
        return self._drawn[:n]


class _Seals:
    """Opens what a party has sealed for the third one, and seals it again."""

    def __init__(self, base: Base) -> None:
        self._base = base

    def change(
        self, sender: str, step: str, change: Callable[[bytes], bytes]
    ) -> Callable[[m.Sealed], Mapping[str, object]]:
        """Return a change of a sealed message that changes what is in the seal."""
        role = self._base.run.roles[sender]
        key, context = role.seal_terms(AGGREGATOR, sender, AGGREGATOR, step, 0)

        def reseal(message: m.Sealed) -> Mapping[str, object]:
            content = change(unseal(key, message.sealed, context))
            return {"sealed": seal(key, content, context, _Given(message.sealed[:NONCE_BYTES]))}

        return reseal


def at_the_third_party(base: Base) -> Iterator[Fault]:
    """Yield the faults of sealed outputs, and of the receipt."""
    seals = _Seals(base)

    def made(
        name: str,
        about: str,
        sender: str,
        step: str,
        change: Callable[[m.Sealed], Mapping[str, object]],
        layer: str = CONTENT,
        *,
        culprit: str = "",
    ) -> Fault:
        place, message = resigned(base, AGGREGATOR, sender, step, m.Sealed, change)
        # The hashes come first, and are looked at when the labels are there too.
        later = int(step == m.HASHES)
        return Fault(
            name,
            about,
            base.name,
            AGGREGATOR,
            place,
            sender,
            message,
            layer,
            culprit=culprit or sender,
            later=later,
        )

    def inside(
        name: str, about: str, sender: str, step: str, change: Callable[[bytes], bytes], culprit: str = ""
    ) -> Fault:
        return made(name, about, sender, step, seals.change(sender, step, change), culprit=culprit)

    for sender, step in ((GARBLER, m.HASHES), (EVALUATOR, m.LABELS)):
        about = "One bit of what is sealed is flipped."
        yield made(f"{step}-seal-flipped", about, sender, step, lambda s: {"sealed": flip(s.sealed, 30)})
        about = "What is sealed has no byte."
        yield made(f"{step}-seal-empty", about, sender, step, lambda _: {"sealed": b""})
        about = "It is of the block after."
        yield made(f"{step}-of-another-block", about, sender, step, lambda s: {"block": s.block + 1}, ORDER)
    about = (
        "The evaluator signs another hash of the pieces than the garbler, which is taken to be semi-honest: "
        "who is wrong cannot be seen."
    )
    yield made(
        "labels-with-another-hash", about, EVALUATOR, m.LABELS, lambda s: {"transcript": flip(s.transcript)},
        TRANSCRIPT,
    )  # fmt: skip
    about = "An output label matches neither of the garbler's hashes: the evaluator does not have it."
    yield inside(
        "label-matches-neither-hash", about, EVALUATOR, m.LABELS, lambda labels: flip(labels, 3, 0x40)
    )
    about = "An output label has the other colour: it is not the other label."
    yield inside("label-of-the-other-colour", about, EVALUATOR, m.LABELS, flip)
    about = "The labels of the first two instances of the first output are exchanged."
    yield inside(
        "labels-exchanged",
        about,
        EVALUATOR,
        m.LABELS,
        lambda labels: labels[16:32] + labels[:16] + labels[32:],
    )
    about = "There is a label fewer than output bits."
    yield inside("labels-too-few", about, EVALUATOR, m.LABELS, lambda labels: labels[:-16])
    about = "There is a label more than output bits."
    yield inside("labels-too-many", about, EVALUATOR, m.LABELS, lambda labels: labels + labels[:16])
    about = "The colours of the labels of 0 are missing."
    yield inside("hashes-without-colours", about, GARBLER, m.HASHES, lambda hashes: hashes[:-1])
    about = "A padding bit of the colours is one."
    yield inside(
        "hashes-with-padding", about, GARBLER, m.HASHES, lambda hashes: flip(hashes, len(hashes) - 1, 0x80)
    )
    about = (
        "Both hashes of an output are other ones: it is the garbler's doing, but the evaluator is blamed, "
        "because the garbler is taken to be semi-honest."
    )
    yield inside(
        "hashes-of-other-labels", about, GARBLER, m.HASHES, lambda hashes: flip(flip(hashes), 16), EVALUATOR
    )
    place, message = resigned(
        base, AGGREGATOR, EVALUATOR, m.HELLO, m.Hello, lambda hello: {"nonce": flip(hello.nonce)}
    )
    about = (
        "The evaluator gives the third party another nonce than the garbler. The next message is of another "
        "run, and its sender is named: whose hello it was cannot be seen."
    )
    yield Fault(
        "hello-differs-between-receivers", about, base.name, AGGREGATOR, place, EVALUATOR, message, ORDER,
        culprit=GARBLER, later=1,
    )  # fmt: skip
    place, message = resigned(
        base, AGGREGATOR, GARBLER, m.START, m.Start, lambda start: {"start": flip(start.start)}
    )
    about = (
        "The garbler gives the third party another start than the evaluator: what it seals itself does not "
        "open any more."
    )
    yield Fault(
        "start-differs-between-receivers", about, base.name, AGGREGATOR, place, GARBLER, message, CONTENT,
        culprit=GARBLER, later=2,
    )  # fmt: skip
    place, message = resigned(
        base, GARBLER, AGGREGATOR, m.RECEIPT, m.Receipt, lambda r: {"transcript": flip(r.transcript)}
    )
    about = "The third party's receipt has another hash of the pieces."
    yield Fault(
        "receipt-with-another-hash", about, base.name, GARBLER, place, AGGREGATOR, message, TRANSCRIPT,
        culprit=AGGREGATOR,
    )  # fmt: skip
