"""The compiled kernels.

Use them through `smpc_dp.crypto` and `smpc_dp.fixed_point`, which check and document what they take.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

def tuple_hash(custom: bytes, parts: Sequence[bytes], length: int = 32) -> bytes:
    """Return TupleHash256 [NIST SP 800-185, section 5] of `parts` with customisation string `custom`.

    `length` is the output's length in bytes, 16 to 65536, and is itself hashed.
    Raises ValueError for another length, TypeError for a part that is not `bytes`.
    """

class TupleHash:
    """Incremental TupleHash256 with 32 bytes of output, to which a part may be given in pieces.

    `begin` begins a part of so many bytes, `update` gives some of them, `digest` ends nothing. Raises
    ValueError for more bytes than are due, and from `begin` and `digest` while some are.
    """

    def __new__(cls, custom: bytes) -> TupleHash: ...
    def begin(self, length: int) -> None:
        """Begin the next part, of `length` bytes; raise ValueError if bytes of the last part are missing."""
    def update(self, piece: bytes) -> None:
        """Add the next bytes of the current part; raise ValueError for more than its length."""
    def digest(self) -> bytes:
        """Return the 32-byte hash of all parts so far; more parts may follow."""

def hkdf_sha256(key: bytes, salt: bytes, info: bytes, length: int = 32) -> bytes:
    """Return `length` bytes of HKDF-SHA256 [RFC 5869] output, derived from a secret `key`.

    Raises ValueError for more than 8160 bytes.
    """

def add_keystreams(
    acc: NDArray[np.uint64] | NDArray[np.uint32],
    keys: bytes,
    subtract: bytes,
    offset: int = 0,
    threads: int = 1,
) -> None:
    """Add to `acc` (or subtract), modulo its range, elements [offset, offset + len(acc)) of keys' keystreams.

    A keystream is AES-256-CTR from an all-zero counter block (128 bits, big-endian), read as
    little-endian elements of the dtype of `acc`: one-dimensional, contiguous, writable, native uint64
    or uint32. `keys` holds m keys of 32 bytes; `subtract` m bytes, 1 where the stream is subtracted and
    0 where it is added. `threads` is 1 to 256. The interpreter lock is released meanwhile, so nothing
    else may touch `acc` until the call returns.

    Raises ValueError for a wrong length, flag, layout or number of threads, OverflowError for an
    integer that does not fit, TypeError for another array or dtype.
    """

def encode_fixed_point(
    values: NDArray[Any],
    elements: NDArray[Any],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    slack: float,
    fractional_bits: int,
    lowest: int,
    map: tuple[float, float, float, float, float, float, float, float] | None = None,
) -> tuple[int | None, int, int | None, int, int | None]:
    """Write values x to `elements`, modulo their range, as round(x 2^fractional_bits) - lowest.

    Ties are rounded to even. `values` are native float32 or float64, `elements` as many native uint32 or
    uint64, both one-dimensional and contiguous. `lower` and `upper` have one bound, or one for each value. A
    value beyond a bound is put on it. With `map` = (lower, upper, slack, middle, scale, centre, onto
    lower, onto upper) a value is first put within that lower and upper bound, and x is (value - middle) /
    scale + centre, put within the last two.

    Returns the index of the first value that is not finite; how many values are more than its slack beyond
    the bounds of `map`, and the index of the first; how many x are more than `slack` beyond their bounds,
    and the index of the first. Raises ValueError for a wrong length or layout, or a `fractional_bits` that is
    not -1022 to 1022, TypeError for another dtype.
    """

def add_packed(elements: NDArray[Any], packed: NDArray[np.uint8], width: int) -> None:
    """Add integers of `width` bytes each, little-endian, to `elements`, in place and modulo their range.

    `elements` are native uint32 or uint64, one-dimensional, contiguous and writable. Raises ValueError for a
    wrong width, length or layout, TypeError for another dtype.
    """

def average_fixed_point(
    elements: NDArray[Any],
    values: NDArray[np.float64],
    bits: int,
    offset: int,
    weight: float,
    fractional_bits: int,
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]] | None,
) -> bool:
    """Write (element mod 2^bits + offset) / weight / 2^fractional_bits to `values`; return if it is exact.

    Sums are taken modulo 2^64, as two's complement. Returns whether each is below 2^53, so that its quotient
    is correctly rounded if the weight is, too. Arrays, bounds and errors are as of `encode_fixed_point`;
    `bits` is 1 to 64.
    """

def shamir_split(secret: bytes, threshold: int, xs: Sequence[int], coefficients: bytes) -> list[bytes]:
    """Return one Shamir share of `secret` for each holder in `xs`; any `threshold` shares determine it.

    One polynomial over GF(2^128) for each 16-byte block of `secret` (a positive multiple of 16 bytes).
    `xs` are distinct, 1 to 65535. `coefficients` are `threshold - 1` uniformly random rows of
    `len(secret)` bytes, the coefficients of x^(threshold-1) first. Raises ValueError for anything else.
    """

def shamir_combine(xs: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Return the secret that exactly these Shamir shares, held at the points `xs`, determine.

    Fewer shares than the threshold give an unrelated value: the caller counts them. Raises ValueError
    for no shares, differing lengths, a length that is no multiple of 16, and points that repeat or are
    not 1 to 65535.
    """

