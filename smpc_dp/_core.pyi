"""The compiled kernels.

Use them through `smpc_dp.crypto` and `smpc_dp.fixed_point`, which check and document what they take.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

def tuple_hash(custom: bytes, parts: Sequence[bytes], length: int = 32) -> bytes:
    """TupleHash256 [NIST SP 800-185, section 5] of `parts` under the customisation string `custom`.

    `length` is the output's length in bytes, 16 to 65536, and is itself hashed.
    Raises ValueError for another length, TypeError for a part that is not `bytes`.
    """

class TupleHash:
    """`tuple_hash` of 32 bytes, of which a part may come in pieces.

    `begin` begins a part of so many bytes, `update` gives some of them, `digest` ends nothing. Raises
    ValueError for more bytes than are due, and from `begin` and `digest` while some are.
    """

    def __new__(cls, custom: bytes) -> TupleHash: ...
    def begin(self, length: int) -> None: ...
    def update(self, piece: bytes) -> None: ...
    def digest(self) -> bytes: ...

def hkdf_sha256(key: bytes, salt: bytes, info: bytes, length: int = 32) -> bytes:
    """HKDF-SHA256 [RFC 5869] of a secret `key`: `length` bytes of output.

    Raises ValueError for more than 8160 bytes.
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
    """Write (element mod 2^bits + offset) / weight * 2^-fractional_bits to `values`, within bounds if given.

    Sums are taken modulo 2^64, as two's complement. Returns whether each is below 2^53, so that its quotient
    is correctly rounded if the weight is, too. Arrays, bounds and errors are as of `encode_fixed_point`;
    `bits` is 1 to 64.
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
    """The extension sender of `smpc_dp.crypto.ot`, which documents the steps.

    Rows are written to `out`: one-dimensional, contiguous, 16 bytes a row, `awaited` rows (twice that for
    the sender's pads, those of choice 0 first). The interpreter lock is released meanwhile: nothing else may
    touch the arrays. Raises ValueError for an argument of ours (nothing has changed), RuntimeError for a step
    out of order or on a destroyed setup, OtPeerFault for the peer's message.
    """

    def __new__(cls, context: bytes, seed: bytes, k: int, bit: bool | None = None) -> OtSender:
        """Start a setup; with `bit`, bit 0 of the correlation is that bit, which the receiver may know."""

    @property
    def context(self) -> bytes: ...
    @property
    def next_index(self) -> int: ...
    def respond(self, first: bytes) -> bytes: ...
    def finish_setup(self, corrections: bytes) -> None: ...
    @property
    def awaited(self) -> int: ...
    def challenge(self, count: int, corrections: NDArray[np.uint8]) -> bytes: ...
    def correlated(self, response: bytes, out: NDArray[np.uint8]) -> None: ...
    def random(self, response: bytes, out: NDArray[np.uint8]) -> None: ...
    def delta(self) -> bytes: ...

class OtReceiver:
    """The extension receiver of `smpc_dp.crypto.ot`; errors and lock as for `OtSender`."""

    def __new__(cls, context: bytes, seed: bytes, k: int) -> OtReceiver: ...
    @property
    def context(self) -> bytes: ...
    def keep_record(self) -> None:
        """Keep what `remake` needs, from now on."""

    @property
    def recorded(self) -> int: ...
    def remake(self, seed: bytes, out: NDArray[np.uint8]) -> str | None:
        """Both of the sender's pads of the last chunk, from the sender's seed.

        Returns the first of its messages that does not follow from the seed, "base response" or "challenge",
        None without any. Raises RuntimeError without a record.
        """

    @property
    def next_index(self) -> int: ...
    def first_message(self) -> bytes: ...
    def finish_setup(self, response: bytes) -> bytes: ...
    @property
    def awaited(self) -> int: ...
    def corrections(self, count: int) -> int:
        """Bytes of the corrections of the next chunk, if it has `count` transfers."""

    def extend(self, count: int, choices: bytes, out: NDArray[np.uint8]) -> None: ...
    def correlated(self, challenge: bytes, out: NDArray[np.uint8]) -> bytes: ...
    def random(self, challenge: bytes, out: NDArray[np.uint8]) -> bytes: ...

def ot_base_first(context: bytes, seed: bytes) -> bytes:
    """The first message of base transfers without an extension: `smpc_dp.crypto.ot.BaseSender`."""

def ot_base_pairs(context: bytes, seed: bytes, count: int, response: bytes) -> bytes:
    """Both keys of each base transfer, 32 bytes a transfer; raises OtPeerFault for a wrong response."""

def ot_base_respond(context: bytes, seed: bytes, choices: bytes, first: bytes) -> tuple[bytes, bytes]:
    """The response to the first message, and the chosen keys; `choices` has a byte, 0 or 1, for each."""

def ot_base_transfers(seed: bytes) -> None:
    """Both sides of 128 base transfers in this thread, which the benchmark times; `seed` is 32 bytes."""

def ot_rows(challenge: bytes, columns: NDArray[np.uint8], out: NDArray[np.uint8], portable: bool) -> bytes:
    """Rows of a chunk's columns, and the hashes of the 128 columns: what a check times, by either kernel.

    `columns` holds 2,048 bytes for each block of 128 rows, 16 of each column, and one block more than `out`.
    """

def group_sums(seed: bytes, decoded: int, public: Sequence[int], secret: Sequence[int]) -> None:
    """In ristretto255: so many decodings, and sums of so many public, and of so many secret multiples."""

def group_multiplications(seed: bytes, variable: int, fixed: int) -> None:
    """So many multiplications in ristretto255, of a varying point and of the generator, by a scalar."""

class GarblingCircuit:
    """A Boolean circuit, checked and compiled for garbling; immutable.

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
    def n_inputs(self) -> int: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def n_and(self) -> int: ...
    @property
    def n_slots(self) -> int:
        """The most wires that are held at once."""

    def table_bytes(self, n_instances: int) -> int:
        """Bytes of the tables of so many instances: 32 for each AND gate of each."""

    def suggest_tile(self, n_instances: int) -> int:
        """The tile that keeps the labels of a tile in cache: 1, or a power of two from 16 to 2048."""

class StreamHash:
    """Keyed BLAKE3 with a key of 32 bytes; `digest` gives 32 bytes and does not end the stream."""

    def __init__(self, key: bytes) -> None: ...
    def update(self, data: NDArray[np.uint8]) -> None: ...
    def digest(self) -> bytes: ...

class Garbler:
    """Garbles a circuit for instances `first_instance` to `first_instance + n_instances - 1` of a run.

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
    def done(self) -> bool: ...
    def fill(self, buffer: NDArray[np.uint8]) -> int:
        """Write the next tables into the front of `buffer`; return how many bytes, 0 only when done.

        ValueError if `buffer` cannot hold one gate of a tile, 32 * tile bytes.
        """

    def zero_labels(self, first: int, count: int) -> NDArray[np.uint8]: ...
    def set_zero_labels(self, first: int, labels: NDArray[np.uint8]) -> None: ...
    def open_inputs(self, wires: NDArray[np.uint32], bits: NDArray[np.uint8], seed: bytes) -> None:
        """Make the labels under `seed` (16 bytes, public) the active ones of `wires` for these bits."""

    def flip(self, wires: NDArray[np.uint32], bits: NDArray[np.uint8]) -> None:
        """Exchange both labels of `wires`, which have been given, where the bit is 1."""

    def transfer(self, wires: NDArray[np.uint32], index: int, pads: NDArray[np.uint8]) -> None:
        """Make pads[0] the zero labels of `wires` from `place` on, and pads[1] ^= pads[0] ^ offset."""
    def correct(self, pads: NDArray[np.uint8]) -> None:
        """Set pads[1] ^= pads[0] ^ offset, of whole wires; no label is set."""

    def list_digest(
        self, wires: NDArray[np.uint32], pads: NDArray[np.uint8], start: bytes, key: bytes
    ) -> bytes:
        """The keyed BLAKE3 of the hashes of both labels of each position; pads (masks, instances, 16)."""

    def open_list(
        self, wires: NDArray[np.uint32], pads: NDArray[np.uint8], start: bytes, bits: NDArray[np.uint8]
    ) -> bytes:
        """The active label of each position and the hash of its sibling, 32 bytes together."""

    def deltas(self) -> NDArray[np.uint8]: ...
    def encode(self, first: int, bits: NDArray[np.uint8]) -> NDArray[np.uint8]: ...
    def output_zero_labels(self) -> NDArray[np.uint8]: ...
    def output_colours(self) -> NDArray[np.uint8]: ...
    def output_hashes(self) -> NDArray[np.uint8]: ...

class Evaluator:
    """Evaluates what a `Garbler` with the same circuit and parameters garbled."""

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
    def remaining(self) -> int: ...
    def set_input_labels(self, first: int, labels: NDArray[np.uint8]) -> None: ...
    def open_inputs(self, wires: NDArray[np.uint32], seed: bytes) -> None: ...
    def transfer(
        self,
        wires: NDArray[np.uint32],
        index: int,
        choices: NDArray[np.uint8],
        pads: NDArray[np.uint8],
        corrections: NDArray[np.uint8],
    ) -> None:
        """Set the labels of `wires` from `place` on to the pad, and the correction where the choice is 1."""

    def feed(self, tables: NDArray[np.uint8]) -> None: ...
    def output_labels(self) -> NDArray[np.uint8]: ...
    def output_colours(self) -> NDArray[np.uint8]: ...

def garbling_kernels() -> list[str]:
    """The kernels of this machine that `SMPC_DP_KERNELS` permits, the fastest last.

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
    """The hashes of labels (outputs, instances, 16) of a circuit's outputs, in the same shape."""

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
    """What `Garbler.list_digest` gives, from `Garbler.open_list`'s (positions, instances, 32); the labels."""

class NoiseKey:
    """The key of noise, of `smpc_dp.crypto.noise`; overwritten when it is dropped.

    `terms` are the law's parameters, numerators and denominators by turns, in lowest terms, big-endian
    without leading zeros, at most 32 bytes each. The interpreter lock is released while values are drawn.
    """

    @staticmethod
    def system() -> NoiseKey: ...
    @staticmethod
    def keyed(key: bytes, context: Sequence[bytes]) -> NoiseKey: ...
    @property
    def calls(self) -> int: ...
    def draw(self, distribution: str, terms: Sequence[bytes], count: int, threads: int) -> NDArray[np.int64]:
        """The next `count` (at most 2^32) values of `law`, by 1 to 256 threads.

        Raises ValueError for an unknown law or parameters that it does not take, OverflowError for a value
        beyond int64.
        """

MAX_COMMITTED: int
MAX_PROOF_BITS: int

class FalseStatement(Exception):
    """Somebody's commitment, opening or proof is malformed or false."""

def commit(values: Sequence[int], blinding: bytes) -> bytes:
    """The commitments and proofs of `smpc_dp.crypto.commit` and `smpc_dp.crypto.proofs`; so for what follows.

    ValueError for an argument of ours that is wrong, FalseStatement for somebody's statement that is. The
    interpreter lock is released meanwhile.
    """

def combine_commitments(plus: Sequence[bytes], minus: Sequence[bytes]) -> bytes: ...
def scalar_from_wide(wide: bytes) -> bytes: ...
def combine_scalars(plus: Sequence[bytes], minus: Sequence[bytes]) -> bytes: ...
def check_point(data: bytes) -> None: ...
def check_points(packed: bytes) -> None: ...
def check_scalar(data: bytes) -> None: ...
def range_proof_bytes(length: int, low: Sequence[int], high: Sequence[int]) -> int:
    """Of one `low` and `high`, or one for each coordinate; so everywhere below."""

def norm_proof_bytes(length: int, bound: int) -> int: ...
def noise_bytes(length: int, bits: int) -> tuple[int, int]:
    """Bytes of the coins, and of a proof."""

def prove_range(
    context: bytes,
    values: Sequence[int],
    blinding: bytes,
    low: Sequence[int],
    high: Sequence[int],
    seed: bytes,
) -> bytes: ...
def prove_norm(context: bytes, values: Sequence[int], blinding: bytes, bound: int, seed: bytes) -> bytes: ...

class NoiseSecret:
    """Secret bits, overwritten when dropped."""

    def __init__(self, length: int, bits: int, packed: bytes, wide: bytes) -> None: ...
    @property
    def commitment(self) -> bytes: ...
    def values(self, coins: bytes) -> list[int]: ...
    def prove(self, context: bytes, coins: bytes, blinding: bytes, seed: bytes) -> tuple[bytes, bytes]: ...

class ProofBatch:
    """Statements with their proofs."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def add_opening(
        self, plus: Sequence[bytes], minus: Sequence[bytes], values: Sequence[int], blinding: bytes
    ) -> None: ...
    def add_range(
        self,
        context: bytes,
        commitment: bytes,
        length: int,
        low: Sequence[int],
        high: Sequence[int],
        proof: bytes,
    ) -> None: ...
    def add_norm(self, context: bytes, commitment: bytes, length: int, bound: int, proof: bytes) -> None: ...
    def add_noise(
        self,
        context: bytes,
        secret_commitment: bytes,
        noise_commitment: bytes,
        length: int,
        bits: int,
        coins: bytes,
        proof: bytes,
    ) -> None: ...
    def find_false(self, threads: int) -> list[int]:
        """The numbers of the false ones, ascending; empties the batch, unless it fails."""

class EdgeFold:
    """The commitments of edges, folded: whether the two ends of each cancel. Many threads may call.

    `counted` has a byte for each party, from party 1, not 0 if edges to it count; with `locate` it is known
    in the end whose edges do not cancel.
    """

    def __init__(self, counted: bytes, locate: bool) -> None: ...
    def take(self, claims: Sequence[tuple[int, bytes, bytes, bytes]]) -> list[tuple[bytes, str]]:
        """Fold claims: party, neighbours (2 bytes each, little-endian), commitments, other points to check.

        Returns for each claim the sum of the commitments that count, or empty and what is malformed: then
        nothing of the claim is folded. The interpreter lock is released. Raises ValueError for lengths.
        """
    def cancels(self) -> bool: ...
    def apart(self) -> list[int]: ...

GENERATOR_BLOCK_POINTS: int
GENERATOR_BLOCK_BYTES: int
MAX_COMMITTED_VECTOR: int

class DamagedBlock(Exception):
    """A stored block of generators is not that of this version."""

def make_generator_block(number: int, threads: int = 1) -> bytes:
    """The bytes of block `number`, 0 to 255: generators 4096 * number on, y + x, y - x and 2 d x y of each.

    Coordinates are 32 bytes, little-endian, canonical. `threads` is 1 or 2, here and below; the interpreter
    lock is released. Raises ValueError for a number out of range.
    """

class Generators:
    """The generators of `smpc_dp.crypto.vector_commitments`; `len` is their number. Threads may share one.

    Elements are uint64, or int64 in two's complement, within `width` bytes: one-dimensional and contiguous.
    The interpreter lock is released meanwhile: nothing else may touch them. Raises ValueError for an argument
    of ours that is wrong, TypeError for another array, FalseStatement for somebody's malformed statement.
    """

    def __new__(cls) -> Generators: ...
    def __len__(self) -> int: ...
    def append(self, number: int, block: bytes) -> None:
        """Append block `number`, unless it is there; a right one that is not the next raises ValueError.

        Raises DamagedBlock for bytes that are not this block by its digest.
        """

    def commit(
        self,
        elements: NDArray[np.uint64] | NDArray[np.int64],
        width: int,
        blinding: bytes,
        threads: int = 1,
    ) -> bytes: ...
    def check(
        self,
        totals: NDArray[np.uint64] | NDArray[np.int64],
        width: int,
        blinding_sum: bytes,
        commitments: Sequence[bytes],
        threads: int = 1,
    ) -> bool: ...

def count_additions(length: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Numbers of additions of 7 and of 8 multiplications: of a commitment, and of a check on one thread."""

def make_additions(seven: int, eight: int) -> None:
    """So many additions of points of 7 and of 8 multiplications in the field."""

class PeerMultiples:
    """Multiples of as many points by these elements, as curve25519-dalek adds them; for a benchmark."""

    def __new__(cls, elements: NDArray[np.uint64]) -> PeerMultiples: ...
    def add(self, constant_time: bool) -> None: ...

def certificate_parts(
    name: str, serial: bytes, public_key: bytes, first_year: int, last_year: int
) -> tuple[bytes, bytes]:
    """The signed part of a self-signed X.509 certificate of an Ed25519 key, and all before the signature.

    Both are DER. `name` is the common name, of 1 to 64 bytes; `serial` a positive number, big-endian. The
    certificate is valid from the first day of `first_year` to that of `last_year`, for both ends of TLS, and
    certifies no other. Raises ValueError for anything that such a certificate cannot hold.
    """

def private_key_pem(seed: bytes) -> bytes:
    """The Ed25519 private key of a 32-byte seed as unencrypted PKCS 8 PEM [RFC 8410]. SECRET."""

class TlsError(OSError):
    """The other end's TLS is wrong; the text says in what."""

class TlsContext:
    """What the connections of one member share: TLS 1.3, AES-128-GCM, X25519, Ed25519, nothing resumed.

    `key_pem` is its private key, PKCS #8 in PEM; `certificate` and those `trusted` are DER. The other end
    must show one of these, byte for byte, and prove that it has the key. Raises ValueError for a key or a
    certificate that is none, or that do not belong together.
    """

    def __new__(cls, key_pem: bytes, certificate: bytes, trusted: Sequence[bytes]) -> TlsContext: ...
    def connect(self) -> TlsConnection: ...
    def accept(self) -> TlsConnection: ...

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

    def shake(self, received: bytes) -> tuple[bytes, bool]: ...
    def rest(self) -> bytes: ...
    def certificate(self) -> bytes: ...
    def unread(self) -> bytes: ...
    def encrypt(self, buffers: Sequence[NDArray[np.uint8]], out: NDArray[np.uint8]) -> int: ...
    def decrypt(self, received: NDArray[np.uint8], out: NDArray[np.uint8]) -> tuple[int, int]: ...
    def send(self, socket: int, buffers: Sequence[NDArray[np.uint8]], start: int) -> tuple[int, bool]: ...
    def receive(self, socket: int, out: NDArray[np.uint8], have: int) -> tuple[int, bool]: ...

Shares = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]

