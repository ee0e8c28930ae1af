"""Authenticated garbling: what one side of an actively secure evaluation computes, by the core.

`protocols/active/README.md` is the specification, with its claim, the names used here and the sources.
[Katz, Ranellucci, Rosulek, Wang 2018] over the correlated transfers of `crypto.ot`, one in each direction.
Transfers, commitments and the order of messages are the caller's:

    leaky = LeakyTriples(side)
    leaky.begin(first, bits)    <-->   U          x, y and rho from the transfers of both directions
    leaky.answer(U)     <-->   d
    leaky.finish(d, key)                          both sides commit to the digest, and compare it
    opened = leaky.differences(order, size)  <--> order from `bucket_order`, after the comparison has passed
    triples = leaky.combine(opened, differences)

    masks = Masks(side, circuit, instances, inputs, gates)
    masks.open(triples)  <-->  ;  masks.multiply(triples, opened)
    garbler = Garbler(masks, ...)                 evaluator = Evaluator(masks, ...)
    tables, bits = garbler.tables(seed)   -->     evaluated = evaluator.evaluate(seed, tables, bits, keys)
    garbler.expected(values, key)         <--     evaluated.values, evaluated.labels
    garbler.answer(values, key)           -->     compared with evaluated.macs

No check is made here: a caller compares each digest that arrives with the expected one, in constant time,
and ends everything under both correlations if one differs. Bits are uint8 arrays with 0 or 1 in each element;
MACs and keys are uint8 arrays of shape (bits, 16). Digests are made under keys of 32 bytes that name their
purpose, sender and receiver. The core overwrites its secrets when it drops them. Every method releases the
interpreter lock. Raises ValueError for another length or another number than 0 and 1, RuntimeError for an
object whose content a later step has taken.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smpc_dp import _core
from smpc_dp.crypto.garble import LABEL_BYTES, GarblingCircuit

Bits = NDArray[np.uint8]
Labels = NDArray[np.uint8]
Order = NDArray[np.uint32]

GROUP = 1 << 16
"""Most triples of a group, and AND gates of a block of more than one instance."""
FEWEST = 31
"""Fewest triples of a group: the last ones are then for no gate."""
MOST_NUMBER = 1 << 40
"""Leaky triples, and AND gates of all instances, of one pair of setups."""
# Least B and the probability that it bounds: both are in the specification.
_LEAST_BUCKET, _BUCKET_BITS = 2, 41


def bucket_size(triples: int, groups: int) -> int:
    """Return how many leaky triples make one of a group's `triples`, for security 2^-41 in all groups.

    The least B with groups max over m of 2^-m l C(m, B) / C(l B, B) <= 2^-41, computed in whole numbers:
    both sides have the same. Raises ValueError for fewer than FEWEST or more than GROUP triples.
    """
    if not FEWEST <= triples <= GROUP:
        raise ValueError(f"triples: {triples}, not between {FEWEST} and {GROUP}")
    size = _LEAST_BUCKET
    # C(m + 1, B) is more than twice C(m, B) up to m = 2 B - 2: that is the greatest product.
    while groups * triples * comb(2 * size - 1, size) << _BUCKET_BITS > (
        comb(triples * size, size) << 2 * size - 1
    ):
        size += 1
    return size


def bucket_order(count: int, key: bytes) -> Order:
    """Return the public pseudorandom permutation of `count` leaky AND triples under a 32-byte key."""
    return _core.active_order(count, key)


@dataclass(frozen=True, slots=True)
class Side:
    """Keys of one side for all evaluations with a peer: a secret MAC key, and the public start of hash keys.

    `delta`: 16 secret bytes, the correlation of the setup in which the side sends; its bit 0 is 1 for the
    garbler and 0 for the evaluator. `start`: 16 public bytes, from which all keys of hashes are made.
    `kernel`: None for the fastest.
    """

    garbler: bool
    delta: bytes = field(repr=False)
    start: bytes
    kernel: str | None = None


class SharedBits(NamedTuple):
    """One side's XOR shares of secret bits, with MACs on them, and MAC keys for the other side's.

    A MAC on a share is the other side's key of it, plus the other side's delta where the share is 1.
    """

    bits: Bits
    macs: Labels
    keys: Labels

    @classmethod
    def zeros(cls, count: int) -> SharedBits:
        """Return shares of `count` bits that are all 0, with MACs and keys of zero bytes, as placeholders."""
        labels = (count, LABEL_BYTES)
        return cls(np.zeros(count, np.uint8), np.zeros(labels, np.uint8), np.zeros(labels, np.uint8))

    def _flat(self) -> tuple[Bits, Labels, Labels]:
        """Return bits, MACs and keys as one-dimensional arrays for the native code."""
        return self.bits, self.macs.reshape(-1), self.keys.reshape(-1)


class OpenedBits:
    """Shared bits about to be opened: this side's shares, and digests that check the other's."""

    def __init__(self, core: _core.ActiveOpenings) -> None:
        self.core = core

    def bits(self) -> Bits:
        """Return this side's shares of the bits to be opened, which the caller sends to the other side."""
        return self.core.bits()

    def digest(self, key: bytes) -> bytes:
        """Return the keyed 32-byte digest of the MACs on this side's shares."""
        return self.core.digest(key)

    def expected(self, others: Bits, key: bytes) -> bytes:
        """Return the MAC digest that the other side must send if its shares are `others`."""
        return self.core.expected(others, key)