class OtPeerFault(Exception):
    """Error: the peer's message in oblivious transfer is wrong, or a check failed; the setup is destroyed."""

class OtSender:
    """Native sender of oblivious transfer extension; `smpc_dp.crypto.ot.Sender` documents the steps.

    Rows are written to `out`: one-dimensional, contiguous, 16 bytes a row, `awaited` rows (twice that for
    the sender's pads, those of choice 0 first). The interpreter lock is released meanwhile: nothing else may
    touch the arrays. Raises ValueError for an argument of ours (nothing has changed), RuntimeError for a step
    out of order or on a destroyed setup, OtPeerFault for the peer's message.
    """

    def __new__(cls, context: bytes, seed: bytes, k: int, bit: bool | None = None) -> OtSender:
        """Start a setup; with `bit`, bit 0 of the correlation is that bit, which the receiver may know."""

    @property
    def context(self) -> bytes:
        """Hash (32 bytes) of the caller's context and k, to which both sides bind the transfers."""
    @property
    def next_index(self) -> int:
        """Index of the next oblivious transfer, which both sides count alike."""
    def respond(self, first: bytes) -> bytes:
        """Return the sender's answer (10,240 bytes) to the receiver's first setup message."""
    def finish_setup(self, corrections: bytes) -> None:
        """Check the receiver's last setup message, and finish the base transfers."""
    @property
    def awaited(self) -> int:
        """Number of transfers in the oldest chunk that is begun and not finished; 0 if there is none."""
    def challenge(self, count: int, corrections: NDArray[np.uint8]) -> bytes:
        """Take the receiver's corrections for the next `count` transfers; return the check's challenge."""
    def correlated(self, response: bytes, out: NDArray[np.uint8]) -> None:
        """Check the response for the oldest chunk; write the sender's correlated rows to `out`."""
    def random(self, response: bytes, out: NDArray[np.uint8]) -> None:
        """Check the response for the oldest chunk; write both random pads of each transfer to `out`."""
    def delta(self) -> bytes:
        """Return the secret 16-byte correlation Delta; raise RuntimeError after a failure."""

class OtReceiver:
    """Native receiver of oblivious transfer extension; errors and lock as for `OtSender`."""

    def __new__(cls, context: bytes, seed: bytes, k: int) -> OtReceiver: ...
    @property
    def context(self) -> bytes:
        """Hash (32 bytes) of the caller's context and k, to which both sides bind the transfers."""
    def keep_record(self) -> None:
        """Store from now on what `remake` needs to replay the sender."""

    @property
    def recorded(self) -> int:
        """Number of transfers in the last chunk that `remake` can replay; 0 if there is none."""
    def remake(self, seed: bytes, out: NDArray[np.uint8]) -> str | None:
        """Replay the sender; write both pads of the last chunk to `out`; return its false message or None.

        Returns the first of its messages that does not follow from the seed, "base response" or "challenge",
        None without any. Raises RuntimeError without a record.
        """

    @property
    def next_index(self) -> int:
        """Index of the next oblivious transfer, which both sides count alike."""
    def first_message(self) -> bytes:
        """Return the first message of the setup; repeated calls return equal bytes."""
    def finish_setup(self, response: bytes) -> bytes:
        """Take the sender's answer, and return the receiver's last message of the setup."""
    @property
    def awaited(self) -> int:
        """Number of transfers in the oldest chunk that is begun and not finished; 0 if there is none."""
    def corrections(self, count: int) -> int:
        """Return the length in bytes of the corrections of a next chunk of `count` transfers."""

    def extend(self, count: int, choices: bytes, out: NDArray[np.uint8]) -> None:
        """Fix the choices of the next `count` transfers; write the corrections for the sender to `out`."""
    def correlated(self, challenge: bytes, out: NDArray[np.uint8]) -> bytes:
        """Answer the challenge for the oldest chunk; write the receiver's correlated rows to `out`."""
    def random(self, challenge: bytes, out: NDArray[np.uint8]) -> bytes:
        """Answer the challenge for the oldest chunk: return the response; write the chosen pads to `out`."""

