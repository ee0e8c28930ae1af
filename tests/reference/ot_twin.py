"""A slow, obvious twin of oblivious transfer in the core: whole transcripts from the same seeds.

Columns are lists of bits, trees are dictionaries, the field of the check is plain integers. It shares
nothing with the library; `protocols/pairwise/ot.md` is the specification of both. Not constant-time; for
tests alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce

from Crypto.Hash import TupleHash256
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from smpc_dp_verify import ristretto as group

N = 128
POLYVAL_MODULUS = 1 << 128 | 1 << 127 | 1 << 126 | 1 << 121 | 1
Columns = list[list[int]]


def tuple_hash(label: str, length: int, *parts: bytes) -> bytes:
    """TupleHash256 of `parts` under one of the labels of oblivious transfer."""
    hasher = TupleHash256.new(digest_bytes=length, custom=f"smpc-dp/1/ot-{label}".encode())
    for part in parts:
        hasher.update(part)
    digest: bytes = hasher.digest()
    return digest


def xor(*strings: bytes) -> bytes:
    """The sum of strings of one length."""
    return reduce(lambda a, b: bytes(x ^ y for x, y in zip(a, b, strict=True)), strings)


def uint(n: int) -> bytes:
    """Eight bytes, big-endian."""
    return n.to_bytes(8, "big")


def bits(data: bytes) -> list[int]:
    """The bits of `data`, least significant first."""
    return [byte >> i & 1 for byte in data for i in range(8)]


def pack(values: list[int]) -> bytes:
    """The inverse of `bits`, filled up with zeros."""
    total = sum(bit << i for i, bit in enumerate(values))
    return total.to_bytes(-(-len(values) // 8), "little")


def aes(key: bytes, blocks: bytes) -> bytes:
    """AES-128 of each block."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 (one block at a time)
    return encryptor.update(blocks) + encryptor.finalize()


@dataclass
class BaseTransfers:
    """Both sides of the base transfers."""

    context: bytes
    sender_seed: bytes
    receiver_seed: bytes
    choices: list[int]

    def run(self) -> tuple[bytes, bytes, list[list[bytes]], list[bytes]]:
        """The two messages, the sender's pairs of keys, the receiver's keys."""
        a = int.from_bytes(tuple_hash("base-scalar", 64, self.context, self.sender_seed), "little")
        first = group.encode(group.times(a % group.ORDER, group.BASE))
        response, received = self.answer(first)
        pairs = []
        for i in range(len(self.choices)):
            entry = response[80 * i : 80 * i + 80]
            pair = []
            for x in range(2):
                hashed = self._point(first, i, x, self._mix(first, i, x, entry[48:], entry[:48]))
                shared = group.times(a % group.ORDER, group.add(group.decode(entry[48:]), hashed))
                pair.append(self._key(first, i, x, entry, shared))
            pairs.append(pair)
        return first, response, pairs, received

    def answer(self, first: bytes) -> tuple[bytes, list[bytes]]:
        """The receiver's message and its keys. Raises ValueError if `first` is no point."""
        coins = tuple_hash("base-coins", N * 112, self.context, self.receiver_seed)
        response, received = b"", []
        for i, choice in enumerate(self.choices):
            coin = coins[112 * i : 112 * i + 112]
            b = 2 * int.from_bytes(coin[:64], "little") % group.ORDER
            hashed = self._point(first, i, choice, coin[64:])
            point = group.encode(group.add(group.times(b, group.BASE), group.negate(hashed)))
            entry = self._mix(first, i, choice, point, coin[64:]) + point
            shared = group.times(b, group.decode(first))
            received.append(self._key(first, i, choice, entry, shared))
            response += entry
        return response, received

    def _point(self, first: bytes, i: int, x: int, string: bytes) -> group.Point:
        half = group.map_to_group(tuple_hash("base-point", 32, self.context, first, bytes([i, x]), string))
        return group.add(half, half)

    def _mix(self, first: bytes, i: int, x: int, point: bytes, string: bytes) -> bytes:
        return xor(string, tuple_hash("base-string", 48, self.context, first, bytes([i, x]), point))

    def _key(self, first: bytes, i: int, x: int, entry: bytes, shared: group.Point) -> bytes:
        parts = (self.context, first, bytes([i, x]), entry, group.encode(shared))
        return tuple_hash("base-key", 16, *parts)


