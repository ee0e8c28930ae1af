"""merlin transcripts [merlin.cool]: STROBE-128 over Keccak-f[1600], a byte at a time."""

from __future__ import annotations

_RATE = 166
_I, _A, _C, _M, _K = 1, 2, 4, 16, 32
_WORD = (1 << 64) - 1


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _WORD


def keccak_f(state: bytearray) -> None:
    """Apply the permutation Keccak-f[1600] [FIPS 202, section 3.3] to a 200-byte state in place."""
    ring_vector = {
        (x, y): int.from_bytes(state[8 * (x + 5 * y) :][:8], "little") for x in range(5) for y in range(5)
    }
    shift_register = 1
    for _ in range(24):
        columns = [
            ring_vector[x, 0] ^ ring_vector[x, 1] ^ ring_vector[x, 2] ^ ring_vector[x, 3] ^ ring_vector[x, 4]
            for x in range(5)
        ]
        for x in range(5):
            parity = columns[x - 1] ^ _rotate(columns[(x + 1) % 5], 1)
            for y in range(5):
                ring_vector[x, y] ^= parity
        x, y, moved = 1, 0, ring_vector[1, 0]
        for t in range(24):
            x, y = y, (2 * x + 3 * y) % 5
            moved, ring_vector[x, y] = ring_vector[x, y], _rotate(moved, (t + 1) * (t + 2) // 2 % 64)
        for y in range(5):
            row = [ring_vector[x, y] for x in range(5)]
            for x in range(5):
                ring_vector[x, y] = row[x] ^ (~row[(x + 1) % 5] & row[(x + 2) % 5])
        for j in range(7):
            if shift_register & 1:
                ring_vector[0, 0] ^= 1 << (1 << j) - 1
            shift_register = shift_register << 1 ^ (shift_register >> 7) * 0x171
    for (x, y), element in ring_vector.items():
        state[8 * (x + 5 * y) : 8 * (x + 5 * y) + 8] = element.to_bytes(8, "little")


class Transcript:
    """Merlin transcript of a proof: absorbs public messages and gives challenges that depend on them."""

    def __init__(self, label: bytes) -> None:
        self._state = bytearray(200)
        self._state[:18] = bytes([1, _RATE + 2, 1, 0, 1, 96]) + b"STROBEv1.0.2"
        keccak_f(self._state)
        self._position = self._begin = 0
        self._operate(_M | _A, b"Merlin v1.0")
        self.append(b"dom-sep", label)

    def append(self, label: bytes, message: bytes) -> None:
        """Absorb a message, with its label and length, into the transcript."""
        self._operate(_M | _A, label + len(message).to_bytes(4, "little"))
        self._operate(_A, message)

    def append_uint(self, label: bytes, number: int) -> None:
        """Absorb an integer below 2**64, as 8 little-endian bytes, into the transcript."""
        self.append(label, number.to_bytes(8, "little"))

    def challenge(self, label: bytes, length: int = 64) -> bytes:
        """Return `length` pseudo-random challenge bytes that depend on all absorbed messages."""
        self._operate(_M | _A, label + length.to_bytes(4, "little"))
        self._start(_I | _A | _C)
        output = bytearray()
        for _ in range(length):
            output.append(self._state[self._position])
            self._state[self._position] = 0
            self._advance()
        return bytes(output)

    def _operate(self, flags: int, data: bytes) -> None:
        self._start(flags)
        self._absorb(data)

    def _start(self, flags: int) -> None:
        before, self._begin = self._begin, self._position + 1
        self._absorb(bytes([before, flags]))
        if flags & (_C | _K) and self._position:
            self._permute()

    def _absorb(self, data: bytes) -> None:
        for byte in data:
            self._state[self._position] ^= byte
            self._advance()

    def _advance(self) -> None:
        self._position += 1
        if self._position == _RATE:
            self._permute()

    def _permute(self) -> None:
        self._state[self._position] ^= self._begin
        self._state[self._position + 1] ^= 4
        self._state[_RATE + 1] ^= 0x80
        keccak_f(self._state)
        self._position = self._begin = 0
