"""Negative vectors of pairwise statistics: one fault each, to a party, to the aggregator, or in a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import decode, decode_envelope, encode_envelope
from smpc_dp_lab.vectors import statistic_runs as runs
from smpc_dp_lab.vectors.fault import (
    CONTENT,
    DECODING,
    ENVELOPE,
    ORDER,
    Kinds,
    Negative,
    RecordedRun,
    flip,
    signed_again,
)
from smpc_dp_lab.vectors.runs import header
from smpc_dp_lab.vectors.statistic_runs import AGGREGATOR, NAMES, JsonObject, Run

ADA, BEN, *_ = NAMES
KINDS: Kinds = {
    m.HELLO: m.Hello,
    m.START: m.Start,
    **dict.fromkeys(m.COINS, m.Coin),
    **dict.fromkeys(m.AGAINS, m.Again),
    m.MATCHED: m.Matched,
    m.PAIR: m.Pair,
    m.RELAY: m.Relay,
    m.DONE: m.Done,
    m.RESULT: m.Result,
}
Base = RecordedRun[Run]


@dataclass(frozen=True, slots=True)
class Frame:
    """Test vector of a relayed frame that BEN must refuse, after `after` frames of its partner."""

    name: str
    about: str
    base: str
    partner: str
    matching: int
    after: int
    frame: bytes

    def to_json(self) -> JsonObject:
        """Return the test vector as JSON data: base run, changed frame and expected error."""
        return {
            **header("statistic-negative-frame", self.name, self.about),
            "base": f"statistic-run-{self.base}.json",
            "receiver": BEN,
            "partner": self.partner,
            "matching": self.matching,
            "after": self.after,
            "frame": self.frame.hex(),
            "expect": {"error": "VerificationError"},
        }


def all_faults() -> Iterator[Negative | Frame]:
    """Yield all negative test vectors of pairwise statistics: one changed message or frame."""
    matchings, labels, again, relayed = (
        Base(
            scenario.name,
            Run(scenario).execute(),
            KINDS,
            "statistic-",
            aggregator=AGGREGATOR,
            victim=ADA,
            culprit=BEN,
        )
        for scenario in runs.SCENARIOS
    )
    yield from _starts(matchings, labels)
    yield from _draws(matchings, again)
    yield from _tunnel_to_a_party(matchings, relayed)
    yield from _to_the_aggregator(matchings, labels)
    yield from _relays_to_the_aggregator(relayed)
    yield from _frames(relayed)


def _starts(base: Base, labels: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in the aggregator's start message."""
    each = m.COMMITMENT_BYTES

    def start(name: str, about: str, layer: str = CONTENT, **fields: object) -> Negative:
        return base.fault(f"start-{name}", about, m.START, fields, layer)

    yield start(
        "without-me",
        "The aggregator leaves ada out.",
        present=pack_set((2, 3, 4, 5), 5),
        commitments=lambda packed: packed[each:],
        public_labels=lambda public_labels: public_labels[1:],
    )
    yield start(
        "of-too-few",
        "Two of five are present: ada would have no partner but the one.",
        present=pack_set((1, 2), 5),
        commitments=lambda packed: packed[: 2 * each],
        public_labels=lambda public_labels: public_labels[:2],
    )
    about = "The last party's third commitment is missing."
    yield start("without-a-commitment", about, commitments=lambda packed: packed[:-32])
    about = "Ada's commitments are exchanged for others."
    yield start("with-another-commitment-of-mine", about, commitments=flip)
    about = "Eve's commitments are exchanged for ada alone: nobody else is in that run."
    yield start("with-another-commitment", about, ORDER, commitments=lambda packed: flip(packed, -1))
    about = "A kernel without public labels."
    yield start(
        "with-a-label-where-none-is", about, public_labels=lambda public_labels: public_labels[:-1] + b"\1"
    )
    mine, high = (
        {"public_labels": lambda public_labels: b"\1" + public_labels[1:]},
        {"public_labels": lambda public_labels: public_labels[:-1] + b"\3"},
    )
    yield labels.fault("start-with-another-label-of-mine", "Ada has said 1.", m.START, mine)
    yield labels.fault("start-with-a-label-too-high", "A label is 2.", m.START, high)
    flipped = {"signature": flip}
    about = "One bit of the signature."
    yield base.forged("start-signature-flipped", about, m.START, flipped, ENVELOPE, signed=False)
    longer = {"body": lambda body: body + b"\0"}
    yield base.forged("start-with-trailing-bytes", "A byte after the message.", m.START, longer, DECODING)
    about = "The coins of all before ada knows whose commitments they are to."
    yield base.unexpected("matched-before-the-start", about, m.START, m.MATCHED)


