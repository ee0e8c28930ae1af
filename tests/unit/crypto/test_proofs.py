"""Proofs about committed vectors: the true is provable, the touched is refused, and who is to blame."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.crypto import proofs as p
from smpc_dp.crypto.commit import VALUE_LIMIT, check_opening, combine, commit, fresh_blinding
from smpc_dp.errors import LocalError, VerificationError
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.examples import examples

RANDOMNESS = SeededRandomnessForSimulation(6, "proofs")
CONTEXT = p.context(b"run 1", "alice", b"parameters")
R = fresh_blinding(RANDOMNESS)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[list[int], int, int]:
    lo = draw(st.integers(1 - VALUE_LIMIT, VALUE_LIMIT - 2) | st.integers(-300, 300))
    hi = draw(st.integers(lo + 1, min(VALUE_LIMIT - 1, lo + 300)) | st.integers(lo + 1, VALUE_LIMIT - 1))
    edges = st.sampled_from((lo, hi))
    return draw(st.lists(edges | st.integers(lo, hi), min_size=1, max_size=5)), lo, hi


@settings(max_examples=examples(30))
@given(ranges())
def test_values_in_range_are_provable(case: tuple[list[int], int, int]) -> None:
    values, lo, hi = case
    proof = p.prove_range(CONTEXT, values, R, lo, hi, RANDOMNESS)
    assert len(proof) == p.range_proof_bytes(len(values), lo, hi)
    p.verify_range(CONTEXT, commit(values, R), len(values), lo, hi, proof)


@settings(max_examples=examples(20))
@given(
    st.lists(st.tuples(st.integers(-300, 300), st.integers(1, 300), st.floats(0, 1)), min_size=2, max_size=5)
)
def test_values_in_a_box_are_provable(coordinates: list[tuple[int, int, float]]) -> None:
    lo = [low for low, _, _ in coordinates]
    hi = [low + width for low, width, _ in coordinates]
    values = [low + round(part * width) for low, width, part in coordinates]
    proof = p.prove_range(CONTEXT, values, R, lo, hi, RANDOMNESS)
    assert len(proof) == p.range_proof_bytes(len(values), lo, hi)
    p.verify_range(CONTEXT, commit(values, R), len(values), lo, hi, proof)
    for index in range(len(values)):
        wider = [bound + (c == index) for c, bound in enumerate(hi)]
        assert _refused(p.verify_range, CONTEXT, commit(values, R), len(values), lo, wider, proof)
        outside = [hi[c] + 1 if c == index else value for c, value in enumerate(values)]
        with pytest.raises(ValueError, match=f"number {index} is out of range"):
            p.prove_range(CONTEXT, outside, R, lo, hi, RANDOMNESS)


def test_the_ranges_of_a_box_are_one_for_each_coordinate() -> None:
    proof = p.prove_range(CONTEXT, [1, 5], R, [0, 4], [2, 6], RANDOMNESS)
    commitment = commit([1, 5], R)
    p.verify_range(CONTEXT, commitment, 2, (0, 4), (2, 6), proof)
    assert _refused(p.verify_range, CONTEXT, commitment, 2, [4, 0], [6, 2], proof)
    # The same ranges for all are another statement than one range.
    alike = p.prove_range(CONTEXT, [1, 5], R, [0, 0], [6, 6], RANDOMNESS)
    assert _refused(p.verify_range, CONTEXT, commitment, 2, 0, 6, alike)
    wrong: tuple[tuple[list[int] | int, list[int] | int], ...] = (
        ([0], [6]),
        ([0, 4], 6),
        (0, [2, 6]),
        ([0, 4, 0], [2, 6, 6]),
        ([], []),
        ([0, 6], [2, 6]),
        ([0, 4], [2, VALUE_LIMIT]),
    )
    for lo, hi in wrong:
        with pytest.raises(ValueError, match="lo, hi"):
            p.range_proof_bytes(2, lo, hi)
        with pytest.raises(ValueError, match="lo, hi"):
            p.verify_range(CONTEXT, commitment, 2, lo, hi, proof)
    assert p.range_proof_bytes(4096, [0] * 4096, [65535] * 4096) > 0
    with pytest.raises(ValueError, match="65537 bits"):
        p.range_proof_bytes(4096, [0] * 4096, [65536, *[65535] * 4095])


@settings(max_examples=examples(20))
@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=5), st.integers(0, 3))
def test_norms_are_provable(values: list[int], slack: int) -> None:
    bound = max(1, sum(value * value for value in values) + slack)
    proof = p.prove_norm(CONTEXT, values, R, bound, RANDOMNESS)
    assert len(proof) == p.norm_proof_bytes(len(values), bound)
    p.verify_norm(CONTEXT, commit(values, R), len(values), bound, proof)


@settings(max_examples=examples(20))
@given(st.integers(1, 4), st.integers(1, 20), st.data())
def test_noise_is_what_bits_and_coins_give(length: int, half: int, data: st.DataObject) -> None:
    bits = 2 * half
    size = p.coin_bytes(length, bits)
    packed, coins = (data.draw(st.binary(min_size=size, max_size=size)) for _ in range(2))
    secret = p.NoiseSecret(length, bits, packed, RANDOMNESS.bytes(64))
    differing = int.from_bytes(packed, "little") ^ int.from_bytes(coins, "little")
    expected = [(differing >> c * bits & (1 << bits) - 1).bit_count() - half for c in range(length)]
    assert secret.noise(coins) == expected
    commitment, proof = secret.prove(CONTEXT, coins, R, RANDOMNESS)
    check_opening(commitment, expected, R)
    assert len(proof) == p.noise_proof_bytes(length, bits)
    p.verify_noise(CONTEXT, secret.commitment, commitment, length, bits, coins, proof)


def _refused(check: Callable[..., None], *statement: object) -> bool:
    try:
        check(*statement)
    except VerificationError:
        return True
    return False


def _flips(data: bytes) -> list[bytes]:
    """`data` with each of its bits flipped, one at a time."""
    number = int.from_bytes(data, "little")
    return [(number ^ 1 << bit).to_bytes(len(data), "little") for bit in range(8 * len(data))]


def test_every_bit_of_a_range_statement_counts() -> None:
    commitment, proof = commit([1], R), p.prove_range(CONTEXT, [1], R, 0, 1, RANDOMNESS)
    p.verify_range(CONTEXT, commitment, 1, 0, 1, proof)
    for tampered in _flips(proof):
        assert _refused(p.verify_range, CONTEXT, commitment, 1, 0, 1, tampered)
    for tampered in _flips(commitment):
        assert _refused(p.verify_range, CONTEXT, tampered, 1, 0, 1, proof)
    for tampered in _flips(CONTEXT):
        assert _refused(p.verify_range, tampered, commitment, 1, 0, 1, proof)


def test_every_bit_of_a_noise_statement_counts() -> None:
    secret, coins = p.NoiseSecret.draw(1, 8, RANDOMNESS), b"\x5a"
    noise, proof = secret.prove(CONTEXT, coins, R, RANDOMNESS)
    p.verify_noise(CONTEXT, secret.commitment, noise, 1, 8, coins, proof)
    for tampered in _flips(proof):
        assert _refused(p.verify_noise, CONTEXT, secret.commitment, noise, 1, 8, coins, tampered)
    for tampered in _flips(secret.commitment + noise + coins):
        a, e, b = tampered[:32], tampered[32:64], tampered[64:]
        assert _refused(p.verify_noise, CONTEXT, a, e, 1, 8, b, proof)


def test_every_byte_of_a_norm_proof_counts() -> None:
    commitment, proof = commit([1], R), p.prove_norm(CONTEXT, [1], R, 1, RANDOMNESS)
    p.verify_norm(CONTEXT, commitment, 1, 1, proof)
    for index in range(len(proof)):
        tampered = proof[:index] + bytes([proof[index] ^ 1 << index % 8]) + proof[index + 1 :]
        assert _refused(p.verify_norm, CONTEXT, commitment, 1, 1, tampered)


@pytest.mark.parametrize("size", [0, 31, 352, 383, 385, 416])
def test_proofs_of_another_size_are_refused(size: int) -> None:
    proof = p.prove_range(CONTEXT, [3], R, 0, 50, RANDOMNESS)
    assert len(proof) == 384
    assert _refused(p.verify_range, CONTEXT, commit([3], R), 1, 0, 50, (proof + bytes(32))[:size])


@pytest.mark.parametrize(
    "context",
    [
        p.context(b"run 2", "alice", b"parameters"),
        p.context(b"run 1", "bob", b"parameters"),
        p.context(b"run 1", "alice", b"others"),
        p.context(b"run 1", "alice"),
        p.context(b"run 1a", "lice", b"parameters"),
    ],
)
def test_replays_are_refused(context: bytes) -> None:
    secret, coins = p.NoiseSecret.draw(1, 8, RANDOMNESS), b"\x5a"
    noise, of_noise = secret.prove(CONTEXT, coins, R, RANDOMNESS)
    commitment = commit([1], R)
    of_range = p.prove_range(CONTEXT, [1], R, 0, 1, RANDOMNESS)
    of_norm = p.prove_norm(CONTEXT, [1], R, 1, RANDOMNESS)
    assert _refused(p.verify_noise, context, secret.commitment, noise, 1, 8, coins, of_noise)
    assert _refused(p.verify_range, context, commitment, 1, 0, 1, of_range)
    assert _refused(p.verify_norm, context, commitment, 1, 1, of_norm)


def test_other_public_numbers_are_refused() -> None:
    """Same commitment, same size of proof, another statement."""
    proof = p.prove_range(CONTEXT, [3, 0], R, -3, 4, RANDOMNESS)
    commitment = commit([3, 0], R)
    p.verify_range(CONTEXT, commitment, 2, -3, 4, proof)
    for length, lo, hi in ((2, -3, 3), (2, -4, 4), (2, -2, 4), (1, -30, 30)):
        assert _refused(p.verify_range, CONTEXT, commitment, length, lo, hi, proof)
    secret, coins = p.NoiseSecret.draw(2, 4, RANDOMNESS), b"\x5a"
    noise, proof = secret.prove(CONTEXT, coins, R, RANDOMNESS)
    assert _refused(p.verify_noise, CONTEXT, secret.commitment, noise, 1, 8, coins, proof)
    assert _refused(p.verify_noise, CONTEXT, secret.commitment, noise, 4, 2, coins, proof)
    # A commitment to the same noise with another blinding.
    other = combine([noise, commit([], R)])
    assert _refused(p.verify_noise, CONTEXT, secret.commitment, other, 2, 4, coins, proof)


def test_false_statements_cannot_be_asked_for() -> None:
    for values in ([51], [-1], [0, 51], [1 << 200]):
        with pytest.raises(ValueError, match=f"number {len(values) - 1} is out of range"):
            p.prove_range(CONTEXT, values, R, 0, 50, RANDOMNESS)
    with pytest.raises(ValueError, match="squares exceeds"):
        p.prove_norm(CONTEXT, [3, 4], R, 24, RANDOMNESS)
    with pytest.raises(ValueError, match="out of range"):
        p.prove_norm(CONTEXT, [5], R, 24, RANDOMNESS)


def test_own_arguments_out_of_range() -> None:
    for lo, hi in ((1, 1), (2, 1), (0, VALUE_LIMIT), (-VALUE_LIMIT, 0), (-(1 << 200), 0), (0, 1 << 127)):
        with pytest.raises(ValueError, match="lo, hi"):
            p.range_proof_bytes(1, lo, hi)
    for length in (0, 4097, -1, 1 << 70):
        with pytest.raises(ValueError, match="length: "):
            p.range_proof_bytes(length, 0, 1)
    for bits in (0, 7, -2, 1 << 70):
        with pytest.raises(ValueError, match="bits: "):
            p.coin_bytes(1, bits)
    assert p.noise_proof_bytes(1, p.MAX_BITS) == 32 * (2 * 16 + 5)
    with pytest.raises(ValueError, match="more than 65536"):
        p.noise_proof_bytes(2, p.MAX_BITS)
    for bound in (0, VALUE_LIMIT, 1 << 200):
        with pytest.raises(ValueError, match="bound_squared"):
            p.norm_proof_bytes(1, bound)
    secret = p.NoiseSecret.draw(1, 8, RANDOMNESS)
    with pytest.raises(ValueError, match="coins: 2 bytes, not 1"):
        secret.noise(bytes(2))
    with pytest.raises(ValueError, match="context: 3 bytes"):
        p.prove_range(b"run", [0], R, 0, 1, RANDOMNESS)


def test_a_secret_serves_one_proof() -> None:
    secret = p.NoiseSecret.draw(1, 8, RANDOMNESS)
    secret.prove(CONTEXT, b"\0", R, RANDOMNESS)
    for again in (lambda: secret.prove(CONTEXT, b"\1", R, RANDOMNESS), lambda: secret.noise(b"\1")):
        with pytest.raises(LocalError, match="used up"):
            again()
    assert repr(secret) == "NoiseSecret(length=1, bits=8)"


def test_a_secret_serves_one_proof_of_two_at_once() -> None:
    secret = p.NoiseSecret.draw(1, 8, RANDOMNESS)
    with pytest.raises(ValueError, match="coins"):
        secret.prove(CONTEXT, bytes(2), R, RANDOMNESS)

    class Meanwhile:
        def bytes(self, n: int) -> bytes:
            with pytest.raises(LocalError, match="used up"):
                secret.prove(CONTEXT, b"\1", R, RANDOMNESS)
            return RANDOMNESS.bytes(n)

    secret.prove(CONTEXT, b"\0", R, Meanwhile())


class _Stuck:
    """A generator that always gives the same bytes."""

    def bytes(self, n: int) -> bytes:
        return b"\7" * n


def test_nonces_are_bound_to_witness_and_statement() -> None:
    """With a generator that is stuck, two proofs share nothing unless they are the same."""

    def elements(values: list[int], context: bytes = CONTEXT, hi: int = 50) -> set[bytes]:
        proof = p.prove_range(context, values, R, 0, hi, _Stuck())
        return {proof[at : at + 32] for at in range(0, len(proof), 32)}

    first = elements([3])
    assert first == elements([3])
    assert not first & elements([4])
    assert not first & elements([3], hi=51)
    assert not first & elements([3], p.context(b"run 2", "alice"))
    assert not first & {bytes(32)}


def _party(number: int, batch: p.Batch, spoil: str = "") -> None:
    """Add one party's statements; `spoil` says which of them is to be false."""
    context = p.context(b"run", f"user {number}")
    blinding = fresh_blinding(RANDOMNESS)
    commitment = commit([number % 50], blinding)
    of_range = p.prove_range(context, [number % 50], blinding, 0, 50, RANDOMNESS)
    secret, coins = p.NoiseSecret.draw(1, 8, RANDOMNESS), RANDOMNESS.bytes(1)
    eta = secret.noise(coins)
    noise, of_noise = secret.prove(context, coins, blinding, RANDOMNESS)
    of_norm = p.prove_norm(context, [number % 50], blinding, 2500, RANDOMNESS)
    if spoil == "range":
        of_range = of_range[:100] + bytes([of_range[100] ^ 1]) + of_range[101:]
    if spoil == "coins":
        coins = bytes([coins[0] ^ 4])
    if spoil == "encoding":
        of_norm = of_norm[:-1] + b"\xff"
    if spoil == "value":
        eta = [eta[0] + 1]
    if spoil == "short":
        noise = noise[:-1]
    batch.add_range((number, "range"), context, commitment, 1, 0, 50, of_range)
    batch.add_noise((number, "noise"), context, secret.commitment, noise, 1, 8, coins, of_noise)
    batch.add_norm((number, "norm"), context, commitment, 1, 2500, of_norm)
    batch.add_opening((number, "opening"), [noise, commitment], [commitment], eta, blinding)


