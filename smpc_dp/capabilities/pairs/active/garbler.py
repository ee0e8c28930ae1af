"""The garbler of an evaluation that is secure against both sides."""

from __future__ import annotations

import numpy as np

from smpc_dp.capabilities.pairs.active.messages import DIGEST_BYTES, MACS, Macs
from smpc_dp.capabilities.pairs.active.participant import ActiveParticipant, BlockOutputs
from smpc_dp.capabilities.pairs.garbled.effects import Effects
from smpc_dp.capabilities.pairs.garbled.participant import EVALUATOR, Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import Block, pack_bits
from smpc_dp.crypto.active import Garbler, LeakyTriples, Side
from smpc_dp.crypto.labels import Label


class ActiveGarblerRole(ActiveParticipant):
    """Role of the garbler of a circuit in an evaluation that stays secure against a malicious evaluator."""

    def _run(self) -> Effects[Evaluated]:
        """Garble and check block after block; return the outputs after all checks have passed."""
        to, evaluator = self._plan.parameters.output, self._names[EVALUATOR]
        yield from self._greet()
        self.step = "setup"
        side, leaky = yield from self._set_up()
        held: list[BlockOutputs] = []
        value = b""
        for block in self._plan.blocks():
            outputs, digest = yield from self._garble(side, leaky, block)
            held.append(outputs)
            value = self._value()
            yield self._control(evaluator, MACS, Macs(block.number, digest, value))
        self.step = "outputs"
        if to in ("evaluator", "both"):
            yield from self._give_outputs(held)
        learned = (yield from self._take_outputs(held)) if to in ("garbler", "both") else None
        if to == "aggregator":
            yield from self._show_aggregator(side, held)
        return self._result(learned, value)

    def _garble(self, side: Side, leaky: LeakyTriples, block: Block) -> Effects[tuple[BlockOutputs, bytes]]:
        """Garble a block with all its messages; return (output shares, digest of MACs for the evaluator).

        Returns the shares of the outputs, and the digest of MACs for the evaluator.
        """
        masks, own = yield from self._prepare(side, leaky, block)
        outputs = BlockOutputs.of(block, masks, third=self._plan.parameters.output == "aggregator")
        masked = yield from self._mask_inputs(block, own)
        self.step = "tables"
        garbler = Garbler(masks, self._setups.gates, masked)
        gates = self._plan.ands * block.count
        self._setups.gates += gates
        tables, bits = garbler.tables(self._block_seed(block))
        content = np.concatenate([tables, np.packbits(bits, bitorder="little")])
        yield from self._swap(content.data, 0)
        length = len(pack_bits(bits)) + DIGEST_BYTES
        arrived = yield from self._swap(b"", length)
        values = self._unpacked(arrived[:-DIGEST_BYTES], gates)
        expected = garbler.expected(values, self._digest_key(Label.ACTIVE_LABELS, block))
        # Before the answer: else it tells a mask to an evaluator that lies about a masked value.
        self._require(arrived[-DIGEST_BYTES:], expected)
        digest, values = garbler.answer(values, self._digest_key(Label.ACTIVE_MACS, block))
        return outputs(values), digest
