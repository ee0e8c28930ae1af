"""A two-party evaluation in memory: who learns what, and that it is right."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from smpc_dp.capabilities.pairs.active.plan import plan_evaluation
from smpc_dp.capabilities.pairs.circuits.builder import Builder
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit, pack, unpack
from smpc_dp.capabilities.pairs.garbled import plan as planning
from smpc_dp.capabilities.pairs.garbled.aggregator import AggregatorRole
from smpc_dp.capabilities.pairs.garbled.evaluator import EvaluatorRole
from smpc_dp.capabilities.pairs.garbled.garbler import GarblerRole
from smpc_dp.capabilities.pairs.garbled.messages import BULK, MAX_CONTROL, PIECE_HEADER
from smpc_dp.capabilities.pairs.garbled.params import PairwiseParameters, check_parameters
from smpc_dp.capabilities.pairs.garbled.participant import Evaluated, Participant
from smpc_dp.capabilities.pairs.garbled.plan import Plan
from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.crypto.ot import Receiver, Rows
from smpc_dp.crypto.randomness import Randomness, SystemRandomness
from smpc_dp.errors import ConfigError, PeerFault, SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.session.memory.randomness import SeededRandomnessForSimulation
from smpc_dp.wire.signing import Context
from tests.examples import examples

IDENTITIES = {name: Identity.generate(name) for name in ("alice", "bob", "hub")}
OUTPUTS = {
    "garbler": {"alice"},
    "evaluator": {"bob"},
    "both": {"alice", "bob"},
    "aggregator": {"hub"},
}


def plan_of(circuit: Circuit, instances: int, **more: object) -> Plan:
    fields = {"circuit": "add32", "garbler": "alice", "evaluator": "bob", "instances": instances} | more
    return Plan(circuit, PairwiseParameters(**fields))  # type: ignore[arg-type]


def roles_of(plan: Plan, values: Mapping[int, list[int]], seed: int | None = None) -> dict[str, Participant]:
    """The roles for `values`: of each input value of the circuit one number an instance."""
    rows = {index: pack(numbers, plan.circuit.inputs[index]) for index, numbers in values.items()}
    third = plan.parameters.output == "aggregator"
    keys = {name: identity.public_key for name, identity in IDENTITIES.items()}
    context = Context("pairwise", 1, bytes(32), 1, ("alice", "bob"), "hub" if third else "", keys)

    def randomness(name: str) -> Randomness:
        return SystemRandomness() if seed is None else SeededRandomnessForSimulation(seed, name)

    roles: dict[str, Participant] = {
        "alice": GarblerRole(
            context, IDENTITIES["alice"], plan, [rows[i] for i in plan.garbler_values], randomness("alice")
        ),
        "bob": EvaluatorRole(
            context, IDENTITIES["bob"], plan, [rows[i] for i in plan.evaluator_values], randomness("bob")
        ),
    }
    if third:
        roles["hub"] = AggregatorRole(context, IDENTITIES["hub"], plan, randomness("hub"))
    return roles


def evaluated(ended: Mapping[str, Evaluated | SmpcError]) -> dict[str, Evaluated]:
    for end in ended.values():
        if isinstance(end, SmpcError):
            raise end
    return {name: end for name, end in ended.items() if isinstance(end, Evaluated)}


def draw(circuit: Circuit, instances: int) -> dict[int, list[int]]:
    return {
        index: [secrets.randbits(width) for _ in range(instances)]
        for index, width in enumerate(circuit.inputs)
    }


def check(plan: Plan, values: Mapping[int, list[int]]) -> dict[str, Evaluated]:
    ends = evaluated(evaluate_in_memory(roles_of(plan, values)))
    instances = plan.parameters.instances
    computed = [plan.circuit.evaluate(list(given)) for given in zip(*values.values(), strict=True)]
    expected = [list(numbers) for numbers in zip(*computed, strict=True)]
    for name, end in ends.items():
        if name not in OUTPUTS[plan.parameters.output]:
            assert end.outputs is None
            continue
        assert end.outputs is not None
        assert [unpack(rows, instances) for rows in end.outputs] == expected
    return ends


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("mode", ["tile", "unique"])
@pytest.mark.parametrize("instances", [1, 70])
def test_only_who_is_to_learn_the_output_learns_it_and_it_is_right(
    output: str, mode: str, instances: int
) -> None:
    circuit = find("add32").build()
    ends = check(plan_of(circuit, instances, output=output, mode=mode), draw(circuit, instances))
    assert set(ends) == {"alice", "bob"} | OUTPUTS[output]
    assert len({(end.run_id, end.transcript, end.circuit) for end in ends.values()}) == 1
    assert all("semi-honest 'alice'" in end.privacy.claim for end in ends.values())
    bits = {1: 8, 70: 12}[instances]
    claimed = f"the proved level of up to 2^{bits} oblivious transfers is {128 - bits} bits"
    assert all(any(claimed in line for line in end.privacy.assumptions) for end in ends.values())


@st.composite
def circuits(draw: st.DrawFn) -> Circuit:
    """Random circuits, with outputs that are inputs, constants, or used twice."""
    builder = Builder()
    widths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    bits = [bit for width in widths for bit in builder.input(width)]
    bits += builder.constant(2, 2)
    for _ in range(draw(st.integers(0, 25))):
        a, b = draw(st.sampled_from(bits)), draw(st.sampled_from(bits))
        bits.append(draw(st.sampled_from([builder.and_(a, b), builder.xor(a, b), builder.not_(a)])))
    for _ in range(draw(st.integers(1, 2))):
        builder.output(draw(st.lists(st.sampled_from(bits), min_size=1, max_size=4)))
    return builder.build()


@settings(max_examples=examples(15))
@given(circuits(), st.data())
def test_random_circuits(circuit: Circuit, data: st.DataObject) -> None:
    instances = data.draw(st.sampled_from([1, 5, 33]))
    theirs = sorted(data.draw(st.sets(st.sampled_from(range(len(circuit.inputs))))))
    output = data.draw(st.sampled_from(sorted(OUTPUTS)))
    plan = plan_of(circuit, instances, output=output, evaluator_inputs=theirs)
    check(plan, draw(circuit, instances))


def test_a_batch_is_cut_into_blocks_and_transfers_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "BLOCK_LABELS", 32 * 64)
    for module in ("garbler", "evaluator"):
        monkeypatch.setattr(f"smpc_dp.capabilities.pairs.garbled.{module}.TRANSFERS", 1000)
    circuit = find("less_u32").build()
    plan = plan_of(circuit, 5000, output="aggregator")
    assert plan.tile == 64
    blocks = list(plan.blocks())
    assert len(blocks) == 79
    assert sum(block.count for block in blocks) == 5000
    assert all(block.first == 64 * block.number for block in blocks)
    check(plan, draw(circuit, 5000))


def wide(outputs: int) -> Circuit:
    """The AND of two bits, `outputs` times."""
    indices = np.arange(outputs, dtype=np.uint32)
    zeros = np.zeros(outputs, np.uint32)
    return Circuit((1, 1), (outputs,), outputs + 2, np.ones(outputs, np.uint8), zeros, zeros + 1, indices + 2)


@pytest.mark.long
def test_a_tile_is_not_larger_than_a_block_and_the_messages_of_a_wide_circuit_are_in_their_limits() -> None:
    plan = plan_of(wide(1 << 18), 16, output="aggregator")
    assert [block.count for block in plan.blocks()] == [4, 4, 4, 4]
    aggregator = evaluated(evaluate_in_memory(roles_of(plan, {0: [1] * 16, 1: [1, 0] * 8})))["hub"]
    assert aggregator.outputs is not None
    assert aggregator.outputs[0].shape == (1 << 18, 1)
    assert (aggregator.outputs[0] == 0b0101_0101_0101_0101).all()


def test_a_circuit_of_which_one_instance_is_too_wide_is_refused() -> None:
    assert list(plan_of(wide(1 << 20), 1).blocks())
    with pytest.raises(ConfigError, match="circuit: more than 1048576 bits"):
        plan_of(wide((1 << 20) + 1), 1)


def test_more_transfers_than_one_setup_has_are_refused() -> None:
    circuit = find("add64").build()
    assert plan_of(circuit, 1 << 29).transfer_rows > 1 << 35
    with pytest.raises(ConfigError, match=r"instances: 4294967296 of 64 bits .* one setup has 68719476736"):
        plan_of(circuit, 1 << 32)


def test_the_error_for_too_many_transfers_says_how_many_instances_fit() -> None:
    circuit = find("add64").build()
    base = PairwiseParameters("add64", "alice", "bob")
    for parameters, need in (
        (base, "64 bits of the evaluator"),
        (replace(base, mode="unique", security="malicious"), "63 AND gates and 128 bits of inputs"),
    ):
        with pytest.raises(ConfigError) as caught:
            plan_evaluation(circuit, replace(parameters, instances=1 << 32))
        assert f"4294967296 of {need} need " in str(caught.value)
        (most,) = map(int, re.findall(r"enough for (\d+) instances", str(caught.value)))
        plan = plan_evaluation(circuit, replace(parameters, instances=most))
        more = most + 2 * next(plan.blocks()).count
        with pytest.raises(ConfigError, match="indices of transfers"):
            plan_evaluation(circuit, replace(parameters, instances=more))


def test_the_transfers_of_a_run_take_as_many_indices_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("garbler", "evaluator", "plan"):
        monkeypatch.setattr(f"smpc_dp.capabilities.pairs.garbled.{module}.TRANSFERS", 1000)
    monkeypatch.setattr(planning, "BLOCK_LABELS", 32 * 64)
    taken: list[int] = []

    class Counted(Receiver):
        def extend_into(self, count: int, choices: bytes, out: Rows) -> None:
            super().extend_into(count, choices, out)
            taken.append(self.next_index)

    monkeypatch.setattr("smpc_dp.capabilities.pairs.garbled.evaluator.Receiver", Counted)
    plan = plan_of(find("less_u32").build(), 150)
    check(plan, draw(plan.circuit, 150))
    assert taken[-1] == plan.transfer_rows


def test_a_message_above_the_limit_of_a_channel_is_refused_in_memory_too() -> None:
    def inflate(sender: str, to: str, data: bytes) -> list[bytes]:
        return [data + bytes(MAX_CONTROL)] if sender == "alice" else [data]

    ends = evaluate_in_memory(roles_of(plan_of(find("add32").build(), 1), {0: [1], 1: [2]}), inflate)
    assert isinstance(ends["bob"], PeerFault)
    assert "the limit is 67108864" in str(ends["bob"])


def test_two_runs_share_neither_run_id_nor_labels_nor_tables() -> None:
    plan = plan_of(find("add32").build(), 1)
    ids, seen = [], []
    for _ in range(2):
        blocks: list[bytes] = []

        def listen(sender: str, to: str, data: bytes, blocks: list[bytes] = blocks) -> list[bytes]:
            if sender == "alice" and data[0] == BULK:
                content = data[PIECE_HEADER.size :]
                blocks += [content[index : index + 16] for index in range(0, len(content), 16)]
            return [data]

        ends = evaluated(evaluate_in_memory(roles_of(plan, {0: [1], 1: [2]}), listen))
        ids.append(ends["bob"].run_id)
        seen.append(blocks)
    assert ids[0] != ids[1]
    # 32 labels, 31 tables of two rows, 32 corrections of transfers.
    assert len(seen[0]) > 32 + 62 + 32
    assert not set(seen[0]) & set(seen[1])


@pytest.mark.parametrize("output", OUTPUTS)
def test_nothing_before_the_masked_inputs_depends_on_an_input(output: str) -> None:
    """With the same random bytes, other inputs change nothing so far, and the masks by their difference."""
    plan = plan_of(find("add32").build(), 70, output=output)

    def execute(x: int, y: int) -> list[tuple[str, bytes]]:
        sent: list[tuple[str, bytes]] = []

        def listen(sender: str, to: str, data: bytes) -> list[bytes]:
            sent.append((sender, data))
            return [data]

        roles = roles_of(plan, {0: [x] * 70, 1: [y] * 70}, seed=1)
        evaluated(evaluate_in_memory(roles, listen))
        return sent

    some, others = execute(1, 2), execute(2**32 - 1, 5)
    [index] = [
        index
        for index, (sender, data) in enumerate(some)
        if sender == "bob" and data[:10] == bytes([BULK, 1]) + (4).to_bytes(8, "big")
    ]
    assert [some[:index], len(some)] == [others[:index], len(others)]
    masks = [sent[index][1][PIECE_HEADER.size :] for sent in (some, others)]
    differing = [a ^ b for a, b in zip(*masks, strict=True)]
    expected = np.repeat(np.unpackbits(np.array([2 ^ 5], "<u4").view(np.uint8), bitorder="little"), 70)
    assert differing == np.packbits(expected, bitorder="little").tolist()
    assert [some[index + 1 :]] != [others[index + 1 :]]


def test_choices_are_fresh_in_each_run() -> None:
    """2,240 masked zeros: half of them are ones, but in one run of 10^9, and those of two runs differ."""
    plan = plan_of(find("add32").build(), 70)
    masks: list[bytes] = []
    for _ in range(2):

        def listen(sender: str, to: str, data: bytes) -> list[bytes]:
            if sender == "bob" and data[:10] == bytes([BULK, 1]) + (4).to_bytes(8, "big"):
                masks.append(data[PIECE_HEADER.size :])
            return [data]

        evaluated(evaluate_in_memory(roles_of(plan, {0: [0] * 70, 1: [0] * 70}), listen))
    ones = [sum(byte.bit_count() for byte in mask) for mask in masks]
    # Six standard deviations of 23.7.
    assert all(abs(count - 1120) < 6.1 * 23.7 for count in ones)
    both = sum((a ^ b).bit_count() for a, b in zip(*masks, strict=True))
    assert abs(both - 1120) < 6.1 * 23.7


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"circuit": "no_such"}, "circuit"),
        ({"evaluator": "alice"}, "evaluator"),
        ({"instances": 0}, "instances"),
        ({"instances": 1 << 33}, "instances"),
        ({"digest": "xyz"}, "digest"),
        ({"output": "everybody"}, "output"),
        ({"mode": "fast"}, "mode"),
        ({"evaluator_inputs": [1, 0]}, "evaluator_inputs"),
        ({"evaluator_inputs": [-1]}, "evaluator_inputs"),
        ({"evaluator_inputs": list(range((1 << 16) + 1))}, "evaluator_inputs"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_wrong_parameter_is_named(change: dict[str, object], where: str) -> None:
    good: dict[str, object] = {"circuit": "add32", "garbler": "alice", "evaluator": "bob"}
    assert check_parameters(good, 2)[1] == []
    checked, faults = check_parameters(good | change, 2)
    assert checked is None
    assert [fault.where for fault in faults] == [where]


def test_a_session_has_two_parties() -> None:
    good: dict[str, object] = {"circuit": "add32", "garbler": "alice", "evaluator": "bob"}
    assert [fault.where for fault in check_parameters(good, 3)[1]] == ["roster"]


def test_wrong_widths_are_refused_before_anything_is_sent() -> None:
    plan = plan_of(find("add32").build(), 1)
    context = Context("pairwise", 1, bytes(32), 1, ("alice", "bob"), "", {})
    for wrong in ([], [np.zeros((31, 1), np.uint64)], [np.zeros((32, 1), np.int64)]):
        with pytest.raises(ConfigError, match="alice"):
            GarblerRole(context, IDENTITIES["alice"], plan, wrong, SystemRandomness())  # type: ignore[arg-type]
