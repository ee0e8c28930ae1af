"""Check of shares that two sides give to a third party: a random sum of them, opened between the two.

Each side holds shares of bits with MACs under the other's correlation (`crypto.active`), and 64 further bits
of its own with MACs, which hide the sum. chi is drawn when the third party has the shares. A false share
changes the sum but with probability 2^-64 [protocols/active/README.md, step 7].

Coefficients are public, and so are selections by them; bits and labels are used by exclusive or alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp.crypto.active import Bits, Labels, SharedBits
from smpc_dp.crypto.garble import LABEL_BYTES
from smpc_dp.crypto.prg import expand

HIDING_BITS = 64
"""Bits of a side that hide its sum, and bits of the sum."""
# Bits whose masks stay in the cache: fresh memory for all of them costs more than the sum.
_CHUNK = 1 << 14

Weights = NDArray[np.uint64]


def coefficients(chi: bytes, count: int) -> Weights:
    """Return `count` pseudorandom 64-bit coefficients, drawn from the 32-byte challenge chi."""
    return expand(chi, count, np.uint64)


def sum_of(bits: Bits, hiding: Bits, weights: Weights) -> bytes:
    """Return 8 bytes: the XOR of the weights whose bit is 1, itself hidden by XOR with the 64 hiding bits."""
    chosen = np.uint64(0)
    for first in range(0, len(bits), _CHUNK):
        part = slice(first, first + _CHUNK)
        chosen ^= np.bitwise_xor.reduce(weights[part] & np.negative(bits[part].astype(np.uint64)))
    hidden = np.packbits(hiding, bitorder="little").view("<u8")[0]
    return int(chosen ^ hidden).to_bytes(HIDING_BITS // 8, "little")


def _combined(labels: Labels, hiding: Labels, weights: Weights) -> Labels:
    """Return MACs (or keys) on each of the hidden sum's 64 bits, from those on the single bits."""
    sums = _core.active_sums(np.ascontiguousarray(labels).reshape(-1), weights)
    return np.bitwise_xor(hiding, sums.reshape(HIDING_BITS, LABEL_BYTES))


@dataclass(frozen=True, slots=True)
class SharedOutputs:
    """One side's shares of a circuit's output masks, with which an aggregator's output is checked.

    `masked` are the masked values of the outputs, which the evaluator adds to its shares: `adds`.
    """

    masks: SharedBits = field(repr=False)
    hiding: SharedBits = field(repr=False)
    masked: Bits = field(repr=False)
    delta: bytes = field(repr=False)
    adds: bool

    @property
    def shares(self) -> Bits:
        """This side's shares of the output bits."""
        return np.bitwise_xor(self.masks.bits, self.masked) if self.adds else self.masks.bits

    def opening(self, chi: bytes) -> tuple[bytes, bytes]:
        """Return (this side's hidden sum of output shares for the challenge chi, MACs on the sum)."""
        weights = coefficients(chi, len(self.masked))
        macs = _combined(self.masks.macs, self.hiding.macs, weights)
        return sum_of(self.shares, self.hiding.bits, weights), macs.tobytes()

    def expected(self, chi: bytes, opening: bytes) -> bytes:
        """Return the MACs that the other side must send if `opening` is its true hidden sum."""
        weights = coefficients(chi, len(self.masked))
        keys = _combined(self.masks.keys, self.hiding.keys, weights)
        # The garbler knows what the evaluator has added: MACs are on masks alone.
        added = bytes(HIDING_BITS // 8)
        if not self.adds:
            added = sum_of(self.masked, np.zeros(HIDING_BITS, np.uint8), weights)
        claimed = np.bitwise_xor(np.frombuffer(opening, np.uint8), np.frombuffer(added, np.uint8))
        ones = np.negative(np.unpackbits(claimed, bitorder="little"))
        return (keys ^ (ones[:, None] & np.frombuffer(self.delta, np.uint8))).tobytes()
