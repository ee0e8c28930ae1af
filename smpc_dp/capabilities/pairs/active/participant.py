"""Common part of garbler and evaluator of an evaluation that is secure against both sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, cycle, pairwise

import numpy as np

from smpc_dp.capabilities.pairs.active.claims import active_privacy
from smpc_dp.capabilities.pairs.active.messages import (
    CHI,
    COIN,
    COMMIT,
    DIGEST_BYTES,
    EQUAL,
    OPENED,
    OPENING,
    OUTPUTS,
    SHARES,
    ActiveHello,
    Chi,
    Coin,
    Commit,
    Equal,
    Opened,
    Opening,
    Outputs,
    Shares,
)
from smpc_dp.capabilities.pairs.active.plan import LEAKY_BITS, ActivePlan, Group
from smpc_dp.capabilities.pairs.active.role import ActiveRole, evaluation_failure
from smpc_dp.capabilities.pairs.active.setups import Setups
from smpc_dp.capabilities.pairs.garbled.effects import RETAINED, Effects
from smpc_dp.capabilities.pairs.garbled.messages import MAX_PIECE, NONCE_BYTES, TABLE_PIECE
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER, Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import (
    TRANSFERS,
    Bits,
    Block,
    Rows,
    bits_of,
    pack_bits,
    rows_of,
)
from smpc_dp.crypto.active import (
    Labels,
    LeakyTriples,
    Masks,
    OpenedBits,
    SharedBits,
    Side,
    Triples,
    bucket_order,
)
from smpc_dp.crypto.active_opening import SharedOutputs
from smpc_dp.crypto.agree import public_key
from smpc_dp.crypto.garble import LABEL_BYTES, START_BYTES
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.ot import MAX_PENDING, Receiver, Sender
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.crypto.seal import seal
from smpc_dp.crypto.stream_hash import StreamHash
from smpc_dp.crypto.transcript import digest, encode_uint
from smpc_dp.wire.signing import Context, Signer


def _names_of(sender: int) -> tuple[bytes, bytes]:
    """Return (sender's role, other side's role) as bytes for hashes, for sender 0 garbler, 1 evaluator."""
    names = (b"garbler", b"evaluator")
    return names[sender], names[1 - sender]


@dataclass(frozen=True, slots=True)
class BlockOutputs:
    """A side's secret shares of a block's outputs, with MACs and keys, and the public masked values.

    `shared` is empty unless the aggregator learns the output.
    """

    block: Block
    opened: OpenedBits = field(repr=False)
    shared: SharedBits = field(repr=False)
    masked: Bits = field(repr=False)

    @classmethod
    def of(cls, block: Block, masks: Masks, *, third: bool) -> Callable[[Bits], BlockOutputs]:
        """Return a function from masked output values to a block's output shares; masks are read at once."""
        opened = masks.outputs()
        shared = SharedBits(opened.bits(), *masks.output_labels()) if third else SharedBits.zeros(0)
        return partial(cls, block, opened, shared)


