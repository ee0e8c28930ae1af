"""Common plan of garbler and evaluator: the assignment of input wires, and the blocks of a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from smpc_dp.capabilities.pairs.circuits.circuit import WORD_BITS, Circuit
from smpc_dp.capabilities.pairs.garbled.messages import PAIRWISE, VERSION
from smpc_dp.capabilities.pairs.garbled.params import MAX_INSTANCES, PairwiseParameters
from smpc_dp.crypto.garble import GarblingCircuit, Mode, Run, compile_circuit
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import MAX_INDEX, rows_of_chunk
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.errors import ConfigCheck, ConfigError

# Most labels of one kind (inputs of one party, outputs) in a block: 16 MiB. Encrypted hashes of so many
# outputs are 32 MiB, which fit into a message.
BLOCK_LABELS = 1 << 20
# The same for covert evaluations: each copy is held as a whole, and its labels are committed to one by one.
COVERT_LABELS = 1 << 16
# Most gates of a covert evaluation, and gates times instances: a stranger's certificate makes a judge garble
# them.
COVERT_GATES, COVERT_WORK = 1 << 22, 1 << 28
# k of the extension of oblivious transfers, and that of covert evaluations: half the bytes, in each copy.
FIELD, COVERT_FIELD = 2, 4
# Most transfers in one chunk: they stay in the cache, and with the block that hides they are 128 blocks.
TRANSFERS = 127 * 128
# Pending chunks: while one side works on a chunk, the other works on the next. More than `ot.MAX_PENDING` are
# refused there; with so many, neither side sends more than a channel takes.
IN_FLIGHT = 3

Bits = NDArray[np.uint8]
Rows = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Block:
    """Range of circuit instances that are garbled and evaluated together: `count` from number `first`."""

    number: int
    first: int
    count: int


@dataclass(frozen=True)
class Plan:
    """Plan of a garbled evaluation: a circuit, its parameters, and the sizes and wires that follow.

    Raises ConfigError for a circuit of which one instance has more labels of one kind than a block may hold,
    and for more transfers than one setup has.
    """

    protocol: ClassVar[tuple[str, int]] = (PAIRWISE, VERSION)
    """Name and version of the protocol that evaluates it."""
    circuit: Circuit
    parameters: PairwiseParameters
    compiled: GarblingCircuit = field(init=False, repr=False)
    tile: int = field(init=False)
    garbler_values: tuple[int, ...] = field(init=False)
    evaluator_values: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        declared = self.parameters.evaluator_inputs
        indices = range(len(self.circuit.inputs))
        theirs = tuple(indices[1:]) if declared is None else tuple(declared)
        evaluators = frozenset(theirs)
        circuit = self.circuit
        compiled = compile_circuit(
            circuit.op,
            circuit.a,
            circuit.b,
            circuit.out,
            n_wires=circuit.n_wires,
            n_inputs=circuit.n_inputs,
            outputs=np.arange(circuit.n_wires - circuit.n_outputs, circuit.n_wires, dtype=np.uint32),
        )
        for name, value in (
            ("compiled", compiled),
            ("evaluator_values", theirs),
            ("garbler_values", tuple(index for index in indices if index not in evaluators)),
        ):
            object.__setattr__(self, name, value)
        if not (most := self._most()):
            reason = f"more than {BLOCK_LABELS} bits of one party's inputs, or of outputs, in one instance"
            raise ConfigError.at("circuit", reason, ConfigCheck.TOO_LARGE)
        if self.parameters.covert:
            self._check_covert()
        # A tile is not divided, so it must not hold more than a block.
        tile = min(compiled.suggest_tile(self.parameters.instances), 1 << most.bit_length() - 1)
        object.__setattr__(self, "tile", tile)
        if (rows := self.transfer_rows) > MAX_INDEX:
            fitting = MAX_INDEX // self._block_rows * self._block_size()
            requested = f"{self.parameters.instances} of {self._transferred} need {rows} indices of transfers"
            reason = f"{requested}, one setup has {MAX_INDEX}: enough for {fitting} instances"
            raise ConfigError.at("instances", reason, ConfigCheck.TOO_LARGE)

    def _check_covert(self) -> None:
        """Raise ConfigError if a covert evaluation would have too many labels or gates."""
        instances, gates = self.parameters.instances, len(self.circuit.op)
        labels = self._widest * instances
        for where, count, name, most in (
            ("instances", labels, "bits of one party's inputs, or of outputs", COVERT_LABELS),
            ("circuit", gates, "gates", COVERT_GATES),
            ("instances", gates * instances, "gates in all instances", COVERT_WORK),
        ):
            if count > most:
                reason = f"{count} {name}; a covert evaluation has {most} at most"
                raise ConfigError.at(where, reason, ConfigCheck.TOO_LARGE)

    def given(self, values: Sequence[int]) -> tuple[int, ...]:
        """Return those numbers of input values that a party provides, not drawn at random."""
        return tuple(index for index in values if index not in self._random)

    def random(self, values: Sequence[int]) -> tuple[int, ...]:
        """Return those numbers of input values that both sides draw at random together."""
        return tuple(index for index in values if index in self._random)

    @cached_property
    def _random(self) -> frozenset[int]:
        """Numbers of all input values that both sides draw at random together."""
        return frozenset(self.parameters.random_inputs)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """The number of the first wire of each input value, and last the number of input wires."""
        return (0, *accumulate(self.circuit.inputs))

    def first_wire(self, value: int) -> int:
        """Return the number of the first wire of the input value with this number."""
        return self._starts[value]

    def by_value(self, values: Sequence[int], rows: Bits) -> Iterator[tuple[int, Bits]]:
        """Yield (number of an input value, its part of `rows`: one row for each wire); nothing if empty."""
        first = 0
        for value in values if len(rows) else ():
            width = self.circuit.inputs[value]
            yield value, rows[first : first + width]
            first += width

    def wires(self, values: Sequence[int]) -> NDArray[np.uint32]:
        """Return the numbers of the wires of these numbers of input values, value by value."""
        starts = self._starts
        spans = [np.arange(starts[index], starts[index + 1], dtype=np.uint32) for index in values]
        return np.concatenate([np.empty(0, np.uint32), *spans])

    def width(self, values: Sequence[int]) -> int:
        """Return how many wires (bits) the input values with these numbers have together."""
        return sum(self.circuit.inputs[index] for index in values)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of instances in order; sizes but the last are multiples of the tile."""
        size, instances = self._block_size(), self.parameters.instances
        for number, first in enumerate(range(0, instances, size)):
            yield Block(number, first, min(size, instances - first))

    @cached_property
    def transfer_rows(self) -> int:
        """Number of oblivious transfers of all blocks in one setup, padding included."""
        full, rest = divmod(self.parameters.instances, self._block_size())
        width = self.width(self.evaluator_values)
        return full * rows_of_transfers(width * self._block_size()) + rows_of_transfers(width * rest)

    @property
    def _transferred(self) -> str:
        """What takes indices of transfers in each instance, for an error."""
        return f"{self.width(self.evaluator_values)} bits of the evaluator"

    @property
    def _block_rows(self) -> int:
        """The greatest number of indices of one setup that a whole block takes, padding included."""
        return rows_of_transfers(self.width(self.evaluator_values) * self._block_size())

    @property
    def most_instances(self) -> int:
        """The greatest number of instances that an evaluation with these parameters may have."""
        if not self.parameters.covert:
            return MAX_INSTANCES
        return min(COVERT_LABELS // self._widest, COVERT_WORK // max(1, len(self.circuit.op)))

    def _most(self) -> int:
        """Return the greatest number of instances in a block, by its labels; 0 if none fits."""
        return BLOCK_LABELS // self._widest

    @cached_property
    def _widest(self) -> int:
        """The greatest number of wires of one kind: inputs of one party, or outputs."""
        widths = (self.width(values) for values in (self.garbler_values, self.evaluator_values))
        return max(1, self.circuit.n_outputs, *widths)

    def _block_size(self) -> int:
        """Return the number of instances in each block but the last, a multiple of the tile."""
        return self._most() // self.tile * self.tile

    def garbling(self, block: Block, start: bytes) -> Run:
        """Return a block's garbling settings (mode, tile, instances), equal for garbler and evaluator."""
        return Run(start, Mode(self.parameters.mode), self.tile, block.count, block.first)

    @cached_property
    def digest(self) -> bytes:
        """Hash of 32 bytes of the plan: both sides compare it, so that they divide the work alike."""
        first = next(self.blocks())
        plain = digest(
            Label.PAIRWISE_PLAN,
            self.circuit.digest,
            self.parameters.mode.encode(),
            self.parameters.output.encode(),
            *(encode_uint(n) for n in (self.parameters.instances, self.tile, first.count, FIELD)),
            b"".join(encode_uint(index) for index in self.evaluator_values),
        )
        if not (copies := self.parameters.covert):
            return plain
        drawn = b"".join(encode_uint(index) for index in self.parameters.random_inputs)
        return digest(Label.COVERT_PLAN, plain, encode_uint(copies), drawn)

    @cached_property
    def garbler_wires(self) -> NDArray[np.uint32]:
        """Numbers of the garbler's input wires, value by value."""
        return self.wires(self.garbler_values)

    @cached_property
    def evaluator_wires(self) -> NDArray[np.uint32]:
        """Numbers of the evaluator's input wires, value by value."""
        return self.wires(self.evaluator_values)

    def check_inputs(self, values: Sequence[int], rows: Sequence[Rows], party: str) -> Rows | None:
        """Return a party's packed inputs as one array, None without any; raise ConfigError for bad shapes.

        `rows` has one such array for each of its input `values` that is not random.

        Raises:
            ConfigError: names the party and the value whose shape is not that of the circuit.
        """
        words = -(-self.parameters.instances // WORD_BITS)
        values = self.given(values)
        if len(rows) != len(values):
            reason = f"{len(rows)} input values of {party}, the circuit takes {len(values)} from it"
            raise ConfigError.at("inputs", reason, ConfigCheck.SHAPE)
        for index, array in zip(values, rows, strict=True):
            shape = (self.circuit.inputs[index], words)
            if array.shape != shape or array.dtype != np.uint64:
                reason = (
                    f"{array.dtype} of shape {array.shape} from {party}, uint64 of shape {shape} is needed"
                )
                raise ConfigError.at(f"inputs[{index}]", reason, ConfigCheck.TYPE)
        return np.concatenate(list(rows)) if rows else None


def rows_of_transfers(count: int) -> int:
    """Return how many indices of a setup `count` oblivious transfers take, padding of chunks included."""
    whole, left = divmod(count, TRANSFERS)
    return whole * rows_of_chunk(TRANSFERS) + rows_of_chunk(left)


def bits_of(rows: Rows, block: Block) -> Bits:
    """Return the bits, one a byte, of a block's instances from packed rows, shape (bits, block.count)."""
    low, high = block.first // WORD_BITS, -(-(block.first + block.count) // WORD_BITS)
    octets = np.ascontiguousarray(rows[:, low:high].astype("<u8")).view(np.uint8)
    start = block.first - low * WORD_BITS
    bits = np.unpackbits(octets, axis=1, bitorder="little")[:, start : start + block.count]
    return np.ascontiguousarray(bits)


def rows_of(bits: Bits, widths: Sequence[int]) -> list[Rows]:
    """Pack output bits, shape (bits, instances), 64 instances to a word; return one array for each value."""
    words = -(-bits.shape[1] // WORD_BITS)
    packed = np.zeros((len(bits), words * 8), np.uint8)
    packed[:, : -(-bits.shape[1] // 8)] = np.packbits(bits, axis=1, bitorder="little")
    rows = packed.view("<u8").astype(np.uint64)
    return np.split(rows, np.cumsum(widths)[:-1])


def pack_bits(bits: Bits) -> bytes:
    """Pack an array of bits 0 and 1 into bytes, eight to a byte, the least significant first."""
    return np.packbits(bits.reshape(-1), bitorder="little").tobytes()


def unpack_bits(packed: bytes | memoryview, shape: tuple[int, int]) -> Bits | None:
    """Return the bits of packed bytes in this shape, or None when the length or the padding is wrong."""
    count = shape[0] * shape[1]
    if len(packed) != -(-count // 8):
        return None
    bits = np.unpackbits(np.frombuffer(packed, np.uint8), bitorder="little")
    return None if bits[count:].any() else bits[:count].reshape(shape)
