"""Negative vectors of evaluations that are secure against both sides: one fault in one message.

Every fault after the hello has one error and one code. `layer` is then the check of the specification that
must fail; the hash of the pieces fails too, later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from smpc_dp.capabilities.pairs.active import messages as a
from smpc_dp.capabilities.pairs.garbled import messages as m
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR as FROM_EVALUATOR
from smpc_dp.capabilities.pairs.garbled.participant import GARBLER as FROM_GARBLER
from smpc_dp.crypto.garble import LABEL_BYTES
from smpc_dp.errors import Code, LocalError, VerificationError
from smpc_dp.wire.abort import ABORT, Abort
from smpc_dp_lab.vectors.active_runs import SCENARIOS
from smpc_dp_lab.vectors.fault import DECODING, ENVELOPE, ORDER, Fields, Kinds, altered, flip
from smpc_dp_lab.vectors.pairwise_fault import (
    AGREEMENT,
    FRAMING,
    TRANSCRIPT,
    TRANSFER,
    Base,
    Fault,
    framed,
    piece_of,
    replay,
)
from smpc_dp_lab.vectors.pairwise_negative_output import inside
from smpc_dp_lab.vectors.pairwise_negative_transfer import OFF_THE_GROUP
from smpc_dp_lab.vectors.pairwise_runs import AGGREGATOR, EVALUATOR, GARBLER, find, new_run

ACTIVE_KINDS: Kinds = {
    m.HELLO: a.ActiveHello,
    m.START: m.Start,
    a.COMMIT: a.Commit,
    a.EQUAL: a.Equal,
    a.COIN: a.Coin,
    a.MACS: a.Macs,
    a.OUTPUTS: a.Outputs,
    a.SHARES: a.Shares,
    a.CHI: a.Chi,
    a.OPENING: a.Opening,
    a.OPENED: a.Opened,
}
# Layers beside those of two-party evaluations: the checks of the specification, a message that says that its
# sender has stopped, and lengths, padding and numbers of blocks and groups.
EQUALITY, COIN, DIFFERENCES, OPENINGS, MASKED = "equality", "coin", "differences", "openings", "masked"
MACS, OUTPUT, CHI, OPENED, SEAL = "macs", "output", "chi", "opened", "seal"
STOPPED, FORMAT = "abort", "format"
# Pieces of a side in the run `both`: three of the setups, two chunks of transfers, then one each.
FIRST, TREES, RESPONSE = 0, 2, 7
U, D, DIFFERENCE_BITS, OPENING_BITS, INPUTS, TABLES = range(9, 15)
MASKED_VALUES = 14
# In a response of transfers: its number, the sum of the choices, the columns.
COLUMNS = 24
SIDES = ((GARBLER, EVALUATOR), (EVALUATOR, GARBLER))


class ActiveBase(Base):
    """Finished run in malicious security from which test vectors of changed messages are made."""

    def made(
        self,
        name: str,
        about: str,
        index: int,
        message: bytes,
        layer: str,
        *,
        sender: str = GARBLER,
        receiver: str = EVALUATOR,
        **expect: Any,
    ) -> Fault:
        """Return the fault of a message at an index; raise LocalError if it has not the one error."""
        if expect:
            return super().made(
                name, about, index, message, layer, sender=sender, receiver=receiver, **expect
            )
        fault = Fault(name, about, self.name, receiver, index, sender, message, layer, "VerificationError")
        done = replay(new_run(self.scenario).roles[receiver], self.run.sent_to(receiver), fault)
        if not isinstance(done.end, VerificationError) or done.end.code != Code.EVALUATION:
            raise LocalError(f"{name}: {done.end!r}")
        ended = {"later": len(done.taken) - index - 1, "step": done.step, "code": done.end.code.value}
        return dataclasses.replace(fault, **ended)  # type: ignore[arg-type]

    def bulk(
        self, sender: str, number: int, name: str, about: str, change: Callable[[bytes], bytes], layer: str
    ) -> Fault:
        """Return the test vector of a run in which one bulk message (piece) has changed content."""
        side, receiver = (FROM_GARBLER, EVALUATOR) if sender == GARBLER else (FROM_EVALUATOR, GARBLER)
        index, content = self.piece(number, sender, receiver)
        message = piece_of(side, number, change(content))
        return self.made(name, about, index, message, layer, sender=sender, receiver=receiver)


def all_faults() -> Iterator[Fault]:
    """Yield all negative test vectors: one changed message, and the error that it must cause."""
    both, third = (ActiveBase(find(name, SCENARIOS), ACTIVE_KINDS) for name in ("both", "aggregator"))
    yield from _hello(both)
    for sender, receiver in SIDES:
        yield from _transfers(both, sender)
        yield from _triples(both, sender, receiver)
        yield from _openings(both, sender)
        yield from _outputs(both, sender, receiver)
        yield from _to_the_aggregator(third, sender, receiver)
    yield from _envelopes(both)
    yield from _tables(both)
    yield from _masked_values(both)


def _of(sender: str, name: str) -> str:
    """Return the name of a test vector: the side at fault, and `name`."""
    return f"{'garbler' if sender == GARBLER else 'evaluator'}-{name}"


def _every_label(content: bytes) -> bytes:
    """Flip a bit of each 16 bytes: one value alone is used with probability 1/2."""
    for index in range(1, len(content), LABEL_BYTES):
        content = flip(content, index)
    return content


def _hello(base: ActiveBase) -> Iterator[Fault]:
    """Yield test vectors with faults in a hello; the error names the reason, as nothing was sent before."""
    about = "The garbler has other coins, or another k, which its plan digest tells."
    yield base.claimed(
        "hello-with-another-plan", about, m.HELLO, {"plan": flip}, AGREEMENT, error="ConfigError"
    )
    index, envelope = base.step(m.HELLO)
    fields = msgspec.msgpack.decode(envelope.body)
    shorter = base.sign(envelope, body=msgspec.msgpack.encode(fields[:6]))
    about = (
        "The hello is that of a garbler that is assumed to be semi-honest: it says nothing of a second setup."
    )
    yield base.made("hello-of-another-security", about, index, framed(shorter), DECODING, error="PeerFault")


def _transfers(base: ActiveBase, sender: str) -> Iterator[Fault]:
    """Yield test vectors with faults in the setups of oblivious transfer, and in transfers."""
    about = "The first message of the base transfers has no square root: it is not on the group."
    yield base.bulk(
        sender, FIRST, _of(sender, "first-off-the-group"), about, lambda _: OFF_THE_GROUP, TRANSFER
    )
    about = "The hash that checks the last tree has a flipped bit."
    yield base.bulk(sender, TREES, _of(sender, "trees-flipped"), about, lambda sent: flip(sent, -1), TRANSFER)
    about = "A column of the response has a flipped bit."
    yield base.bulk(
        sender, RESPONSE, _of(sender, "response-flipped"), about, lambda sent: flip(sent, COLUMNS), TRANSFER
    )


def _triples(base: ActiveBase, sender: str, receiver: str) -> Iterator[Fault]:
    """Yield test vectors with faults in leaky AND triples, their comparison, and their buckets."""

    def signed(name: str, about: str, step: str, fields: Fields, layer: str) -> Fault:
        return base.claimed(_of(sender, name), about, step, fields, layer, sender=sender, receiver=receiver)

    def bulk(number: int, name: str, about: str, change: Callable[[bytes], bytes], layer: str) -> Fault:
        return base.bulk(sender, number, _of(sender, name), about, change, layer)

    yield bulk(U, "u-flipped", "A bit of each U is flipped.", _every_label, EQUALITY)
    yield bulk(D, "d-flipped", "A d is flipped: z is not x y.", flip, EQUALITY)
    yield bulk(D, "d-too-short", "The last byte of d is missing.", lambda sent: sent[:-1], FORMAT)
    about = "The commitment to the digest of the triples has a flipped bit."
    yield signed("commit-equality-flipped", about, a.COMMIT, {"equality": flip}, EQUALITY)
    _, others = base.step(a.COMMIT, receiver, sender)
    about = "The side sends the other's commitments back."
    own: Fields = {
        "equality": lambda _: _body(others, a.Commit).equality,
        "coin": lambda _: _body(others, a.Commit).coin,
    }
    yield signed("commit-reflected", about, a.COMMIT, own, EQUALITY)
    yield signed("commit-of-another-group", "It is of the group 1.", a.COMMIT, {"group": 1}, FORMAT)
    about = "The digest of the triples is not the one that was committed to."
    yield signed("equal-value-flipped", about, a.EQUAL, {"value": flip}, EQUALITY)
    about = "The opening of the commitment has a flipped bit."
    yield signed("equal-opening-flipped", about, a.EQUAL, {"opening": flip}, EQUALITY)
    yield signed("equal-of-another-group", "It is of the group 1.", a.EQUAL, {"group": 1}, FORMAT)
    about = "The commitment to the seed of the shuffle has a flipped bit."
    yield signed("commit-coin-flipped", about, a.COMMIT, {"coin": flip}, COIN)
    about = "The seed of the shuffle is not the one that was committed to."
    yield signed("coin-flipped", about, a.COIN, {"seed": flip}, COIN)
    yield signed("coin-of-another-group", "It is of the group 1.", a.COIN, {"group": 1}, FORMAT)
    yield bulk(DIFFERENCE_BITS, "difference-flipped", "A difference is flipped.", flip, DIFFERENCES)
    about = "The digest of the MACs of the differences has a flipped bit."
    yield bulk(DIFFERENCE_BITS, "differences-digest-flipped", about, lambda sent: flip(sent, -1), DIFFERENCES)
    about = "A padding bit of the differences is one."
    last = -a.DIGEST_BYTES - 1
    yield bulk(DIFFERENCE_BITS, "differences-padding", about, lambda sent: flip(sent, last, 0x80), FORMAT)


def _body(envelope: Any, kind: type[a.Commit]) -> a.Commit:
    """Decode the message of type `kind` in an envelope."""
    return msgspec.msgpack.decode(envelope.body, type=kind)


def _openings(base: ActiveBase, sender: str) -> Iterator[Fault]:
    """Yield test vectors with faults in the opened bits of a block, and in masked inputs."""

    def bulk(number: int, name: str, about: str, change: Callable[[bytes], bytes], layer: str) -> Fault:
        return base.bulk(sender, number, _of(sender, name), about, change, layer)

    yield bulk(OPENING_BITS, "opening-flipped", "A bit f is flipped.", flip, OPENINGS)
    about = "The digest of the MACs of f and g has a flipped bit."
    yield bulk(OPENING_BITS, "openings-digest-flipped", about, lambda sent: flip(sent, -1), OPENINGS)
    about = "A padding bit of the masked inputs is one."
    yield bulk(INPUTS, "inputs-padding", about, lambda sent: flip(sent, -1, 0x80), FORMAT)


def _tables(base: ActiveBase) -> Iterator[Fault]:
    """Yield test vectors with faults in the garbler's tables, and in its MACs."""
    gates = base.scenario.built.and_count
    rows = 2 * LABEL_BYTES * gates
    for half, name in enumerate("tv"):

        def change(sent: bytes, half: int = half) -> bytes:
            for gate in range(gates):
                sent = flip(sent, LABEL_BYTES * (2 * gate + half))
            return sent

        about = (
            f"Bit 0 of each row {name.upper()} is flipped: masked values are flipped where the row is used."
        )
        yield base.bulk(GARBLER, TABLES, f"table-row-{name}-flipped", about, change, MACS)
    about = "The bit of a gate is flipped: its output has the other masked value."
    yield base.bulk(GARBLER, TABLES, "table-bit-flipped", about, lambda sent: flip(sent, rows), MACS)
    about = "A padding bit of the gates' bits is one."
    yield base.bulk(GARBLER, TABLES, "table-padding", about, lambda sent: flip(sent, -1, 0x80), FORMAT)
    about = "The last byte of the tables is missing."
    yield base.bulk(GARBLER, TABLES, "tables-too-short", about, lambda sent: sent[:-1], FORMAT)
    about = "The digest of the MACs has a flipped bit."
    yield base.claimed("macs-digest-flipped", about, a.MACS, {"digest": flip}, MACS)
    about = "The garbler names another hash of the pieces."
    yield base.claimed("macs-with-another-hash", about, a.MACS, {"transcript": flip}, TRANSCRIPT)
    yield base.claimed("macs-of-another-block", "They are of the block 1.", a.MACS, {"block": 1}, FORMAT)