def ot_base_first(context: bytes, seed: bytes) -> bytes:
    """Return the first message of base oblivious transfers; see `smpc_dp.crypto.ot.BaseSender`."""

def ot_base_pairs(context: bytes, seed: bytes, count: int, response: bytes) -> bytes:
    """Return both 32-byte keys of each base transfer, joined; OtPeerFault for a wrong response."""

def ot_base_respond(context: bytes, seed: bytes, choices: bytes, first: bytes) -> tuple[bytes, bytes]:
    """Return (response, chosen keys joined) of base transfers; `choices` has a byte, 0 or 1, for each."""

def ot_base_transfers(seed: bytes) -> None:
    """Compute both sides of 128 base transfers in this thread, for a benchmark; `seed` is 32 bytes."""

def ot_rows(challenge: bytes, columns: NDArray[np.uint8], out: NDArray[np.uint8], portable: bool) -> bytes:
    """Transpose a chunk's columns to rows in `out`; return the hashes of the 128 columns, for timing tests.

    `columns` holds 2,048 bytes for each block of 128 rows, 16 of each column, and one block more than `out`.
    """

def group_sums(seed: bytes, decoded: int, public: Sequence[int], secret: Sequence[int]) -> None:
    """Do so many decodings, and public and secret multi-scalar sums in ristretto255, for a benchmark."""

def group_multiplications(seed: bytes, variable: int, fixed: int) -> None:
    """Do so many multiplications of a varying point and of the generator, for a benchmark."""

class GarblingCircuit:
    """Boolean circuit, checked and compiled for garbling; immutable.

    `op`, `a`, `b`, `out` have one element a gate: 0 XOR, 1 AND, 2 INV (of `a`), 3 EQ (`out` is the constant
    `a`, 0 or 1), 4 EQW (copy of `a`); `b` is 0 where a gate has no second operand. Wires 0 to
    `n_inputs - 1` are the inputs; every other wire is given by at most one gate before it is used.
    `outputs` are wires, which may repeat. At most 2^31 gates and 2^32 - 1 wires.

    Raises ValueError that names the gate and the bound; TypeError for another dtype or shape.
    """

    def __init__(
        self,
        op: NDArray[np.uint8],
        a: NDArray[np.uint32],
        b: NDArray[np.uint32],
        out: NDArray[np.uint32],
        n_wires: int,
        n_inputs: int,
        outputs: NDArray[np.uint32],
    ) -> None: ...
    @property
    def n_inputs(self) -> int:
        """Number of input wires."""
    @property
    def n_outputs(self) -> int:
        """Number of outputs."""
    @property
    def n_and(self) -> int:
        """Number of AND gates."""
    @property
    def n_slots(self) -> int:
        """Greatest number of wires whose labels are held in memory at once."""

    def table_bytes(self, n_instances: int) -> int:
        """Return the bytes of all garbled tables of `n_instances`: 32 for each AND gate and instance."""

    def suggest_tile(self, n_instances: int) -> int:
        """Return a number of instances whose labels fit in cache: 1, or a power of two, 16 to 2048."""

class StreamHash:
    """Incremental BLAKE3 hash with a 32-byte key."""

    def __init__(self, key: bytes) -> None: ...
    def update(self, data: NDArray[np.uint8]) -> None:
        """Add bytes to the hash."""
    def digest(self) -> bytes:
        """Return the 32-byte hash of all bytes so far; more bytes may follow."""

