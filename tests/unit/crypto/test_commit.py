"""Commitments: homomorphism, bounds, and what is no encoding."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smpc_dp.crypto import commit as c
from smpc_dp.errors import VerificationError
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from tests.examples import examples

ORDER = 2**252 + 27742317777372353535851937790883648493
FIELD = 2**255 - 19
RANDOMNESS = SeededRandomnessForSimulation(6, "commit")
ONE = (1).to_bytes(32, "little")

values = st.integers(1 - c.VALUE_LIMIT, c.VALUE_LIMIT - 1)

NOT_POINTS = {
    "short": bytes(31),
    "long": bytes(33),
    "field element not canonical": (FIELD + 2).to_bytes(32, "little"),
    "negative": (1).to_bytes(32, "little"),
    "high bit": bytes(31) + b"\x80",
    "no square root": bytes.fromhex("26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371"),
}
NOT_SCALARS = {
    "short": bytes(31),
    "long": bytes(33),
    "the order": ORDER.to_bytes(32, "little"),
    "high bit": bytes(31) + b"\x80",
}


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(values, values), min_size=1, max_size=4))
def test_sums_of_commitments_commit_to_sums(pairs: list[tuple[int, int]]) -> None:
    # Toward zero: the sum of two halves is within the range too.
    left, right = (
        [abs(pair[side]) // 2 * (1 if pair[side] > 0 else -1) for pair in pairs] for side in (0, 1)
    )
    r, s = c.fresh_blinding(RANDOMNESS), c.fresh_blinding(RANDOMNESS)
    both = c.combine([c.commit(left, r), c.commit(right, s)])
    c.check_opening(both, [a + b for a, b in zip(left, right, strict=True)], c.add_blindings([r, s]))
    less = c.combine([c.commit(left, r)], [c.commit(right, s)])
    c.check_opening(less, [a - b for a, b in zip(left, right, strict=True)], c.add_blindings([r], [s]))


def test_pairwise_noise_cancels() -> None:
    delta, r = [5, -(2**100)], c.fresh_blinding(RANDOMNESS)
    of_u = c.commit(delta, r)
    of_v = c.commit([-d for d in delta], c.add_blindings([], [r]))
    assert of_v == c.combine([], [of_u])
    assert c.combine([of_u, of_v]) == c.IDENTITY == c.commit([], bytes(32))
    assert c.combine([of_u, c.commit([-5, 2**100 - 1], c.add_blindings([], [r]))]) != c.IDENTITY


def test_coordinates_have_generators_of_their_own() -> None:
    blinding = bytes(32)
    units = [c.commit([0] * index + [1], blinding) for index in range(20)]
    assert len({*units, c.commit([], ONE)}) == 21
    assert c.commit([1, 2], blinding) != c.commit([2, 1], blinding)


@pytest.mark.parametrize("opened", [[1, 3], [2, 2], [1], [1, 2, 1], [1 << 126, 2], [1 << 500, 2]])
def test_other_openings_are_refused(opened: list[int]) -> None:
    r = c.fresh_blinding(RANDOMNESS)
    commitment = c.commit([1, 2], r)
    c.check_opening(commitment, [1, 2], r)
    with pytest.raises(VerificationError, match="opening"):
        c.check_opening(commitment, opened, r)
    with pytest.raises(VerificationError, match="opening"):
        c.check_opening(commitment, [1, 2], c.add_blindings([r, ONE]))


@pytest.mark.parametrize("data", NOT_POINTS.values(), ids=NOT_POINTS)
def test_what_is_no_point_is_refused(data: bytes) -> None:
    for check in (
        lambda: c.check_commitment(data),
        lambda: c.combine([data]),
        lambda: c.combine([], [data]),
        lambda: c.check_opening(data, [0], ONE),
    ):
        with pytest.raises(VerificationError, match="commitment"):
            check()


@pytest.mark.parametrize("data", NOT_SCALARS.values(), ids=NOT_SCALARS)
def test_what_is_no_scalar_is_refused(data: bytes) -> None:
    with pytest.raises(VerificationError, match="blinding"):
        c.check_blinding(data)
    with pytest.raises(VerificationError, match="blinding"):
        c.check_opening(bytes(32), [0], data)
    with pytest.raises(ValueError, match="blinding"):
        c.commit([0], data)
    with pytest.raises(ValueError, match="blinding"):
        c.add_blindings([data])


def test_own_arguments_out_of_range() -> None:
    c.commit([0] * c.MAX_LENGTH, ONE)
    with pytest.raises(ValueError, match="4097 coordinates"):
        c.commit([0] * (c.MAX_LENGTH + 1), ONE)
    for value in (c.VALUE_LIMIT, -c.VALUE_LIMIT, 1 << 300):
        with pytest.raises(ValueError, match="number 1 is not below"):
            c.commit([0, value], ONE)
    with pytest.raises(ValueError, match="wide: 63 bytes"):
        c.blinding_from_wide(bytes(63))


def test_blindings_are_reduced_from_wide_bytes() -> None:
    wide = bytes(range(64))
    assert int.from_bytes(c.blinding_from_wide(wide), "little") == int.from_bytes(wide, "little") % ORDER