def _masked_values(base: ActiveBase) -> Iterator[Fault]:
    """Yield test vectors with faults in the evaluator's masked values, which the garbler must refuse."""

    def bulk(name: str, about: str, change: Callable[[bytes], bytes], layer: str) -> Fault:
        return base.bulk(EVALUATOR, MASKED_VALUES, name, about, change, layer)

    for gate in range(base.scenario.built.and_count):

        def lie(sent: bytes, gate: int = gate) -> bytes:
            return flip(sent, 0, 1 << gate)

        about = f"The evaluator lies about the masked value of gate {gate}."
        yield bulk(f"masked-value-{gate}-flipped", about, lie, MASKED)
    about = "The digest of the active labels has a flipped bit."
    yield bulk("labels-digest-flipped", about, lambda sent: flip(sent, -1), MASKED)
    about = "A padding bit of the masked values is one."
    yield bulk("masked-padding", about, lambda sent: flip(sent, 0, 0x80), FORMAT)


def _outputs(base: ActiveBase, sender: str, receiver: str) -> Iterator[Fault]:
    """Yield test vectors with faults in the output shares that one side sends the other."""

    def made(name: str, about: str, layer: str, **fields: object) -> Fault:
        ends = {"sender": sender, "receiver": receiver}
        return base.claimed(_of(sender, name), about, a.OUTPUTS, fields, layer, **ends)

    yield made("output-share-flipped", "A share of an output is flipped.", OUTPUT, shares=flip)
    about = "The digest of the MACs of the shares has a flipped bit."
    yield made("output-digest-flipped", about, OUTPUT, digest=flip)
    about = "A padding bit of the shares is one."
    yield made("output-padding", about, FORMAT, shares=lambda packed: flip(packed, -1, 0x80))
    yield made("output-of-another-block", "It is of the block 1.", FORMAT, block=1)


