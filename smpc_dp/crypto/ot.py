"""Oblivious transfer: correlated, random and chosen 1-out-of-2 transfers of 16-byte rows.

One setup between two parties (128 base transfers on ristretto255, three messages), then any number of
chunks (three messages each) by SoftSpoken extension [Roy 2022], secure against a malicious
peer (`docs/proofs/ot.md`).

    receiver                                   sender
    first = receiver.first_message()     -->   response = sender.respond(first)
    corrections = receiver.finish_setup  <--   response
    corrections                          -->   sender.finish_setup(corrections)

    corrections = receiver.extend(n, x)  -->   challenge = sender.challenge(n, corrections)
    response, t = receiver.correlated    <--   challenge
    response                             -->   q = sender.correlated(response)

Up to MAX_PENDING chunks may be pending at once, finished in the order in which they were begun: each has its
own challenge, drawn when all of its corrections have arrived. Output arrays (`out`) avoid an allocation for
each chunk.

A setup is held in memory for one run and cannot be stored. Indices are assigned here, in order, and
never repeat. A wrong message or a failed check destroys the setup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp.errors import Check, LocalError, PeerFault

ROW_BYTES = 16
CONTEXT_BYTES = 32
MAX_PENDING = 4
"""Most chunks on their way at once."""
MAX_INDEX = 1 << 36
"""Indices of one setup; a chunk takes `rows_of_chunk` of them."""
FIELD_SIZES = (2, 4)
"""Values of k: 16/k bytes a transfer on the wire, about 2**k / k cipher blocks a transfer and side."""

Rows = NDArray[np.uint8]
Octets = bytes | bytearray | memoryview | Rows


@contextmanager
def _blaming(peer: str) -> Iterator[None]:
    """Context manager that converts the core's OtPeerFault to PeerFault, RuntimeError to LocalError."""
    try:
        yield
    except _core.OtPeerFault as error:
        raise PeerFault(peer, f"oblivious transfer: {error}", Check.BAD_TRANSFER) from None
    except RuntimeError as error:
        raise LocalError(f"oblivious transfer with {peer}: {error}") from None