class Triples:
    """Secret-shared AND triples (x, y, z = x y) that are ready to use."""

    def __init__(self, core: _core.ActiveTriples | None = None) -> None:
        """Hold the AND triples of a native object; without one, none."""
        self.core = _core.ActiveTriples() if core is None else core

    def __len__(self) -> int:
        return len(self.core)

    def append(self, other: Triples) -> None:
        """Append the AND triples of `other`, which is empty afterwards."""
        self.core.append(other.core)


class LeakyTriples:
    """AND triples of one group after another, before buckets remove what a cheating peer may know.

    A peer that deviates may learn some of their x, and guesses fail.
    """

    def __init__(self, side: Side) -> None:
        self._core = _core.ActiveLeaky(side.garbler, side.delta, side.start, kernel=side.kernel)

    def begin(self, first: int, shares: SharedBits) -> Labels:
        """Begin a group of shared triples; return this side's first message about them, 16 bytes a triple.

        `shares` are x of all, y of all and rho of all; `first` is the number of the first one.
        """
        return self._core.begin(first, shares._flat())

    def answer(self, others: Labels) -> Bits:
        """Take the other side's first message; return this side's shares d, to be sent to the other."""
        return self._core.answer(others)

    def finish(self, d: Bits, key: bytes) -> bytes:
        """Take the XOR of both sides' d; return a digest that equals the other side's if z = x y."""
        return self._core.finish(d, key)

    def differences(self, order: Order, size: int) -> OpenedBits:
        """Return, to be opened, the XOR of each triple's y with the y of its bucket's first triple."""
        return OpenedBits(self._core.differences(order, size))

    def combine(self, opened: OpenedBits, differences: Bits) -> Triples:
        """Return one triple for each bucket by the opened differences; end the group, and use up `opened`.

        `differences` are the sums of both sides' bits. Takes the content of `opened`, which the method
        `differences` returned.
        """
        return Triples(self._core.combine(opened.core, differences))


class Masks:
    """One side's shares of the random masks on all wires of a circuit, for a block of instances."""

    def __init__(
        self, side: Side, circuit: GarblingCircuit, n_instances: int, inputs: SharedBits, gates: SharedBits
    ) -> None:
        """Hold the masks of all input wires, and of the outputs of all AND gates.

        Both wire by wire in order, each of all instances. A wire of one side alone has 0 as the other's
        share, MAC and key.
        """
        self.side = side
        self.core = _core.ActiveMasks(
            side.garbler, side.delta, circuit, n_instances, inputs._flat(), gates._flat()
        )

    def open(self, triples: Triples) -> OpenedBits:
        """Return, to be opened, the XORs of masks with a triple's x and y at every AND gate."""
        return OpenedBits(self.core.open(triples.core))

    def multiply(self, triples: Triples, opened: Bits) -> None:
        """Compute and store shares of the products of masks at AND gates, from the opened sums."""
        self.core.multiply(triples.core, opened)

    def outputs(self) -> OpenedBits:
        """Return, to be opened, this side's shares of the output wires' masks."""
        return OpenedBits(self.core.outputs())

    def output_labels(self) -> tuple[Labels, Labels]:
        """Return (MACs, keys) of the output wires' masks, shape (bits, 16)."""
        macs, keys = (labels.reshape(-1, LABEL_BYTES) for labels in self.core.output_macs())
        return macs, keys


class Garbler:
    """Garbler of one block in maliciously secure garbling: makes tables, and digests to compare."""

    def __init__(self, masks: Masks, first: int, masked: Bits) -> None:
        """Take the content of `masks`, which are empty afterwards; only after `multiply`.

        `first` is the number of the first AND gate and instance; `masked` are the masked values of all input
        wires, wire by wire, each of all instances.
        """
        side = masks.side
        self._core = _core.ActiveGarbler(masks.core, side.start, first, masked, kernel=side.kernel)

    def tables(self, seed: bytes) -> tuple[Labels, Bits]:
        """Return (garbled tables, 32 bytes for each AND gate and instance; bits, one for each of these).

        `seed`: 16 public bytes, from which the active labels of all inputs are drawn.
        """
        return self._core.tables(seed)

    def expected(self, values: Bits, key: bytes) -> bytes:
        """Return the digest of labels that the evaluator must send if its masked values are `values`."""
        return self._core.expected(values, key)

    def answer(self, values: Bits, key: bytes) -> tuple[bytes, Bits]:
        """Return (MAC digest that checks all gates, masked outputs), only after `expected` has matched.

        Only after the digest of active labels was found to be the expected one: else it tells masks.
        """
        return self._core.answer(values, key)


class Evaluated(NamedTuple):
    """Result of evaluating a block: masked values of gates and outputs, and digests to compare.

    Masked values of all AND gates with the digest of their labels, the digest of MACs that the garbler has to
    answer with, and masked values of the outputs.
    """

    values: Bits
    labels: bytes
    macs: bytes
    outputs: Bits


class Evaluator:
    """Evaluator of one block in maliciously secure garbling: evaluates the garbler's tables."""

    def __init__(self, masks: Masks, first: int, masked: Bits) -> None:
        """Take the content of `masks`, which are empty afterwards; arguments as for `Garbler`."""
        side = masks.side
        self._core = _core.ActiveEvaluator(masks.core, side.start, first, masked, kernel=side.kernel)

    def evaluate(self, seed: bytes, tables: Labels, bits: Bits, keys: tuple[bytes, bytes]) -> Evaluated:
        """Evaluate all gates from the tables; return masked values, and digests under both `keys`."""
        return Evaluated(*self._core.evaluate(seed, tables, bits, keys))