class ActiveLeaky:
    """The leaky triples of a group at one side; `smpc_dp.crypto.active` documents the steps.

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
    def begin(self, first: int, shares: Shares) -> NDArray[np.uint8]: ...
    def answer(self, others: NDArray[np.uint8]) -> NDArray[np.uint8]: ...
    def finish(self, d: NDArray[np.uint8], key: bytes) -> bytes: ...
    def differences(self, order: NDArray[np.uint32], size: int) -> ActiveOpenings: ...
    def combine(self, opened: ActiveOpenings, differences: NDArray[np.uint8]) -> ActiveTriples: ...

class ActiveOpenings:
    """Bits that are opened: this side's shares, and digests of the MACs of both."""

    def bits(self) -> NDArray[np.uint8]: ...
    def digest(self, key: bytes) -> bytes: ...
    def expected(self, told: NDArray[np.uint8], key: bytes) -> bytes: ...

class ActiveTriples:
    """Triples of whole buckets, none at first; `append` takes those of `other` away."""

    def __new__(cls) -> ActiveTriples: ...
    def __len__(self) -> int: ...
    def append(self, other: ActiveTriples) -> None: ...

class ActiveMasks:
    """The masks of a block of instances; errors as for `ActiveLeaky`."""

    def __new__(
        cls,
        garbler: bool,
        delta: bytes,
        circuit: GarblingCircuit,
        n_instances: int,
        inputs: Shares,
        gates: Shares,
    ) -> ActiveMasks: ...
    def open(self, triples: ActiveTriples) -> ActiveOpenings: ...
    def multiply(self, triples: ActiveTriples, opened: NDArray[np.uint8]) -> None: ...
    def outputs(self) -> ActiveOpenings: ...
    def output_macs(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]: ...

class ActiveGarbler:
    """The garbler of a block, which takes the masks away; errors as for `ActiveLeaky`."""

    def __new__(
        cls,
        masks: ActiveMasks,
        start: bytes,
        first: int,
        masked: NDArray[np.uint8],
        *,
        kernel: str | None = None,
    ) -> ActiveGarbler: ...
    def tables(self, seed: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]: ...
    def expected(self, values: NDArray[np.uint8], key: bytes) -> bytes: ...
    def answer(self, values: NDArray[np.uint8], key: bytes) -> tuple[bytes, NDArray[np.uint8]]: ...

class ActiveEvaluator:
    """The evaluator of a block, which takes the masks away; errors as for `ActiveLeaky`."""

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
    ) -> tuple[NDArray[np.uint8], bytes, bytes, NDArray[np.uint8]]: ...

def active_order(count: int, key: bytes) -> NDArray[np.uint32]:
    """Return the public shuffle of `count` leaky triples (up to 2^24) that `key`, 32 bytes, draws."""