def _to_the_aggregator(base: ActiveBase, sender: str, receiver: str) -> Iterator[Fault]:
    """Yield the faults of an output that the aggregator alone learns; `receiver` is the other side."""

    def made(name: str, about: str, step: str, layer: str, to: str, fields: Fields) -> Fault:
        named = _of(sender, name)
        return base.claimed(named, about, step, fields, layer, sender=sender, receiver=to)

    def shares(name: str, about: str, change: Callable[[bytes], bytes], layer: str) -> Fault:
        return made(name, about, a.SHARES, layer, AGGREGATOR, inside(base, sender, a.SHARES, change))

    yield shares("share-flipped", "A share of an output is flipped.", flip, OPENED)
    about = "A bit that hides the sum is flipped."
    yield shares("hiding-bit-flipped", about, lambda packed: flip(packed, -1), OPENED)
    about = "One of the bits that hide the sum has no byte."
    yield shares("shares-too-short", about, lambda packed: packed[:-1], FORMAT)
    about = "A bit of what is sealed is flipped."
    sealed: Fields = {"sealed": lambda sent: flip(sent, 30)}
    yield made("shares-seal-flipped", about, a.SHARES, SEAL, AGGREGATOR, sealed)
    about = "The side names another hash of the pieces than it took."
    yield made("shares-with-another-hash", about, a.SHARES, TRANSCRIPT, AGGREGATOR, {"transcript": flip})
    yield base.claimed(
        f"chi-to-{'evaluator' if receiver == EVALUATOR else 'garbler'}-flipped",
        "The aggregator sends the two sides different chi.",
        a.CHI,
        {"chi": flip},
        CHI,
        sender=AGGREGATOR,
        receiver=receiver,
    )
    yield made("opening-of-another-chi", "It names another chi.", a.OPENING, CHI, receiver, {"chi": flip})
    about = "A bit of the opening is flipped."
    yield made("sum-flipped", about, a.OPENING, CHI, receiver, {"opening": flip})
    about = "The digest of the MACs of the opening has a flipped bit."
    yield made("sum-digest-flipped", about, a.OPENING, CHI, receiver, {"digest": flip})
    about = "The side tells the aggregator another opening of the other side than it took."
    yield made("opened-flipped", about, a.OPENED, OPENED, AGGREGATOR, {"opening": flip})
    yield made("opened-of-another-chi", "It names another chi.", a.OPENED, OPENED, AGGREGATOR, {"chi": flip})