def _draws(base: Base, again: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in coins and matchings, and in repeated draws."""

    def matched(name: str, about: str, coins: Callable[[bytes], bytes]) -> Negative:
        return base.fault(f"matched-{name}", about, m.MATCHED, {"coins": coins})

    def called(name: str, about: str, parties: Sequence[int], index: int = 0) -> Negative:
        return again.fault(f"again-{name}", about, m.AGAINS[index], {"present": pack_set(parties, 5)})

    yield matched("with-another-coin", "Ben's coin is exchanged.", lambda coins: flip(coins, 32))
    yield matched("without-a-coin", "The last coin is missing.", lambda coins: coins[:-32])
    yield matched(
        "in-another-order",
        "Two coins have changed places.",
        lambda coins: coins[:32] + coins[64:96] + coins[32:64] + coins[96:],
    )
    yield called("and-nobody-is-missing", "The same five.", (1, 2, 3, 4, 5))
    yield called("without-me", "Ada opened, and is left out.", (2, 4, 5))
    yield called("with-too-few", "Two of five are left.", (1, 2))
    yield called("with-who-was-missing", "Cem, who was out, is back.", (1, 2, 3, 5), 1)
    about = "The third draw is called where the second is due."
    yield again.unexpected("again-out-of-turn", about, m.AGAINS[0], m.AGAINS[1])
    about = "The coins come under the run id of the first draw."
    old = {"run_id": again.find(m.START)[1].run_id}
    yield again.forged("matched-of-an-earlier-draw", about, m.MATCHED, old, ORDER)
    headless = {"log": lambda log: log[:-1]}
    yield base.fault("estimate-without-a-head", "No head of the log.", m.RESULT, headless, DECODING)
    yield base.unexpected("estimate-before-the-matchings", "No pair was drawn.", m.MATCHED, m.RESULT)


def _tunnel_to_a_party(base: Base, relayed: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in a channel to a party that the aggregator relays."""
    # Ada has no partner in any matching of the first run.
    index, pair = base.find(m.PAIR, AGGREGATOR, BEN)
    second, negative = (base.with_message(pair, {"number": number}) for number in (1, -1))
    yield base.made("pair-skipped", "The second message of a pair comes first.", index, second)
    yield base.made("pair-number-negative", "A negative number.", index, negative, DECODING)
    other = base.sign(pair, run_id=base.run.context.session_digest)
    yield base.made("pair-of-another-run", "A message of a pair of another run.", index, other, ORDER)
    index, frame = relayed.find(m.RELAY, AGGREGATOR, BEN)
    foreign = relayed.sign(frame, receiver="cem")
    yield relayed.made("relay-for-another", "A frame for cem comes to ben.", index, foreign, ORDER)
    flipped = msgspec.structs.replace(frame, body=flip(frame.body, -1))
    about = "The aggregator's signature is of another frame."
    yield relayed.made("relay-not-signed", about, index, flipped, ENVELOPE)


def _to_the_aggregator(base: Base, labels: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in messages of a party to the aggregator."""
    drawn = base.run.randomness
    for name, about, step, fields in (
        ("hello-of-another-session", "Another session file.", m.HELLO, {"session_digest": flip}),
        ("hello-of-another-request", "Request 2.", m.HELLO, {"request": 2}),
        (
            "hello-with-another-statistic",
            "The digest is not that of the question.",
            m.HELLO,
            {"plan": flip},
        ),
        ("hello-with-a-needless-label", "A kernel without public labels.", m.HELLO, {"public_label": 1}),
        ("coin-not-committed", "Another coin than was committed to.", m.COINS[0], {"coin": flip}),
        (
            "coin-of-a-later-draw",
            "The coin of the second draw.",
            m.COINS[0],
            {"coin": drawn[BEN].draws[1]},
        ),
        ("coin-of-another", "Cem's coin.", m.COINS[0], {"coin": drawn["cem"].draws[0]}),
        ("pair-message-skipped", "The second message comes first.", m.PAIR, {"number": 1}),
        ("pair-of-no-matching", "There are two matchings.", m.PAIR, {"matching": 2}),
        ("done-with-a-pair-that-it-has-not", "There are two matchings.", m.DONE, {"failed": [2]}),
        ("done-in-disorder", "Matchings must ascend.", m.DONE, {"failed": [1, 0]}),
    ):
        yield base.fault(name, about, step, fields)
    fewer = {"commitments": lambda packed: packed[:-32]}
    yield base.fault("hello-with-two-commitments", "The third is missing.", m.HELLO, fewer, DECODING)
    yield labels.fault("hello-without-a-label", "It is due.", m.HELLO, {"public_label": -1})
    about = "Ben says hello a second time, with other commitments."
    yield base.fault("hello-twice", about, m.HELLO, {"commitments": flip}, ORDER, later=1)
    flipped = {"signature": flip}
    about = "One bit of the signature."
    yield base.forged("coin-signature-flipped", about, m.COINS[0], flipped, ENVELOPE, signed=False)
    yield base.unexpected("done-before-the-matchings", "Nobody is paired yet.", m.COINS[0], m.DONE)


def _relays_to_the_aggregator(base: Base) -> Iterator[Negative]:
    """Yield test vectors with faults in frames that a party sends for relaying."""
    # Whose partner has not sent a frame yet.
    first = next(envelope.sender for envelope in base.to(AGGREGATOR) if envelope.step == m.RELAY)

    def relay(name: str, about: str, layer: str = CONTENT, *, later: int = 0, **fields: object) -> Negative:
        return base.fault(f"relay-{name}", about, m.RELAY, fields, layer, sender=first, later=later)

    yield relay("frame-skipped", "Frame 1 comes first.", number=1)
    yield relay("takes-what-never-came", "One frame taken, and none was sent.", taken=1)
    yield relay("of-an-empty-frame", "No frame, and nothing was taken.", content=b"")
    yield relay("in-no-matching", "There is one matching.", matching=1)
    long = bytes(m.MAX_FRAME_BYTES + 1)
    yield relay("frame-too-long", "One byte more than fits.", DECODING, content=long)
    about = "The second frame before the partner's first has come."
    yield relay("before-the-partner", about, later=1, number=1)


def _frames(base: Base) -> Iterator[Frame]:
    """Yield test vectors with faults in frames that the aggregator forwards and the partner refuses."""
    run = base.run
    [evaluation] = [each for each in run.evaluations if BEN in each.pair]
    peer = next(name for name in evaluation.pair if name != BEN)
    frames = [
        message.content
        for envelope in base.to(BEN)
        if envelope.step == m.RELAY and (message := decode(envelope.body, m.Relay, AGGREGATOR)).content
    ]
    context = run.pair_context(BEN, evaluation.matching, evaluation.pair)

    def fault(name: str, about: str, after: int, frame: bytes) -> Frame:
        return Frame(f"frame-{name}", about, base.name, peer, evaluation.matching, after, frame)

    def key_by(**changes: Any) -> bytes:
        key = msgspec.structs.replace(decode_envelope(frames[0], peer), **changes)
        return encode_envelope(signed_again(context, run.signers[key.sender], key))

    aggregator_key: Envelope = decode_envelope(key_by(sender=AGGREGATOR), AGGREGATOR)
    forged = encode_envelope(msgspec.structs.replace(aggregator_key, sender=peer))
    yield fault("key-of-the-relay", "The relay signs a key in the partner's name.", 0, forged)
    other = key_by(run_id=flip(context.session_digest))
    yield fault("key-of-another-pair", "The partner's key for another pair.", 0, other)
    low = key_by(body=msgspec.msgpack.encode((bytes(32),)))
    yield fault("key-of-small-order", "A key of small order: the secret would be known.", 0, low)
    yield fault("flipped", "One bit of a sealed frame.", 1, flip(frames[1], len(frames[1]) - 1))
    yield fault("repeated", "The first sealed frame comes twice.", 2, frames[1])
    yield fault("left-out", "The second sealed frame comes first.", 1, frames[2])
    yield fault("cut", "The last byte is missing.", 1, frames[1][:-1])
    yield fault("empty", "Too short for a nonce and a tag.", 1, b"\0")
    own = next(
        message.content
        for envelope in base.to(AGGREGATOR)
        if (envelope.sender, envelope.step) == (BEN, m.RELAY)
        and (message := decode(envelope.body, m.Relay, BEN)).number == 1
        and message.content
    )
    yield fault("sent-back", "Ben's own first sealed frame comes back.", 1, own)
