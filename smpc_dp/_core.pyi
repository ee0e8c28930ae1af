"""The compiled kernels. Use them through `smpc_dp.crypto`, which checks and documents what they take."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

def tuple_hash(custom: bytes, parts: Sequence[bytes], length: int = 32) -> bytes:
    """TupleHash256 [NIST SP 800-185, section 5] of `parts` under the customisation string `custom`.

    `length` is the output's length in bytes, 16 to 65536, and is itself hashed.
    Raises ValueError for another length, TypeError for a part that is not `bytes`.
    """

def add_keystreams(
    acc: NDArray[np.uint64] | NDArray[np.uint32],
    keys: bytes,
    subtract: bytes,
    offset: int = 0,
    threads: int = 1,
) -> None:
    """Add to `acc`, modulo its range, elements [offset, offset + len(acc)) of the keystream of each key.

    A keystream is AES-256-CTR from an all-zero counter block (128 bits, big-endian), read as
    little-endian elements of the dtype of `acc`: one-dimensional, contiguous, writable, native uint64
    or uint32. `keys` holds m keys of 32 bytes; `subtract` m bytes, 1 where the stream is subtracted and
    0 where it is added. `threads` is 1 to 256. The interpreter lock is released meanwhile, so nothing
    else may touch `acc` until the call returns.

    Raises ValueError for a wrong length, flag, layout or number of threads, OverflowError for an
    integer that does not fit, TypeError for another array or dtype.
    """

def shamir_split(secret: bytes, threshold: int, xs: Sequence[int], coefficients: bytes) -> list[bytes]:
    """Shares of `secret` for the holders `xs`, any `threshold` of which determine it.

    One polynomial over GF(2^128) for each 16-byte block of `secret` (a positive multiple of 16 bytes).
    `xs` are distinct, 1 to 65535. `coefficients` are `threshold - 1` uniformly random rows of
    `len(secret)` bytes, the coefficients of x^(threshold-1) first. Raises ValueError for anything else.
    """

def shamir_combine(xs: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """The secret that exactly these shares, held at `xs`, determine.

    Fewer shares than the threshold give an unrelated value: the caller counts them. Raises ValueError
    for no shares, differing lengths, a length that is no multiple of 16, and points that repeat or are
    not 1 to 65535.
    """

class OtPeerFault(Exception):
    """The peer's message is wrong or a check failed; the setup is destroyed."""

class OtSender:
    """The extension sender of `smpc_dp.crypto.ot`, which documents the steps; rows come flattened.

    Raises ValueError for an argument of ours (nothing has changed), RuntimeError for a step out of order
    or on a destroyed setup, OtPeerFault for the peer's message. The interpreter lock is released meanwhile.
    """

    def __new__(cls, context: bytes, seed: bytes, k: int) -> OtSender: ...
    @property
    def next_index(self) -> int: ...
    def respond(self, first: bytes) -> bytes: ...
    def finish_setup(self, corrections: bytes) -> None: ...
    def challenge(self, count: int, corrections: bytes) -> bytes: ...
    def correlated(self, response: bytes) -> NDArray[np.uint8]: ...
    def random(self, response: bytes) -> NDArray[np.uint8]: ...
    def delta(self) -> bytes: ...

class OtReceiver:
    """The extension receiver of `smpc_dp.crypto.ot`; errors and lock as for `OtSender`."""

    def __new__(cls, context: bytes, seed: bytes, k: int) -> OtReceiver: ...
    @property
    def next_index(self) -> int: ...
    def first_message(self) -> bytes: ...
    def finish_setup(self, response: bytes) -> bytes: ...
    def extend(self, count: int, choices: bytes) -> bytes: ...
    def correlated(self, challenge: bytes) -> tuple[bytes, NDArray[np.uint8]]: ...
    def random(self, challenge: bytes) -> tuple[bytes, NDArray[np.uint8]]: ...
