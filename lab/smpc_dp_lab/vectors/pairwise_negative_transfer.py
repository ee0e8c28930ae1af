"""Negative vectors of two-party evaluations: faults in the oblivious transfers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR as FROM_EVALUATOR
from smpc_dp.capabilities.pairs.garbled.participant import GARBLER as FROM_GARBLER
from smpc_dp_lab.vectors.fault import flip
from smpc_dp_lab.vectors.pairwise_fault import (
    CONTENT,
    FRAMING,
    TRANSCRIPT,
    TRANSFER,
    Base,
    Fault,
    piece_of,
    uint64,
)
from smpc_dp_lab.vectors.pairwise_runs import EVALUATOR, GARBLER

# Pieces of the evaluator: the first base message, the trees, then corrections and response of a chunk, and
# its masked inputs.
FIRST, TREES, EXTENSION, RESPONSE, MASKED = range(5)
# Pieces of the garbler: the answer to the base transfers, then challenge and corrections of a chunk.
BASE, CHALLENGE, CORRECTIONS = range(3)
# RFC 9496, appendix A.2: not a square; a negative field element; a field element that is not canonical.
OFF_THE_GROUP = bytes.fromhex("26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371")
NEGATIVE = bytes([1]) + bytes(31)
NOT_CANONICAL = bytes.fromhex("00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff")
ENTRY = 80


def transfers(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in messages of oblivious transfer, to either side."""
    yield from _to_the_garbler(base)
    yield from _to_the_evaluator(base)


def _pieces(base: Base, receiver: str, sender: str, side: int) -> Callable[..., Fault]:
    def made(
        number: int, name: str, about: str, content: bytes, layer: str = TRANSFER, later: int = 0
    ) -> Fault:
        index, _ = base.piece(number, sender, receiver)
        message = piece_of(side, number, content)
        return base.made(name, about, index, message, layer, sender=sender, receiver=receiver, later=later)

    return made


def _to_the_garbler(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in transfer messages that the garbler gets."""
    made = _pieces(base, GARBLER, EVALUATOR, FROM_EVALUATOR)

    for name, about, point in (
        ("off-the-group", "has no square root: it is not on the group", OFF_THE_GROUP),
        ("negative", "is encoded with a negative field element", NEGATIVE),
        ("not-canonical", "is encoded with a number above the field", NOT_CANONICAL),
        ("identity", "is the identity", bytes(32)),
        ("too-short", "lacks its last byte", bytes(31)),
    ):
        yield made(FIRST, f"point-{name}", f"The evaluator's point {about}.", point)
    _, trees = base.piece(TREES, EVALUATOR, GARBLER)
    about = "One bit of the hash that checks the first tree is flipped."
    yield made(TREES, "tree-check-flipped", about, flip(trees, 95))
    about = "One bit of the sum of the first tree's check strings is flipped."
    yield made(TREES, "tree-sum-flipped", about, flip(trees, 32))
    yield made(TREES, "trees-too-short", "The last byte of the trees is missing.", trees[:-1])
    _, extension = base.piece(EXTENSION, EVALUATOR, GARBLER)
    about = "One bit of the corrections of one digit is flipped: the check of the chunk fails."
    yield made(EXTENSION, "extension-bit-flipped", about, flip(extension, 16), later=1)
    about = "The corrections are of transfers further on."
    yield made(EXTENSION, "extension-of-other-transfers", about, uint64(128) + extension[8:])
    about = "The corrections are of one transfer more."
    more = extension[:8] + uint64(int.from_bytes(extension[8:16], "big") + 1) + extension[16:]
    yield made(EXTENSION, "extension-of-more-transfers", about, more)
    yield made(EXTENSION, "extension-too-short", "The corrections lack a byte.", extension[:-1])
    _, response = base.piece(RESPONSE, EVALUATOR, GARBLER)
    about = "One bit of the hash of the choices is flipped."
    yield made(RESPONSE, "response-choices-flipped", about, flip(response, 8))
    about = "One bit of the hash of the last column is flipped."
    yield made(RESPONSE, "response-column-flipped", about, flip(response, len(response) - 1))
    about = "The response is to the challenge of another chunk."
    yield made(RESPONSE, "response-of-another-chunk", about, uint64(128) + response[8:])
    yield made(RESPONSE, "response-too-long", "The response has a byte too many.", response + b"\0")
    about = "The response of the chunk comes again where the masked inputs are due."
    yield made(MASKED, "response-repeated", about, response, FRAMING)
    _, masked = base.piece(MASKED, EVALUATOR, GARBLER)
    about = "One bit of the masked inputs is flipped: the evaluator has sent others, and the hashes differ."
    yield made(MASKED, "masked-bit-flipped", about, flip(masked), TRANSCRIPT, later=1)
    about = "A padding bit of the masked inputs is one."
    yield made(MASKED, "masked-with-padding", about, flip(masked, -1, 0x80), CONTENT)
    about = "There are more masked inputs than transfers."
    yield made(MASKED, "masked-too-many", about, masked + b"\0", FRAMING)


def _to_the_evaluator(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in transfer messages that the evaluator gets."""
    made = _pieces(base, EVALUATOR, GARBLER, FROM_GARBLER)

    def until_check(number: int) -> int:
        """Return how many messages of the garbler follow a piece, up to its check."""
        return base.step("check")[0] - base.piece(number)[0]

    _, answer = base.piece(BASE)
    about = "The point of the last base transfer is not on the group."
    yield made(BASE, "base-point-off-the-group", about, answer[:-32] + OFF_THE_GROUP)
    about = "The point of the first base transfer is the identity."
    yield made(BASE, "base-point-identity", about, answer[:48] + bytes(32) + answer[ENTRY:])
    about = "The answer to the base transfers lacks the last one."
    yield made(BASE, "base-transfers-too-few", about, answer[:-ENTRY])
    about = (
        "One bit of the string of the first base transfer is flipped. Its keys are others then; the hash of "
        "the pieces tells, if the check of the trees at the garbler has not."
    )
    yield made(BASE, "base-string-flipped", about, flip(answer), TRANSCRIPT, until_check(BASE))
    _, challenge = base.piece(CHALLENGE)
    about = "The challenge is that of another chunk."
    yield made(CHALLENGE, "challenge-of-another-chunk", about, uint64(128) + challenge[8:])
    yield made(CHALLENGE, "challenge-too-short", "The challenge lacks a byte.", challenge[:-1])
    about = "One bit of the challenge is flipped."
    yield made(
        CHALLENGE, "challenge-bit-flipped", about, flip(challenge, 8), TRANSCRIPT, until_check(CHALLENGE)
    )
    _, corrections = base.piece(CORRECTIONS)
    about = "One bit of what corrects a random label to the offset is flipped."
    yield made(
        CORRECTIONS, "correction-bit-flipped", about, flip(corrections), TRANSCRIPT, until_check(CORRECTIONS)
    )
    about = "There are corrections for one transfer fewer."
    yield made(CORRECTIONS, "corrections-too-few", about, corrections[:-16], FRAMING)
