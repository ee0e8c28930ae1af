"""Oblivious transfer against wrong messages and cheating peers.

Where a change need not be noticed, the test says when, and that what both sides hold is then unharmed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from smpc_dp.crypto import ot
from smpc_dp.errors import LocalError, PeerFault
from tests.reference.ot_twin import bits, pack, polyval, xor

CONTEXT = b"c" * 32
COUNT, CHOICES = 20, b"\xc5\x31\x09"
ENTRY = 80
# RFC 9496, appendix A.2, and the identity.
BAD_POINTS = {
    "not canonical": "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "above the prime": "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "negative": "0100000000000000000000000000000000000000000000000000000000000000",
    "not a square": "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "identity": "0000000000000000000000000000000000000000000000000000000000000000",
}


def start(k: int = 2, number: int = 0) -> tuple[ot.Sender, ot.Receiver]:
    seed = number.to_bytes(31, "big")
    return ot.Sender("bob", CONTEXT, seed + b"s", k), ot.Receiver("alice", CONTEXT, seed + b"r", k)


def ready(k: int = 2, number: int = 0) -> tuple[ot.Sender, ot.Receiver]:
    sender, receiver = start(k, number)
    sender.finish_setup(receiver.finish_setup(sender.respond(receiver.first_message())))
    return sender, receiver


def flip(message: bytes, bit: int) -> bytes:
    changed = bytearray(message)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def assert_destroyed(machine: ot.Sender | ot.Receiver) -> None:
    """Every further step is refused, for good."""
    steps: list[Callable[[], object]]
    if isinstance(machine, ot.Sender):
        steps = [
            lambda: machine.respond(bytes(32)),
            lambda: machine.finish_setup(b""),
            lambda: machine.challenge(1, b""),
            lambda: machine.correlated(b""),
            lambda: machine.random(b""),
            lambda: machine.delta,
        ]
    else:
        steps = [
            lambda: machine.finish_setup(b""),
            lambda: machine.extend(1, b"\0"),
            lambda: machine.correlated(b""),
            lambda: machine.random(b""),
        ]
    for step in steps:
        with pytest.raises(LocalError, match="destroyed"):
            step()


def finish(sender: ot.Sender, receiver: ot.Receiver) -> None:
    """One chunk, which must be right."""
    challenge = sender.challenge(COUNT, receiver.extend(COUNT, CHOICES))
    response, received = receiver.correlated(challenge)
    assert_right(sender, sender.correlated(response), received)


def assert_right(sender: ot.Sender, sent: ot.Rows, received: ot.Rows) -> None:
    chosen = np.array(bits(CHOICES)[:COUNT], np.uint8)[:, None]
    assert (received == sent ^ chosen * np.frombuffer(sender.delta, np.uint8)).all()


def digit(sender: ot.Sender, k: int, number: int) -> list[int]:
    return bits(sender.delta)[number * k : number * k + k]


@pytest.mark.parametrize("name", BAD_POINTS)
def test_bad_points_are_refused(name: str) -> None:
    bad = bytes.fromhex(BAD_POINTS[name])
    sender, receiver = start()
    response = sender.respond(receiver.first_message())
    other, _ = start()
    with pytest.raises(PeerFault, match=r"base message: (not the encoding|the identity)"):
        other.respond(bad)
    assert_destroyed(other)
    changed = response[: 127 * ENTRY + 48] + bad
    with pytest.raises(PeerFault, match=r"base response: point 127: (not the encoding|the identity)"):
        receiver.finish_setup(changed)
    assert_destroyed(receiver)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("change", [lambda m: m[:-1], lambda m: m + b"\0", lambda m: m[:0], lambda m: m * 2])
def test_wrong_lengths_are_refused(k: int, change: Callable[[bytes], bytes]) -> None:
    sender, receiver = start(k)
    first = receiver.first_message()
    with pytest.raises(PeerFault, match=r"^bob: oblivious transfer: base message: .* not 32"):
        sender.respond(change(first))
    assert_destroyed(sender)
    sender, receiver = start(k)
    response = sender.respond(first)
    with pytest.raises(PeerFault, match=r"^alice: .*base response: .* not 10240"):
        receiver.finish_setup(change(response))
    assert_destroyed(receiver)
    _, receiver = start(k)
    trees = receiver.finish_setup(response)
    with pytest.raises(PeerFault, match="tree corrections: "):
        sender.finish_setup(change(trees))
    assert_destroyed(sender)
    sender, receiver = ready(k)
    corrections = receiver.extend(COUNT, CHOICES)
    with pytest.raises(PeerFault, match="corrections: "):
        sender.challenge(COUNT, change(corrections))
    assert_destroyed(sender)
    sender, _ = ready(k)
    challenge = sender.challenge(COUNT, corrections)
    with pytest.raises(PeerFault, match=r"challenge: .* not 24"):
        receiver.correlated(change(challenge))
    assert_destroyed(receiver)
    _, receiver = ready(k)
    receiver.extend(COUNT, CHOICES)
    answer, _ = receiver.correlated(challenge)
    with pytest.raises(PeerFault, match=r"response: .* not 2072"):
        sender.correlated(change(answer))
    assert_destroyed(sender)


@pytest.mark.parametrize("bit", [0, 100, 8 * 48, 8 * 48 + 9, 8 * ENTRY * 64 + 5, 8 * ENTRY * 128 - 1])
def test_a_flipped_base_response_is_noticed(bit: int) -> None:
    """At the latest by the check of the trees: each key hashes the whole entry, string included."""
    sender, receiver = start()
    response = flip(sender.respond(receiver.first_message()), bit)
    with pytest.raises(PeerFault, match=r"not the encoding|check of the trees"):
        sender.finish_setup(receiver.finish_setup(response))


def test_another_first_message_is_noticed() -> None:
    """A valid point that the receiver did not send: somebody in the middle without the channel's keys."""
    sender, receiver = start()
    _, other = start(number=1)
    response = sender.respond(other.first_message())
    with pytest.raises(PeerFault, match="check of the trees"):
        sender.finish_setup(receiver.finish_setup(response))
    assert_destroyed(sender)


