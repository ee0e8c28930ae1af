"""The core's proofs and the twin's: both verifiers agree, on true, false and tampered ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from smpc_dp.crypto import commit as commitments
from smpc_dp.crypto import proofs
from smpc_dp.errors import VerificationError
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp_lab.vectors import forged
from smpc_dp_verify import proofs as twin
from smpc_dp_verify import ristretto
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.merlin import Transcript, keccak_f
from tests.reference import proofs_prover as cheat

CONTEXT = proofs.context(b"run", "alice")
R = 987654321
BLINDING = R.to_bytes(32, "little")


def _fixed(name: str) -> SeededRandomnessForSimulation:
    return SeededRandomnessForSimulation(6, name)


def _agree(core: Callable[[], None], reference: Callable[[], None]) -> bool:
    """Whether both hold; fails unless both say the same."""
    try:
        core()
        held = True
    except VerificationError:
        held = False
    if held:
        reference()
    else:
        with pytest.raises(Refused):
            reference()
    return held


Bound = int | list[int]


def _range(context: bytes, commitment: bytes, length: int, lo: Bound, hi: Bound, proof: bytes) -> bool:
    statement = context, commitment, length, lo, hi, proof
    return _agree(lambda: proofs.verify_range(*statement), lambda: twin.verify_range(*statement))


def _noise(
    secret: bytes, noise: bytes, length: int, bits: int, coins: bytes, proof: bytes, context: bytes = CONTEXT
) -> bool:
    statement = context, secret, noise, length, bits, coins, proof
    return _agree(lambda: proofs.verify_noise(*statement), lambda: twin.verify_noise(*statement))


def _norm(commitment: bytes, length: int, bound: int, proof: bytes) -> bool:
    statement = CONTEXT, commitment, length, bound, proof
    return _agree(lambda: proofs.verify_norm(*statement), lambda: twin.verify_norm(*statement))


def test_twin_known_answers() -> None:
    state = bytearray(200)
    state[0], state[135] = 6, 0x80
    keccak_f(state)
    assert state[:32] == hashlib.sha3_256(b"").digest()
    # The vector of merlin's own test of equivalence.
    transcript = Transcript(b"test protocol")
    transcript.append(b"some label", b"some data")
    expected = "d5a21972d0d5fe320c0d263fac7fffb8145aa640af6e9bca177c03c7efcf0615"
    assert transcript.challenge(b"challenge", 32).hex() == expected
    # RFC 9496, appendix A.3: the map of 64 uniform bytes.
    wide = hashlib.sha512(b"Ristretto is traditionally a short shot of espresso coffee").digest()
    point = ristretto.add(ristretto.map_to_group(wide[:32]), ristretto.map_to_group(wide[32:]))
    assert ristretto.encode(point).hex() == "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46"


def test_commitments_are_the_twin_s() -> None:
    for values in ([], [0], [5, -3, 1 - (1 << 126), (1 << 126) - 1]):
        assert commitments.commit(values, BLINDING) == twin.commit(values, BLINDING)


@pytest.mark.parametrize(("values", "lo", "hi"), [([1], 0, 1), ([50], -7, 50), ([0, 6, 4], 0, 6)])
def test_ranges_agree(values: list[int], lo: int, hi: int) -> None:
    commitment = commitments.commit(values, BLINDING)
    proof = proofs.prove_range(CONTEXT, values, BLINDING, lo, hi, _fixed("range"))
    length = len(values)
    assert _range(CONTEXT, commitment, length, lo, hi, proof)
    assert not _range(CONTEXT, commitment, length, lo - 1, hi - 1, proof)
    assert not _range(proofs.context(b"run", "bob"), commitment, length, lo, hi, proof)
    assert not _range(CONTEXT, commitment, length, lo, hi, proof[:-1])
    assert not _range(CONTEXT, commitment, length, lo, hi, proof + bytes(32))


@pytest.mark.parametrize(
    ("values", "lo", "hi"), [([1, -7], [0, -9], [1, -2]), ([2, 1, 0], [2, 0, 0], [4, 1, 6])]
)
def test_boxes_agree(values: list[int], lo: list[int], hi: list[int]) -> None:
    commitment = commitments.commit(values, BLINDING)
    proof = proofs.prove_range(CONTEXT, values, BLINDING, lo, hi, _fixed("box"))
    length = len(values)
    assert _range(CONTEXT, commitment, length, lo, hi, proof)
    assert not _range(CONTEXT, commitment, length, lo[::-1], hi[::-1], proof)
    assert not _range(CONTEXT, commitment, length, lo, [*hi[:-1], hi[-1] + 1], proof)
    assert not _range(CONTEXT, commitment, length, [lo[0] - 1, *lo[1:]], hi, proof)
    assert not _range(CONTEXT, commitments.commit(values[::-1], BLINDING), length, lo, hi, proof)
    for index in range(0, len(proof), 53):
        tampered = bytearray(proof)
        tampered[index] ^= 1 << index % 8
        assert not _range(CONTEXT, commitment, length, lo, hi, bytes(tampered))


# 0 to 6 has the weights 1, 2, 3, and 0 to 1 the weight 1.
@pytest.mark.parametrize(
    ("values", "digits", "true"),
    [
        pytest.param([5, 1], [[0, 1, 1], [1]], True, id="true"),
        pytest.param([1, 5], [[1, 0, 0], [1]], False, id="out of its own range, within the other's"),
        pytest.param([1, 5], [[1], [0, 1, 1]], False, id="the ranges exchanged"),
        pytest.param([5, 2], [[0, 1, 1], [2]], False, id="above by one, a digit of two"),
        pytest.param([5, -1], [[0, 1, 1], [-1]], False, id="below by one, a digit of minus one"),
        pytest.param([6, 0], [[0, 1, 1], [1]], False, id="one step moved to the other coordinate"),
    ],
)
def test_false_boxes_are_refused_by_both(values: list[int], digits: list[list[int]], true: bool) -> None:
    commitment = commitments.commit(values, BLINDING)
    proof = cheat.prove_range(CONTEXT, commitment, R, [0, 0], [6, 1], digits)
    assert _range(CONTEXT, commitment, 2, [0, 0], [6, 1], proof) is true


@pytest.mark.parametrize(("length", "bits"), [(1, 2), (2, 6)])
def test_noise_agrees(length: int, bits: int) -> None:
    secret = proofs.NoiseSecret.draw(length, bits, _fixed("secret"))
    coins = _fixed("coins").bytes(proofs.coin_bytes(length, bits))
    noise, proof = secret.prove(CONTEXT, coins, BLINDING, _fixed("noise"))
    assert _noise(secret.commitment, noise, length, bits, coins, proof)
    assert not _noise(secret.commitment, noise, length, bits, bytes([coins[0] ^ 1]) + coins[1:], proof)
    assert not _noise(noise, secret.commitment, length, bits, coins, proof)


def test_norms_agree() -> None:
    commitment = commitments.commit([1, -2, 0], BLINDING)
    proof = proofs.prove_norm(CONTEXT, [1, -2, 0], BLINDING, 5, _fixed("norm"))
    assert _norm(commitment, 3, 5, proof)
    assert not _norm(commitment, 3, 6, proof)
    assert not _norm(commitments.commit([1, 2, 0], BLINDING), 3, 5, proof)


def test_tampered_proofs_are_refused_by_both() -> None:
    commitment = commitments.commit([1], BLINDING)
    true_range = proofs.prove_range(CONTEXT, [1], BLINDING, 0, 1, _fixed("range"))
    for index in range(0, len(true_range), 7):
        tampered = bytearray(true_range)
        tampered[index] ^= 1 << index % 8
        assert not _range(CONTEXT, commitment, 1, 0, 1, bytes(tampered))
    true_norm = proofs.prove_norm(CONTEXT, [1], BLINDING, 1, _fixed("norm"))
    for index in range(0, len(true_norm), 31):
        tampered = bytearray(true_norm)
        tampered[index] ^= 1 << index % 8
        assert not _norm(commitment, 1, 1, bytes(tampered))


def test_a_prover_in_python_convinces_the_core() -> None:
    """Of what is true: so that its false proofs fail for what is false in them alone."""
    commitment = commitments.commit([5, 3], BLINDING)
    # 0 to 6 has the weights 1, 2, 3; in another order of taking them, too.
    for taken in ([[0, 1, 1], [1, 1, 0]], [[0, 1, 1], [0, 0, 1]]):
        assert _range(CONTEXT, commitment, 2, 0, 6, cheat.prove_range(CONTEXT, commitment, R, 0, 6, taken))
    noise = commitments.commit([-1], BLINDING)
    secret, proof = cheat.prove_noise(CONTEXT, [1, 0], [1, 0], noise, R, 1)
    assert _noise(secret, noise, 1, 2, b"\1", proof)
    values = [1, -2, 0, 0]
    commitment = commitments.commit(values[:3], BLINDING)
    # Root 2: weights 1, 2, 1 of 0 to 4; bound 5: weights 1, 2, 2 of 0 to 5; the remainder is 0.
    digits = [1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    proof = cheat.prove_norm(CONTEXT, commitment, R, values, 3, 5, 2, 5, digits, values)
    assert _norm(commitment, 3, 5, proof)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("value", "digits", "in_right"),
    [
        pytest.param(7, [1, 1, 1], None, id="above by one, bits of the greatest"),
        pytest.param(7, [2, 1, 1], None, id="above by one, a digit of two"),
        pytest.param(7, [2, 1, 1], [0, 0, 0], id="above by one, the other side as if it were bits"),
        pytest.param(7, [2, 1, 1], [-1, 0, 0], id="above by one, inner product of zero"),
        pytest.param(-1, [0, 0, 0], None, id="below by one, bits of the least"),
        pytest.param(-1, [-1, 0, 0], None, id="below by one, a digit of minus one"),
        pytest.param(5, [0, 1, 1], [-1, 0, 1], id="right value, sides that do not match"),
        pytest.param(4, [0, 1, 1], None, id="right range, bits of another value"),
    ],
)
def test_false_ranges_are_refused_by_both(value: int, digits: list[int], in_right: list[int] | None) -> None:
    commitment = commitments.commit([value], BLINDING)
    proof = cheat.prove_range(CONTEXT, commitment, R, 0, 6, [digits], in_right)
    assert not _range(CONTEXT, commitment, 1, 0, 6, proof)


def test_coordinates_beyond_the_length_and_swapped_ones_are_refused() -> None:
    longer = commitments.commit([5, 1], BLINDING)
    proof = cheat.prove_range(CONTEXT, longer, R, 0, 6, [[0, 1, 1]])
    assert not _range(CONTEXT, longer, 1, 0, 6, proof)
    swapped = commitments.commit([5, 3], BLINDING)
    proof = cheat.prove_range(CONTEXT, swapped, R, 0, 6, [[1, 1, 0], [0, 1, 1]])
    assert not _range(CONTEXT, swapped, 2, 0, 6, proof)


@pytest.mark.thin(2)
@pytest.mark.parametrize("index", range(5))
def test_commitments_that_hold_a_generator_of_bits_are_refused(index: int) -> None:
    """Of a bit, of what fills up to a power of two, and of one beyond; there would be no opening."""
    generator = twin.generator(("left", index))
    commitment = ristretto.encode(twin.total([twin.committed([4], R), twin.multiply(5, generator)]))
    in_target = [5 * (i == index) for i in range(4)]
    for left, right, free in ((0, -1, 0), (1, 0, 0), (0, 0, 0), (0, 0, 1)):
        digits, in_right = [1, 0, 1, left], [0, -1, 0, right]
        proof = cheat.prove_range(CONTEXT, commitment, R, 0, 6, [digits], in_right, in_target, free)
        assert not _range(CONTEXT, commitment, 1, 0, 6, proof)


@pytest.mark.parametrize(
    ("noise", "secret"),
    [
        pytest.param([0], [1, 0], id="other noise than the bits give"),
        pytest.param([1], [1, 2], id="noise that a digit of two gives"),
        pytest.param([-3], [3, 0], id="noise beyond what bits can give"),
    ],
)
def test_false_noise_is_refused_by_both(noise: list[int], secret: list[int]) -> None:
    """With coins 1, 0 the noise is 1 - s_0 + s_1 - 1."""
    committed = commitments.commit(noise, BLINDING)
    bits, proof = cheat.prove_noise(CONTEXT, [1, 0], secret, committed, R, 1)
    assert not _noise(bits, committed, 1, 2, b"\1", proof)


REMAINDER = {0: [0, 0, 0], 1: [1, 0, 0]}


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("values", "in_right", "norm", "last"),
    [
        pytest.param([2, -2, 0, 0], [2, -2, 0, 0], 5, 0, id="norm understated"),
        pytest.param([2, -2, 0, 0], [2, -2, 0, 0], 8, 0, id="remainder of another norm"),
        pytest.param([2, -2, 0, 0], [1, -2, 0, 0], 6, 0, id="sides that do not match"),
        pytest.param([2, -2, 0, 3], [2, -2, 0, -1], 5, 0, id="a product beyond the length"),
        pytest.param([1, -2, 0, 0], [1, -2, 0, 0], 4, 1, id="norm understated within the bound"),
    ],
)
def test_false_norms_are_refused_by_both(
    values: list[int], in_right: list[int], norm: int, last: int
) -> None:
    commitment = commitments.commit(values[:3], BLINDING)
    coordinates = {2: [1, 1, 1], 1: [1, 1, 0], -2: [0, 0, 0], 0: [0, 1, 0]}
    digits = [bit for value in values[:3] for bit in coordinates[value]] + REMAINDER[last]
    proof = cheat.prove_norm(CONTEXT, commitment, R, values, 3, 5, 2, norm, digits, in_right)
    assert not _norm(commitment, 3, 5, proof)


def test_a_coordinate_beyond_the_length_cannot_lower_a_norm() -> None:
    """The fourth coordinate is the root of a small negative number modulo the order."""
    order = ristretto.ORDER
    lowered = next(k for k in range(3, 9) if pow(-k, (order - 1) // 2, order) == 1)
    root = _square_root(-lowered % order)
    values = [2, -2, 0, root]
    commitment = ristretto.encode(twin.committed(values, R))
    norm = 8 - lowered
    remainder = next(bits for bits in product((0, 1), repeat=3) if bits[0] + 2 * sum(bits[1:]) == 5 - norm)
    digits = [1, 1, 1, 0, 0, 0, 0, 1, 0, *remainder]
    proof = cheat.prove_norm(CONTEXT, commitment, R, values, 3, 5, 2, norm, digits, values)
    assert not _norm(commitment, 3, 5, proof)


def _square_root(a: int) -> int:
    """A root modulo the group's order, which is 5 modulo 8."""
    order = ristretto.ORDER
    root = pow(a, (order + 3) // 8, order)
    if root * root % order != a:
        root = root * pow(2, (order - 1) // 4, order) % order
    assert root * root % order == a
    return root


# The forgeries that are published as vectors.

PUBLISHED = proofs.context(bytes(range(32)), "alice")


def _forgeries() -> dict[str, tuple[bytes, ...]]:
    """The commitments and proofs of each, as `smpc_dp_lab.vectors.forged` has them."""
    held = ristretto.encode(
        twin.total([twin.committed([4], R), twin.multiply(5, twin.generator(("left", 3)))])
    )
    padding = cheat.prove_range(PUBLISHED, held, R, 0, 6, [[1, 0, 1, 0]], [0, -1, 0, 0], [0, 0, 0, 5], 1)
    seven = commitments.commit([7], BLINDING)
    digit = cheat.prove_range(PUBLISHED, seven, R, 0, 6, [[2, 1, 1]])
    three = commitments.commit([-3], BLINDING)
    bits, noise = cheat.prove_noise(PUBLISHED, [1, 0], [3, 0], three, R, 1)
    long = commitments.commit([2, -2, 0], BLINDING)
    digits = [1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    norm = cheat.prove_norm(PUBLISHED, long, R, [2, -2, 0, 0], 3, 5, 2, 5, digits, [2, -2, 0, 0])
    return {
        "RANGE_FILL": (held, padding),
        "RANGE_DIGIT": (seven, digit),
        "NOISE_DIGIT": (bits, three, noise),
        "NORM_UNDERSTATED": (long, norm),
    }


def test_published_forgeries_are_these() -> None:
    for name, parts in _forgeries().items():
        assert tuple(map(bytes.fromhex, getattr(forged, name))) == parts


def test_the_forgery_in_what_fills_up_fools_a_verifier_that_leaves_it_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that the vector stands for the fault in its name, and not for another one."""
    held, proof = map(bytes.fromhex, forged.RANGE_FILL)

    def lax(reader: Any, weights: Any, bits: Any, target: Any) -> None:
        y, z, rho = (twin._challenge(reader.transcript, label) for label in (b"y", b"z", b"rho"))
        size, shown = 1 << (len(weights) - 1).bit_length(), len(weights)
        left = [twin.generator(("left", i)) for i in range(size)]
        right = [twin.generator(("right", i)) for i in range(size)]
        for i, (slot, weight) in enumerate(weights):
            left[i] = ristretto.add(left[i], twin.multiply(rho * weight, twin.generator(slot)))
        constant = (z - z * z) * sum(pow(y, i, ristretto.ORDER) for i in range(1, shown + 1))
        terms = [bits, twin.multiply(rho, target), twin.multiply(-z, twin.total(left[:shown]))]
        terms += [twin.multiply(z, twin.total(right[:shown]))]
        terms += [twin.multiply(constant, twin.generator(twin.PRODUCT))]
        twin.check_product(reader, twin.total(terms), left, right, twin.generator(twin.PRODUCT), y)

    assert not _range(PUBLISHED, held, 1, 0, 6, proof)
    monkeypatch.setattr(twin, "check_bits", lax)
    twin.verify_range(PUBLISHED, held, 1, 0, 6, proof)
