"""Pedersen commitments to integer vectors over ristretto255 [RFC 9496], and sums of them.

    commit(values, r) = sum of values[c] Gamma_c + r H_0

with generators hashed to the group, so that nobody knows a relation between them. A commitment is 32 bytes
whatever the length; it hides its values perfectly and binds under the discrete logarithm assumption. Sums
of commitments commit to the sums of values with the sums of blindings: [Bellet 2021, (4.4) and (4.5)].

Values are below 2**126 in magnitude and the group's order is above 2**252, so a sum of up to 2**125 of them
cannot wrap. A blinding is a scalar: 32 bytes, little-endian, below the order. Points and scalars are taken in
their canonical encodings only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from smpc_dp import _core
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.errors import Check, VerificationError

POINT_BYTES = 32
SCALAR_BYTES = 32
WIDE_BYTES = 64
MAX_LENGTH = _core.MAX_COMMITTED
"""Most coordinates of a committed vector."""
VALUE_LIMIT = 1 << 126
"""Every committed value is below it in magnitude."""
IDENTITY = bytes(POINT_BYTES)
"""The commitment to nothing with blinding 0: what commitments that cancel sum to."""


@contextmanager
def _refusing() -> Iterator[None]:
    """Context manager that converts the native code's refusals to VerificationError."""
    try:
        yield
    except _core.FalseStatement as error:
        raise VerificationError(str(error), Check.BAD_COMMITMENT) from None


def commit(values: Sequence[int], blinding: bytes) -> bytes:
    """Return a 32-byte Pedersen vector commitment to integers; its time depends only on how many.

    `blinding` is uniform and for this commitment alone. Raises ValueError for too many values, for one of
    2**126 or more in magnitude, or for a blinding that is no scalar.
    """
    _check_values(values)
    return _core.commit(values, blinding)


def fresh_blinding(randomness: Randomness) -> bytes:
    """Return a uniform random scalar of 32 bytes, to blind one commitment."""
    return blinding_from_wide(randomness.bytes(WIDE_BYTES))


def blinding_from_wide(wide: bytes) -> bytes:
    """Reduce 64 uniform bytes to a scalar of 32 bytes, to blind a commitment.

    Raises ValueError for another number of bytes.
    """
    return _core.scalar_from_wide(wide)


def add_blindings(plus: Sequence[bytes], minus: Sequence[bytes] = ()) -> bytes:
    """Return the sum of the scalars `plus` minus the sum of the scalars `minus`.

    Raises ValueError for an encoding that is no scalar.
    """
    return _core.combine_scalars(plus, minus)


def combine(plus: Sequence[bytes], minus: Sequence[bytes] = ()) -> bytes:
    """Return the sum of the commitments `plus` minus the sum of the commitments `minus`.

    Raises VerificationError for bytes that are not the canonical encoding of a group element.
    """
    with _refusing():
        return _core.combine_commitments(plus, minus)


def check_commitment(data: bytes) -> None:
    """Raise VerificationError unless `data` is the canonical encoding of a group element."""
    with _refusing():
        _core.check_point(data)


def check_commitments(packed: bytes) -> None:
    """Raise VerificationError unless `packed` is a row of canonically encoded group elements.

    Raises ValueError for a length that is no multiple of POINT_BYTES.
    """
    with _refusing():
        _core.check_points(packed)


def check_blinding(data: bytes) -> None:
    """Raise VerificationError unless `data` is the canonical encoding of a scalar."""
    with _refusing():
        _core.check_scalar(data)


def check_opening(commitment: bytes, values: Sequence[int], blinding: bytes) -> None:
    """Raise VerificationError unless a commitment opens to these integers and this blinding.

    Values out of range, and encodings that are not canonical, are refused alike.
    """
    check_commitment(commitment)
    check_blinding(blinding)
    try:
        expected = commit(values, blinding)
    except ValueError as error:
        raise VerificationError(f"opening: {error}", Check.BAD_OPENING) from None
    if expected != commitment:
        raise VerificationError(
            "opening: the commitment is to other values, or with another blinding", Check.BAD_OPENING
        )


def _check_values(values: Sequence[int]) -> None:
    """Raise ValueError if any integer is 2**126 or more in magnitude; else do nothing."""
    for index, value in enumerate(values):
        if not -VALUE_LIMIT < value < VALUE_LIMIT:
            raise ValueError(f"values: number {index} is not below 2**126 in magnitude")
