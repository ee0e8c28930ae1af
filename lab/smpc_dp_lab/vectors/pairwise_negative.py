"""Negative vectors of two-party evaluations: one fault each, named by the fault it carries."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from smpc_dp.capabilities.pairs.garbled import messages as m
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR as FROM_EVALUATOR
from smpc_dp.capabilities.pairs.garbled.participant import GARBLER as FROM_GARBLER
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.errors import Code
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp.wire.signing import decode
from smpc_dp_lab.vectors.fault import Fields, altered, flip
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
    framed,
    piece_of,
)
from smpc_dp_lab.vectors.pairwise_negative_output import at_the_third_party
from smpc_dp_lab.vectors.pairwise_negative_transfer import transfers
from smpc_dp_lab.vectors.pairwise_runs import AGGREGATOR, EVALUATOR, GARBLER
from smpc_dp_lab.vectors.pairwise_runs import find as scenario


def all_faults() -> Iterator[Fault]:
    """Yield all negative test vectors of two-party evaluation: one changed message, and its error."""
    both, third = (Base(scenario(name)) for name in ("both", "aggregator"))
    yield from _hellos(both, third)
    yield from _retained(Base(scenario("second")))
    yield from _envelopes(both, third)
    yield from _starts(both)
    yield from _pieces(both)
    yield from _ends(both)
    yield from transfers(both)
    yield from at_the_third_party(third)


def _hellos(both: Base, third: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in hellos, such as another circuit or plan."""
    # Differing plans are nobody's fault.
    error = "ConfigError"
    about = "The circuits differ; the error names both digests, and nothing has been garbled."
    other = {"circuit": find("add32").build().digest}
    yield both.claimed("hello-with-another-circuit", about, m.HELLO, other, AGREEMENT, error=error)
    about = "The batch would be cut otherwise, or another party learn the output."
    yield both.claimed("hello-with-another-plan", about, m.HELLO, {"plan": bytes(32)}, AGREEMENT, error=error)
    about = "A hello has a key to seal with, and nothing is to be sealed."
    key = {"seal_key": bytes(range(32))}
    yield both.claimed("hello-with-a-needless-key", about, m.HELLO, key, AGREEMENT)
    about = "A hello lacks the key to seal with."
    # Hellos are compared when all are there.
    yield third.claimed("hello-without-a-key", about, m.HELLO, {"seal_key": b""}, AGREEMENT, later=1)
    about = "The nonce has 31 bytes."
    yield both.claimed("hello-nonce-too-short", about, m.HELLO, {"nonce": bytes(31)}, DECODING)


