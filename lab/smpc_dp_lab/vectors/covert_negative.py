"""Negative vectors of covert evaluations: one fault each in the messages of covert mode alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from smpc_dp.capabilities.pairs.covert import messages as c
from smpc_dp.capabilities.pairs.covert import terms as t
from smpc_dp.capabilities.pairs.garbled import messages as m
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR as FROM_EVALUATOR
from smpc_dp.capabilities.pairs.garbled.participant import GARBLER as FROM_GARBLER
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors.covert_runs import SCENARIOS
from smpc_dp_lab.vectors.fault import CONTENT, DECODING, Fields, Kinds, flip
from smpc_dp_lab.vectors.pairwise_fault import (
    AGREEMENT,
    FRAMING,
    KINDS,
    TRANSFER,
    Base,
    Fault,
    piece_of,
)
from smpc_dp_lab.vectors.pairwise_negative_output import inside
from smpc_dp_lab.vectors.pairwise_negative_transfer import OFF_THE_GROUP
from smpc_dp_lab.vectors.pairwise_runs import AGGREGATOR, EVALUATOR, GARBLER, find

COVERT_KINDS: Kinds = {
    **KINDS,
    c.COMMIT: c.Commit,
    c.SIGN: c.Statement,
    c.OPEN: c.Open,
    m.DECODE: c.OpenedDecode,
    m.HASHES: c.OpenedHashes,
    m.LABELS: c.ForwardedLabels,
}
# Layers beside those of two-party evaluations: a copy that does not follow from its seed, and a statement,
# or what the garbler sends of the closed copy, that is not what it signed.
CONVICTED, SIGNED = "convicted", "signed"
# Pieces of the evaluator from its first on: the response of the seed transfer; with two copies and transfers
# two first messages, trees, extensions and responses; its masked inputs.
SEED_RESPONSE, MASKED = 0, 9
# Pieces of the garbler: first message of the seed transfer, two base responses, two challenges; corrections,
# labels and tables of the closed copy.
SEED_FIRST, CORRECTIONS, LABELS, TABLES = 0, 5, 6, 7


def all_faults() -> Iterator[Fault]:
    """Yield all negative test vectors of covert security: one changed message, and its error."""
    both, third = (Base(find(name, SCENARIOS), COVERT_KINDS) for name in ("both", "aggregator"))
    yield from _seeds(both)
    yield from _statements(both)
    yield from _opened(both)
    yield from _closed_copy(both)
    yield from _at_the_third_party(third)


def _closed(base: Base) -> int:
    """Return the number of the copy that is not opened for a check in the run."""
    _, envelope = base.step(c.OPEN, EVALUATOR, GARBLER)
    return decode(envelope.body, c.Open, EVALUATOR).closed


def _pieces(base: Base, sender: str, receiver: str) -> Callable[..., Fault]:
    """Return a function that makes the test vector of a bulk message with changed content."""
    side = FROM_GARBLER if sender == GARBLER else FROM_EVALUATOR

    def made(
        number: int, name: str, about: str, change: Callable[[bytes], bytes], layer: str, later: int = 0
    ) -> Fault:
        index, content = base.piece(number, sender, receiver)
        message = piece_of(side, number, change(content))
        return base.made(name, about, index, message, layer, sender=sender, receiver=receiver, later=later)

    return made


def _seeds(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults before the transfers: number of copies, commitments, seeds."""
    about = "The garbler plans another number of copies, which its plan digest tells; nothing has been sent."
    yield base.claimed(
        "hello-with-another-plan", about, m.HELLO, {"plan": flip}, AGREEMENT, error="ConfigError"
    )
    ends = {"sender": EVALUATOR, "receiver": GARBLER}
    fewer: Fields = {"commitments": lambda seeds: seeds[:-1]}
    about = "There is a commitment fewer than streams."
    yield base.claimed("commit-too-few", about, c.COMMIT, fewer, CONTENT, **ends)
    shorter: Fields = {"commitments": lambda seeds: [seeds[0][:-1], *seeds[1:]]}
    about = "A commitment has 31 bytes."
    yield base.claimed("commit-too-short", about, c.COMMIT, shorter, DECODING, **ends)
    to_garbler = _pieces(base, EVALUATOR, GARBLER)
    to_evaluator = _pieces(base, GARBLER, EVALUATOR)
    about = "The first message of the seed transfer has no square root: it is not on the group."
    yield to_evaluator(SEED_FIRST, "seed-first-off-the-group", about, lambda _: OFF_THE_GROUP, TRANSFER)
    about = "The response of the seed transfer lacks its last byte."
    yield to_garbler(SEED_RESPONSE, "seed-response-too-short", about, lambda sent: sent[:-1], TRANSFER)


