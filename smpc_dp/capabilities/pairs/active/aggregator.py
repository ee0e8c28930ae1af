"""The aggregator of an evaluation that is secure against both sides: it alone learns the output."""

from __future__ import annotations

import numpy as np

from smpc_dp.capabilities.pairs.active.claims import active_privacy
from smpc_dp.capabilities.pairs.active.messages import CHI, OPENED, SHARES, ActiveHello, Chi, Opened, Shares
from smpc_dp.capabilities.pairs.active.role import ActiveRole
from smpc_dp.capabilities.pairs.active.traffic import rounds_of
from smpc_dp.capabilities.pairs.garbled.effects import Effects
from smpc_dp.capabilities.pairs.garbled.messages import NONCE_BYTES
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, GARBLER, Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import Bits, Rows, rows_of
from smpc_dp.crypto.active_opening import HIDING_BITS, coefficients, sum_of
from smpc_dp.crypto.agree import public_key
from smpc_dp.crypto.seal import unseal

CHI_BYTES = 32
HIDING_BYTES = HIDING_BITS // 8


class ActiveAggregatorRole(ActiveRole):
    """Role of an aggregator that alone learns a circuit's output, from two parties' checked shares."""

    def _run(self) -> Effects[Evaluated]:
        """Take both sides' output shares, draw a challenge, check the answers, and return the output."""
        yield from self._greet_both()
        self.step = "outputs"
        names = (self._garbler, self._evaluator)
        shares, transcripts = [], []
        # The sides send nothing here before they have exchanged all that is theirs.
        rounds = rounds_of(self._plan)
        for name in names:
            message = yield from self._take(name, SHARES, Shares, rounds=rounds)
            rounds = 0
            shares.append(self._unsealed(name, message))
            transcripts.append(message.transcript)
        self._require(transcripts[EVALUATOR], transcripts[GARBLER])
        # Only now: who knows chi before its share is fixed finds a false one with the same sum.
        chi = self._randomness.bytes(CHI_BYTES)
        for name in names:
            yield self._control(name, CHI, Chi(chi))
        weights = coefficients(chi, self._plan.output_bits)
        for side in (GARBLER, EVALUATOR):
            # Each tells what the other has opened to it.
            opened = yield from self._take(names[1 - side], OPENED, Opened)
            self._require(opened.chi, chi)
            self._require(opened.opening, sum_of(*shares[side], weights))
        outputs = self._rows(np.bitwise_xor(shares[GARBLER][0], shares[EVALUATOR][0]))
        privacy = active_privacy(self._plan.parameters)
        return Evaluated(outputs, self._run_id, self._plan.circuit.digest, transcripts[GARBLER], privacy)

    def _greet_both(self) -> Effects[None]:
        """Exchange hello messages with the garbler and the evaluator, and start the run."""
        plan = self._plan
        nonce, key = self._randomness.bytes(NONCE_BYTES), public_key(self._secret)
        yield from self._exchange_hellos(
            ActiveHello(nonce, plan.circuit.digest, plan.digest, key, b"", 0, b"", 0, 0, 0)
        )
        yield from self._take_start()

    def _unsealed(self, sender: str, message: Shares) -> tuple[Bits, Bits]:
        """Decrypt a side's message into its shares of the output, and the bits that hide their sum."""
        key, context = self.seal_terms(sender, sender, self.name, SHARES, 0)
        packed = unseal(key, message.sealed, context)
        bits = self._unpacked(packed[:-HIDING_BYTES], self._plan.output_bits)
        return bits, self._unpacked(packed[-HIDING_BYTES:], HIDING_BITS)

    def _rows(self, bits: Bits) -> list[Rows]:
        """Split the output bits of all blocks, and return the outputs of all instances, packed."""
        wires, blocks, first = self._plan.circuit.n_outputs, [], 0
        for block in self._plan.blocks():
            blocks.append(bits[first : first + wires * block.count].reshape(wires, block.count))
            first += wires * block.count
        return rows_of(np.concatenate(blocks, axis=1), self._plan.circuit.outputs)
