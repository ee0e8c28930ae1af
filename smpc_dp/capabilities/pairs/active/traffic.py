"""Bytes and rounds of an evaluation that is secure against both sides, before it is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from smpc_dp.capabilities.pairs.active import messages as m
from smpc_dp.capabilities.pairs.active.plan import LEAKY_BITS, ActivePlan
from smpc_dp.capabilities.pairs.garbled.messages import (
    HELLO,
    NONCE_BYTES,
    PIECE_HEADER,
    START,
    TABLE_PIECE,
    Start,
)
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER
from smpc_dp.capabilities.pairs.garbled.plan import TRANSFERS, Block
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.crypto.garble import LABEL_BYTES
from smpc_dp.crypto.ot import MAX_PENDING, rows_of_chunk
from smpc_dp.crypto.seal import OVERHEAD_BYTES
from smpc_dp.wire.envelope import Body, Envelope
from smpc_dp.wire.signing import encode_envelope

SIDES = (GARBLER, EVALUATOR)
# Bits of a correlation; bytes of a point, of an answer to it, of a key of a tree and of a tree's check.
_COLUMNS, _POINT, _ANSWER, _KEY, _CHECK = 128, 32, 80, 32, 64
_DIGEST, _NUMBER = m.DIGEST_BYTES, 8


class Traffic(NamedTuple):
    """Bytes of all messages together, and half round trips of the longest chain of messages."""

    sent: int
    rounds: int


def traffic_of(plan: ActivePlan, aggregator: str = "") -> Traffic:
    """Return bytes and half round trips of a first evaluation, which also makes its setups.

    `aggregator`: its name, if it learns the output. A later evaluation has neither setups nor their rounds.
    """
    return Traffic(_ByteCounter(plan, aggregator).sent(), rounds_of(plan))


def rounds_of(plan: ActivePlan) -> int:
    """Return the half round trips of a first evaluation: messages of the longest chain, one after another."""
    return _ChainCounter(plan).longest()


class _ChainCounter:
    """Counts the messages of the longest chain that ends at each member, step by step of an evaluation.

    What both send at a step is on its way at the same time, but a side may begin later than the other.
    """

    def __init__(self, plan: ActivePlan) -> None:
        self._plan = plan
        # Of both sides, and of the aggregator.
        self._depths = [0, 0, 0]

    def longest(self) -> int:
        """Count all messages of an evaluation, once; return how many are in the longest chain of them."""
        self._count_swap((1, 1))
        self._depths[2] = 1
        self._count_message(GARBLER, EVALUATOR)
        self._count_message(GARBLER, 2)
        for _ in range(3):
            self._count_swap((1, 1))
        for block in self._plan.blocks():
            self._count_block(block)
        self._count_end()
        return max(self._depths)

    def _count_message(self, sender: int, receiver: int) -> None:
        """Count one message: the chain to its receiver is that to its sender and one, if that is longer."""
        self._depths[receiver] = max(self._depths[receiver], self._depths[sender] + 1)

    def _count_swap(self, contents: tuple[int, int]) -> None:
        """Count the pieces in which both sides exchange contents of these sizes in bytes, in turns."""
        counts = [-(-content // TABLE_PIECE) for content in contents]
        for number in range(max(counts)):
            before = list(self._depths)
            for sender in SIDES:
                if number < counts[sender]:
                    self._depths[1 - sender] = max(self._depths[1 - sender], before[sender] + 1)

    def _count_transfers(self, counts: Sequence[tuple[int, int]]) -> None:
        """Count the messages of oblivious transfers in both directions, of these numbers of bits."""
        chunks = [sum(-(-both[side] // TRANSFERS) for both in counts) for side in SIDES]
        for first in range(0, max(chunks), MAX_PENDING):
            of_garbler, of_evaluator = (int(count > first) for count in chunks)
            self._count_swap((of_garbler, of_evaluator))
            # Who draws is asked by the other.
            self._count_swap((of_evaluator, of_garbler))
            self._count_swap((of_garbler, of_evaluator))

    def _count_block(self, block: Block) -> None:
        """Count the messages of a block: those of its triples, masks, inputs and tables."""
        plan = self._plan
        masks = (plan.mask_count(GARBLER, block), plan.mask_count(EVALUATOR, block))
        groups = plan.groups(block)
        for group in groups:
            last = group is groups[-1]
            self._count_transfers([(LEAKY_BITS * group.leaky,) * 2, *([masks] if last else [])])
            self._count_swap((LABEL_BYTES * group.leaky,) * 2)
            # d, commitments, digests, seeds and differences.
            for _ in range(5):
                self._count_swap((1, 1))
        if not groups:
            self._count_transfers([masks])
        gates = plan.ands * block.count
        self._count_swap((_packed_bytes(2 * gates) + _DIGEST,) * 2)
        inputs = [len(plan.own_wires[side]) * block.count for side in SIDES]
        self._count_swap((_packed_bytes(inputs[GARBLER]), _packed_bytes(inputs[EVALUATOR])))
        if gates:
            self._count_message(GARBLER, EVALUATOR)
        self._count_message(EVALUATOR, GARBLER)
        self._count_message(GARBLER, EVALUATOR)

    def _count_end(self) -> None:
        """Count the messages that bring the output to the members that learn it."""
        to = self._plan.parameters.output
        if to in ("evaluator", "both"):
            self._count_message(GARBLER, EVALUATOR)
        if to in ("garbler", "both"):
            self._count_message(EVALUATOR, GARBLER)
        if to == "aggregator":
            for sender, receiver in ((GARBLER, 2), (EVALUATOR, 2), (2, GARBLER), (2, EVALUATOR)):
                self._count_message(sender, receiver)
            self._count_swap((1, 1))
            self._count_message(GARBLER, 2)
            self._count_message(EVALUATOR, 2)


def _packed_bytes(bits: int) -> int:
    """Return the number of bytes that `bits` packed bits take."""
    return -(-bits // 8)


class _ByteCounter:
    """Counts the bytes of all messages of an evaluation."""

    def __init__(self, plan: ActivePlan, aggregator: str) -> None:
        self._plan = plan
        self._names = (plan.parameters.garbler, plan.parameters.evaluator)
        self._third = aggregator if plan.parameters.output == "aggregator" else ""

    def sent(self) -> int:
        """Return the number of bytes of all messages of a whole evaluation."""
        return sum(
            (
                *self._begin_bytes(),
                *(size for block in self._plan.blocks() for size in self._block_bytes(block)),
                *self._end_bytes(),
            )
        )

    def _piece_bytes(self, content: int) -> int:
        """Return the number of bytes that `content` bytes take in pieces, headers included."""
        return content + PIECE_HEADER.size * -(-content // TABLE_PIECE)

    def _signed_bytes(self, step: str, sender: str, receiver: str, body: Body) -> int:
        """Return the number of bytes of a signed message, with the byte in front of it."""
        packed = msgspec.msgpack.encode(body)
        return 1 + len(encode_envelope(Envelope(bytes(32), step, sender, receiver, packed, bytes(64))))

    def _bytes_of_both(self, step: str, body: Body) -> int:
        """Return the number of bytes of a signed message that each side sends to the other."""
        return sum(self._signed_bytes(step, self._names[side], self._names[1 - side], body) for side in SIDES)

    def _begin_bytes(self) -> Iterator[int]:
        """Yield the bytes of each hello and start message, and of both transfer setups."""
        everyone = [*self._names, *([self._third] if self._third else [])]
        key, value = bytes(32 if self._third else 0), bytes(_DIGEST)
        hello = m.ActiveHello(bytes(NONCE_BYTES), value, value, key, b"", 0, b"", 0, 0, 0)
        for sender in everyone:
            for receiver in everyone:
                if receiver != sender:
                    yield self._signed_bytes(HELLO, sender, receiver, hello)
        for receiver in everyone[1:]:
            yield self._signed_bytes(START, everyone[0], receiver, Start(bytes(NONCE_BYTES)))
        k = self._plan.k
        trees = _COLUMNS // k * (_KEY * (k - 1) + _CHECK)
        yield 2 * (
            self._piece_bytes(_POINT) + self._piece_bytes(_ANSWER * _COLUMNS) + self._piece_bytes(trees)
        )

    def _transfer_bytes(self, count: int) -> Iterator[int]:
        """Yield the bytes of each chunk of oblivious transfers by which a side draws `count` bits."""
        for first in range(0, count, TRANSFERS):
            rows = rows_of_chunk(min(TRANSFERS, count - first))
            extension = 2 * _NUMBER + _COLUMNS // self._plan.k * rows // 8
            challenge, response = _NUMBER + LABEL_BYTES, _NUMBER + LABEL_BYTES * (1 + _COLUMNS)
            yield self._piece_bytes(extension) + self._piece_bytes(challenge) + self._piece_bytes(response)

    def _block_bytes(self, block: Block) -> Iterator[int]:
        """Yield the bytes of a block's messages: triples, masks, inputs, tables and MACs."""
        plan, value = self._plan, bytes(_DIGEST)
        for group in plan.groups(block):
            yield 2 * sum(self._transfer_bytes(LEAKY_BITS * group.leaky))
            yield 2 * (
                self._piece_bytes(LABEL_BYTES * group.leaky) + self._piece_bytes(_packed_bytes(group.leaky))
            )
            yield self._bytes_of_both(m.COMMIT, m.Commit(group.number, value, value))
            yield self._bytes_of_both(m.EQUAL, m.Equal(group.number, value, value))
            yield self._bytes_of_both(m.COIN, m.Coin(group.number, value))
            yield 2 * self._piece_bytes(_packed_bytes(group.triples * (group.size - 1)) + _DIGEST)
        for side in SIDES:
            yield sum(self._transfer_bytes(plan.mask_count(side, block)))
            yield self._piece_bytes(_packed_bytes(len(plan.own_wires[side]) * block.count))
        gates = plan.ands * block.count
        yield 2 * self._piece_bytes(_packed_bytes(2 * gates) + _DIGEST)
        yield self._piece_bytes(2 * LABEL_BYTES * gates + _packed_bytes(gates)) + self._piece_bytes(
            _packed_bytes(gates) + _DIGEST
        )
        yield self._signed_bytes(m.MACS, *self._names, m.Macs(block.number, value, value))

    def _end_bytes(self) -> Iterator[int]:
        """Yield the bytes of the messages that bring the output to the members that learn it."""
        plan, to, value = self._plan, self._plan.parameters.output, bytes(_DIGEST)
        for block in plan.blocks():
            shares = m.Outputs(
                block.number, bytes(_packed_bytes(plan.circuit.n_outputs * block.count)), value
            )
            for side, learner in ((GARBLER, "evaluator"), (EVALUATOR, "garbler")):
                if to in (learner, "both"):
                    yield self._signed_bytes(m.OUTPUTS, self._names[side], self._names[1 - side], shares)
        if not self._third:
            return
        sealed = bytes(_packed_bytes(plan.output_bits) + _NUMBER + OVERHEAD_BYTES)
        for name in self._names:
            yield self._signed_bytes(m.SHARES, name, self._third, m.Shares(value, sealed))
            yield self._signed_bytes(m.CHI, self._third, name, m.Chi(value))
            yield self._signed_bytes(m.OPENED, name, self._third, m.Opened(value, bytes(_NUMBER)))
        yield self._bytes_of_both(m.OPENING, m.Opening(value, bytes(_NUMBER), value))