class Garbler:
    """Garbler of a circuit for instances `first_instance` to `first_instance + n_instances - 1`.

    `seed`: 32 bytes, secret, fresh for each run (windows of one run share it). `start`: 16 bytes, public,
    unique to the run. `mode`: "unique" or "tile". `tile`: 1 to 4096; divides `first_instance`. `threads`:
    1 to 256. `kernel`: a name of `garbling_kernels`, for tests; None takes the fastest. Labels are arrays
    (wires, instances, 16). The interpreter lock is released while tables are made. Raises ValueError.
    """

    def __init__(
        self,
        circuit: GarblingCircuit,
        n_instances: int,
        seed: bytes,
        start: bytes,
        *,
        mode: str,
        tile: int,
        first_instance: int = 0,
        threads: int = 1,
        kernel: str | None = None,
    ) -> None: ...
    @property
    def done(self) -> bool:
        """Whether all garbled tables have been made."""
    def fill(self, buffer: NDArray[np.uint8]) -> int:
        """Write the next garbled tables to the front of `buffer`; return their length in bytes, 0 at the end.

        ValueError if `buffer` cannot hold one gate of a tile, 32 * tile bytes.
        """

    def zero_labels(self, first: int, count: int) -> NDArray[np.uint8]:
        """Return the secret labels for 0 of `count` input wires from `first` on."""
    def set_zero_labels(self, first: int, labels: NDArray[np.uint8]) -> None:
        """Set the labels for 0 of input wires from `first` on, before tables are made."""
    def open_inputs(self, wires: NDArray[np.uint32], bits: NDArray[np.uint8], seed: bytes) -> None:
        """Choose labels so that the active ones of `wires` for `bits` follow from a public 16-byte seed."""

    def flip(self, wires: NDArray[np.uint32], bits: NDArray[np.uint8]) -> None:
        """Swap the labels for 0 and 1 of each wire and instance where `bits` is 1."""

    def transfer(self, wires: NDArray[np.uint32], index: int, pads: NDArray[np.uint8]) -> None:
        """Set the zero labels of `wires` from `index` on to pads[0]; set pads[1] ^= pads[0] ^ offset."""
    def correct(self, pads: NDArray[np.uint8]) -> None:
        """Overwrite pads[1] of oblivious transfers by pads[1] ^ pads[0] ^ offset; no label is set."""

    def list_digest(
        self, wires: NDArray[np.uint32], pads: NDArray[np.uint8], start: bytes, key: bytes
    ) -> bytes:
        """Return the keyed BLAKE3 of the hashes of both labels of each listed input and mask."""

    def open_list(
        self, wires: NDArray[np.uint32], pads: NDArray[np.uint8], start: bytes, bits: NDArray[np.uint8]
    ) -> bytes:
        """Return, joined, each listed input's active label and the hash of its other label, 32 bytes."""

    def deltas(self) -> NDArray[np.uint8]:
        """Return each instance's secret offset between both labels of every wire, shape (instances, 16)."""
    def encode(self, first: int, bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the active labels of `bits` (inputs, instances) for the input wires from `first` on."""
    def output_zero_labels(self) -> NDArray[np.uint8]:
        """Return the secret labels for 0 of the outputs, when all tables are made."""
    def output_colours(self) -> NDArray[np.uint8]:
        """Return the colour bits of the outputs' labels for 0, which decode the outputs."""
    def output_hashes(self) -> NDArray[np.uint8]:
        """Return hashes of both labels of each output, shape (outputs, instances, 2, 16), by colour."""

class Evaluator:
    """Evaluator of the garbled tables that a `Garbler` with equal circuit and parameters makes."""

    def __init__(
        self,
        circuit: GarblingCircuit,
        n_instances: int,
        start: bytes,
        *,
        mode: str,
        tile: int,
        first_instance: int = 0,
        threads: int = 1,
        kernel: str | None = None,
    ) -> None: ...
    @property
    def remaining(self) -> int:
        """Number of bytes of garbled tables that have not been fed yet."""
    def set_input_labels(self, first: int, labels: NDArray[np.uint8]) -> None:
        """Set the active labels of input wires from `first` on."""
    def open_inputs(self, wires: NDArray[np.uint32], seed: bytes) -> None:
        """Derive the active labels of the garbler's inputs `wires` from a public 16-byte seed."""
    def transfer(
        self,
        wires: NDArray[np.uint32],
        index: int,
        choices: NDArray[np.uint8],
        pads: NDArray[np.uint8],
        corrections: NDArray[np.uint8],
    ) -> None:
        """Set labels of `wires` from `index` on: the pad, xor the correction where the choice is 1."""

    def feed(self, tables: NDArray[np.uint8]) -> None:
        """Evaluate further gates with the next bytes of garbled tables, which may be cut anywhere."""
    def output_labels(self) -> NDArray[np.uint8]:
        """Return the outputs' active labels, when all garbled tables are fed."""
    def output_colours(self) -> NDArray[np.uint8]:
        """Return the colour bits of the outputs' active labels, shape (outputs, instances)."""

def garbling_kernels() -> list[str]:
    """Return the garbling kernels of this machine that `SMPC_DP_KERNELS` permits, the fastest last.

    They are "portable", "aes-ni", "vaes-256" and "vaes-512".
    """

def garbling_label_hashes(
    labels: NDArray[np.uint8],
    start: bytes,
    *,
    mode: str,
    tile: int,
    first_instance: int = 0,
    kernel: str | None = None,
) -> NDArray[np.uint8]:
    """Return the hashes of output labels (outputs, instances, 16), in an array of this shape."""

def garbling_opened_list(
    opened: NDArray[np.uint8],
    bits: NDArray[np.uint8],
    start: bytes,
    key: bytes,
    *,
    mode: str,
    tile: int,
    first_instance: int = 0,
    kernel: str | None = None,
) -> tuple[bytes, NDArray[np.uint8]]:
    """Return (digest of a list as of `Garbler.list_digest`, active labels) from opened labels."""

class NoiseKey:
    """Secret key from which noise is drawn, for `smpc_dp.crypto.noise`; erased when it is dropped.

    `terms` are the law's parameters, numerators and denominators by turns, in lowest terms, big-endian
    without leading zeros, at most 32 bytes each. The interpreter lock is released while values are drawn.
    """

    @staticmethod
    def system() -> NoiseKey:
        """Return a fresh key from the operating system."""
    @staticmethod
    def keyed(key: bytes, context: Sequence[bytes]) -> NoiseKey:
        """Return the key that 32 secret bytes and context strings determine."""
    @property
    def calls(self) -> int:
        """Number of times that noise was drawn with this key."""
    def draw(self, distribution: str, terms: Sequence[bytes], count: int, threads: int) -> NDArray[np.int64]:
        """Return the next `count` (at most 2^32) values of a named distribution, drawn by `threads` threads.

        Raises ValueError for an unknown law or parameters that it does not take, OverflowError for a value
        beyond int64.
        """

MAX_COMMITTED: int
MAX_PROOF_BITS: int

class FalseStatement(Exception):
    """Error: somebody's commitment, opening or proof is malformed or false."""

def commit(values: Sequence[int], blinding: bytes) -> bytes:
    """Return the 32-byte Pedersen commitment to a vector of integers, with this blinding.

    ValueError for an argument of ours that is wrong, FalseStatement for somebody's statement that is. The
    interpreter lock is released meanwhile.
    """

def combine_commitments(plus: Sequence[bytes], minus: Sequence[bytes]) -> bytes:
    """Return the sum of the commitments `plus` less the sum of the commitments `minus`."""

def scalar_from_wide(wide: bytes) -> bytes:
    """Return 64 uniform bytes reduced to a 32-byte scalar."""

def combine_scalars(plus: Sequence[bytes], minus: Sequence[bytes]) -> bytes:
    """Return the sum of the scalars `plus` less the sum of the scalars `minus`."""

def check_point(data: bytes) -> None:
    """Raise FalseStatement unless `data` is the canonical encoding of a ristretto255 element."""

def check_points(packed: bytes) -> None:
    """Raise FalseStatement unless `packed` is a row of canonical encodings of ristretto255 elements."""

def check_scalar(data: bytes) -> None:
    """Raise FalseStatement unless `data` is the canonical encoding of a scalar."""

def range_proof_bytes(length: int, low: Sequence[int], high: Sequence[int]) -> int:
    """Return the bytes of a range proof with one `low` and `high`, or one pair for each coordinate."""

def norm_proof_bytes(length: int, bound: int) -> int:
    """Return the bytes of a proof that a vector's squares sum to at most `bound`."""

def noise_bytes(length: int, bits: int) -> tuple[int, int]:
    """Return the numbers of bytes of a noise proof's public coins, and of the proof."""

def prove_range(
    context: bytes,
    values: Sequence[int],
    blinding: bytes,
    low: Sequence[int],
    high: Sequence[int],
    seed: bytes,
) -> bytes:
    """Return a zero-knowledge proof that each committed value is in its range."""

def prove_norm(context: bytes, values: Sequence[int], blinding: bytes, bound: int, seed: bytes) -> bytes:
    """Return a zero-knowledge proof that the squares of committed values sum to at most `bound`."""

class NoiseSecret:
    """Secret bits of one party from which, with public coins, its noise follows; erased when dropped."""

    def __init__(self, length: int, bits: int, packed: bytes, wide: bytes) -> None: ...
    @property
    def commitment(self) -> bytes:
        """Commitment (32 bytes) to the secret bits."""
    def values(self, coins: bytes) -> list[int]:
        """Return the noise of each coordinate that the secret bits and the public coins give."""
    def prove(self, context: bytes, coins: bytes, blinding: bytes, seed: bytes) -> tuple[bytes, bytes]:
        """Return (commitment to the noise for these coins, proof that it follows from the secret bits)."""

class ProofBatch:
    """Batch of zero-knowledge proofs and openings, to be verified together."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add_opening(
        self, plus: Sequence[bytes], minus: Sequence[bytes], values: Sequence[int], blinding: bytes
    ) -> None:
        """Add the claim that commitments `plus` less `minus` open to these values; check it later."""
    def add_range(
        self,
        context: bytes,
        commitment: bytes,
        length: int,
        low: Sequence[int],
        high: Sequence[int],
        proof: bytes,
    ) -> None:
        """Add a range proof; it is checked later."""
    def add_norm(self, context: bytes, commitment: bytes, length: int, bound: int, proof: bytes) -> None:
        """Add a proof of a norm; it is checked later."""
    def add_noise(
        self,
        context: bytes,
        secret_commitment: bytes,
        noise_commitment: bytes,
        length: int,
        bits: int,
        coins: bytes,
        proof: bytes,
    ) -> None:
        """Add a proof of noise; it is checked later."""
    def find_false(self, threads: int) -> list[int]:
        """Verify all statements; return the indices of false ones, ascending, and empty the batch."""

class EdgeFold:
    """Accumulator of edges' commitments, which tells if both ends of each edge cancel; for many threads.

    `counted` has a byte for each party, from party 1, not 0 if edges to it count; with `locate` it is known
    in the end whose edges do not cancel.
    """

    def __init__(self, counted: bytes, locate: bool) -> None: ...
    def take(self, claims: Sequence[tuple[int, bytes, bytes, bytes]]) -> list[tuple[bytes, str]]:
        """Add claims; return for each its sum of counted commitments and "", or b"" and what is malformed.

        Returns for each claim the sum of the commitments that count, or empty and what is malformed: then
        nothing of the claim is folded. The interpreter lock is released. Raises ValueError for lengths.
        """
    def cancels(self) -> bool:
        """Tell whether both ends of all edges cancel."""
    def apart(self) -> list[int]:
        """Return the numbers, from 1, of parties with edges that do not cancel; [] without `locate`."""

GENERATOR_BLOCK_POINTS: int
GENERATOR_BLOCK_BYTES: int
MAX_COMMITTED_VECTOR: int

class DamagedBlock(Exception):
    """Error: a stored block of generators has not the digest that this version expects."""

def make_generator_block(number: int, threads: int = 1) -> bytes:
    """Return the bytes of block `number`, 0 to 255: generators from 4096 * number on.

    Coordinates are 32 bytes, little-endian, canonical. `threads` is 1 or 2, here and below; the interpreter
    lock is released. Raises ValueError for a number out of range.
    """

class Generators:
    """Generators for commitments to long vectors; `len` is their number. Threads may share one object.

    Elements are uint64, or int64 in two's complement, within `width` bytes: one-dimensional and contiguous.
    The interpreter lock is released meanwhile: nothing else may touch them. Raises ValueError for an argument
    of ours that is wrong, TypeError for another array, FalseStatement for somebody's malformed statement.
    """

    def __new__(cls) -> Generators: ...
    def __len__(self) -> int: ...
    def append(self, number: int, block: bytes) -> None:
        """Append block `number` unless it is there; ValueError if another block is the next one.

        Raises DamagedBlock for bytes that are not this block by its digest.
        """

    def commit(
        self,
        elements: NDArray[np.uint64] | NDArray[np.int64],
        width: int,
        blinding: bytes,
        threads: int = 1,
    ) -> bytes:
        """Return the 32-byte Pedersen commitment to a vector of integers, with this blinding."""
    def check(
        self,
        totals: NDArray[np.uint64] | NDArray[np.int64],
        width: int,
        blinding_sum: bytes,
        commitments: Sequence[bytes],
        threads: int = 1,
    ) -> bool:
        """Tell whether the sum of commitments opens to the vector `totals` with `blinding_sum`."""

def count_additions(length: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return numbers of cheap and dear point additions, for one commitment and for one check."""

def make_additions(seven: int, eight: int) -> None:
    """Do so many point additions of 7 and of 8 field multiplications, for a benchmark."""

class PeerMultiples:
    """Points and scalars for a multi-scalar sum by curve25519-dalek, for a benchmark."""

    def __new__(cls, elements: NDArray[np.uint64]) -> PeerMultiples: ...
    def add(self, constant_time: bool) -> None:
        """Compute the multi-scalar sum, in variable or constant time, and drop the result."""

def certificate_parts(
    name: str, serial: bytes, public_key: bytes, first_year: int, last_year: int
) -> tuple[bytes, bytes]:
    """Return the signed part of a self-signed X.509 certificate, and all bytes before the signature.

    Both are DER. `name` is the common name, of 1 to 64 bytes; `serial` a positive number, big-endian. The
    certificate is valid from the first day of `first_year` to that of `last_year`, for both ends of TLS, and
    certifies no other. Raises ValueError for anything that such a certificate cannot hold.
    """

def private_key_pem(seed: bytes) -> bytes:
    """Return the Ed25519 private key of a 32-byte seed as unencrypted PKCS 8 PEM [RFC 8410]. SECRET."""

class TlsError(OSError):
    """Error: the other end's TLS is wrong; the text says in what."""

class TlsContext:
    """TLS settings that one member's connections share: TLS 1.3 with pinned certificates.

    `key_pem` is its private key, PKCS #8 in PEM; `certificate` and those `trusted` are DER. The other end
    must show one of these, byte for byte, and prove that it has the key. Raises ValueError for a key or a
    certificate that is none, or that do not belong together.
    """

    def __new__(cls, key_pem: bytes, certificate: bytes, trusted: Sequence[bytes]) -> TlsContext: ...
    def connect(self) -> TlsConnection:
        """Return the calling end of a new connection."""
    def accept(self) -> TlsConnection:
        """Return the called end of a new connection."""

class TlsConnection:
    """One end of a TLS connection; one thread may send while another receives.

    `shake` continues the handshake with received bytes; it returns bytes to send, and whether it is done.
    At most 64 KiB wait for the rest of a message.
    `rest` returns bytes still to send, such as the alert about an error. `certificate` is what the other end
    has shown, DER, empty before. `unread` returns, once, received bytes that the handshake has left over.

    `encrypt` writes the encrypted bytes of all `buffers` to the front of `out`, and returns their number:
    for each record of 16 KiB 22 more than its own, and what TLS has to say itself. `decrypt` takes whole
    records from the front of `received`, which it overwrites, and writes their content to the front of
    `out`, keeping what has no room; it returns how many bytes it has taken and written, (0, 0) if more must
    come.

    `send` and `receive` use a socket that does not wait, by its descriptor; no other thread may close it
    meanwhile. `send` first sends what a call before has left, then encrypts the bytes of all `buffers`,
    joined, from number `start` on, a part after the other, and sends each, while the socket takes all. It
    returns the number of the first byte that is not encrypted, and whether the socket has taken everything.
    `receive` fills `out` from byte `have` on with decrypted bytes, the first ones those of `unread`; it
    returns how many `out` has, and whether the stream has ended. It returns before `out` is full when the
    socket has no more, and after it has received 32 times; all whole records that came are decrypted then.

    The interpreter lock is released meanwhile. All raise TlsError, OSError for the socket's errors,
    ValueError for an array that is not contiguous.
    """

    def shake(self, received: bytes) -> tuple[bytes, bool]:
        """Continue the handshake with received bytes; return (bytes to send, whether it is done)."""
    def rest(self) -> bytes:
        """Return bytes that are still to be sent, such as the alert about an error."""
    def certificate(self) -> bytes:
        """Return the certificate (DER) that the other end has shown; empty before."""
    def unread(self) -> bytes:
        """Return, once, received bytes that the handshake has left over."""
    def encrypt(self, buffers: Sequence[NDArray[np.uint8]], out: NDArray[np.uint8]) -> int:
        """Write the encrypted bytes of all buffers to the front of `out`; return their number."""
    def decrypt(self, received: NDArray[np.uint8], out: NDArray[np.uint8]) -> tuple[int, int]:
        """Decrypt whole records to the front of `out`; return the bytes read and written."""
    def send(self, socket: int, buffers: Sequence[NDArray[np.uint8]], start: int) -> tuple[int, bool]:
        """Encrypt and send buffers from byte `start` on; return (next byte, if all was sent)."""
    def receive(self, socket: int, out: NDArray[np.uint8], have: int) -> tuple[int, bool]:
        """Fill `out` from byte `have` on with decrypted bytes; return (bytes there, if it ended)."""

Shares = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]

