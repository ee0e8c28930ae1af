"""The twin of oblivious transfer: its own known answers, and the core beyond one tile."""

from __future__ import annotations

import hashlib

import pytest

from smpc_dp.crypto import ot
from smpc_dp_verify import ristretto as group
from tests.reference import ot_twin

# RFC 9496, appendix A.1 (multiples 0, 1, 2 and 15 of the generator).
MULTIPLES = {
    0: "0000000000000000000000000000000000000000000000000000000000000000",
    1: "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    2: "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
    15: "e0c418f7c8d9c4cdd7395b93ea124f3ad99021bb681dfc3302a9d99a2e53e64e",
}
# RFC 9496, appendix A.2: a non-canonical field element, a negative one, and one with no square root.
BAD_ENCODINGS = (
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
)
# RFC 8452, appendix A.
POLYVAL_KEY = "25629347589242761d31f826ba4b757b"
POLYVAL_INPUT = "4f4f95668c83dfb6401762bb2d01a262d1a24ddd2721d006bbe45f20d3c9f362"
POLYVAL_OUTPUT = "f7a3b47b846119fae5b7866cf5e5b77e"


def test_group_known_answers() -> None:
    for n, encoding in MULTIPLES.items():
        assert group.encode(group.times(n, group.BASE)).hex() == encoding
        assert group.encode(group.decode(bytes.fromhex(encoding))).hex() == encoding
    for encoding in BAD_ENCODINGS:
        with pytest.raises(ValueError, match="not"):
            group.decode(bytes.fromhex(encoding))


def test_map_known_answer() -> None:
    """RFC 9496, appendix A.3: an element is the sum of the maps of both halves of 64 bytes."""
    label = b"Ristretto is traditionally a short shot of espresso coffee"
    data = hashlib.sha512(label).digest()
    element = group.add(group.map_to_group(data[:32]), group.map_to_group(data[32:]))
    expected = "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46"
    assert group.encode(element).hex() == expected


def test_polyval_known_answer() -> None:
    column = ot_twin.bits(bytes.fromhex(POLYVAL_INPUT))
    assert ot_twin.polyval(bytes.fromhex(POLYVAL_KEY), column).hex() == POLYVAL_OUTPUT


@pytest.mark.long
def test_core_agrees_beyond_one_tile() -> None:
    """8,200 transfers take 66 blocks; the core works on 64 at a time."""
    count, context = 8200, bytes(32)
    twin = ot_twin.Extension(context, 4, b"\1" * 32, b"\2" * 32)
    sender = ot.Sender("receiver", context, b"\1" * 32, 4)
    receiver = ot.Receiver("sender", context, b"\2" * 32, 4)
    sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
    choices = [j % 3 & 1 for j in range(count)]
    chunk = twin.run(choices)
    corrections = receiver.extend(count, ot_twin.pack(choices))
    assert corrections == chunk.corrections
    response, received = receiver.correlated(sender.challenge(count, corrections))
    assert response == chunk.response
    assert received.tobytes() == b"".join(chunk.t)
    assert sender.correlated(response).tobytes() == b"".join(chunk.q)


@pytest.mark.parametrize("count", [1, 3, 64])
def test_base_transfers_alone_are_those_of_the_twin(count: int) -> None:
    context, seeds = bytes(range(32)), (b"s" * 32, b"r" * 32)
    choices = [index * index % 3 % 2 for index in range(count)]
    twin = ot_twin.BaseTransfers(ot_twin.tuple_hash("setup", 32, context, b"\0"), *seeds, choices)
    first, response, pairs, received = twin.run()
    sender = ot.BaseSender("bob", context, seeds[0])
    assert sender.first == first
    made, keys = ot.base_respond("alice", context, seeds[1], choices, first)
    assert made == response
    assert [key.tobytes() for key in keys] == received
    assert [[key.tobytes() for key in pair] for pair in sender.keys(count, response)] == pairs
    assert [pair[choice] for pair, choice in zip(pairs, choices, strict=True)] == received
