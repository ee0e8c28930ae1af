"""The aggregator of an evaluation: it alone learns the output, by comparing labels with hashes."""

from __future__ import annotations

import hmac
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from smpc_dp.capabilities.pairs.garbled.effects import Effects, Receive
from smpc_dp.capabilities.pairs.garbled.messages import HASHES, LABEL_BYTES, LABELS, RECEIPT, Receipt, Sealed
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import Bits, Block, rows_of, unpack_bits
from smpc_dp.crypto.garble import Run, check_labels
from smpc_dp.crypto.seal import unseal
from smpc_dp.errors import Check, PeerFault, VerificationError


class AggregatorRole(Participant):
    """Role of an aggregator that alone learns a garbled circuit's output, from two sealed halves."""

    def _run(self) -> Effects[Evaluated]:
        """Take both sealed halves of each block, check each label, send receipts; return the output."""
        yield from self._greet()
        self.step = "outputs"
        outputs: list[Bits] = []
        value = b""
        for block in self._plan.blocks():
            hashes = yield from self._take(self._garbler, HASHES, Sealed)
            labels = yield from self._take(self._evaluator, LABELS, Sealed)
            self._check_block(self._garbler, block.number, hashes.block)
            self._check_block(self._evaluator, block.number, labels.block)
            if not hmac.compare_digest(hashes.transcript, labels.transcript):
                raise PeerFault(
                    self._evaluator,
                    f"signed another hash of tables than '{self._garbler}', which is taken to be right",
                    Check.TRANSCRIPT_DIFFERS,
                )
            run = self._plan.garbling(block, self._tweak())
            opened = self._unseal(self._garbler, HASHES, block.number, hashes.sealed)
            outputs.append(self._decode(block, run, opened, labels.sealed))
            value = hashes.transcript
        for party in (self._garbler, self._evaluator):
            yield self._control(party, RECEIPT, Receipt(value))
        return self._evaluated(rows_of(np.concatenate(outputs, axis=1), self._plan.circuit.outputs), value)

    def _decode(self, block: Block, run: Run, opened: bytes, labels: bytes) -> Bits:
        """Return the output bits of a block; raise PeerFault for a label that fits no hash.

        The hashes `opened` are trusted: the garbler is assumed to be semi-honest, or had committed to them.
        `labels` are sealed.
        """
        shape = (self._plan.circuit.n_outputs, block.count)
        size = LABEL_BYTES * shape[0] * shape[1]
        zero_colours = unpack_bits(opened[2 * size :], shape)
        if zero_colours is None:
            raise PeerFault(
                self._garbler,
                f"its hashes are not those of {shape[0]} x {shape[1]} outputs",
                Check.WRONG_LENGTH,
            )
        pairs = np.frombuffer(opened[: 2 * size], np.uint8).reshape(*shape, 2, LABEL_BYTES)
        opened = self._unseal(self._evaluator, LABELS, block.number, labels)
        if len(opened) != size:
            raise PeerFault(
                self._evaluator,
                f"its labels are not those of {shape[0]} x {shape[1]} outputs",
                Check.WRONG_LENGTH,
            )
        active = np.frombuffer(opened, np.uint8).reshape(*shape, LABEL_BYTES)
        try:
            colours = check_labels(active, pairs, run)
        except VerificationError as error:
            reason = f"{error}, by the hashes of '{self._garbler}'"
            raise PeerFault(self._evaluator, reason, error.check) from None
        return np.bitwise_xor(colours, zero_colours)

    def _unseal(self, sender: str, step: str, block: int, sealed: bytes) -> bytes:
        """Return the decrypted content of a side's sealed message; raise PeerFault if it was changed."""
        key, context = self.seal_terms(sender, sender, self.name, step, block)
        try:
            return unseal(key, sealed, context)
        except VerificationError as error:
            raise PeerFault(sender, f"'{step}' of block {block}: {error}", error.check) from None


@dataclass(slots=True)
class AggregatorEvaluation:
    """State of the aggregator's role in one pair's evaluation, of which it learns the output."""

    role: Participant
    effects: Effects[Evaluated]
    waits: Receive | None = None
    inboxes: dict[str, deque[bytes]] = field(default_factory=dict)
    over: bool = False
