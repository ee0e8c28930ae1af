"""Oblivious transfer: what honest parties get, and what wrong arguments do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from smpc_dp.crypto import ot
from smpc_dp.errors import LocalError, PeerFault

CONTEXT, SENDER_SEED, RECEIVER_SEED = b"c" * 32, b"s" * 32, b"r" * 32


def pair(k: int = 2) -> tuple[ot.Sender, ot.Receiver]:
    sender = ot.Sender("bob", CONTEXT, SENDER_SEED, k)
    receiver = ot.Receiver("alice", CONTEXT, RECEIVER_SEED, k)
    sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
    return sender, receiver


def draw(count: int) -> tuple[bytes, np.ndarray]:
    bits = np.random.default_rng(count).integers(0, 2, count, dtype=np.uint8)
    return np.packbits(bits, bitorder="little").tobytes(), bits


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("count", [1, 8, 127, 1000])
def test_correlated(k: int, count: int) -> None:
    sender, receiver = pair(k)
    delta = np.frombuffer(sender.delta, np.uint8)
    for _ in range(2):
        choices, bits = draw(count)
        challenge = sender.challenge(count, receiver.extend(count, choices))
        response, received = receiver.correlated(challenge)
        sent = sender.correlated(response)
        assert sent.shape == received.shape == (count, 16)
        assert (received == sent ^ bits[:, None] * delta).all()
    assert sender.next_index == receiver.next_index == 2 * 128 * (-(-count // 128) + 1)


def test_the_wire_costs_what_is_documented() -> None:
    for k in ot.FIELD_SIZES:
        _, receiver = pair(k)
        count = 1 << 17
        corrections = receiver.extend(count, bytes(count // 8))
        assert len(corrections) == 16 + (16 * count + 16 * 128) // k


@pytest.mark.parametrize("k", [2, 4])
def test_chosen(k: int) -> None:
    sender, receiver = pair(k)
    count = 333
    choices, bits = draw(count)
    messages = np.random.default_rng(1).integers(0, 256, (count, 2, 16), dtype=np.uint8)
    challenge = sender.challenge(count, receiver.extend(count, choices))
    response, chosen_pads = receiver.random(challenge)
    pads = sender.random(response)
    assert pads.shape == (count, 2, 16)
    opened = ot.open_chosen(chosen_pads, choices, ot.seal_pairs(pads, messages))
    assert (opened == messages[np.arange(count), bits]).all()
    assert len(np.unique(pads.reshape(-1, 16), axis=0)) == 2 * count


def test_equal_rows_have_different_pads() -> None:
    """The index is in the hash: even a sender's rows that repeat across setups give fresh pads."""
    pads = []
    for context in (CONTEXT, b"d" * 32):
        sender = ot.Sender("bob", context, SENDER_SEED)
        receiver = ot.Receiver("alice", context, RECEIVER_SEED)
        sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
        for _ in range(2):
            response, chosen = receiver.random(sender.challenge(3, receiver.extend(3, b"\5")))
            sender.random(response)
            pads.append(chosen)
    assert len(np.unique(np.concatenate(pads), axis=0)) == 12


@pytest.mark.parametrize("role", [ot.Sender, ot.Receiver])
def test_wrong_arguments_of_a_setup(role: type[ot.Sender] | type[ot.Receiver]) -> None:
    for context, seed, k, reason in (
        (b"c" * 31, SENDER_SEED, 2, "context: 31 bytes"),
        (CONTEXT, b"s" * 33, 2, "seed: 33 bytes"),
        (CONTEXT, SENDER_SEED, 3, "k: 3"),
        (CONTEXT, SENDER_SEED, 1, "k: 1"),
    ):
        with pytest.raises(ValueError, match=reason):
            role("peer", context, seed, k)


def test_wrong_arguments_change_nothing() -> None:
    sender, receiver = pair()
    for count, choices, reason in (
        (0, b"", "count: 0"),
        ((1 << 22) + 1, bytes((1 << 19) + 1), "count: 4194305"),
        (9, b"\0", "choices: 1 bytes, not 2"),
        (9, b"\0\2", "a bit after the 9 transfers"),
    ):
        with pytest.raises(ValueError, match=reason):
            receiver.extend(count, choices)
    corrections = receiver.extend(9, b"\0\1")
    with pytest.raises(ValueError, match="count: 0"):
        sender.challenge(0, corrections)
    response, _ = receiver.correlated(sender.challenge(9, corrections))
    assert len(sender.correlated(response)) == 9


