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
    """Return bytes and rounds of a first evaluation, which makes its setups.

    `aggregator`: its name, if it learns the output. A later evaluation has neither setups nor their rounds.
    """
    return Traffic(_Counter(plan, aggregator).sent(), _Chains(plan).longest())


class _Chains:
    """Follows the longest chain of messages that ends at each member.

    What both send at a step is on its way at the same time, but a side may begin later than the other.
    """

    def __init__(self, plan: ActivePlan) -> None:
        self._plan = plan
        # Of both sides, and of the aggregator.
        self._depths = [0, 0, 0]

    def longest(self) -> int:
        """Return the number of messages in the longest chain."""
        self._swap((1, 1))
        self._depths[2] = 1
        self._send(GARBLER, EVALUATOR)
        self._send(GARBLER, 2)
        for _ in range(3):
            self._swap((1, 1))
        for block in self._plan.blocks():
            self._block(block)
        self._end()
        return max(self._depths)

    def _send(self, sender: int, receiver: int) -> None:
        """Send a message that nothing is sent beside."""
        self._depths[receiver] = max(self._depths[receiver], self._depths[sender] + 1)

    def _swap(self, contents: tuple[int, int]) -> None:
        """Send contents of so many bytes, whose pieces alternate."""
        counts = [-(-content // TABLE_PIECE) for content in contents]
        for number in range(max(counts)):
            before = list(self._depths)
            for sender in SIDES:
                if number < counts[sender]:
                    self._depths[1 - sender] = max(self._depths[1 - sender], before[sender] + 1)

    def _transfers(self, counts: Sequence[tuple[int, int]]) -> None:
        """Make sequences of transfers, of so many bits of each side."""
        chunks = [sum(-(-both[side] // TRANSFERS) for both in counts) for side in SIDES]
        for first in range(0, max(chunks), MAX_PENDING):
            of_garbler, of_evaluator = (int(count > first) for count in chunks)
            self._swap((of_garbler, of_evaluator))
            # Who draws is asked by the other.
            self._swap((of_evaluator, of_garbler))
            self._swap((of_garbler, of_evaluator))

    def _block(self, block: Block) -> None:
        """Make a block, with its triples."""
        plan = self._plan
        masks = (plan.mask_count(GARBLER, block), plan.mask_count(EVALUATOR, block))
        groups = plan.groups(block)
        for group in groups:
            last = group is groups[-1]
            self._transfers([(LEAKY_BITS * group.leaky,) * 2, *([masks] if last else [])])
            self._swap((LABEL_BYTES * group.leaky,) * 2)
            # d, commitments, digests, seeds and differences.
            for _ in range(5):
                self._swap((1, 1))
        if not groups:
            self._transfers([masks])
        gates = plan.ands * block.count
        self._swap((_packed(2 * gates) + _DIGEST,) * 2)
        inputs = [len(plan.own_wires[side]) * block.count for side in SIDES]
        self._swap((_packed(inputs[GARBLER]), _packed(inputs[EVALUATOR])))
        if gates:
            self._send(GARBLER, EVALUATOR)
        self._send(EVALUATOR, GARBLER)
        self._send(GARBLER, EVALUATOR)

    def _end(self) -> None:
        """Bring the output to who learns it."""
        to = self._plan.parameters.output
        if to in ("evaluator", "both"):
            self._send(GARBLER, EVALUATOR)
        if to in ("garbler", "both"):
            self._send(EVALUATOR, GARBLER)
        if to == "aggregator":
            for sender, receiver in ((GARBLER, 2), (EVALUATOR, 2), (2, GARBLER), (2, EVALUATOR)):
                self._send(sender, receiver)
            self._swap((1, 1))
            self._send(GARBLER, 2)
            self._send(EVALUATOR, 2)


def _packed(bits: int) -> int:
    """Return the bytes of packed bits."""
    return -(-bits // 8)


class _Counter:
    """Adds up the messages of an evaluation."""

    def __init__(self, plan: ActivePlan, aggregator: str) -> None:
        self._plan = plan
        self._names = (plan.parameters.garbler, plan.parameters.evaluator)
        self._third = aggregator if plan.parameters.output == "aggregator" else ""

    def sent(self) -> int:
        """Return the number of bytes of all messages."""
        return sum(
            (
                *self._begin(),
                *(size for block in self._plan.blocks() for size in self._block(block)),
                *self._end(),
            )
        )

    def _piece(self, content: int) -> int:
        """Return the bytes of a content in pieces."""
        return content + PIECE_HEADER.size * -(-content // TABLE_PIECE)

    def _signed(self, step: str, sender: str, receiver: str, body: Body) -> int:
        """Return the bytes of a signed message, with the byte in front of it."""
        packed = msgspec.msgpack.encode(body)
        return 1 + len(encode_envelope(Envelope(bytes(32), step, sender, receiver, packed, bytes(64))))

    def _both(self, step: str, body: Body) -> int:
        """Return the bytes of a signed message of each side to the other."""
        return sum(self._signed(step, self._names[side], self._names[1 - side], body) for side in SIDES)

    def _begin(self) -> Iterator[int]:
        """Yield the bytes of hellos, start and setups."""
        everyone = [*self._names, *([self._third] if self._third else [])]
        key, value = bytes(32 if self._third else 0), bytes(_DIGEST)
        hello = m.ActiveHello(bytes(NONCE_BYTES), value, value, key, b"", 0, b"", 0, 0, 0)
        for sender in everyone:
            for receiver in everyone:
                if receiver != sender:
                    yield self._signed(HELLO, sender, receiver, hello)
        for receiver in everyone[1:]:
            yield self._signed(START, everyone[0], receiver, Start(bytes(NONCE_BYTES)))
        k = self._plan.k
        trees = _COLUMNS // k * (_KEY * (k - 1) + _CHECK)
        yield 2 * (self._piece(_POINT) + self._piece(_ANSWER * _COLUMNS) + self._piece(trees))

    def _transfers(self, count: int) -> Iterator[int]:
        """Yield the bytes of each chunk of a sequence of transfers, of which one side draws `count` bits."""
        for first in range(0, count, TRANSFERS):
            rows = rows_of_chunk(min(TRANSFERS, count - first))
            extension = 2 * _NUMBER + _COLUMNS // self._plan.k * rows // 8
            challenge, response = _NUMBER + LABEL_BYTES, _NUMBER + LABEL_BYTES * (1 + _COLUMNS)
            yield self._piece(extension) + self._piece(challenge) + self._piece(response)

    def _block(self, block: Block) -> Iterator[int]:
        """Yield the bytes of triples, masks and tables of a block."""
        plan, value = self._plan, bytes(_DIGEST)
        for group in plan.groups(block):
            yield 2 * sum(self._transfers(LEAKY_BITS * group.leaky))
            yield 2 * (self._piece(LABEL_BYTES * group.leaky) + self._piece(_packed(group.leaky)))
            yield self._both(m.COMMIT, m.Commit(group.number, value, value))
            yield self._both(m.EQUAL, m.Equal(group.number, value, value))
            yield self._both(m.COIN, m.Coin(group.number, value))
            yield 2 * self._piece(_packed(group.triples * (group.size - 1)) + _DIGEST)
        for side in SIDES:
            yield sum(self._transfers(plan.mask_count(side, block)))
            yield self._piece(_packed(len(plan.own_wires[side]) * block.count))
        gates = plan.ands * block.count
        yield 2 * self._piece(_packed(2 * gates) + _DIGEST)
        yield self._piece(2 * LABEL_BYTES * gates + _packed(gates)) + self._piece(_packed(gates) + _DIGEST)
        yield self._signed(m.MACS, *self._names, m.Macs(block.number, value, value))

    def _end(self) -> Iterator[int]:
        """Yield the bytes of what brings the output to who learns it."""
        plan, to, value = self._plan, self._plan.parameters.output, bytes(_DIGEST)
        for block in plan.blocks():
            shares = m.Outputs(block.number, bytes(_packed(plan.circuit.n_outputs * block.count)), value)
            for side, learner in ((GARBLER, "evaluator"), (EVALUATOR, "garbler")):
                if to in (learner, "both"):
                    yield self._signed(m.OUTPUTS, self._names[side], self._names[1 - side], shares)
        if not self._third:
            return
        sealed = bytes(_packed(plan.output_bits) + _NUMBER + OVERHEAD_BYTES)
        for name in self._names:
            yield self._signed(m.SHARES, name, self._third, m.Shares(value, sealed))
            yield self._signed(m.CHI, self._third, name, m.Chi(value))
            yield self._signed(m.OPENED, name, self._third, m.Opened(value, bytes(_NUMBER)))
        yield self._both(m.OPENING, m.Opening(value, bytes(_NUMBER), value))


# A pair of Kendall's tau of 32 bits with noise: places of the coins in its circuit, and of the second record.
TYPICAL = "kendall_tau32_laplace"
_COINS, _SECOND = [2, 5], [3, 4, 5]
STORED_SECONDS = 0.036
"""Processor time of both sides of a first evaluation of TYPICAL, from `benchmarks/results-active.json`."""
ROUND_TRIP = 0.05


class TypicalPair(NamedTuple):
    """A first evaluation of TYPICAL for the aggregator; `seconds` are at a round trip of ROUND_TRIP."""

    gates: int
    sent: int
    rounds: int
    seconds: float


def typical_pair() -> TypicalPair:
    """Return what a pair costs of which nothing more is known; `seconds` rests on STORED_SECONDS."""
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