class ActiveParticipant(ActiveRole):
    """Base class of garbler and evaluator: the steps they share in maliciously secure evaluation.

    `step` is as of `Participant`; "transfers" are all that comes before inputs: triples and masks too.
    """

    def __init__(
        self,
        context: Context,
        identity: Signer,
        plan: ActivePlan,
        inputs: Sequence[Rows],
        randomness: Randomness,
        setups: Setups | None = None,
    ) -> None:
        """`inputs` has one array for each of its input values, laid out as by `circuits.circuit.pack`.

        `setups`: those of earlier evaluations with the same peer in the same roles.
        Raises ConfigError for a wrong number or shape of inputs.
        """
        super().__init__(context, identity, plan, randomness)
        self._side = GARBLER if self.name == plan.parameters.garbler else EVALUATOR
        self._peer = 1 - self._side
        self._names = (plan.parameters.garbler, plan.parameters.evaluator)
        values = (plan.garbler_values, plan.evaluator_values)[self._side]
        self._inputs = plan.check_inputs(values, inputs, self.name)
        self._setups = Setups() if setups is None else setups
        # Of this side; after the last block, with output to the aggregator, those that hide its sum.
        self._hiding = SharedBits.zeros(0)
        # MACs and keys of the last transfers.
        self._room = [np.empty((0, LABEL_BYTES), np.uint8) for _ in self._names]
        # What came last in pieces.
        self._arrived = np.empty(0, np.uint8)

    def _forget(self) -> None:
        """Delete both setups, what transfers and pieces have left, and what hides the sum of outputs."""
        self._setups.destroy()
        self._hiding = SharedBits.zeros(0)
        self._room = [labels[:0].copy() for labels in self._room]
        self._arrived = np.empty(0, np.uint8)

    # Hello, setups and transfers.

    def _greet(self) -> Effects[None]:
        """Exchange hellos, derive the run id, and destroy transfer setups if the two states differ."""
        plan = self._plan
        self._setups.make_room(plan.rows, plan.leaky, plan.gates)
        context, index, evaluators_context, evaluators_index, triples, gates = self._setups.state
        own = ActiveHello(
            self._randomness.bytes(NONCE_BYTES),
            plan.circuit.digest,
            plan.digest,
            public_key(self._secret) if self._secret else b"",
            context,
            index,
            evaluators_context,
            evaluators_index,
            triples,
            gates,
        )
        hellos = yield from self._exchange_hellos(own)
        theirs = hellos[self._names[self._peer]]
        shown = (theirs.setup, theirs.index, theirs.evaluators_setup, theirs.evaluators_index)
        if (*shown, theirs.triples, theirs.gates) != self._setups.state:
            self._setups.destroy()
        yield from self._take_start()

    def _set_up(self) -> Effects[tuple[Side, LeakyTriples]]:
        """Make both transfer setups unless they exist; return (own keys, new maker of leaky triples).

        Returns the values of this side, and what makes its leaky triples.
        """
        if self._setups.ends() is None:
            yield from self._make_setups()
        sender, receiver = self._setups.made()
        contexts = [sender.context, receiver.context]
        start = digest(Label.ACTIVE_KEYS, *(contexts if self._side == GARBLER else contexts[::-1]))
        side = Side(self._side == GARBLER, sender.delta, start[:START_BYTES])
        return side, LeakyTriples(side)

    def _make_setups(self) -> Effects[None]:
        """Set up oblivious transfers with the other side, in both directions."""
        side, peer, k = self._side, self._names[self._peer], self._plan.k
        contexts = [self._setup_context(of) for of in (GARBLER, EVALUATOR)]
        seeds = self._randomness.bytes(32), self._randomness.bytes(32)
        sender = Sender(peer, contexts[side], seeds[0], k, bit=side == GARBLER)
        receiver = Receiver(peer, contexts[self._peer], seeds[1], k)
        yield self._piece(side, receiver.first_message())
        yield self._piece(side, sender.respond(bytes((yield from self._take_piece(self._peer, MAX_PIECE)))))
        response = yield from self._take_piece(self._peer, MAX_PIECE)
        yield self._piece(side, receiver.finish_setup(bytes(response)))
        sender.finish_setup(bytes((yield from self._take_piece(self._peer, MAX_PIECE))))
        self._setups.keep(side, contexts[side], sender)
        self._setups.keep(self._peer, contexts[self._peer], receiver)

    def _setup_context(self, of: int) -> bytes:
        """Return the bytes that bind a transfer setup to this run and to the side `of`, its sender."""
        return self._bound(Label.ACTIVE_TRANSFER, *_names_of(of), bytes([of == GARBLER]))

    def _transfer(self, counts: Sequence[tuple[int, int]]) -> Effects[list[SharedBits]]:
        """Run oblivious transfers in both directions; return shared random bits with MACs and keys.

        Each of `counts` is a sequence: the number of its own bits, drawn here, and of the other side's. MACs
        and keys that an earlier call returned are overwritten.
        """
        sender, receiver = self._setups.made()
        shared = self._draw(counts)
        longest = min(TRANSFERS, max(len(one.bits) for one in shared))
        size = receiver.corrections_bytes(longest) if longest else 0
        corrections = cycle(np.empty((RETAINED + 1, size), np.uint8))
        chosen = [
            (one.bits[first : first + TRANSFERS], one.macs[first : first + TRANSFERS])
            for one in shared
            for first in range(0, len(one.bits), TRANSFERS)
        ]
        keys = [
            one.keys[first : first + TRANSFERS]
            for one in shared
            for first in range(0, len(one.keys), TRANSFERS)
        ]
        for first in range(0, max(len(chosen), len(keys)), MAX_PENDING):
            pending = slice(first, first + MAX_PENDING)
            yield from self._transfer_chunks(sender, receiver, chosen[pending], keys[pending], corrections)
        return shared

    def _draw(self, counts: Sequence[tuple[int, int]]) -> list[SharedBits]:
        """Return random bits of this side, with memory for their MACs and the other side's keys.

        The room is that of the last call, if it is enough: new memory costs more than what is written there.
        """
        ends = [tuple(accumulate(column, initial=0)) for column in zip(*counts, strict=True)]
        for number, (*_, total) in enumerate(ends):
            if len(self._room[number]) < total:
                self._room[number] = np.empty((total, LABEL_BYTES), np.uint8)
        macs, keys = (
            [room[first:last] for first, last in pairwise(firsts)]
            for room, firsts in zip(self._room, ends, strict=True)
        )
        drawn = []
        for (own, _), *labels in zip(counts, macs, keys, strict=True):
            octets = np.frombuffer(self._randomness.bytes(-(-own // 8)), np.uint8)
            drawn.append(SharedBits(np.unpackbits(octets, count=own, bitorder="little"), *labels))
        return drawn

    def _transfer_chunks(
        self,
        sender: Sender,
        receiver: Receiver,
        chosen: Sequence[tuple[Bits, Labels]],
        keys: Sequence[Labels],
        corrections: Iterator[Bits],
    ) -> Effects[None]:
        """Run oblivious transfers of both directions in chunks, and write MACs and keys in place.

        `corrections` yields memory for what a chunk sends first, that of RETAINED + 1 chunks in turns.
        """
        for bits, _ in chosen:
            part = next(corrections)[: receiver.corrections_bytes(len(bits))]
            receiver.extend_into(len(bits), pack_bits(bits), part)
            yield self._piece(self._side, part.data)
        challenges = []
        for left, rows in zip(range(len(keys) - 1, -1, -1), keys, strict=True):
            extension = yield from self._take_piece(self._peer, MAX_PIECE, left)
            challenges.append(sender.challenge(len(rows), extension))
        for challenge in challenges:
            yield self._piece(self._side, challenge)
        responses = []
        for left, (_, macs) in zip(range(len(chosen) - 1, -1, -1), chosen, strict=True):
            challenge = bytes((yield from self._take_piece(self._peer, MAX_PIECE, left)))
            responses.append(receiver.correlated(challenge, macs)[0])
        for response in responses:
            yield self._piece(self._side, response)
        for left, rows in zip(range(len(keys) - 1, -1, -1), keys, strict=True):
            response = bytes((yield from self._take_piece(self._peer, MAX_PIECE, left)))
            sender.correlated(response, rows)

    # What both send.

    def _named(self, label: Label, number: int, sender: int) -> bytes:
        """Return the hash key for the MACs that side `sender` opens in a numbered block or group."""
        return self._bound(label, encode_uint(number), *_names_of(sender))

    def _require_number(self, arrived: int, expected: int) -> None:
        """Raise the evaluation's error unless a message is of the expected block or group."""
        if arrived != expected:
            raise evaluation_failure()

    def _swap(self, content: bytes | memoryview, length: int) -> Effects[memoryview]:
        """Send bytes in pieces that alternate with the other side's; return the other side's `length` bytes.

        Pieces of both alternate: no side sends many while the other waits to be read. The next call
        overwrites the bytes that are returned.
        """
        if len(self._arrived) < length:
            # not both at once
            self._arrived = np.empty(0, np.uint8)
            self._arrived = np.empty(length, np.uint8)
        arrived = self._arrived[:length].data
        sizes = range(0, length, TABLE_PIECE)
        for first in range(0, max(len(content), length), TABLE_PIECE):
            if len(part := content[first : first + TABLE_PIECE]):
                yield self._piece(self._side, part)
            if size := len(arrived[first : first + TABLE_PIECE]):
                left = len(sizes) - 1 - first // TABLE_PIECE
                piece = yield from self._take_piece(self._peer, size, left if not content else 0)
                if len(piece) != size:
                    raise evaluation_failure()
                arrived[first : first + size] = piece
        return arrived

    def _open_bits(self, opened: OpenedBits, label: Label, number: int) -> Effects[Bits]:
        """Exchange shares of secret bits, check the MACs on them, and return the opened bits."""
        own = opened.bits()
        content = pack_bits(own) + opened.digest(self._named(label, number, self._side))
        arrived = yield from self._swap(content, len(content))
        others = self._unpacked(arrived[:-DIGEST_BYTES], len(own))
        expected = opened.expected(others, self._named(label, number, self._peer))
        self._require(arrived[-DIGEST_BYTES:], expected)
        return np.bitwise_xor(own, others)

    # Triples and masks.

    def _prepare(self, side: Side, leaky: LeakyTriples, block: Block) -> Effects[tuple[Masks, Bits]]:
        """Make a block's AND triples and masks; return all masks, and the bits that mask own inputs.

        Returns the masks, and those of this side's own inputs, shape (wires, instances).
        """
        self.step = "transfers"
        masks = tuple(self._plan.mask_count(of, block) for of in (self._side, self._peer))
        groups = self._plan.groups(block)
        triples = Triples()
        for group in groups[:-1]:
            shared = yield from self._transfer([(LEAKY_BITS * group.leaky,) * 2])
            triples.append((yield from self._triples(leaky, group, shared)))
        # Those of the masks come with those of the last group, and save a round trip.
        last = groups[-1:]
        shared = yield from self._transfer(
            [*((LEAKY_BITS * group.leaky,) * 2 for group in last), (masks[0], masks[1])]
        )
        for group in last:
            triples.append((yield from self._triples(leaky, group, shared)))
        return (yield from self._mask(side, block, triples, *shared))

    def _triples(self, leaky: LeakyTriples, group: Group, shared: list[SharedBits]) -> Effects[Triples]:
        """Return a group of secure AND triples, made by comparing and combining many leaky ones.

        Takes its shared bits, the first of `shared`, away: the next transfers overwrite their MACs and keys.
        """
        number = encode_uint(group.number)
        sent = leaky.begin(self._setups.triples, shared.pop(0))
        self._setups.triples += group.leaky
        others = np.frombuffer((yield from self._swap(sent.data, sent.nbytes)), np.uint8)
        own = leaky.answer(others)
        packed = pack_bits(own)
        others = self._unpacked((yield from self._swap(packed, len(packed))), len(own))
        value = leaky.finish(own ^ others, self._bound(Label.ACTIVE_EQUALITY, number))
        order = bucket_order(group.leaky, (yield from self._compare_triples(group, value)))
        opened = leaky.differences(order, group.size)
        differences = yield from self._open_bits(opened, Label.ACTIVE_DIFFERENCES, group.number)
        return leaky.combine(opened, differences)

    def _compare_triples(self, group: Group, value: bytes) -> Effects[bytes]:
        """Check that both sides' AND triples agree; return the key of the group's shuffle.

        Both have committed to their digest and to their seed before either opens, and the seeds are opened
        after the digests are found to be equal.
        """
        to, number = self._names[self._peer], group.number
        opening, seed = self._randomness.bytes(32), self._randomness.bytes(32)
        equality = self._commitment(self._side, group, b"equality", value, opening)
        yield self._control(
            to, COMMIT, Commit(number, equality, self._commitment(self._side, group, b"coin", seed))
        )
        commit = yield from self._take(to, COMMIT, Commit)
        self._require_number(commit.group, number)
        yield self._control(to, EQUAL, Equal(number, value, opening))
        equal = yield from self._take(to, EQUAL, Equal)
        self._require_number(equal.group, number)
        theirs = self._commitment(self._peer, group, b"equality", equal.value, equal.opening)
        self._require(commit.equality, theirs)
        self._require(equal.value, value)
        yield self._control(to, COIN, Coin(number, seed))
        coin = yield from self._take(to, COIN, Coin)
        self._require_number(coin.group, number)
        self._require(commit.coin, self._commitment(self._peer, group, b"coin", coin.seed))
        seeds = (seed, coin.seed) if self._side == GARBLER else (coin.seed, seed)
        return self._bound(Label.ACTIVE_BUCKETS, encode_uint(number), *seeds)

    def _commitment(self, sender: int, group: Group, purpose: bytes, *parts: bytes) -> bytes:
        """Return a side's hash commitment to `parts`; it names both sides, so that a copy fails."""
        number = encode_uint(group.number)
        return self._bound(Label.ACTIVE_COMMIT, number, *_names_of(sender), purpose, *parts)

    def _mask(
        self, side: Side, block: Block, triples: Triples, shared: SharedBits
    ) -> Effects[tuple[Masks, Bits]]:
        """Draw random masks of a block's wires; return all masks, and the bits that mask own inputs."""
        plan, n = self._plan, block.count
        own, others, coins = plan.own_wires[self._side], plan.own_wires[self._peer], plan.coin_wires
        inputs = SharedBits.zeros(plan.circuit.n_inputs * n)
        by_wire = [part.reshape(plan.circuit.n_inputs, n, *part.shape[1:]) for part in inputs]
        ends = []
        for into, given, wires in zip(by_wire, shared, (own, own, others), strict=True):
            both = np.concatenate([wires, coins])
            ends.append(len(both) * n)
            into[both] = given[: ends[-1]].reshape(len(both), *into.shape[1:])
        gates = SharedBits(*(part[end : end + plan.ands * n] for part, end in zip(shared, ends, strict=True)))
        self._hiding = SharedBits(
            *(part[end + plan.ands * n :].copy() for part, end in zip(shared, ends, strict=True))
        )
        masks = Masks(side, plan.compiled, n, inputs, gates)
        opened = yield from self._open_bits(masks.open(triples), Label.ACTIVE_OPENINGS, block.number)
        masks.multiply(triples, opened)
        return masks, shared.bits[: len(own) * n].reshape(len(own), n)

    # Inputs and outputs.

    def _mask_inputs(self, block: Block, masks: Bits) -> Effects[Bits]:
        """Exchange masked inputs; return the masked values of all input wires, 0 for coins."""
        self.step = "inputs"
        plan = self._plan
        others = plan.own_wires[self._peer]
        masked = np.zeros((plan.circuit.n_inputs, block.count), np.uint8)
        if self._inputs is not None:
            masked[plan.own_wires[self._side]] = np.bitwise_xor(bits_of(self._inputs, block), masks)
        own = pack_bits(masked[plan.own_wires[self._side]])
        count = len(others) * block.count
        arrived = self._unpacked((yield from self._swap(own, -(-count // 8))), count)
        masked[others] = arrived.reshape(len(others), block.count)
        return masked.reshape(-1)

    def _block_seed(self, block: Block) -> bytes:
        """Return the 16 public bytes from which the active labels of a block's inputs are drawn."""
        return self._bound(Label.ACTIVE_OPEN, encode_uint(block.number))[:START_BYTES]

    def _digest_key(self, label: Label, block: Block) -> bytes:
        """Return the key of a digest of labels or of MACs of a block's masked values, over all AND gates."""
        return self._bound(label, encode_uint(block.number))

    def _give_outputs(self, held: Sequence[BlockOutputs]) -> Effects[None]:
        """Send the other side this side's shares of all blocks' output masks, with digests of MACs."""
        for one in held:
            key = self._named(Label.ACTIVE_OUTPUT, one.block.number, self._side)
            opened = one.opened
            outputs = Outputs(one.block.number, pack_bits(opened.bits()), opened.digest(key))
            yield self._control(self._names[self._peer], OUTPUTS, outputs)

    def _take_outputs(self, held: Sequence[BlockOutputs]) -> Effects[list[Rows]]:
        """Receive the other side's output shares, check MACs; return packed outputs by output value."""
        learned = []
        for one in held:
            outputs = yield from self._take(self._names[self._peer], OUTPUTS, Outputs)
            self._require_number(outputs.block, one.block.number)
            others = self._unpacked(outputs.shares, len(one.masked))
            key = self._named(Label.ACTIVE_OUTPUT, one.block.number, self._peer)
            self._require(outputs.digest, one.opened.expected(others, key))
            bits = np.bitwise_xor(np.bitwise_xor(one.masked, one.opened.bits()), others)
            learned.append(bits.reshape(-1, one.block.count))
        return rows_of(np.concatenate(learned, axis=1), self._plan.circuit.outputs)

    def _show_aggregator(self, side: Side, held: Sequence[BlockOutputs]) -> Effects[None]:
        """Seal output shares for the aggregator, and open a hidden sum that the other side checks.

        One chi is answered, once: a second sum of the same shares, hidden by the same bits, would tell both.
        """
        aggregator, peer = self._context.aggregator, self._names[self._peer]
        outputs = SharedOutputs(
            SharedBits(*(np.concatenate(parts) for parts in zip(*(one.shared for one in held), strict=True))),
            self._hiding,
            np.concatenate([one.masked for one in held]),
            side.delta,
            adds=self._side == EVALUATOR,
        )
        key, context = self.seal_terms(aggregator, self.name, aggregator, SHARES, 0)
        packed = pack_bits(outputs.shares) + pack_bits(self._hiding.bits)
        sealed = seal(key, packed, context, self._randomness)
        yield self._control(aggregator, SHARES, Shares(self._value(), sealed))
        chi = (yield from self._take_of_aggregator(CHI, Chi)).chi
        opening, macs = outputs.opening(chi)
        yield self._control(peer, OPENING, Opening(chi, opening, self._chi_digest(self._side, chi, macs)))
        theirs = yield from self._take(peer, OPENING, Opening)
        self._require(theirs.chi, chi)
        expected = outputs.expected(chi, theirs.opening)
        self._require(theirs.digest, self._chi_digest(self._peer, chi, expected))
        yield self._control(aggregator, OPENED, Opened(chi, theirs.opening))

    def _chi_digest(self, sender: int, chi: bytes, macs: bytes) -> bytes:
        """Return the digest of the MACs on a side's opened sum of output shares."""
        hashed = StreamHash(self._bound(Label.ACTIVE_CHI, *_names_of(sender), chi))
        hashed.update(macs)
        return hashed.digest()

    def _result(self, outputs: list[Rows] | None, transcript: bytes) -> Evaluated:
        """Return the finished evaluation: the outputs, if learned, and the hash of all pieces sent."""
        plan = self._plan
        return Evaluated(
            outputs, self._run_id, plan.circuit.digest, transcript, active_privacy(plan.parameters)
        )