class ActiveLeaky:
    """One side's leaky AND triples, in groups; `smpc_dp.crypto.active` documents the steps.

    `begin` begins a group, whatever came before, in the memory of the group before. `shares` are the bits x
    of all triples, then y, then rho, one a byte, with the MACs on them and the keys of the other side's, 16
    bytes each, flat. Digests are made under `key`, 32 bytes. The interpreter lock is released. `differences`
    ends the steps before it. `combine` ends all, and leaves nothing in `opened`, which `differences`
    returned: its memory serves the next group. Raises ValueError for another length or bits that are not 0
    or 1, RuntimeError for a step that was ended or is not due.
    """

    def __new__(
        cls, garbler: bool, delta: bytes, start: bytes, *, kernel: str | None = None
    ) -> ActiveLeaky: ...
    def begin(self, first: int, shares: Shares) -> NDArray[np.uint8]:
        """Begin a group at triple number `first`; return its first message, 16 bytes a triple."""
    def answer(self, others: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Take the other side's first message; return this side's bits d for the other side."""
    def finish(self, d: NDArray[np.uint8], key: bytes) -> bytes:
        """Take both sides' summed d; return a digest that equals the other side's if z = x y."""
    def differences(self, order: NDArray[np.uint32], size: int) -> ActiveOpenings:
        """Return, to be opened, how the y of each bucket's triples differ from its first."""
    def combine(self, opened: ActiveOpenings, differences: NDArray[np.uint8]) -> ActiveTriples:
        """Combine each bucket into one triple, from opened differences, and return the triples."""

class ActiveOpenings:
    """Shared bits about to be opened: this side's shares, and digests of MACs that check them."""

    def bits(self) -> NDArray[np.uint8]:
        """Return this side's shares of the opened bits."""
    def digest(self, key: bytes) -> bytes:
        """Return the keyed 32-byte digest of the MACs on this side's shares."""
    def expected(self, told: NDArray[np.uint8], key: bytes) -> bytes:
        """Return the MAC digest that the other side must send if its shares are `told`."""

class ActiveTriples:
    """Secret-shared AND triples that are ready to use; empty at first."""

    def __new__(cls) -> ActiveTriples: ...
    def __len__(self) -> int: ...
    def append(self, other: ActiveTriples) -> None:
        """Append the triples of `other`, which is empty afterwards."""

class ActiveMasks:
    """One side's shares of the masks on all wires, for a block of instances; errors as `ActiveLeaky`."""

    def __new__(
        cls,
        garbler: bool,
        delta: bytes,
        circuit: GarblingCircuit,
        n_instances: int,
        inputs: Shares,
        gates: Shares,
    ) -> ActiveMasks: ...
    def open(self, triples: ActiveTriples) -> ActiveOpenings:
        """Return, to be opened, the sums of masks and triples at every AND gate."""
    def multiply(self, triples: ActiveTriples, opened: NDArray[np.uint8]) -> None:
        """Compute and store shares of the products of masks at AND gates, from the opened sums."""
    def outputs(self) -> ActiveOpenings:
        """Return, to be opened, this side's shares of the output wires' masks."""
    def output_macs(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return (MACs, keys) of the output wires' masks, flat, 16 bytes each."""

class ActiveGarbler:
    """Garbler of a block with authenticated masks, which it takes from `masks`; errors as `ActiveLeaky`."""

    def __new__(
        cls,
        masks: ActiveMasks,
        start: bytes,
        first: int,
        masked: NDArray[np.uint8],
        *,
        kernel: str | None = None,
    ) -> ActiveGarbler: ...
    def tables(self, seed: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return the garbled tables, 32 bytes for each gate and instance, and one bit for each."""
    def expected(self, values: NDArray[np.uint8], key: bytes) -> bytes:
        """Return the digest that the evaluator must send if its masked values are `values`."""
    def answer(self, values: NDArray[np.uint8], key: bytes) -> tuple[bytes, NDArray[np.uint8]]:
        """Return (digest of MACs with which the evaluator checks all gates, masked outputs)."""

class ActiveEvaluator:
    """Evaluator of a block with authenticated masks, taken from `masks`; errors as `ActiveLeaky`."""

    def __new__(
        cls,
        masks: ActiveMasks,
        start: bytes,
        first: int,
        masked: NDArray[np.uint8],
        *,
        kernel: str | None = None,
    ) -> ActiveEvaluator: ...
    def evaluate(
        self,
        seed: bytes,
        tables: NDArray[np.uint8],
        table_bits: NDArray[np.uint8],
        keys: tuple[bytes, bytes],
    ) -> tuple[NDArray[np.uint8], bytes, bytes, NDArray[np.uint8]]:
        """Evaluate all gates; return (masked values, label digest, MAC digest, masked outputs)."""

def active_order(count: int, key: bytes) -> NDArray[np.uint32]:
    """Return the public shuffle of `count` leaky triples (up to 2^24) that `key`, 32 bytes, draws."""

def active_sums(labels: NDArray[np.uint8], weights: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return 64 labels: for each bit of the public weights the XOR of the secret labels that have it.

    Raises ValueError unless there are 16 bytes of labels for each weight.
    """