def rows_of_chunk(count: int) -> int:
    """Return how many indices a chunk of `count` oblivious transfers takes, padding included.

    A chunk takes whole blocks of 128, and one block more that hides the others.
    """
    return (-(-count // 128) + 1) * 128 if count else 0


def _check_room(peer: str, first: int, count: int) -> None:
    """Raise LocalError if `count` more transfers would exceed the greatest index of a setup."""
    if first + rows_of_chunk(count) > MAX_INDEX:
        reason = f"{count} more transfers from index {first} exceed the {MAX_INDEX} indices of one setup"
        raise LocalError(f"oblivious transfer with {peer}: {reason}")


class Deviation(StrEnum):
    """Which of the sender's messages does not follow from its seed, in a replay of transfers."""

    BASE_RESPONSE = "base response"
    CHALLENGE = "challenge"


class Sender:
    """Sender of oblivious transfer extension: learns both values of each transfer, not the choices."""

    def __init__(
        self, peer: str, context: bytes, seed: bytes, k: int = 2, *, bit: bool | None = None
    ) -> None:
        """Start a setup with `peer` as receiver.

        `context` (32 bytes) is a digest of the run, of both identities in their roles, and of the number
        of this setup between them: it enters every hash, and differing contexts fail the check of the
        setup. `seed` (32 bytes) is uniformly random, secret and for this setup alone. `k` is 2 or 4, the
        same on both sides. With `bit`, bit 0 of Delta is that bit, which the receiver may know; `context`
        names it then. Raises ValueError for anything else.
        """
        self.peer = peer
        self._core = _core.OtSender(context, seed, k, bit)

    def __repr__(self) -> str:
        return f"Sender(peer={self.peer!r}, next_index={self.next_index})"

    @property
    def context(self) -> bytes:
        """Hash (32 bytes) of the caller's context and k, to which both sides bind the transfers."""
        return self._core.context

    @property
    def next_index(self) -> int:
        """Index of the next oblivious transfer, which both sides count alike."""
        return self._core.next_index

    @property
    def delta(self) -> bytes:
        """Secret correlation Delta of 16 bytes; raises LocalError after a failure."""
        with _blaming(self.peer):
            return self._core.delta()

    def respond(self, first: bytes) -> bytes:
        """Return the answer (10,240 bytes) to the receiver's first setup message; or raise PeerFault.

        Raises PeerFault for a wrong length, an encoding that is not canonical or not of a group element,
        and the identity; LocalError if out of order.
        """
        with _blaming(self.peer):
            return self._core.respond(first)

    def finish_setup(self, corrections: bytes) -> None:
        """Check the receiver's last setup message, and end the setup; PeerFault if the check fails.

        Raises PeerFault for a wrong length or a failed check, LocalError if out of order.
        """
        with _blaming(self.peer):
            self._core.finish_setup(corrections)

    def challenge(self, count: int, corrections: Octets) -> bytes:
        """Take the receiver's message for the next `count` transfers; return a challenge, or raise an error.

        Raises ValueError for a count outside 1 to 2**22, PeerFault for a wrong length or for corrections of
        other transfers, LocalError out of order, with MAX_PENDING chunks on their way, or beyond MAX_INDEX.
        """
        _check_room(self.peer, self.next_index, count)
        with _blaming(self.peer):
            return self._core.challenge(count, np.frombuffer(corrections, np.uint8))

    def correlated(self, response: bytes, out: Rows | None = None) -> Rows:
        """Check the receiver's response; return the rows, shape (count, 16); PeerFault if it is wrong.

        They are written to `out` if it is given. The receiver's row is q for choice 0 and q xor Delta for
        choice 1. Raises PeerFault for a wrong length or a failed check, LocalError if out of order,
        ValueError for an `out` of another shape.
        """
        rows = _rows(out, (self._core.awaited, ROW_BYTES))
        with _blaming(self.peer):
            self._core.correlated(response, rows.reshape(-1))
        return rows

    def random(self, response: bytes, out: Rows | None = None) -> Rows:
        """Check the receiver's response; return both pads of each transfer, shape (count, 2, 16).

        Errors as `correlated`. The pads are a view of `out` if it is given, which has shape (2, count, 16).
        """
        pads = _rows(out, (2, self._core.awaited, ROW_BYTES))
        with _blaming(self.peer):
            self._core.random(response, pads.reshape(-1))
        return pads.swapaxes(0, 1)


class Receiver:
    """Receiver of oblivious transfer extension: learns the chosen one of two values in each transfer."""

    def __init__(self, peer: str, context: bytes, seed: bytes, k: int = 2, *, record: bool = False) -> None:
        """Start a setup with `peer` as sender; arguments and errors as for `Sender`.

        With `record` it keeps what `remake` needs, also of each chunk: 16 bytes a transfer.
        """
        self.peer = peer
        self._core = _core.OtReceiver(context, seed, k)
        if record:
            self._core.keep_record()

    def __repr__(self) -> str:
        return f"Receiver(peer={self.peer!r}, next_index={self.next_index})"

    @property
    def context(self) -> bytes:
        """Hash (32 bytes) of the caller's context and k, to which both sides bind the transfers."""
        return self._core.context

    @property
    def next_index(self) -> int:
        """Index of the next oblivious transfer, which both sides count alike."""
        return self._core.next_index

    def first_message(self) -> bytes:
        """Return the first message of the base transfers; repeated calls return equal bytes."""
        return self._core.first_message()

    def finish_setup(self, response: bytes) -> bytes:
        """Take the sender's answer; return the receiver's last setup message, or raise PeerFault."""
        with _blaming(self.peer):
            return self._core.finish_setup(response)

    def extend(self, count: int, choices: bytes) -> bytes:
        """Fix the choices of the next `count` transfers; return the message for the sender, or raise.

        Bit j mod 8, from the least significant, of byte j // 8 of `choices` chooses in transfer j; bits
        after the last are 0. Raises ValueError for another length, a stray bit, a count outside 1 to 2**22;
        LocalError if out of order, with MAX_PENDING chunks on their way, or beyond MAX_INDEX.
        """
        corrections = np.empty(self.corrections_bytes(count), np.uint8)
        self.extend_into(count, choices, corrections)
        return corrections.tobytes()

    def corrections_bytes(self, count: int) -> int:
        """Return the bytes of the message that `extend` would make; LocalError beyond the last index."""
        _check_room(self.peer, self.next_index, count)
        return self._core.corrections(count)

    def extend_into(self, count: int, choices: bytes, out: Rows) -> None:
        """Fix choices like `extend`, and write the message for the sender to the array `out`.

        Errors as `extend`.
        """
        _check_room(self.peer, self.next_index, count)
        with _blaming(self.peer):
            self._core.extend(count, choices, out)

    def correlated(self, challenge: bytes, out: Rows | None = None) -> tuple[bytes, Rows]:
        """Answer the sender's challenge; return (response, rows of shape (count, 16)), or raise PeerFault.

        The rows, uint8 of shape (count, 16), are `out` if given. Raises PeerFault for a wrong length or for
        the challenge of another chunk, LocalError if out of order, ValueError for an `out` of another shape.
        """
        rows = _rows(out, (self._core.awaited, ROW_BYTES))
        with _blaming(self.peer):
            return self._core.correlated(challenge, rows.reshape(-1)), rows

    def random(self, challenge: bytes, out: Rows | None = None) -> tuple[bytes, Rows]:
        """Answer the sender's challenge; return (response, the chosen random pad of each transfer).

        The pads are `out` if given. Errors as `correlated`.
        """
        pads = _rows(out, (self._core.awaited, ROW_BYTES))
        with _blaming(self.peer):
            return self._core.random(challenge, pads.reshape(-1)), pads

    def remake(self, seed: bytes) -> Rows | Deviation:
        """Replay the sender from its seed; return both pads of the last chunk, or the first deviation.

        If the base response and the challenge that came follow from the seed, return both pads of each
        transfer, uint8 of shape (2, count, 16), those for choice 0 first; else the first that does not. This
        costs less than a `Sender`: the receiver has both keys and all rows. Its time depends on `seed`.
        Raises LocalError without a record or before a challenge was answered.
        """
        pads = np.empty((2, self._core.recorded, ROW_BYTES), np.uint8)
        with _blaming(self.peer):
            deviation = self._core.remake(seed, pads.reshape(-1))
        return pads if deviation is None else Deviation(deviation)


def _rows(out: Rows | None, shape: tuple[int, ...]) -> Rows:
    """Return the caller's array `out`, or a new array of this shape; ValueError if `out` does not fit."""
    if out is None:
        return np.empty(shape, np.uint8)
    if out.dtype != np.uint8 or out.shape != shape or not out.flags.c_contiguous:
        raise ValueError(f"out: {out.dtype} of shape {out.shape}, not uint8 of shape {shape}, contiguous")
    return out


class BaseSender:
    """Sender of a few oblivious transfers by public-key cryptography alone: gets both keys of each."""

    def __init__(self, peer: str, context: bytes, seed: bytes) -> None:
        """`context` and `seed` as for `Sender`. Raises ValueError for a wrong length."""
        self.peer = peer
        self._context = context
        self._seed = seed
        self.first = _core.ot_base_first(context, seed)

    def __repr__(self) -> str:
        return f"BaseSender(peer={self.peer!r})"

    def keys(self, count: int, response: bytes) -> Rows:
        """Return both random keys of each of `count` transfers, shape (count, 2, 16), or PeerFault.

        Raises PeerFault for a response of another length, or that encodes no group elements, ValueError for
        another count.
        """
        with _blaming(self.peer):
            pairs = _core.ot_base_pairs(self._context, self._seed, count, response)
        return np.frombuffer(pairs, np.uint8).reshape(count, 2, ROW_BYTES)


def base_respond(
    peer: str, context: bytes, seed: bytes, choices: Sequence[int], first: bytes
) -> tuple[bytes, Rows]:
    """Return (receiver's response, its chosen keys) in base oblivious transfers, or raise PeerFault.

    `choices` are 1 to 128 bits, 0 or 1. Raises PeerFault for a first message that is no group element,
    ValueError for a wrong argument.
    """
    with _blaming(peer):
        response, keys = _core.ot_base_respond(context, seed, bytes(choices), first)
    return response, np.frombuffer(keys, np.uint8).reshape(-1, ROW_BYTES)


def base_transfers(seed: bytes) -> None:
    """Compute both sides of the base oblivious transfers in this thread, for timing; return nothing."""
    _core.ot_base_transfers(seed)


def rows_and_hashes(challenge: bytes, columns: Rows, out: Rows, *, portable: bool) -> bytes:
    """Transpose bits into `out`, and return hashes of the rows, as transfer extension does; for timing.

    `columns` is uint8 of shape (blocks + 1, 128, 16), `out` of shape (128 blocks, 16); `portable` selects the
    portable version in place of the fastest. Returns the hashes, 2,048 bytes.
    """
    return _core.ot_rows(challenge, columns.reshape(-1), out.reshape(-1), portable)


def group_multiplications(seed: bytes, variable: int, fixed: int) -> None:
    """Do so many scalar multiplications in ristretto255, for a benchmark; return nothing."""
    _core.group_multiplications(seed, variable, fixed)


def seal_pairs(pads: Rows, messages: Rows) -> Rows:
    """Encrypt both messages of each transfer under its two pads, by XOR; ValueError for unfit shapes.

    Both arrays, and the result, are uint8 of shape (count, 2, 16). Pads serve once. There is no integrity:
    the channel must provide it. Raises ValueError for other shapes or dtypes.
    """
    _check(pads, "pads", 2)
    _check(messages, "messages", 2)
    if pads.shape != messages.shape:
        raise ValueError(f"messages: shape {messages.shape}, not {pads.shape}")
    return pads ^ messages


def open_chosen(pads: Rows, choices: bytes, sealed: Rows) -> Rows:
    """Decrypt the chosen message of each transfer with the receiver's pads; ValueError for unfit shapes.

    `choices` as for `Receiver.extend`. Reads both sealed messages whatever the choice. Raises ValueError for
    other shapes, dtypes or lengths.
    """
    _check(pads, "pads", 1)
    _check(sealed, "sealed", 2)
    count = len(pads)
    if len(sealed) != count or len(choices) != -(-count // 8):
        raise ValueError(f"sealed, choices: {len(sealed)} pairs, {len(choices)} bytes for {count} pads")
    bits = np.unpackbits(np.frombuffer(choices, np.uint8), count=count, bitorder="little")
    mask = np.negative(bits)[:, None]
    return pads ^ sealed[:, 0] ^ ((sealed[:, 0] ^ sealed[:, 1]) & mask)


def _check(rows: Rows, name: str, values: int) -> None:
    """Raise ValueError unless an array holds `values` rows of 16 bytes for each transfer."""
    shape = (ROW_BYTES,) if values == 1 else (values, ROW_BYTES)
    if rows.dtype != np.uint8 or rows.ndim != len(shape) + 1 or rows.shape[1:] != shape:
        raise ValueError(f"{name}: {rows.dtype} of shape {rows.shape}, not uint8 of shape (count, {shape})")