def _envelopes(base: ActiveBase) -> Iterator[Fault]:
    """Yield test vectors with faults of order, envelope and encoding of messages."""
    index, envelope = base.step(a.EQUAL)
    _, coin = base.step(a.COIN)
    about = "The seed comes where the digest of the triples is due."
    yield base.made("step-skipped", about, index, framed(coin), ORDER)
    changed = altered(envelope, {"signature": flip})
    yield base.made("signature-flipped", "A signature has a flipped bit.", index, framed(changed), ENVELOPE)
    changed = base.sign(envelope, receiver=AGGREGATOR)
    yield base.made("wrong-receiver", "A message is for another.", index, framed(changed), ENVELOPE)
    changed = base.sign(envelope, run_id=flip(envelope.run_id))
    yield base.made("other-run", "A message is of another run.", index, framed(changed), ORDER)
    changed = base.sign(envelope, body=envelope.body + b"\0")
    yield base.made("trailing-byte", "A body has a byte too many.", index, framed(changed), DECODING)
    stop = msgspec.msgpack.encode(Abort(Code.EVALUATION))
    about = "The garbler says that it has stopped: what is pending ends without a reason."
    changed = base.sign(envelope, step=ABORT, body=stop)
    yield base.made("stopped", about, index, framed(changed), STOPPED)
    _, content = base.piece(D)
    at, _ = base.piece(DIFFERENCE_BITS)
    about = "A piece comes once more, where another is due."
    yield base.made("piece-repeated", about, at, piece_of(FROM_GARBLER, D, content), FRAMING)
