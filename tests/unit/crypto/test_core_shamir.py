"""Secret sharing: pycryptodome in both directions, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from Crypto.Protocol.SecretSharing import Shamir

from smpc_dp import _core
from smpc_dp.crypto import shamir
from smpc_dp.crypto.randomness import SystemRandomness
from tests.reference import shamir as reference

SECRET = bytes(range(16))


class Counted:
    """Fixed bytes, counted, for tests alone."""

    def __init__(self) -> None:
        self.drawn = 0

    def bytes(self, n: int) -> bytes:
        self.drawn += n
        return bytes((7 * i + 3) % 256 for i in range(n))


def test_pycryptodome_combines_our_shares() -> None:
    holders = [1, 2, 3, 254, 255, 256, 65535]
    shares = shamir.split(SECRET, 4, holders, SystemRandomness())
    chosen = list(zip(holders, shares, strict=True))
    assert Shamir.combine(chosen[:4]) == SECRET
    assert Shamir.combine(chosen[3:]) == SECRET


def test_we_combine_pycryptodomes_shares() -> None:
    shares = Shamir.split(5, 9, SECRET)
    assert shamir.combine(dict(shares[2:7]), 5) == SECRET
    assert shamir.combine(dict(shares), 5) == SECRET


def test_long_secrets_are_shared_block_by_block() -> None:
    secret = bytes(range(48))
    holders = [9, 4, 77]
    shares = shamir.split(secret, 2, holders, SystemRandomness())
    for start in (0, 16, 32):
        columns = [share[start : start + 16] for share in shares]
        assert Shamir.combine(list(zip(holders[:2], columns[:2], strict=True))) == secret[start : start + 16]


def test_shares_are_those_of_the_definition() -> None:
    secret, holders, source = bytes(range(32)), [1, 2, 700, 65535], Counted()
    shares = shamir.split(secret, 3, holders, source)
    assert source.drawn == 2 * 32
    assert shares == reference.split(secret, 3, holders, Counted().bytes(64))


def test_a_large_sharing() -> None:
    holders = list(range(1, 191))
    secret = bytes(range(32))
    shares = dict(zip(holders, shamir.split(secret, 130, holders, SystemRandomness()), strict=True))
    assert shamir.combine({holder: shares[holder] for holder in holders[60:]}, 130) == secret
    assert _core.shamir_combine(holders[61:], [shares[holder] for holder in holders[61:]]) != secret


def test_one_share_of_a_constant_is_the_secret() -> None:
    assert shamir.split(SECRET, 1, [5, 6], Counted()) == [SECRET, SECRET]
    assert shamir.combine({6: SECRET}, 1) == SECRET


@pytest.mark.parametrize(
    ("secret", "threshold", "holders", "message"),
    [
        (b"", 1, [1], "secret: 0 bytes"),
        (bytes(15), 1, [1], "secret: 15 bytes"),
        (bytes(33), 1, [1], "secret: 33 bytes"),
        (SECRET, 0, [1, 2], "threshold: 0"),
        (SECRET, -1, [1, 2], "threshold: -1"),
        (SECRET, 3, [1, 2], "threshold: 3"),
        (SECRET, 1, [], "threshold: 1"),
        (SECRET, 2, [1, 0], "holders: 0"),
        (SECRET, 2, [1, -4], "holders: -4"),
        (SECRET, 2, [1, 65536], "holders: 65536"),
        (SECRET, 2, [3, 1, 3], "holders: a number occurs twice"),
    ],
)
def test_bad_sharings_are_refused_before_anything_is_drawn(
    secret: bytes, threshold: int, holders: list[int], message: str
) -> None:
    source = Counted()
    with pytest.raises(ValueError, match=message):
        shamir.split(secret, threshold, holders, source)
    assert source.drawn == 0


@pytest.mark.parametrize(
    ("shares", "threshold", "message"),
    [
        ({}, 1, "shares: 0 of the 1 needed"),
        ({1: SECRET, 2: SECRET}, 3, "shares: 2 of the 3 needed"),
        ({1: SECRET}, 0, "threshold: 0"),
        ({0: SECRET, 1: SECRET}, 2, "holders: 0"),
        ({65536: SECRET}, 1, "holders: 65536"),
        ({1: SECRET, 2: SECRET[:8]}, 2, r"shares\[1\]: 8 bytes, not 16"),
        ({1: SECRET, 2: SECRET * 2}, 2, r"shares\[1\]: 32 bytes, not 16"),
        ({1: b""}, 1, r"shares\[0\]: 0 bytes, not 16"),
        ({1: bytes(17)}, 1, r"shares\[0\]: 17 bytes"),
    ],
)
def test_bad_reconstructions_are_refused(shares: dict[int, bytes], threshold: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        shamir.combine(shares, threshold)


@pytest.mark.parametrize(
    ("threshold", "xs", "coefficients", "message"),
    [
        (2, [1, 2], bytes(15), "coefficients: 15 bytes"),
        (2, [1, 2], bytes(32), "coefficients: 32 bytes"),
        (2, [1, 0], SECRET, "xs: 0 is"),
        (2, [4, 5, 4], SECRET, "xs: 4 occurs twice"),
        (2, [1, 65536], SECRET, "xs: 65536"),
        (3, [1, 2], SECRET * 2, "threshold: 3"),
        (0, [1, 2], b"", "threshold: 0"),
    ],
)
def test_the_core_checks_sharings_for_itself(
    threshold: int, xs: list[int], coefficients: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _core.shamir_split(SECRET, threshold, xs, coefficients)


@pytest.mark.parametrize(
    ("xs", "shares", "message"),
    [
        ([], [], "shares: none"),
        ([1], [SECRET, SECRET], "shares: 2 of them for 1 points"),
        ([0, 1], [SECRET, SECRET], "xs: 0 is"),
        ([8, 8], [SECRET, SECRET], "xs: 8 occurs twice"),
    ],
)
def test_the_core_checks_reconstructions_for_itself(
    xs: Sequence[int], shares: Sequence[bytes], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        _core.shamir_combine(xs, shares)


@pytest.mark.parametrize(("xs", "shares"), [(["1"], [SECRET]), ([1], ["secret"]), ([1.5], [SECRET])])
def test_other_types_are_refused(xs: list[Any], shares: list[Any]) -> None:
    with pytest.raises(TypeError):
        _core.shamir_combine(cast(list[int], xs), cast(list[bytes], shares))