def plant(context: bytes, k: int, digit: int, pairs: list[list[bytes]]) -> tuple[list[bytes], bytes]:
    """The stream keys of one tree and its corrections."""
    nodes, message = list(pairs[0]), b""
    for level in range(1, k):
        children = []
        for y, node in enumerate(nodes):
            both = tuple_hash("tree", 32, context, bytes([digit, level, y]), node)
            children += [both[:16], both[16:]]
        nodes = children
        for side in range(2):
            message += xor(pairs[level][side], *nodes[side::2])
    leaves = [tuple_hash("leaf", 48, context, bytes([digit, y]), node) for y, node in enumerate(nodes)]
    checks = [leaf[16:] for leaf in leaves]
    message += xor(*checks) + tuple_hash("tree-check", 32, context, bytes([digit]), b"".join(checks))
    return [leaf[:16] for leaf in leaves], message


def puncture(
    context: bytes, k: int, digit: int, point: int, keys: list[bytes], message: bytes
) -> dict[int, bytes]:
    """The stream keys of one tree but that of leaf `point`. Raises ValueError if the check fails."""
    known: dict[int, bytes] = {}
    for level in range(k):
        path = point >> (k - 1 - level)
        children = {}
        for y, node in known.items():
            both = tuple_hash("tree", 32, context, bytes([digit, level, y]), node)
            children[2 * y], children[2 * y + 1] = both[:16], both[16:]
        sibling = path ^ 1
        value = keys[level]
        if level:
            offset = 32 * (level - 1) + 16 * (sibling & 1)
            same_side = [node for y, node in children.items() if y & 1 == sibling & 1]
            value = xor(value, message[offset : offset + 16], *same_side)
        known = children | {sibling: value}
    leaves = {y: tuple_hash("leaf", 48, context, bytes([digit, y]), node) for y, node in known.items()}
    total, hashed = message[-64:-32], message[-32:]
    checks = {y: leaf[16:] for y, leaf in leaves.items()}
    checks[point] = xor(total, *checks.values())
    everything = b"".join(checks[y] for y in sorted(checks))
    if tuple_hash("tree-check", 32, context, bytes([digit]), everything) != hashed:
        raise ValueError("the check of the trees failed")
    return {y: leaf[:16] for y, leaf in leaves.items()}


def multiply(a: int, b: int) -> int:
    """RFC 8452, section 3: dot(a, b) = a b x^-128."""
    product = 0
    for i in range(128):
        if b >> i & 1:
            product ^= a << i
    for _ in range(128):
        if product & 1:
            product ^= POLYVAL_MODULUS
        product >>= 1
    return product


def polyval(key: bytes, column: list[int]) -> bytes:
    """POLYVAL [RFC 8452] of a column's blocks."""
    h, state, data = int.from_bytes(key, "little"), 0, pack(column)
    for start in range(0, len(data), 16):
        state = multiply(state ^ int.from_bytes(data[start : start + 16], "little"), h)
    return state.to_bytes(16, "little")


@dataclass
class Chunk:
    """The transcript of one chunk, and what both sides hold afterwards."""

    first: int
    corrections: bytes
    challenge: bytes
    response: bytes
    q: list[bytes]
    t: list[bytes]
    columns: Columns


