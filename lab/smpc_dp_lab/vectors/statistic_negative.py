"""Negative vectors of pairwise statistics: one fault each, to a party, to the aggregator, or in a frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from smpc_dp.protocols.contract import Envelope
from smpc_dp.protocols.envelope import decode, decode_envelope, encode_envelope
from smpc_dp.protocols.pairwise import statistic_messages as m
from smpc_dp.protocols.secagg.graph import pack_set
from smpc_dp_lab.vectors import statistic_runs as runs
from smpc_dp_lab.vectors.fault import CONTENT, DECODING, ENVELOPE, ORDER, Negative, Played, constant, flip
from smpc_dp_lab.vectors.statistic_runs import HUB, NAMES, JsonObject, Run

ADA, BEN, *_ = NAMES
Change = Callable[[Any], Mapping[str, object]]
Base = Played[Run]


def all_faults() -> Iterator[tuple[str, JsonObject]]:
    """Yield name and content of every negative vector."""
    matchings, labels, again, relayed = (
        Base(scenario.name, Run(scenario).play()) for scenario in runs.SCENARIOS
    )
    for faults in (
        _starts(matchings, labels),
        _draws(matchings, again),
        _tunnel_to_a_party(matchings, relayed),
        _to_the_hub(matchings, labels),
        _relays_to_the_hub(relayed),
    ):
        for fault in faults:
            yield (
                fault.name,
                fault.to_json() | {"kind": "statistic-negative", "base": f"statistic-run-{fault.base}.json"},
            )
    yield from _frames(relayed)


def _to_ada(base: Base, step: str, kind: type[Any]) -> Callable[..., Negative]:
    def change(name: str, about: str, how: Change, **expect: str) -> Negative:
        return base.changed(name, about, kind, step, how, sender=HUB, receiver=ADA, **expect)

    return change


def _to_hub(base: Base, step: str, kind: type[Any], sender: str = BEN) -> Callable[..., Negative]:
    def change(name: str, about: str, how: Change, **expect: str) -> Negative:
        return base.changed(name, about, kind, step, how, sender=sender, receiver=HUB, **expect)

    return change


def _starts(base: Base, labels: Base) -> Iterator[Negative]:
    each = m.COMMITMENT_BYTES
    change = _to_ada(base, m.START, m.Start)
    yield change(
        "start-without-me",
        "The aggregator leaves ada out.",
        lambda s: {
            "present": pack_set((2, 3, 4, 5), 5),
            "commitments": s.commitments[each:],
            "marks": s.marks[1:],
        },
    )
    yield change(
        "start-of-too-few",
        "Two of five are present: ada would have no partner but the one.",
        lambda s: {
            "present": pack_set((1, 2), 5),
            "commitments": s.commitments[: 2 * each],
            "marks": s.marks[:2],
        },
    )
    yield change(
        "start-without-a-commitment",
        "The last party's third commitment is missing.",
        lambda s: {"commitments": s.commitments[:-32]},
    )
    yield change(
        "start-with-another-commitment-of-mine",
        "Ada's commitments are exchanged for others.",
        lambda s: {"commitments": flip(s.commitments)},
    )
    yield change(
        "start-with-another-commitment",
        "Eve's commitments are exchanged for ada alone: nobody else is in that run.",
        lambda s: {"commitments": flip(s.commitments, len(s.commitments) - 1)},
        layer=ORDER,
    )
    yield change(
        "start-with-a-label-where-none-is",
        "A kernel without public labels.",
        lambda s: {"marks": s.marks[:-1] + b"\1"},
    )
    change = _to_ada(labels, m.START, m.Start)
    yield change(
        "start-with-another-label-of-mine",
        "Ada has said 1.",
        lambda s: {"marks": b"\1" + s.marks[1:]},
    )
    yield change("start-with-a-label-too-high", "A label is 2.", lambda s: {"marks": s.marks[:-1] + b"\3"})
    place, start = base.find(m.START, HUB, ADA)
    bad = msgspec.structs.replace(start, signature=flip(start.signature))
    yield base.made("start-signature-flipped", "One bit of the signature.", place, bad, ENVELOPE)
    long = base.sign(start, body=start.body + b"\0")
    yield base.made("start-with-trailing-bytes", "A byte after the message.", place, long, DECODING)
    matched = base.find(m.MATCHED, HUB, ADA)[1]
    about = "The coins of all before ada knows whose commitments they are to."
    yield base.made("matched-before-the-start", about, place, matched, ORDER)


def _draws(base: Base, again: Base) -> Iterator[Negative]:
    change = _to_ada(base, m.MATCHED, m.Matched)
    yield change(
        "matched-with-another-coin", "Ben's coin is exchanged.", lambda s: {"coins": flip(s.coins, 32)}
    )
    yield change("matched-without-a-coin", "The last coin is missing.", lambda s: {"coins": s.coins[:-32]})
    yield change(
        "matched-in-another-order",
        "Two coins have changed places.",
        lambda s: {"coins": s.coins[:32] + s.coins[64:96] + s.coins[32:64] + s.coins[96:]},
    )
    change = _to_ada(again, m.AGAINS[0], m.Again)
    yield change(
        "again-and-nobody-is-missing", "The same five.", constant(present=pack_set((1, 2, 3, 4, 5), 5))
    )
    yield change("again-without-me", "Ada opened, and is left out.", constant(present=pack_set((2, 4, 5), 5)))
    yield change("again-with-too-few", "Two of five are left.", constant(present=pack_set((1, 2), 5)))
    change = _to_ada(again, m.AGAINS[1], m.Again)
    yield change(
        "again-with-who-was-missing",
        "Cem, who was out, is back.",
        constant(present=pack_set((1, 2, 3, 5), 5)),
    )
    place = again.find(m.AGAINS[0], HUB, ADA)[0]
    third = again.find(m.AGAINS[1], HUB, ADA)[1]
    about = "The third draw is called where the second is due."
    yield again.made("again-out-of-turn", about, place, third, ORDER)
    place, matched = again.find(m.MATCHED, HUB, ADA)
    start = again.find(m.START, HUB, ADA)[1]
    old = again.sign(matched, run_id=start.run_id)
    about = "The coins come under the run id of the first draw."
    yield again.made("matched-of-an-earlier-draw", about, place, old, ORDER)
    change = _to_ada(base, m.RESULT, m.Result)
    yield change(
        "estimate-without-a-head", "No head of the log.", lambda s: {"log": s.log[:-1]}, layer=DECODING
    )
    place, result = base.find(m.RESULT, HUB, ADA)
    early = base.find(m.MATCHED, HUB, ADA)[0]
    yield base.made("estimate-before-the-matchings", "No pair was drawn.", early, result, ORDER)


def _tunnel_to_a_party(base: Base, relayed: Base) -> Iterator[Negative]:
    # Ada has no partner in any matching of the first run.
    place, pair = base.find(m.PAIR, HUB, BEN)
    body = decode(pair.body, m.Pair, HUB)
    for name, about, changes in (
        ("pair-skipped", "The second message of a pair comes first.", {"number": 1}),
        ("pair-number-negative", "A negative number.", {"number": -1}),
    ):
        message = msgspec.msgpack.encode(msgspec.structs.replace(body, **changes))
        layer = CONTENT if changes["number"] > 0 else DECODING
        yield base.made(name, about, place, base.sign(pair, body=message), layer)
    other = base.sign(pair, run_id=base.run.context.session_digest)
    yield base.made("pair-of-another-run", "A message of a pair of another run.", place, other, ORDER)
    place, frame = relayed.find(m.RELAY, HUB, BEN)
    foreign = relayed.sign(frame, receiver="cem")
    yield relayed.made("relay-for-another", "A frame for cem comes to ben.", place, foreign, ORDER)
    flipped = msgspec.structs.replace(frame, body=flip(frame.body, len(frame.body) - 1))
    yield relayed.made(
        "relay-not-signed",
        "The aggregator's signature is of another frame.",
        place,
        flipped,
        ENVELOPE,
    )


def _to_the_hub(base: Base, labels: Base) -> Iterator[Negative]:
    change = _to_hub(base, m.HELLO, m.Hello)
    yield change(
        "hello-of-another-session",
        "Another session file.",
        lambda s: {"session_digest": flip(s.session_digest)},
    )
    yield change("hello-of-another-request", "Request 2.", constant(request=2))
    yield change(
        "hello-with-another-statistic",
        "The digest is not that of the question.",
        lambda s: {"plan": flip(s.plan)},
    )
    yield change("hello-with-a-needless-label", "A kernel without public labels.", constant(mark=1))
    yield change(
        "hello-with-two-commitments",
        "The third is missing.",
        lambda s: {"commitments": s.commitments[:-32]},
        layer=DECODING,
    )
    yield _to_hub(labels, m.HELLO, m.Hello)("hello-without-a-label", "It is due.", constant(mark=-1))
    place, hello = base.find(m.HELLO, BEN, HUB)
    said = decode(hello.body, m.Hello, BEN)
    other = msgspec.structs.replace(said, commitments=flip(said.commitments))
    second = base.sign(hello, body=msgspec.msgpack.encode(other))
    about = "Ben says hello a second time, with other commitments."
    yield base.made("hello-twice", about, place + 1, second, ORDER)
    change = _to_hub(base, m.COINS[0], m.Coin)
    yield change(
        "coin-not-committed", "Another coin than was committed to.", lambda s: {"coin": flip(s.coin)}
    )
    second_coin = base.run.randomness[BEN].draws[1]
    yield change("coin-of-a-later-draw", "The coin of the second draw.", constant(coin=second_coin))
    copied = base.run.randomness["cem"].draws[0]
    yield change("coin-of-another", "Cem's coin.", constant(coin=copied))
    change = _to_hub(base, m.PAIR, m.Pair)
    yield change("pair-message-skipped", "The second message comes first.", constant(number=1))
    yield change("pair-of-no-matching", "There are two matchings.", constant(matching=2))
    change = _to_hub(base, m.DONE, m.Done)
    yield change("done-with-a-pair-that-it-has-not", "There are two matchings.", constant(failed=[2]))
    yield change("done-in-disorder", "Matchings must ascend.", constant(failed=[1, 0]))
    place, coin = base.find(m.COINS[0], BEN, HUB)
    bad = msgspec.structs.replace(coin, signature=flip(coin.signature))
    yield base.made("coin-signature-flipped", "One bit of the signature.", place, bad, ENVELOPE)
    done = base.find(m.DONE, BEN, HUB)[1]
    yield base.made("done-before-the-matchings", "Nobody is paired yet.", place, done, ORDER)


def _relays_to_the_hub(base: Base) -> Iterator[Negative]:
    # Whose partner has not sent a frame yet.
    first = next(envelope for envelope in base.to(HUB) if envelope.step == m.RELAY)
    change = _to_hub(base, m.RELAY, m.Relay, first.sender)
    yield change("relay-frame-skipped", "Frame 1 comes first.", constant(number=1))
    yield change("relay-takes-what-never-came", "One frame taken, and none was sent.", constant(taken=1))
    yield change("relay-of-an-empty-frame", "No frame, and nothing was taken.", constant(content=b""))
    yield change("relay-in-no-matching", "There is one matching.", constant(matching=1))
    yield change(
        "relay-frame-too-long",
        "One byte more than fits.",
        constant(content=bytes(m.MAX_FRAME_BYTES + 1)),
        layer=DECODING,
    )
    place, _ = base.find(m.RELAY, first.sender, HUB)
    frame = decode(first.body, m.Relay, first.sender)
    body = msgspec.msgpack.encode(msgspec.structs.replace(frame, number=1))
    about = "The second frame before the partner's first has come."
    yield base.made("relay-before-the-partner", about, place + 1, base.sign(first, body=body), CONTENT)


def _frames(base: Base) -> Iterator[tuple[str, JsonObject]]:
    """Yield faults of the frames themselves, which the relay passes on and the partner refuses."""
    run = base.run
    [evaluation] = [each for each in run.evaluations if BEN in each.pair]
    peer = next(name for name in evaluation.pair if name != BEN)
    frames = [
        message.content
        for envelope in base.to(BEN)
        if envelope.step == m.RELAY and (message := decode(envelope.body, m.Relay, HUB)).content
    ]
    context = run.pair_context(BEN, evaluation.matching, evaluation.pair)

    def fault(name: str, about: str, after: int, frame: bytes) -> tuple[str, JsonObject]:
        return name, {
            "schema": runs.SCHEMA,
            "kind": "statistic-negative-frame",
            "name": name,
            "about": about,
            "base": f"statistic-run-{base.name}.json",
            "receiver": BEN,
            "partner": peer,
            "matching": evaluation.matching,
            "after": after,
            "frame": frame.hex(),
            "expect": {"error": "VerificationError"},
        }

    def key_by(**changes: Any) -> bytes:
        key = msgspec.structs.replace(decode_envelope(frames[0], peer), **changes)
        [signed] = context.write(
            run.signers[key.sender],
            key.run_id,
            key.step,
            (key.receiver,),
            msgspec.Raw(key.body),  # type: ignore[arg-type]
        )
        return encode_envelope(signed)

    hub_key: Envelope = decode_envelope(key_by(sender=HUB), HUB)
    forged = encode_envelope(msgspec.structs.replace(hub_key, sender=peer))
    yield fault("frame-key-of-the-relay", "The relay signs a key in the partner's name.", 0, forged)
    other = key_by(run_id=flip(context.session_digest))
    yield fault("frame-key-of-another-pair", "The partner's key for another pair.", 0, other)
    low = key_by(body=msgspec.msgpack.encode((bytes(32),)))
    yield fault("frame-key-of-small-order", "A key of small order: the secret would be known.", 0, low)
    yield fault("frame-flipped", "One bit of a sealed frame.", 1, flip(frames[1], len(frames[1]) - 1))
    yield fault("frame-repeated", "The first sealed frame comes twice.", 2, frames[1])
    yield fault("frame-left-out", "The second sealed frame comes first.", 1, frames[2])
    yield fault("frame-cut", "The last byte is missing.", 1, frames[1][:-1])
    yield fault("frame-empty", "Too short for a nonce and a tag.", 1, b"\0")
    own = next(
        message.content
        for envelope in base.to(HUB)
        if (envelope.sender, envelope.step) == (BEN, m.RELAY)
        and (message := decode(envelope.body, m.Relay, BEN)).number == 1
        and message.content
    )
    yield fault("frame-sent-back", "Ben's own first sealed frame comes back.", 1, own)
