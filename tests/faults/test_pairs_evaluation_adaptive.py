"""An evaluator that would choose the inputs of later blocks by the outputs of earlier ones."""

from __future__ import annotations

import numpy as np
import pytest

from smpc_dp.capabilities.pairs.circuits.circuit import pack, unpack
from smpc_dp.capabilities.pairs.garbled import plan as planning
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole
from smpc_dp.capabilities.pairs.garbled.messages import CONFIRM, CONTROL, DECODE, Decode
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.crypto.randomness import SystemRandomness
from smpc_dp.errors import PeerFault
from smpc_dp.wire.signing import Context, decode_envelope
from tests.faults.test_pairs_evaluation import IDENTITIES, INSTANCES, SUMS, X, Y

BLOCK = 256
BLOCKS = -(-INSTANCES // BLOCK)


class AdaptiveEvaluator(EvaluatorRole):
    """Asks for the outputs of the first block before it gives its inputs to the second."""

    def _choose(self, inputs, choices):  # type: ignore[no-untyped-def]
        if inputs.shape[1] != BLOCK:
            yield from self._take(self._garbler, DECODE, Decode)
        yield from super()._choose(inputs, choices)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "BLOCK_LABELS", 64 * BLOCK)


def roles(output: str, evaluator: type[EvaluatorRole] = EvaluatorRole) -> dict[str, Participant]:
    """The garbler alice and the evaluator bob add in blocks of BLOCK instances."""
    fields = {"circuit": "add64", "garbler": "alice", "evaluator": "bob", "instances": INSTANCES}
    plan = Plan(find("add64").build(), PairwiseParameters(**fields, output=output))  # type: ignore[arg-type]
    assert len(list(plan.blocks())) == BLOCKS
    keys = {name: identity.public_key for name, identity in IDENTITIES.items()}
    context = Context("pairwise", 1, bytes(32), 1, ("alice", "bob"), "", keys)
    random = SystemRandomness()
    return {
        "alice": GarblerRole(context, IDENTITIES["alice"], plan, [pack(X, 64)], random),
        "bob": evaluator(context, IDENTITIES["bob"], plan, [pack(Y, 64)], random),
    }


@pytest.mark.parametrize("output", ["evaluator", "both"])
@pytest.mark.usefixtures("small_blocks")
def test_nothing_is_decoded_before_the_last_block_is_confirmed(output: str) -> None:
    steps: list[str] = []

    def listen(sender: str, to: str, data: bytes) -> list[bytes]:
        if data[0] == CONTROL:
            steps.append(decode_envelope(data[1:], sender).step)
        return [data]

    ends = evaluate_in_memory(roles(output), listen)
    assert steps.count(CONFIRM) == steps.count(DECODE) == BLOCKS
    assert steps[-BLOCKS:] == [DECODE] * BLOCKS
    for name in {"evaluator": ["bob"], "both": ["alice", "bob"]}[output]:
        end = ends[name]
        assert isinstance(end, Evaluated)
        assert end.outputs is not None
        assert unpack(end.outputs[0], INSTANCES) == SUMS


@pytest.mark.parametrize("output", ["evaluator", "both"])
@pytest.mark.usefixtures("small_blocks")
def test_an_evaluator_that_waits_for_an_output_before_its_next_inputs_waits_in_vain(output: str) -> None:
    with pytest.raises(RuntimeError, match="everybody waits: alice, bob"):
        evaluate_in_memory(roles(output, AdaptiveEvaluator))


@pytest.mark.usefixtures("small_blocks")
def test_no_output_is_shown_when_the_last_block_is_not_confirmed() -> None:
    """The evaluator lies in the last block alone; it has not learned the outputs of those before."""
    taking = roles("both")
    bob = taking["bob"]
    shown: list[str] = []
    original = bob._proof

    def proof(block: int, labels: bytes | memoryview) -> bytes:
        wrong = np.frombuffer(labels, np.uint8).copy()
        wrong[0] ^= block == BLOCKS - 1
        return original(block, wrong.data)

    bob._proof = proof  # type: ignore[method-assign]

    def listen(sender: str, to: str, data: bytes) -> list[bytes]:
        if data[0] == CONTROL:
            shown.append(decode_envelope(data[1:], sender).step)
        return [data]

    end = evaluate_in_memory(taking, listen)["alice"]
    assert isinstance(end, PeerFault)
    assert end.culprit == "bob"
    assert shown.count(CONFIRM) == BLOCKS
    assert DECODE not in shown