@dataclass
class Extension:
    """Both sides of a setup and of the chunks that follow."""

    caller_context: bytes
    k: int
    sender_seed: bytes
    receiver_seed: bytes
    next_index: int = 0
    messages: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        k = self.k
        self.context = tuple_hash("setup", 32, self.caller_context, bytes([k]))
        self.delta = self.correlation()
        delta_bits = bits(self.delta)
        self.digits = [delta_bits[d * k : d * k + k] for d in range(N // k)]
        inverted = [1 ^ bit for digit in self.digits for bit in reversed(digit)]
        base_seed = tuple_hash("sender-base", 32, self.context, self.sender_seed)
        base = BaseTransfers(self.context, self.receiver_seed, base_seed, inverted)
        first, response, pairs, received = base.run()
        self.base, self.received = base, received
        self.trees, self.punctured, corrections = [], [], b""
        for d, digit in enumerate(self.digits):
            leaves, message = plant(self.context, k, d, pairs[d * k : d * k + k])
            point = sum(bit << b for b, bit in enumerate(digit))
            keys = received[d * k : d * k + k]
            self.punctured.append(puncture(self.context, k, d, point, keys, message))
            self.trees.append(leaves)
            corrections += message
        self.messages = [first, response, corrections]

    def correlation(self) -> bytes:
        """Delta, the sender's secret."""
        return tuple_hash("delta", 16, self.context, self.sender_seed)

    def run(self, choices: list[int]) -> Chunk:
        """The next chunk, of `len(choices)` transfers."""
        first, count, k = self.next_index, len(choices), self.k
        blocks = -(-count // 128) + 1
        self.next_index += 128 * blocks

        def stream(leaf: bytes) -> list[int]:
            numbers = range(first // 128, first // 128 + blocks)
            return bits(aes(leaf, b"".join(n.to_bytes(16, "big") for n in numbers)))

        def total(columns: Columns) -> list[int]:
            return [sum(values) & 1 for values in zip(*columns, strict=True)]

        zeros = [0] * (128 * blocks)
        sums, t_columns = [], []
        for leaves in self.trees:
            streams = [stream(leaf) for leaf in leaves]
            sums.append(total(streams))
            t_columns += [total([s for y, s in enumerate(streams) if y >> b & 1]) for b in range(k)]
        x = choices + [0] * (128 * (blocks - 1) - count) + sums[0][-128:]
        corrected = [total([u, x]) for u in sums]
        q_columns = []
        for digit, known, c in zip(self.digits, self.punctured, corrected, strict=True):
            point = sum(bit << b for b, bit in enumerate(digit))
            streams_by_leaf = {y: stream(leaf) for y, leaf in known.items()}
            for b in range(k):
                mine = [s for y, s in streams_by_leaf.items() if (y ^ point) >> b & 1]
                q_columns.append(total([*mine, c if digit[b] else zeros]))
        challenge = tuple_hash("challenge", 16, self.context, self.sender_seed, uint(first))
        response = uint(first) + polyval(challenge, x)
        response += b"".join(polyval(challenge, column) for column in t_columns)
        self.check(challenge, response, q_columns)
        return Chunk(
            first,
            uint(first) + uint(count) + b"".join(pack(c) for c in corrected),
            uint(first) + challenge,
            response,
            [pack(list(row)) for row in list(zip(*q_columns, strict=True))[:count]],
            [pack(list(row)) for row in list(zip(*t_columns, strict=True))[:count]],
            q_columns,
        )

    def check(self, challenge: bytes, response: bytes, q_columns: Columns) -> None:
        """The sender's check of a chunk. Raises ValueError if it fails."""
        chosen = response[8:24]
        for c, (column, bit) in enumerate(zip(q_columns, bits(self.delta), strict=True)):
            claimed = response[24 + 16 * c : 40 + 16 * c]
            if polyval(challenge, column) != (xor(claimed, chosen) if bit else claimed):
                raise ValueError("the consistency check failed")

    def pads(self, first: int, rows: list[bytes]) -> list[bytes]:
        """H(first + j, row j) for each row."""
        key = tuple_hash("pad", 16, self.context)
        result = []
        for index, row in enumerate(rows, first):
            once = aes(key, row)
            result.append(xor(aes(key, xor(once, index.to_bytes(16, "big"))), once))
        return result