# A pair of Kendall's tau of 32 bits with noise: places of the coins in its circuit, and of the second record.
TYPICAL = "kendall_tau32_laplace"
_COINS, _SECOND = [2, 5], [3, 4, 5]
STORED_SECONDS = 0.036
"""Processor time of both sides of a first evaluation of TYPICAL, from `benchmarks/results-active.json`."""
ROUND_TRIP = 0.05


class TypicalPair(NamedTuple):
    """Predicted cost of one pair of Kendall's tau: AND gates, bytes, half round trips and seconds."""

    gates: int
    sent: int
    rounds: int
    seconds: float


def typical_pair() -> TypicalPair:
    """Return the predicted cost of one pair of Kendall's tau; its seconds rest on STORED_SECONDS."""
    names = ("alice", "bob", "aggregator")
    parameters = PairwiseParameters(
        TYPICAL,
        *names[:2],
        evaluator_inputs=_SECOND,
        random_inputs=_COINS,
        output="aggregator",
        mode="unique",
        security="malicious",
    )
    plan = ActivePlan(find(TYPICAL).build(), parameters)
    traffic = traffic_of(plan, names[2])
    # Both sides compute at the same time.
    seconds = STORED_SECONDS / 2 + traffic.rounds * ROUND_TRIP / 2
    return TypicalPair(plan.gates, *traffic, seconds)