def _statements(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in the statement about all copies that the garbler signs."""
    closed = _closed(base)
    checked = 3 - closed

    def made(name: str, about: str, layer: str, later: int = 0, **fields: object) -> Fault:
        return base.claimed(f"sign-{name}", about, c.SIGN, fields, layer, later=later)

    def changed(stream: int, position: int) -> Callable[[Sequence[Sequence[bytes]]], list[list[bytes]]]:
        def change(streams: Sequence[Sequence[bytes]]) -> list[list[bytes]]:
            hashes = [list(stream) for stream in streams]
            hashes[stream][position] = flip(hashes[stream][position])
            return hashes

        return change

    about = "The statement is of another plan."
    yield made("another-plan", about, SIGNED, plan=flip)
    yield made("another-start", "The statement has another start.", SIGNED, start=flip)
    about = "The statement names the evaluator's commitments in another order."
    yield made("other-commitments", about, SIGNED, commitments=lambda seeds: seeds[::-1])
    about = "The statement lacks the last hash of a copy."
    yield made("hash-left-out", about, SIGNED, streams=lambda streams: [*streams[:-1], streams[-1][:-1]])
    about = "The statement lacks a copy."
    yield made("copy-left-out", about, SIGNED, streams=lambda streams: streams[:-1])
    for stream, position, name in ((0, t.BASE_RESPONSE, "seed"), (checked, t.RESPONSE, "transfer")):
        about = "The garbler signs the hash of another response than the evaluator sent."
        yield made(f"another-{name}-response", about, SIGNED, streams=changed(stream, position))
    for position in (t.CORRECTIONS, t.TABLES, t.LABELS, t.DECODING):
        message = t.MESSAGES[position]
        about = f"In the checked copy the hash of the {message} is not what its seed gives."
        yield made(f"checked-{message}", about, CONVICTED, streams=changed(checked, position))
    # The copy that stays closed is found out when it is sent; before, only the evaluator knows which it is.
    for later, position in ((1, t.CORRECTIONS), (3, t.TABLES), (2, t.LABELS), (5, t.DECODING)):
        message = t.MESSAGES[position]
        about = f"In the closed copy the hash of the {message} is not that of what the garbler sends."
        yield made(f"closed-{message}", about, SIGNED, later, streams=changed(closed, position))


def _opened(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in the evaluator's message that opens the checked copies."""

    def made(name: str, about: str, layer: str, **fields: object) -> Fault:
        ends = {"sender": EVALUATOR, "receiver": GARBLER}
        return base.claimed(f"open-{name}", about, c.OPEN, fields, layer, **ends)

    yield made(
        "another-copy",
        "The evaluator leaves another copy closed than its seed chose.",
        CONTENT,
        closed=lambda closed: 3 - closed,
    )
    yield made("no-such-copy", "The closed copy is one that there is not.", CONTENT, closed=3)
    yield made(
        "another-seed",
        "A seed of a checked copy has a flipped bit.",
        CONTENT,
        seeds=lambda seeds: [flip(seeds[0])],
    )
    yield made("another-witness", "The witness of the closed copy has a flipped bit.", CONTENT, witness=flip)
    yield made("seed-left-out", "A checked copy's seed is missing.", CONTENT, seeds=[])
    yield made(
        "seed-too-many",
        "There is a seed more than checked copies.",
        CONTENT,
        seeds=lambda seeds: [*seeds, *seeds],
    )
    yield made("copy-zero", "The number of the closed copy is 0.", DECODING, closed=0)


def _closed_copy(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in the messages about the closed (evaluated) copy."""
    to_garbler = _pieces(base, EVALUATOR, GARBLER)
    to_evaluator = _pieces(base, GARBLER, EVALUATOR)
    about = "There are more masked inputs than the evaluator has."
    yield to_garbler(MASKED, "masked-too-many", about, lambda sent: sent + b"\0", FRAMING)
    about = "A padding bit of the masked inputs is one."
    yield to_garbler(MASKED, "masked-with-padding", about, lambda sent: flip(sent, -1, 0x80), CONTENT)
    about = "A bit of the corrections is flipped."
    yield to_evaluator(CORRECTIONS, "corrections-flipped", about, flip, SIGNED)
    about = "The corrections lack their last byte."
    yield to_evaluator(CORRECTIONS, "corrections-too-short", about, lambda sent: sent[:-1], FRAMING)
    about = "A bit of an active label is flipped."
    yield to_evaluator(LABELS, "label-flipped", about, lambda sent: flip(sent, 1), SIGNED)
    about = "A bit of the hash of a label's sibling is flipped."
    yield to_evaluator(LABELS, "sibling-flipped", about, lambda sent: flip(sent, 16), SIGNED)
    about = "A label is missing."
    yield to_evaluator(LABELS, "labels-too-few", about, lambda sent: sent[:-32], CONTENT)
    about = "A bit of the tables is flipped."
    yield to_evaluator(TABLES, "table-flipped", about, flip, SIGNED)

    def decoding(name: str, about: str, **fields: object) -> Fault:
        return base.claimed(f"decode-{name}", about, m.DECODE, fields, SIGNED)

    yield decoding("another-opening", "The opening of the decoding has a flipped bit.", opening=flip)
    about = "A colour is another one than the garbler had committed to."
    yield decoding("another-colour", about, colours=flip)


def _at_the_third_party(base: Base) -> Iterator[Fault]:
    """Yield the faults in forwarded and sealed messages of garbler and evaluator."""

    def made(name: str, about: str, step: str, fields: Fields, layer: str = CONTENT, **expect: Any) -> Fault:
        sender = EVALUATOR if step == m.LABELS else GARBLER
        return base.claimed(name, about, step, fields, layer, sender=sender, receiver=AGGREGATOR, **expect)

    # The hashes come first, and are looked at when the labels are there too.
    about = "A bit of what the evaluator opened is flipped: it is not what it signed."
    yield made("hashes-with-another-open", about, m.HASHES, {"opened": lambda body: flip(body, -1)}, later=1)
    about = "The evaluator's signature of what it opened has a flipped bit."
    yield made("hashes-with-another-signature", about, m.HASHES, {"signature": flip}, later=1)
    about = "A bit of the garbler's statement is flipped: it is not what it signed."
    yield made("labels-with-another-statement", about, m.LABELS, {"statement": lambda body: flip(body, -1)})
    about = "The garbler's signature of its statement has a flipped bit."
    yield made("labels-with-another-signature", about, m.LABELS, {"signature": flip})
    about = "The evaluator names another closed copy than it signed."
    yield made("labels-of-another-copy", about, m.LABELS, {"closed": lambda closed: 3 - closed})

    def hashes(name: str, about: str, change: Callable[[bytes], bytes]) -> Fault:
        return made(name, about, m.HASHES, inside(base, GARBLER, m.HASHES, change), SIGNED, later=1)

    about = "The opening of the decoding has a flipped bit."
    yield hashes("hashes-with-another-opening", about, flip)
    about = "The hash of an output label is another one than the garbler had committed to."
    yield hashes("hashes-of-other-labels", about, lambda sealed: flip(sealed, t.SEED_BYTES))
    about = "A colour is another one than the garbler had committed to."
    yield hashes("hashes-with-another-colour", about, lambda sealed: flip(sealed, -1))
    about = "An output label matches neither of the garbler's hashes: the evaluator does not have it."
    change = inside(base, EVALUATOR, m.LABELS, lambda packed: flip(packed, 3, 0x40))
    yield made("label-matches-neither-hash", about, m.LABELS, change)