@pytest.mark.parametrize(("k", "tree"), [(2, 0), (2, 31), (2, 63), (4, 0), (4, 31)])
def test_a_wrong_tree_is_caught_or_guessed_one_bit(k: int, tree: int) -> None:
    """Of the two corrections of a level the sender reads one, by a bit of Delta: that one is noticed.

    The other changes nothing. So a cheat is caught with probability 1/2 and learns that bit from not
    being caught; another try needs a new setup with a new Delta.
    """
    length = 32 * (k - 1) + 64
    for level in range(1, k):
        caught = []
        for side in range(2):
            sender, receiver = start(k)
            path_bit = digit(sender, k, tree)[k - 1 - level]
            trees = receiver.finish_setup(sender.respond(receiver.first_message()))
            offset = tree * length + 32 * (level - 1) + 16 * side
            try:
                sender.finish_setup(flip(trees, 8 * offset + 77))
            except PeerFault:
                assert_destroyed(sender)
                caught.append(side)
            else:
                finish(sender, receiver)
        assert caught == [1 - path_bit]


@pytest.mark.parametrize("k", [2, 4])
def test_a_flipped_tree_check_is_noticed(k: int) -> None:
    length = 32 * (k - 1) + 64
    for offset in (length - 64, length - 33, length - 32, length - 1, 128 // k * length - 1):
        sender, receiver = start(k)
        trees = receiver.finish_setup(sender.respond(receiver.first_message()))
        with pytest.raises(PeerFault, match="check of the trees"):
            sender.finish_setup(flip(trees, 8 * offset))
        assert_destroyed(sender)


@pytest.mark.parametrize("k", [2, 4])
def test_a_flipped_correction_is_noticed_unless_delta_ignores_it(k: int) -> None:
    """A bit of digit d's correction reaches the sender's rows only if digit d of Delta is not zero."""
    blocks, harmless = 2, 0
    for number in range(128 // k):
        sender, receiver = ready(k)
        corrections = receiver.extend(COUNT, CHOICES)
        row = 7 * number % 256
        changed = flip(corrections, 8 * (16 + 16 * blocks * number) + row)
        response, received = receiver.correlated(sender.challenge(COUNT, changed))
        if any(digit(sender, k, number)):
            with pytest.raises(PeerFault, match="consistency check"):
                sender.correlated(response)
            assert_destroyed(sender)
        else:
            harmless += 1
            assert_right(sender, sender.correlated(response), received)
    assert harmless < 128 // k // 2


@pytest.mark.parametrize("bit", [0, 63, 64, 127])
def test_flipped_headers_are_refused(bit: int) -> None:
    sender, receiver = ready()
    corrections = receiver.extend(COUNT, CHOICES)
    with pytest.raises(PeerFault, match="not of the 20 transfers from index 0"):
        sender.challenge(COUNT, flip(corrections, bit))
    assert_destroyed(sender)


def test_a_flipped_challenge_is_noticed() -> None:
    sender, receiver = ready()
    challenge = sender.challenge(COUNT, receiver.extend(COUNT, CHOICES))
    response, _ = receiver.correlated(flip(challenge, 8 * 8 + 3))
    with pytest.raises(PeerFault, match="consistency check"):
        sender.correlated(response)
    sender, receiver = ready()
    challenge = sender.challenge(COUNT, receiver.extend(COUNT, CHOICES))
    with pytest.raises(PeerFault, match="challenge: not of the chunk from index 0"):
        receiver.correlated(flip(challenge, 3))
    assert_destroyed(receiver)


def test_a_flipped_response_is_noticed() -> None:
    for byte in (0, 8, 23, 24, 39, 40, 1000, 2071):
        sender, receiver = ready()
        challenge = sender.challenge(COUNT, receiver.extend(COUNT, CHOICES))
        response, _ = receiver.random(challenge)
        with pytest.raises(PeerFault, match=r"consistency check|not of the chunk"):
            sender.random(flip(response, 8 * byte + 5))
        assert_destroyed(sender)


def test_an_index_is_never_used_twice() -> None:
    sender, receiver = ready()
    corrections = receiver.extend(COUNT, CHOICES)
    response, _ = receiver.correlated(sender.challenge(COUNT, corrections))
    sender.correlated(response)
    assert sender.next_index == 256
    with pytest.raises(PeerFault, match="not of the 20 transfers from index 256"):
        sender.challenge(COUNT, corrections)
    assert_destroyed(sender)
    # With the header mended, the old corrections do not fit the streams any more.
    sender, receiver = ready()
    for _ in range(2):
        challenge = sender.challenge(COUNT, receiver.extend(COUNT, CHOICES))
        response, _ = receiver.correlated(challenge)
        sender.correlated(response)
    receiver.extend(COUNT, CHOICES)
    mended = sender.next_index.to_bytes(8, "big") + corrections[8:]
    response, _ = receiver.correlated(sender.challenge(COUNT, mended))
    with pytest.raises(PeerFault, match="consistency check"):
        sender.correlated(response)


def test_a_response_of_another_chunk_is_refused() -> None:
    sender, receiver = ready()
    answers = []
    for _ in range(2):
        challenge = sender.challenge(COUNT, receiver.extend(COUNT, CHOICES))
        answers.append(receiver.correlated(challenge)[0])
        if len(answers) == 1:
            sender.correlated(answers[0])
    with pytest.raises(PeerFault, match="response: not of the chunk from index 256"):
        sender.correlated(answers[0])
    assert_destroyed(sender)


def test_a_challenge_of_another_chunk_on_its_way_is_refused() -> None:
    """Answered out of turn, the challenge would be known before the older chunk's is drawn: no such step."""
    sender, receiver = ready()
    challenges = [sender.challenge(COUNT, receiver.extend(COUNT, CHOICES)) for _ in range(2)]
    with pytest.raises(PeerFault, match="challenge: not of the chunk from index 0"):
        receiver.correlated(challenges[1])
    assert_destroyed(receiver)


def test_a_failed_check_ends_the_chunks_on_their_way() -> None:
    sender, receiver = ready()
    challenges = [sender.challenge(COUNT, receiver.extend(COUNT, CHOICES)) for _ in range(2)]
    first, second = (receiver.correlated(challenge)[0] for challenge in challenges)
    with pytest.raises(PeerFault, match="consistency check"):
        sender.correlated(flip(first, 99))
    assert_destroyed(sender)
    with pytest.raises(LocalError, match="destroyed"):
        sender.correlated(second)


def test_another_context_is_refused_by_the_trees() -> None:
    sender, _ = start()
    receiver = ot.Receiver("alice", b"d" * 32, bytes(31) + b"r")
    trees = receiver.finish_setup(sender.respond(receiver.first_message()))
    with pytest.raises(PeerFault, match="check of the trees"):
        sender.finish_setup(trees)


def test_another_field_size_is_refused() -> None:
    sender, _ = start(2)
    _, receiver = start(4)
    trees = receiver.finish_setup(sender.respond(receiver.first_message()))
    with pytest.raises(PeerFault, match="tree corrections: 5120 bytes, not 6144"):
        sender.finish_setup(trees)


def cheat(sender: ot.Sender, receiver: ot.Receiver, k: int, guesses: dict[int, int]) -> bool:
    """Choose otherwise in transfer 3 for some digits, bet on those digits of Delta; whether it passes."""
    blocks, row = 2, 3
    corrections = receiver.extend(COUNT, CHOICES)
    for number in guesses:
        corrections = flip(corrections, 8 * (16 + 16 * blocks * number) + row)
    challenge = sender.challenge(COUNT, corrections)
    response, _ = receiver.correlated(challenge)
    error = polyval(challenge[8:], [int(i == row) for i in range(128 * blocks)])
    for number, guess in guesses.items():
        for bit in range(k):
            if guess >> bit & 1:
                start_at = 24 + 16 * (number * k + bit)
                changed = xor(response[start_at : start_at + 16], error)
                response = response[:start_at] + changed + response[start_at + 16 :]
    try:
        sender.correlated(response)
    except PeerFault:
        return False
    return True


def test_selective_failure_passes_only_with_the_right_guess() -> None:
    """The best cheat known: it passes exactly if every digit that it touches was guessed."""
    for k, numbers in ((2, (5,)), (2, (0, 63)), (4, (7,)), (4, (1, 2, 3))):
        truth = {n: sum(b << i for i, b in enumerate(digit(ready(k)[0], k, n))) for n in numbers}
        assert cheat(*ready(k), k, truth)
        for number in numbers:
            assert not cheat(*ready(k), k, truth | {number: truth[number] ^ 1})


@pytest.mark.long
def test_selective_failure_is_caught_as_often_as_stated() -> None:
    """Inconsistent in one digit, k = 2, with a fixed guess: caught with probability 3/4.

    120 independent setups: 30 pass on average, standard deviation 4.7. Outside 13 to 48 with
    probability below 2e-4 if the claim holds; the seeds are fixed, so the outcome is too.
    """
    passed = sum(cheat(*ready(2, number), 2, {9: 2}) for number in range(120))
    assert 13 <= passed <= 48


def learned(sender: ot.Sender, receiver: ot.Receiver, challenge: bytes) -> bytes:
    """Choose otherwise in transfer n for digit n alone, so that the check passes under this challenge.

    Returns what four tries at each label then show of Delta; raises PeerFault if the check is another one.
    """
    count, blocks = 64, 2
    corrections = receiver.extend(count, bytes(8))
    for row in range(count):
        # POLYVAL of two blocks is ((A * H) ^ B) * H: with B = A * H the whole column hashes to zero.
        cancels = bits(polyval(challenge[8:], [int(i == row) for i in range(128)]))
        for index in (row, *(128 + i for i, bit in enumerate(cancels) if bit)):
            corrections = flip(corrections, 8 * (16 + 16 * blocks * row) + index)
    response, received = receiver.correlated(sender.challenge(count, corrections))
    labels = {bytes(label) for label in sender.correlated(response)}
    result: list[int] = []
    for row in range(count):
        guesses = [(low, high) for low in (0, 1) for high in (0, 1)]
        [guess] = [
            guess
            for guess in guesses
            if xor(bytes(received[row]), pack([0] * 2 * row + [*guess] + [0] * (126 - 2 * row))) in labels
        ]
        result += guess
    return pack(result)


def test_a_sender_that_is_set_back_gives_its_offset_away() -> None:
    """Why a two-party evaluation is never saved: a second run of one state has the challenge of the first.

    The sender is the garbler, its Delta the offset of all labels: with it the evaluator reads every input.
    """
    sender, receiver = ready()
    challenge = sender.challenge(64, receiver.extend(64, bytes(8)))
    assert learned(*ready(), challenge) == sender.delta
    # A new setup has a challenge of its own, and notices.
    with pytest.raises(PeerFault, match="consistency check"):
        learned(*ready(number=1), challenge)
