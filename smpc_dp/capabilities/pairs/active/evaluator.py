"""The evaluator of an evaluation that is secure against both sides."""

from __future__ import annotations

import numpy as np

from smpc_dp.capabilities.pairs.active.messages import MACS, Macs
from smpc_dp.capabilities.pairs.active.participant import ActiveParticipant, BlockOutputs
from smpc_dp.capabilities.pairs.garbled.effects import Effects
from smpc_dp.capabilities.pairs.garbled.participant import GARBLER, Evaluated
from smpc_dp.capabilities.pairs.garbled.plan import Block, pack_bits
from smpc_dp.crypto.active import Evaluator, LeakyTriples, Side
from smpc_dp.crypto.garble import LABEL_BYTES
from smpc_dp.crypto.labels import Label


class ActiveEvaluatorRole(ActiveParticipant):
    """Role of the evaluator of a garbled circuit that stays secure against a malicious garbler."""

    def _run(self) -> Effects[Evaluated]:
        """Evaluate and check block after block; return the outputs after all checks have passed."""
        to = self._plan.parameters.output
        yield from self._greet()
        self.step = "setup"
        side, leaky = yield from self._set_up()
        held: list[BlockOutputs] = []
        value = b""
        for block in self._plan.blocks():
            outputs, expected = yield from self._evaluate(side, leaky, block)
            held.append(outputs)
            macs = yield from self._take(self._names[GARBLER], MACS, Macs)
            self._require_number(macs.block, block.number)
            self._require(macs.digest, expected)
            value = self._value()
            self._require(macs.transcript, value)
        self.step = "outputs"
        learned = (yield from self._take_outputs(held)) if to in ("evaluator", "both") else None
        if to in ("garbler", "both"):
            yield from self._give_outputs(held)
        if to == "aggregator":
            yield from self._show_aggregator(side, held)
        return self._result(learned, value)

    def _evaluate(self, side: Side, leaky: LeakyTriples, block: Block) -> Effects[tuple[BlockOutputs, bytes]]:
        """Evaluate a block with all its messages; return (output shares, expected MAC digest).

        Returns the shares of the outputs, and the digest of MACs that is expected.
        """
        masks, own = yield from self._prepare(side, leaky, block)
        outputs = BlockOutputs.of(block, masks, third=self._plan.parameters.output == "aggregator")
        masked = yield from self._mask_inputs(block, own)
        self.step = "tables"
        evaluator = Evaluator(masks, self._setups.gates, masked)
        gates = self._plan.ands * block.count
        self._setups.gates += gates
        rows = 2 * LABEL_BYTES * gates
        arrived = yield from self._swap(b"", rows + -(-gates // 8))
        tables, bits = np.frombuffer(arrived[:rows], np.uint8), self._unpacked(arrived[rows:], gates)
        keys = (self._digest_key(Label.ACTIVE_LABELS, block), self._digest_key(Label.ACTIVE_MACS, block))
        evaluated = evaluator.evaluate(self._block_seed(block), tables, bits, keys)
        yield from self._swap(pack_bits(evaluated.values) + evaluated.labels, 0)
        return outputs(evaluated.outputs), evaluated.macs