def _retained(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in a hello of two members that have stored transfers."""
    fields: Fields
    for name, about, fields in (
        (
            "setup-forgotten-and-used",
            "The garbler says that it has no setup from before; then it goes on with the one that both hold.",
            {"setup": b"", "index": 0},
        ),
        (
            "setup-of-another-run-and-used",
            "The garbler says that it holds another setup; then it goes on with the one that both hold.",
            {"setup": bytes(32)},
        ),
        (
            "setup-index-behind-and-used",
            "The garbler says that it is at an index that has been used; then it goes on with the next one.",
            {"index": 0},
        ),
    ):
        # Start and first piece follow.
        yield base.claimed(name, about, m.HELLO, fields, TRANSFER, later=2)


def _envelopes(both: Base, third: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in envelopes: signature, receiver, run and order."""
    index, hello = both.step(m.HELLO)

    def at_hello(name: str, about: str, message: bytes, layer: str) -> Fault:
        return both.made(name, about, index, message, layer)

    flipped = altered(hello, {"signature": flip})
    yield at_hello("signature-flipped", "One bit of the signature is flipped.", framed(flipped), ENVELOPE)
    other = altered(hello, {"sender": EVALUATOR})
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

    index_of_other, _ = third.step(m.HELLO)
    wrong = framed(third.step(m.HELLO, receiver=AGGREGATOR)[1])
    about = "The garbler's hello to the third party reaches the evaluator."
    yield third.made("wrong-receiver", about, index_of_other, wrong, ENVELOPE)

    first_piece, _ = both.piece(0)
    about = "A second hello comes in the place of the base transfers."
    message = framed(both.sign(hello, run_id=both.run.ends[GARBLER].run_id))
    yield both.made("hello-twice", about, first_piece, message, ORDER)
    expected, check = both.step(m.CHECK)
    about = "The colours that decode the output come before the check."
    yield both.made("step-skipped", about, expected, framed(both.step(m.DECODE)[1]), ORDER)
    about = "A check that is signed for another run."
    message = framed(both.sign(check, run_id=flip(check.run_id)))
    yield both.made("check-of-another-run", about, expected, message, ORDER)
    body = msgspec.msgpack.encode(Abort(Code.FAULT, EVALUATOR))
    message = framed(both.sign(check, step=ABORT, body=body))
    about = (
        "The garbler stops and blames the evaluator: whoever stops is named, whom it blames is not believed."
    )
    yield both.made("abort-blames-another", about, expected, message, CONTENT)


def _starts(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in the message that starts the garbling."""
    index, start = base.step(m.START)
    until_check = base.step(m.CHECK)[0] - index
    shorter: Fields = {"start": lambda drawn: drawn[:-1]}
    yield base.claimed("start-too-short", "The start has 31 bytes.", m.START, shorter, DECODING)
    about = "The evaluator gets another start than the one that the garbler goes by."
    yield base.claimed("start-flipped", about, m.START, {"start": flip}, TRANSCRIPT, later=until_check)
    about = "A start that is signed for another run."
    message = framed(base.sign(start, run_id=flip(start.run_id)))
    yield base.made("start-of-another-run", about, index, message, ORDER)
    _, answer = base.piece(0)
    about = "The answer to the base transfers comes before the start."
    yield base.made("start-left-out", about, index, piece_of(FROM_GARBLER, 0, answer), ORDER)


def _pieces(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in bulk messages (pieces), such as garbled tables."""
    index, tables = base.piece(-1)
    check_neighbourhood, check = base.step(m.CHECK)
    number = decode(check.body, m.Check, GARBLER).pieces - 1
    good = piece_of(FROM_GARBLER, number, tables)

    def changed(name: str, about: str, message: bytes, layer: str = FRAMING, later: int = 0) -> Fault:
        return base.made(name, about, index, message, layer, later=later)

    yield changed("piece-truncated", "A piece lacks its last byte.", good[:-1])
    yield changed("piece-lengthened", "A byte follows a piece.", good + b"\0")
    about = "The tables have a byte too many."
    yield changed("tables-too-long", about, piece_of(FROM_GARBLER, number, tables + b"\0"))
    yield changed("piece-empty", "A piece has no content.", piece_of(FROM_GARBLER, number, b""))
    about = "A piece has been left out: its number is one too high."
    yield changed("piece-left-out", about, piece_of(FROM_GARBLER, number + 1, tables))
    before_neighbourhood, before = base.piece(-2)
    about = "The tables come before the last corrections of transfers."
    yield base.made("pieces-reordered", about, before_neighbourhood, good, FRAMING)
    about = "The piece before comes once more."
    yield changed("piece-repeated", about, piece_of(FROM_GARBLER, number - 1, before))
    about = "A piece says that it is the evaluator's."
    yield changed("piece-of-the-other-side", about, piece_of(FROM_EVALUATOR, number, tables))
    about = "The check comes before the tables."
    yield changed("check-in-place-of-a-piece", about, framed(check), ORDER)
    for name, offset, reason in (("t-g", 0, "T_G"), ("t-e", 16, "T_E")):
        message = piece_of(FROM_GARBLER, number, flip(tables, offset, 0x80))
        about = f"One bit of {reason} of the first AND gate is flipped."
        yield changed(f"table-bit-flipped-{name}", about, message, TRANSCRIPT, 1)
    message = piece_of(FROM_GARBLER, number + 1, tables)
    about = "More tables come where the check is due."
    yield base.made("piece-in-place-of-the-check", about, check_neighbourhood, message, ORDER)


def _ends(base: Base) -> Iterator[Fault]:
    """Yield test vectors with faults in the last messages: check and confirmation."""

    def check(name: str, about: str, layer: str, **fields: object) -> Fault:
        return base.claimed(f"check-{name}", about, m.CHECK, fields, layer)

    def confirm(name: str, about: str, layer: str, **fields: object) -> Fault:
        ends = {"sender": EVALUATOR, "receiver": GARBLER}
        return base.claimed(f"confirm-{name}", about, m.CONFIRM, fields, layer, **ends)

    def decoding(name: str, about: str, layer: str, **fields: object) -> Fault:
        return base.claimed(f"decode-{name}", about, m.DECODE, fields, layer)

    def following(number: int) -> int:
        return number + 1

    def padded(colours: bytes) -> bytes:
        return flip(colours, 0, 0x80)

    def wider(colours: bytes) -> bytes:
        return colours + b"\0"

    about = "The garbler signs another hash of the pieces."
    yield check("with-another-hash", about, TRANSCRIPT, transcript=flip)
    about = "The garbler says that it has sent one piece more."
    yield check("with-another-count", about, TRANSCRIPT, pieces=following)
    yield check("of-another-block", "The check is of the block after.", ORDER, block=following)
    about = "The evaluator signs another hash of the pieces."
    yield confirm("with-another-hash", about, TRANSCRIPT, transcript=flip)
    about = "The colours mean another output than the labels that the evaluator has."
    yield confirm("with-another-output", about, CONTENT, colours=flip)
    about = "The digest of the output labels has a flipped bit."
    yield confirm("with-another-proof", about, CONTENT, proof=flip)
    about = "The evaluator shows colours, and no digest of its labels."
    yield confirm("without-proof", about, CONTENT, proof=b"")
    yield confirm("too-wide", "There are more colours than output bits.", CONTENT, colours=wider)
    yield confirm("with-padding", "A padding bit of the colours is one.", CONTENT, colours=padded)
    about = "The evaluator shows no colours where the garbler learns the output."
    yield confirm("without-colours", about, CONTENT, colours=b"")
    yield confirm("of-another-block", "The confirmation is of the block after.", ORDER, block=following)
    yield decoding("too-narrow", "There are fewer colours than output bits.", CONTENT, colours=b"")
    yield decoding("with-padding", "A padding bit of the colours is one.", CONTENT, colours=padded)
    yield decoding("of-another-block", "The colours are of the block after.", ORDER, block=following)