@pytest.mark.parametrize("threads", [1, 3, 64])
def test_a_batch_names_the_false(threads: int) -> None:
    spoils = {2: "range", 3: "coins", 7: "encoding", 11: "value", 12: "short"}
    batch = p.Batch()
    for number in range(14):
        _party(number, batch, spoils.get(number, ""))
    assert len(batch) == 56
    with pytest.raises(p.ProofFailure, match=r"of 56 statements are false: \(2, 'range'\)") as failure:
        batch.verify(threads)
    assert failure.value.failed == (
        (2, "range"),
        (3, "noise"),
        (7, "norm"),
        (11, "opening"),
        (12, "noise"),
        (12, "opening"),
    )
    assert len(batch) == 0
    batch.verify()


def test_true_batches_hold_on_any_number_of_threads() -> None:
    for threads in (1, 2, 5):
        batch = p.Batch()
        for number in range(4):
            _party(number, batch)
        batch.verify(threads)
    with pytest.raises(ValueError, match="threads: 0"):
        p.Batch().verify(0)


def test_statements_stay_and_keep_their_tags_if_nothing_was_checked() -> None:
    batch = p.Batch()
    batch.add_opening("false", [commit([5], R)], [], [6], R)
    with pytest.raises(ValueError, match="threads: 0"):
        batch.verify(0)
    batch.add_opening("true", [commit([5], R)], [], [5], R)
    with pytest.raises(p.ProofFailure) as failure:
        batch.verify()
    assert (failure.value.failed, len(batch)) == (("false",), 0)


def test_errors_that_cancel_do_not_pass() -> None:
    """Two openings that are wrong by the same amount, one up and one down."""
    batch = p.Batch()
    batch.add_opening("up", [commit([5], R)], [], [6], R)
    batch.add_opening("down", [commit([5], R)], [], [4], R)
    batch.add_opening("huge", [commit([5], R)], [], [1 << 300], R)
    batch.add_opening("true", [commit([5], R)], [], [5], R)
    with pytest.raises(p.ProofFailure) as failure:
        batch.verify()
    assert failure.value.failed == ("up", "down", "huge")
