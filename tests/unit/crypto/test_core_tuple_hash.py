"""TupleHash256 against NIST's samples and pycryptodome."""

from __future__ import annotations

from typing import cast

import pytest
from Crypto.Hash import TupleHash256

from smpc_dp import _core
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import Digest, digest, encode_uint

FIRST = bytes(range(0x00, 0x03))
SECOND = bytes(range(0x10, 0x16))
THIRD = bytes(range(0x20, 0x29))


@pytest.mark.parametrize(
    ("custom", "parts", "expected"),
    [
        (
            b"",
            [FIRST, SECOND],
            "CFB7058CACA5E668F81A12A20A2195CE97A925F1DBA3E7449A56F82201EC6073"
            "11AC2696B1AB5EA2352DF1423BDE7BD4BB78C9AED1A853C78672F9EB23BBE194",
        ),
        (
            b"My Tuple App",
            [FIRST, SECOND],
            "147C2191D5ED7EFD98DBD96D7AB5A11692576F5FE2A5065F3E33DE6BBA9F3AA1"
            "C4E9A068A289C61C95AAB30AEE1E410B0B607DE3620E24A4E3BF9852A1D4367E",
        ),
        (
            b"My Tuple App",
            [FIRST, SECOND, THIRD],
            "45000BE63F9B6BFD89F54717670F69A9BC763591A4F05C50D68891A744BCC6E7"
            "D6D5B5E82C018DA999ED35B0BB49C9678E526ABD8E85C13ED254021DB9E790CE",
        ),
    ],
    ids=["sample-4", "sample-5", "sample-6"],
)
def test_nist_sp_800_185_samples(custom: bytes, parts: list[bytes], expected: str) -> None:
    assert _core.tuple_hash(custom, parts, 64) == bytes.fromhex(expected)


@pytest.mark.parametrize("label", list(Label))
def test_digest_is_tuple_hash_under_the_label(label: Label) -> None:
    reference = TupleHash256.new(digest_bytes=32, custom=label.value.encode())
    reference.update(b"one", b"", b"three")
    assert digest(label, b"one", b"", b"three") == reference.digest()


def test_the_boundaries_of_parts_are_hashed() -> None:
    digests = {
        digest(Label.RUN_ID),
        digest(Label.RUN_ID, b""),
        digest(Label.RUN_ID, b"ab", b"c"),
        digest(Label.RUN_ID, b"a", b"bc"),
        digest(Label.RUN_ID, b"abc"),
        digest(Label.ROSTER, b"abc"),
    }
    assert len(digests) == 6


def test_labels_are_distinct_and_of_this_version() -> None:
    values = [label.value for label in Label]
    assert len(set(values)) == len(values)
    assert all(value.startswith("smpc-dp/1/") and value.isascii() for value in values)


@pytest.mark.parametrize("length", [0, 15, 65537])
def test_other_lengths_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"length: {length} bytes"):
        _core.tuple_hash(b"", [b"x"], length)


@pytest.mark.parametrize("part", ["text", 7, None, bytearray(b"x")])
def test_other_parts_are_refused(part: object) -> None:
    with pytest.raises(TypeError):
        digest(Label.RUN_ID, b"x", cast(bytes, part))


def test_encode_uint() -> None:
    assert encode_uint(0) == bytes(8)
    assert encode_uint(258) == bytes(6) + b"\x01\x02"
    assert encode_uint(2**64 - 1) == b"\xff" * 8


@pytest.mark.parametrize("n", [-1, 2**64])
def test_encode_uint_refuses_what_does_not_fit(n: int) -> None:
    with pytest.raises(ValueError, match="not between"):
        encode_uint(n)


def test_a_part_may_come_in_pieces() -> None:
    pieces = Digest(Label.ROSTER)
    pieces.add(FIRST, b"")
    pieces.add_long(9, (THIRD[:4], b"", THIRD[4:]))
    assert pieces.value() == digest(Label.ROSTER, FIRST, b"", THIRD)
    # What is asked for may go on.
    pieces.add(SECOND)
    assert pieces.value() == digest(Label.ROSTER, FIRST, b"", THIRD, SECOND)
    with pytest.raises(ValueError, match="4 bytes, 3 are due"):
        pieces.add_long(3, (b"abcd",))
    with pytest.raises(ValueError, match="3 bytes of a part are due"):
        pieces.value()
    with pytest.raises(ValueError, match="3 bytes of a part are due"):
        pieces.add(b"x")