def test_steps_out_of_order_change_nothing() -> None:
    sender = ot.Sender("bob", CONTEXT, SENDER_SEED)
    receiver = ot.Receiver("alice", CONTEXT, RECEIVER_SEED)
    for step in (
        lambda: sender.finish_setup(b""),
        lambda: sender.challenge(1, b""),
        lambda: sender.correlated(b""),
        lambda: sender.random(b""),
        lambda: receiver.extend(1, b"\0"),
        lambda: receiver.correlated(b""),
        lambda: receiver.random(b""),
    ):
        with pytest.raises(LocalError, match=r"await|ready"):
            step()
    response = sender.respond(receiver.first_message())
    with pytest.raises(LocalError, match="already answered"):
        sender.respond(receiver.first_message())
    sender.finish_setup(receiver.finish_setup(response))
    with pytest.raises(LocalError, match="not awaited"):
        receiver.finish_setup(response)
    challenge = sender.challenge(1, receiver.extend(1, b"\1"))
    answer, _ = receiver.correlated(challenge)
    with pytest.raises(LocalError, match="no challenge is awaited"):
        receiver.correlated(challenge)
    sender.correlated(answer)
    with pytest.raises(LocalError, match="no response is awaited"):
        sender.correlated(answer)


def test_chunks_on_their_way_at_once() -> None:
    sender, receiver = pair(4)
    counts = [5, 300, 129, 1]
    drawn = [draw(count) for count in counts]
    corrections = [receiver.extend(count, choices) for count, (choices, _) in zip(counts, drawn, strict=True)]
    with pytest.raises(LocalError, match="alice: four chunks are on their way"):
        receiver.extend(1, b"\0")
    # Corrections may come in any buffer.
    views = [memoryview(bytearray(message)) for message in corrections]
    challenges = [sender.challenge(count, view) for count, view in zip(counts, views, strict=True)]
    assert len({challenge[8:] for challenge in challenges}) == ot.MAX_PENDING
    with pytest.raises(LocalError, match="bob: four chunks are on their way"):
        sender.challenge(1, b"")
    delta = np.frombuffer(sender.delta, np.uint8)
    for count, (_, bits), challenge in zip(counts, drawn, challenges, strict=True):
        response, received = receiver.correlated(challenge)
        sent = sender.correlated(response)
        assert (received == sent ^ bits[:, None] * delta).all()
        assert len(sent) == count
    receiver.extend(1, b"\0")


def test_arrays_to_write_to() -> None:
    sender, receiver = pair()
    choices, bits = draw(200)
    corrections = np.empty(receiver.corrections_bytes(200), np.uint8)
    with pytest.raises(ValueError, match="corrections: room for 7"):
        receiver.extend_into(200, choices, corrections[:7])
    receiver.extend_into(200, choices, corrections)
    challenge = sender.challenge(200, corrections)
    t, q = np.empty((2, 200, 16), np.uint8)
    wrongs: list[Any] = [t[:199], t.reshape(-1), t.astype(np.int64), np.empty((200, 32), np.uint8)[:, ::2]]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"out: .* not uint8 of shape \(200, 16\)"):
            receiver.correlated(challenge, wrong)
    response, received = receiver.correlated(challenge, t)
    assert received is t
    assert sender.correlated(response, q) is q
    assert (t == q ^ bits[:, None] * np.frombuffer(sender.delta, np.uint8)).all()


@pytest.mark.parametrize("blocks", [1, 20, 64, 130])
def test_all_kernels_make_the_same_rows_and_hashes(blocks: int) -> None:
    random = np.random.default_rng(blocks)
    columns = random.integers(0, 256, (blocks + 1, 128, 16), dtype=np.uint8)
    rows = np.empty((2, 128 * blocks, 16), np.uint8)
    hashes = {
        ot.rows_and_hashes(b"c" * 16, columns, out, portable=portable)
        for out, portable in zip(rows, (False, True), strict=True)
    }
    assert len(hashes) == 1
    bits = np.unpackbits(columns, axis=2, bitorder="little")[:-1].transpose(0, 2, 1).reshape(-1, 128)
    assert (rows == np.packbits(bits, axis=1, bitorder="little")).all()
    with pytest.raises(ValueError, match="columns"):
        ot.rows_and_hashes(b"c" * 16, columns, rows[0][:-1], portable=True)


