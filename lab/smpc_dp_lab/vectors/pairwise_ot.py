"""Test vectors of oblivious transfer: generated here, published as `protocols/pairwise/vectors/ot-*.json`.

Each is a whole transcript from fixed seeds: setup, a chunk of correlated and one of random transfers.
`protocols/pairwise/ot.md` has the meaning of the bytes.
"""

from __future__ import annotations

from smpc_dp.crypto import ot

CONTEXT = bytes(range(32))
SENDER_SEED = bytes(range(32, 64))
RECEIVER_SEED = bytes(range(64, 96))
CORRELATED = 21
RANDOM = 130

JsonObject = dict[str, object]


def generate() -> dict[str, JsonObject]:
    """Return the content of every published file by its name; the same on every host."""
    return {f"ot-k{k}": transcript(k) for k in ot.FIELD_SIZES}


def transcript(k: int) -> JsonObject:
    """Return the test vector of oblivious transfers with field size `k`: all messages, in hex."""
    sender = ot.Sender("receiver", CONTEXT, SENDER_SEED, k)
    receiver = ot.Receiver("sender", CONTEXT, RECEIVER_SEED, k)
    first = receiver.first_message()
    response = sender.respond(first)
    corrections = receiver.finish_setup(response)
    sender.finish_setup(corrections)
    return {
        "k": k,
        "context": CONTEXT.hex(),
        "sender_seed": SENDER_SEED.hex(),
        "receiver_seed": RECEIVER_SEED.hex(),
        "delta": sender.delta.hex(),
        "first": first.hex(),
        "base_response": response.hex(),
        "tree_corrections": corrections.hex(),
        "chunks": [
            _chunk(sender, receiver, "correlated", CORRELATED),
            _chunk(sender, receiver, "random", RANDOM),
        ],
    }


def _chunk(sender: ot.Sender, receiver: ot.Receiver, kind: str, count: int) -> JsonObject:
    chosen = sum(1 << j for j in range(count) if j * j % 7 in (1, 4))
    choices = chosen.to_bytes(-(-count // 8), "little")
    first_index = receiver.next_index
    corrections = receiver.extend(count, choices)
    challenge = sender.challenge(count, corrections)
    if kind == "correlated":
        response, received = receiver.correlated(challenge)
        sent = sender.correlated(response)
    else:
        response, received = receiver.random(challenge)
        sent = sender.random(response)
    return {
        "kind": kind,
        "first_index": first_index,
        "count": count,
        "choices": choices.hex(),
        "corrections": corrections.hex(),
        "challenge": challenge.hex(),
        "response": response.hex(),
        "sender_rows": [row.tobytes().hex() for row in sent],
        "receiver_rows": [row.tobytes().hex() for row in received],
    }
