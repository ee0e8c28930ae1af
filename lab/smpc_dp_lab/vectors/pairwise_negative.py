"""Negative vectors of two-party evaluations: one fault each, named by the fault it carries."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping

import msgspec

from smpc_dp.errors import Code
from smpc_dp.protocols.abort import ABORT, Abort
from smpc_dp.protocols.envelope import decode
from smpc_dp.protocols.pairwise import messages as m
from smpc_dp.protocols.pairwise.participant import EVALUATOR as FROM_EVALUATOR
from smpc_dp.protocols.pairwise.participant import GARBLER as FROM_GARBLER
from smpc_dp.published.library import find
from smpc_dp_lab.vectors.pairwise_fault import (
    AGREEMENT,
    CONTENT,
    DECODING,
    ENVELOPE,
    FRAMING,
    ORDER,
    TRANSCRIPT,
    TRANSFER,
    Base,
    Fault,
    flip,
    framed,
    piece_of,
    resigned,
)
from smpc_dp_lab.vectors.pairwise_negative_output import at_the_third_party
from smpc_dp_lab.vectors.pairwise_negative_transfer import transfers
from smpc_dp_lab.vectors.pairwise_runs import AGGREGATOR, EVALUATOR, GARBLER


def all_faults() -> Iterator[Fault]:
    """Yield every negative vector."""
    both, third = Base("both"), Base("aggregator")
    yield from _hellos(both, third)
    yield from _kept(Base("second"))
    yield from _envelopes(both, third)
    yield from _starts(both)
    yield from _pieces(both)
    yield from _ends(both)
    yield from transfers(both)
    yield from at_the_third_party(third)


def _blamed(
    name: str, about: str, base: Base, after: int, message: bytes, layer: str, later: int = 0
) -> Fault:
    """Return a fault of the garbler at the evaluator."""
    return Fault(
        name, about, base.name, EVALUATOR, after, GARBLER, message, layer, culprit=GARBLER, later=later
    )


def _hellos(both: Base, third: Base) -> Iterator[Fault]:
    def changed(
        base: Base,
        name: str,
        about: str,
        change: Mapping[str, object],
        layer: str = AGREEMENT,
        error: str = "PeerFault",
    ) -> Fault:
        place, message = resigned(base, EVALUATOR, GARBLER, m.HELLO, m.Hello, lambda _hello: change)
        # Differing plans are nobody's fault. Hellos are compared when all are there.
        culprit = GARBLER if error == "PeerFault" else ""
        later = int(base is third)
        return Fault(name, about, base.name, EVALUATOR, place, GARBLER, message, layer, error, culprit, later)

    yield changed(
        both,
        "hello-with-another-circuit",
        "The circuits differ; the error names both digests, and nothing has been garbled.",
        {"circuit": find("add32").build().digest},
        error="ConfigError",
    )
    yield changed(
        both,
        "hello-with-another-plan",
        "The batch would be cut otherwise, or another party learn the output.",
        {"plan": bytes(32)},
        error="ConfigError",
    )
    about = "A hello has a key to seal with, and nothing is to be sealed."
    yield changed(both, "hello-with-a-needless-key", about, {"seal_key": bytes(range(32))})
    about = "A hello lacks the key to seal with."
    yield changed(third, "hello-without-a-key", about, {"seal_key": b""})
    about = "The nonce has 31 bytes."
    yield changed(both, "hello-nonce-too-short", about, {"nonce": bytes(31)}, DECODING)


def _kept(base: Base) -> Iterator[Fault]:
    """Yield the faults of a hello between two who hold transfers, when the garbler then goes on with them."""

    def changed(name: str, about: str, **change: object) -> Fault:
        place, message = resigned(base, EVALUATOR, GARBLER, m.HELLO, m.Hello, lambda _hello: change)
        # Start and first piece follow.
        return _blamed(name, about, base, place, message, TRANSFER, later=2)

    about = "The garbler says that it has no setup from before; then it goes on with the one that both hold."
    yield changed("setup-forgotten-and-used", about, setup=b"", index=0)
    about = "The garbler says that it holds another setup; then it goes on with the one that both hold."
    yield changed("setup-of-another-run-and-used", about, setup=bytes(32))
    about = "The garbler says that it is at an index that has been used; then it goes on with the next one."
    yield changed("setup-index-behind-and-used", about, index=0)


def _envelopes(both: Base, third: Base) -> Iterator[Fault]:
    place, hello = both.step(EVALUATOR, GARBLER, m.HELLO)

    def at_hello(name: str, about: str, message: bytes, layer: str) -> Fault:
        return _blamed(name, about, both, place, message, layer)

    flipped = msgspec.structs.replace(hello, signature=flip(hello.signature))
    yield at_hello("signature-flipped", "One bit of the signature is flipped.", framed(flipped), ENVELOPE)
    other = msgspec.structs.replace(hello, sender=EVALUATOR)
    about = "The envelope says that the evaluator itself has sent it."
    yield at_hello("in-anothers-name", about, framed(other), ENVELOPE)
    session = both.sign(hello, run_id=flip(hello.run_id))
    yield at_hello("hello-of-another-session", "Signed for another session.", framed(session), ORDER)
    about = "One byte follows the body."
    yield at_hello("trailing-byte", about, framed(both.sign(hello, body=hello.body + b"\xc0")), DECODING)
    fields = msgspec.msgpack.decode(hello.body)
    extra = both.sign(hello, body=msgspec.msgpack.encode([*fields, 0]))
    yield at_hello("unknown-field", "The body has one field more than its kind.", framed(extra), DECODING)
    long = both.sign(hello, body=b"\xdc" + struct.pack(">H", len(fields)) + hello.body[1:])
    about = "The body's length takes more bytes than it needs."
    yield at_hello("not-canonical", about, framed(long), DECODING)
    about = "The last byte of the envelope is missing."
    yield at_hello("envelope-truncated", about, framed(hello)[:-1], DECODING)
    about = "The message is of a kind that does not exist."
    yield at_hello("unknown-kind", about, b"\3" + framed(hello)[1:], ORDER)
    yield at_hello("nothing-in-a-message", "The message has no byte at all.", b"", ORDER)

    place_of_other, _ = third.step(EVALUATOR, GARBLER, m.HELLO)
    wrong = framed(third.step(AGGREGATOR, GARBLER, m.HELLO)[1])
    about = "The garbler's hello to the third party reaches the evaluator."
    yield _blamed("wrong-receiver", about, third, place_of_other, wrong, ENVELOPE)

    first_piece, _ = both.piece(EVALUATOR, GARBLER, 0)
    about = "A second hello comes in the place of the base transfers."
    message = framed(both.sign(hello, run_id=both.run.ends[GARBLER].run_id))
    yield _blamed("hello-twice", about, both, first_piece, message, ORDER)
    due, check = both.step(EVALUATOR, GARBLER, m.CHECK)
    decoding = framed(both.step(EVALUATOR, GARBLER, m.DECODE)[1])
    about = "The colours that decode the output come before the check."
    yield _blamed("step-skipped", about, both, due, decoding, ORDER)
    message = framed(both.sign(check, run_id=flip(check.run_id)))
    about = "A check that is signed for another run."
    yield _blamed("check-of-another-run", about, both, due, message, ORDER)
    body = msgspec.msgpack.encode(Abort(Code.FAULT, EVALUATOR))
    message = framed(both.sign(check, step=ABORT, body=body))
    about = (
        "The garbler stops and blames the evaluator: whoever stops is named, whom it blames is not believed."
    )
    yield _blamed("abort-blames-another", about, both, due, message, CONTENT)


def _starts(base: Base) -> Iterator[Fault]:
    place, start = base.step(EVALUATOR, GARBLER, m.START)
    until_check = base.step(EVALUATOR, GARBLER, m.CHECK)[0] - place

    def changed(name: str, about: str, start: bytes, layer: str, later: int = 0) -> Fault:
        place, message = resigned(base, EVALUATOR, GARBLER, m.START, m.Start, lambda _: {"start": start})
        return _blamed(name, about, base, place, message, layer, later)

    drawn = decode(start.body, m.Start, GARBLER).start
    about = "The start has 31 bytes."
    yield changed("start-too-short", about, drawn[:-1], DECODING)
    about = "The evaluator gets another start than the one that the garbler goes by."
    yield changed("start-flipped", about, flip(drawn), TRANSCRIPT, until_check)
    about = "A start that is signed for another run."
    message = framed(base.sign(start, run_id=flip(start.run_id)))
    yield _blamed("start-of-another-run", about, base, place, message, ORDER)
    _, answer = base.piece(EVALUATOR, GARBLER, 0)
    about = "The answer to the base transfers comes before the start."
    yield _blamed("start-left-out", about, base, place, piece_of(FROM_GARBLER, 0, answer), ORDER)


def _pieces(base: Base) -> Iterator[Fault]:
    place, tables = base.piece(EVALUATOR, GARBLER, -1)
    check_place, check = base.step(EVALUATOR, GARBLER, m.CHECK)
    number = decode(check.body, m.Check, GARBLER).pieces - 1
    good = piece_of(FROM_GARBLER, number, tables)

    def changed(name: str, about: str, message: bytes, layer: str = FRAMING, later: int = 0) -> Fault:
        return _blamed(name, about, base, place, message, layer, later)

    yield changed("piece-truncated", "A piece lacks its last byte.", good[:-1])
    yield changed("piece-lengthened", "A byte follows a piece.", good + b"\0")
    about = "The tables have a byte too many."
    yield changed("tables-too-long", about, piece_of(FROM_GARBLER, number, tables + b"\0"))
    yield changed("piece-empty", "A piece has no content.", piece_of(FROM_GARBLER, number, b""))
    about = "A piece has been left out: its number is one too high."
    yield changed("piece-left-out", about, piece_of(FROM_GARBLER, number + 1, tables))
    before_place, before = base.piece(EVALUATOR, GARBLER, -2)
    about = "The tables come before the last corrections of transfers."
    yield _blamed("pieces-reordered", about, base, before_place, good, FRAMING)
    about = "The piece before comes once more."
    yield changed("piece-repeated", about, piece_of(FROM_GARBLER, number - 1, before))
    about = "A piece says that it is the evaluator's."
    yield changed("piece-of-the-other-side", about, piece_of(FROM_EVALUATOR, number, tables))
    about = "The check comes before the tables."
    yield changed("check-in-place-of-a-piece", about, framed(check), ORDER)
    for name, offset, what in (("t-g", 0, "T_G"), ("t-e", 16, "T_E")):
        message = piece_of(FROM_GARBLER, number, flip(tables, offset, 0x80))
        about = f"One bit of {what} of the first AND gate is flipped."
        yield changed(f"table-bit-flipped-{name}", about, message, TRANSCRIPT, 1)
    message = piece_of(FROM_GARBLER, number + 1, tables)
    about = "More tables come where the check is due."
    yield _blamed("piece-in-place-of-the-check", about, base, check_place, message, ORDER)


def _ends(base: Base) -> Iterator[Fault]:
    def check(name: str, about: str, layer: str, change: Callable[[m.Check], Mapping[str, object]]) -> Fault:
        place, message = resigned(base, EVALUATOR, GARBLER, m.CHECK, m.Check, change)
        return _blamed(name, about, base, place, message, layer)

    about = "The garbler signs another hash of the pieces."
    yield check("check-with-another-hash", about, TRANSCRIPT, lambda c: {"transcript": flip(c.transcript)})
    about = "The garbler says that it has sent one piece more."
    yield check("check-with-another-count", about, TRANSCRIPT, lambda c: {"pieces": c.pieces + 1})
    about = "The check is of the block after."
    yield check("check-of-another-block", about, ORDER, lambda c: {"block": c.block + 1})

    def confirm(
        name: str, about: str, layer: str, change: Callable[[m.Confirm], Mapping[str, object]]
    ) -> Fault:
        place, message = resigned(base, GARBLER, EVALUATOR, m.CONFIRM, m.Confirm, change)
        return Fault(name, about, base.name, GARBLER, place, EVALUATOR, message, layer, culprit=EVALUATOR)

    about = "The evaluator signs another hash of the pieces."
    yield confirm(
        "confirm-with-another-hash", about, TRANSCRIPT, lambda c: {"transcript": flip(c.transcript)}
    )
    about = "The colours mean another output than the labels that the evaluator has."
    yield confirm("confirm-with-another-output", about, CONTENT, lambda c: {"colours": flip(c.colours)})
    about = "The digest of the output labels has a flipped bit."
    yield confirm("confirm-with-another-proof", about, CONTENT, lambda c: {"proof": flip(c.proof)})
    about = "The evaluator shows colours, and no digest of its labels."
    yield confirm("confirm-without-proof", about, CONTENT, lambda _: {"proof": b""})
    about = "There are more colours than output bits."
    yield confirm("confirm-too-wide", about, CONTENT, lambda c: {"colours": c.colours + b"\0"})
    about = "A padding bit of the colours is one."
    yield confirm("confirm-with-padding", about, CONTENT, lambda c: {"colours": flip(c.colours, 0, 0x80)})
    about = "The evaluator shows no colours where the garbler learns the output."
    yield confirm("confirm-without-colours", about, CONTENT, lambda _: {"colours": b""})
    about = "The confirmation is of the block after."
    yield confirm("confirm-of-another-block", about, ORDER, lambda c: {"block": c.block + 1})

    def decoding(
        name: str, about: str, layer: str, change: Callable[[m.Decode], Mapping[str, object]]
    ) -> Fault:
        place, message = resigned(base, EVALUATOR, GARBLER, m.DECODE, m.Decode, change)
        return _blamed(name, about, base, place, message, layer)

    about = "There are fewer colours than output bits."
    yield decoding("decode-too-narrow", about, CONTENT, lambda _: {"colours": b""})
    about = "A padding bit of the colours is one."
    yield decoding("decode-with-padding", about, CONTENT, lambda c: {"colours": flip(c.colours, 0, 0x80)})
    about = "The colours are of the block after."
    yield decoding("decode-of-another-block", about, ORDER, lambda c: {"block": c.block + 1})