def test_base_transfers_to_be_timed() -> None:
    ot.base_transfers(b"s" * 32)
    ot.group_multiplications(b"s" * 32, 1, 1)
    with pytest.raises(ValueError, match="seed: 3 bytes"):
        ot.base_transfers(b"abc")


def test_seal_and_open_refuse_other_shapes() -> None:
    one, two = np.zeros((3, 16), np.uint8), np.zeros((3, 2, 16), np.uint8)
    with pytest.raises(ValueError, match="pads"):
        ot.seal_pairs(one, two)
    with pytest.raises(ValueError, match="messages"):
        ot.seal_pairs(two, two[:2])
    with pytest.raises(ValueError, match="pads"):
        ot.open_chosen(one.astype(np.int64), b"\0", two)
    with pytest.raises(ValueError, match="sealed"):
        ot.open_chosen(one, b"\0", two[:2])
    with pytest.raises(ValueError, match="2 bytes"):
        ot.open_chosen(one, b"\0\0", two)


def test_a_receiver_makes_the_pads_of_a_sender_again_from_its_seed() -> None:
    sender = ot.Sender("bob", CONTEXT, SENDER_SEED, 4)
    receiver = ot.Receiver("alice", CONTEXT, RECEIVER_SEED, 4, record=True)
    with pytest.raises(LocalError, match="no challenge was answered"):
        receiver.remake(SENDER_SEED)
    sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
    response, _ = receiver.random(sender.challenge(3, receiver.extend(3, b"\5")))
    assert receiver.remake(RECEIVER_SEED) == ot.Deviation.BASE_RESPONSE
    made = receiver.remake(SENDER_SEED)
    assert isinstance(made, np.ndarray)
    assert (made == sender.random(response).swapaxes(0, 1)).all()
    with pytest.raises(LocalError, match="no record is kept"):
        ot.Receiver("alice", CONTEXT, RECEIVER_SEED).remake(SENDER_SEED)


def test_repr_shows_no_secret() -> None:
    sender, receiver = pair()
    assert repr(sender) == "Sender(peer='bob', next_index=0)"
    assert repr(receiver) == "Receiver(peer='alice', next_index=0)"


def test_the_end_of_a_setup_s_indices_is_this_machines_error(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver = ot.Receiver("alice", bytes(32), b"r" * 32)
    sender = ot.Sender("bob", bytes(32), b"s" * 32)
    sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
    monkeypatch.setattr("smpc_dp.crypto.ot.MAX_INDEX", 3 * 128)
    with pytest.raises(LocalError, match="alice: 257 more transfers from index 0 exceed the 384 indices"):
        receiver.extend(257, bytes(33))
    with pytest.raises(LocalError, match="bob: 257 more transfers from index 0 exceed the 384 indices"):
        sender.challenge(257, b"")
    receiver.extend(256, bytes(32))
    assert receiver.next_index == 384


def test_base_transfers_alone_refuse_wrong_messages_and_arguments() -> None:
    sender = ot.BaseSender("bob", CONTEXT, SENDER_SEED)
    response, keys = ot.base_respond("alice", CONTEXT, RECEIVER_SEED, [0, 1], sender.first)
    assert keys.shape == (2, 16)
    assert sender.keys(2, response)[[0, 1], [0, 1]].tolist() == keys.tolist()
    for wrong in (b"", response[:-1], response + b"\0", response[:48] + b"\xff" * 32 + response[80:]):
        with pytest.raises(PeerFault, match="bob"):
            sender.keys(2, wrong)
    for wrong in (b"", bytes(32), b"\xff" * 32):
        with pytest.raises(PeerFault, match="alice"):
            ot.base_respond("alice", CONTEXT, RECEIVER_SEED, [0], wrong)
    for choices in ([], [2], [0] * 129):
        with pytest.raises(ValueError, match="choices"):
            ot.base_respond("alice", CONTEXT, RECEIVER_SEED, choices, sender.first)
    # None; as many as have a multiple of 2**64 bytes; and more than have numbers of their own.
    for count, message in ((0, b""), (1 << 60, b""), (257, bytes(257 * 80))):
        with pytest.raises(ValueError, match=f"count: {count}, not 1 to 128"):
            sender.keys(count, message)
    with pytest.raises(ValueError, match="seed"):
        ot.BaseSender("bob", CONTEXT, b"")
