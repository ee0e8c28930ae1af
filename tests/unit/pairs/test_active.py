"""Evaluations that are secure against both sides: outputs against those in the clear, and their plan."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Generator
from random import Random
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.active import plan as planning
from smpc_dp.capabilities.pairs.active.evaluator import ActiveEvaluatorRole
from smpc_dp.capabilities.pairs.circuits.bristol import parse_bristol
from smpc_dp.capabilities.pairs.circuits.circuit import Circuit
from smpc_dp.capabilities.pairs.garbled.effects import RETAINED, Send
from smpc_dp.capabilities.pairs.garbled.messages import BULK
from smpc_dp.capabilities.pairs.garbled.params import Security, check_parameters, copies_of
from smpc_dp.capabilities.pairs.published.library import PUBLISHED, find
from smpc_dp.capabilities.pairs.simulation.pairwise import evaluate_in_memory
from smpc_dp.crypto.active_opening import HIDING_BITS
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import encode_uint
from smpc_dp.errors import ConfigError, VerificationError
from tests.active_pairs import HUB, NAMES, Pair, expected_of, outputs_of, plan_of

DEAR = {"aes128", "sha256"}
# Every kind of gate; two outputs are copies of inputs.
MIXED = """10 14
2 2 2
2 1 2

2 1 0 2 4 XOR
2 1 4 3 5 AND
1 1 5 6 INV
1 1 1 7 EQ
2 1 6 7 8 AND
2 1 1 3 9 AND
2 1 8 9 10 AND
2 1 4 10 11 XOR
1 1 0 12 EQW
1 1 3 13 EQW
"""
FREE = """2 5
3 1 1 1
1 2

2 1 0 1 3 XOR
2 1 3 2 4 XOR
"""
# An XOR of two bits and of a coin.
NOISY = """2 5
3 1 1 1
1 1

2 1 0 1 3 XOR
2 1 3 2 4 XOR
"""
# More outputs than inputs.
WIDE = """6 8
2 1 1
1 6

1 1 0 2 EQW
1 1 0 3 EQW
1 1 0 4 EQW
1 1 0 5 EQW
1 1 0 6 EQW
2 1 0 1 7 AND
"""


def circuit_of(text: str) -> Circuit:
    return parse_bristol(text.encode())


@pytest.fixture(scope="module")
def pair() -> Pair:
    """Sides whose setups the tests have in common."""
    return Pair()


def drawn_values(circuit: Circuit, instances: int, seed: str = "values") -> list[list[int]]:
    random = Random(seed)
    return [[random.getrandbits(width) for _ in range(instances)] for width in circuit.inputs]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long) if name in DEAR else name for name in PUBLISHED]
)
def test_published_circuits_give_what_they_give_in_the_clear(pair: Pair, name: str) -> None:
    circuit = find(name).build()
    plan, values = plan_of(circuit, 2), drawn_values(circuit, 2, name)
    assert outputs_of(pair.evaluate(plan, values), plan) == [expected_of(circuit, values)] * 2


@pytest.mark.parametrize("output", ["garbler", "evaluator", "both"])
@pytest.mark.parametrize("theirs", [[], [0], [1], [0, 1]])
@pytest.mark.parametrize("text", [MIXED, FREE], ids=["with every kind of gate", "without AND"])
def test_whoever_learns_the_output_has_it_whoever_gives_the_inputs(
    pair: Pair, output: str, theirs: list[int], text: str
) -> None:
    circuit, instances = circuit_of(text), 5
    plan = plan_of(circuit, instances, output=output, evaluator_inputs=theirs)
    values = drawn_values(circuit, instances)
    expected = expected_of(circuit, values)
    assert outputs_of(pair.evaluate(plan, values), plan) == [
        expected if output in ("garbler", "both") else None,
        expected if output in ("evaluator", "both") else None,
    ]


@pytest.mark.parametrize("k", [2, 4])
def test_a_batch_of_several_blocks_and_groups_gives_the_outputs(
    monkeypatch: pytest.MonkeyPatch, k: int
) -> None:
    monkeypatch.setattr(planning, "GROUP", 40)
    circuit = find("less_u16").build()
    batch = plan_of(circuit, 5, k)
    assert [block.count for block in batch.blocks()] == [2, 2, 1]
    assert [[group.number for group in batch.groups(block)] for block in batch.blocks()] == [[0], [1], [2]]
    large = plan_of(find("add64").build(), 2, k)
    groups = [group for block in large.blocks() for group in large.groups(block)]
    assert [(group.number, group.triples) for group in groups] == [(0, 40), (1, 31), (2, 40), (3, 31)]
    pair = Pair()
    for plan in (batch, large):
        values = drawn_values(plan.circuit, plan.parameters.instances)
        assert outputs_of(pair.evaluate(plan, values), plan) == [expected_of(plan.circuit, values)] * 2


@pytest.mark.parametrize(
    ("circuit", "widest"),
    [(find("less_u16").build(), 32), (circuit_of(WIDE), 6), (find("variance16").build(), 97)],
    ids=["inputs", "outputs", "wires held"],
)
@pytest.mark.parametrize(("labels", "counts"), [(-1, [1, 1, 1]), (0, [2, 1])])
def test_a_block_has_a_bound_on_inputs_outputs_and_wires_that_are_held(
    monkeypatch: pytest.MonkeyPatch, circuit: Circuit, widest: int, labels: int, counts: list[int]
) -> None:
    plan = plan_of(circuit, 3)
    assert max(circuit.n_inputs, circuit.n_outputs, plan.compiled.n_slots) == widest
    monkeypatch.setattr(planning, "BLOCK_LABELS", 2 * widest + labels)
    assert [block.count for block in plan.blocks()] == counts


def test_ten_million_and_gates_go_in_blocks_with_a_bound() -> None:
    circuit = find("mul32").build()
    plan = plan_of(circuit, 10_000_000 // circuit.and_count + 1)
    assert plan.gates >= 10_000_000
    blocks = list(plan.blocks())
    assert sum(block.count for block in blocks) == plan.parameters.instances
    assert max(block.count * circuit.and_count for block in blocks) <= 1 << 16
    groups = [group for block in blocks for group in plan.groups(block)]
    assert [group.number for group in groups] == list(range(len(blocks)))
    assert {group.size for group in groups} == {4}
    # Both setups have numbers for so many, and what is on its way at once does not grow with them.
    assert plan.leaky == sum(group.leaky for group in groups) < 1 << 26


def test_hashes_have_the_words_for_both_sides_and_the_number_of_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "GROUP", 40)
    plan = plan_of(find("less_u16").build(), 3)
    hashed: list[tuple[Label, tuple[bytes, ...]]] = []

    class Watched(ActiveEvaluatorRole):
        """Records what its hashes are of."""

        def _bound(self, label: Label, *parts: bytes) -> bytes:
            hashed.append((label, parts))
            return super()._bound(label, *parts)

    outputs_of(Pair().evaluate(plan, drawn_values(plan.circuit, 3), evaluator=Watched), plan)
    both = (b"evaluator", b"garbler")
    blocks = [encode_uint(number) for number in range(2)]
    assert [parts for label, parts in hashed if label == Label.ACTIVE_OPEN] == [(block,) for block in blocks]
    for label in (Label.ACTIVE_OPENINGS, Label.ACTIVE_OUTPUT):
        assert {parts for of, parts in hashed if of == label} == {
            (block, *sides) for block in blocks for sides in (both, both[::-1])
        }
    assert [parts for label, parts in hashed if label == Label.ACTIVE_TRANSFER] == [
        (b"garbler", b"evaluator", b"\x01"),
        (b"evaluator", b"garbler", b"\x00"),
    ]


def test_a_coin_is_nobodys_input_and_is_fair(pair: Pair) -> None:
    # With a fair coin further from the mean than by 5 standard deviations once in 1.7 million runs; seeded.
    circuit, instances = circuit_of(NOISY), 1000
    plan = plan_of(circuit, instances, random_inputs=[2])
    x, y, _ = drawn_values(circuit, instances)
    alices, bobs = outputs_of(pair.evaluate(plan, [x, y]), plan)
    assert alices is not None
    assert alices == bobs
    ones = sum(a ^ b ^ c for a, b, c in zip(x, y, alices[0], strict=True))
    assert abs(ones - instances / 2) < 5 * (instances / 4) ** 0.5


def test_setups_serve_later_evaluations_and_no_number_is_used_twice() -> None:
    pair, plan = Pair(), plan_of(circuit_of(MIXED), 3)
    values = drawn_values(plan.circuit, 3)
    pieces: list[int] = []

    def count(_sender: str, _to: str, data: bytes) -> list[bytes]:
        pieces[-1] += data[0] == BULK
        return [data]

    states = []
    for _ in range(3):
        pieces.append(0)
        pair.evaluate(plan, values, count)
        states.append(pair.setups["alice"].state)
        assert pair.setups["bob"].state == states[-1]
    # The setups are six pieces; the same ones are used afterwards.
    assert [pieces[0] - pieces[1], pieces[1] - pieces[2]] == [6, 0]
    assert [state[::2][:2] for state in states] == [states[0][::2][:2]] * 3
    assert [state[4:] for state in states] == [(n * plan.leaky, n * plan.gates) for n in (1, 2, 3)]
    assert [state[1] for state in states] == [n * plan.rows[0] for n in (1, 2, 3)]
    assert [state[3] for state in states] == [n * plan.rows[1] for n in (1, 2, 3)]


def test_setups_in_whose_state_the_sides_differ_are_made_anew() -> None:
    pair, plan = Pair(), plan_of(circuit_of(MIXED))
    values = drawn_values(plan.circuit, 1)
    pair.evaluate(plan, values)
    before = pair.setups["bob"].state
    pair.setups["alice"].gates += 1
    assert outputs_of(pair.evaluate(plan, values), plan) == [expected_of(plan.circuit, values)] * 2
    after = pair.setups["bob"].state
    assert after == pair.setups["alice"].state
    assert (after[0] != before[0], after[4:]) == (True, before[4:])


@pytest.mark.parametrize(("field", "value"), [("mode", "tile"), ("covert", 2), ("k", 3)])
def test_what_it_does_not_offer_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{field}: .* is not offered"):
        plan_of(circuit_of(MIXED), **{field: value})  # type: ignore[arg-type]


def test_the_claim_names_both_sides_and_what_an_abort_does_not_tell(pair: Pair) -> None:
    plan = plan_of(circuit_of(FREE))
    end = pair.evaluate(plan, [[0], [1], [1]])["bob"]
    assert not isinstance(end, Exception)
    assert "malicious 'alice' (garbler) or a malicious 'bob' (evaluator)" in end.privacy.claim
    assert any("a failure names nobody" in limit for limit in end.privacy.not_protected)
    assert any("each attempt counts, failed or not" in limit for limit in end.privacy.not_protected)


@pytest.mark.parametrize("theirs", [[0], [1], [0, 1]])
@pytest.mark.parametrize("text", [MIXED, FREE, WIDE], ids=["with every kind of gate", "without AND", "wide"])
def test_the_aggregator_alone_learns_its_output_whoever_gives_the_inputs(
    pair: Pair, text: str, theirs: list[int]
) -> None:
    circuit, instances = circuit_of(text), 5
    plan = plan_of(circuit, instances, output="aggregator", evaluator_inputs=theirs)
    values = drawn_values(circuit, instances)
    ends = pair.evaluate(plan, values)
    assert outputs_of(ends, plan, (*NAMES, HUB)) == [None, None, expected_of(circuit, values)]


def test_the_aggregator_learns_the_outputs_of_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "GROUP", 40)
    plan = plan_of(find("less_u16").build(), 5, output="aggregator")
    assert [block.count for block in plan.blocks()] == [2, 2, 1]
    # The bits that hide the sum are masks of the last block alone.
    assert [plan.mask_count(0, block) for block in plan.blocks()] == [64, 64, 32 + HIDING_BITS]
    values = drawn_values(plan.circuit, 5)
    pair = Pair()
    assert outputs_of(pair.evaluate(plan, values), plan, (HUB,)) == [expected_of(plan.circuit, values)]
    # As many indices as the plan says were used.
    state = pair.setups["alice"].state
    assert (state[1], state[3]) == plan.rows


def test_a_role_that_fails_last_holds_no_label_any_more() -> None:
    plan = plan_of(find("less_u16").build(), 2, output="aggregator")
    roles = Pair().roles(plan, drawn_values(plan.circuit, 2))
    sent: list[bytes] = []

    def tamper(sender: str, to: str, data: bytes) -> list[bytes]:
        if (sender, to) == (HUB, "alice"):
            sent.append(data)
            # The hello is first, chi is next.
            return [data[:-1] + bytes([data[-1] ^ (len(sent) == 2)])]
        return [data]

    ends = evaluate_in_memory(roles, tamper)
    for name in NAMES:
        role = roles[name]
        assert isinstance(ends[name], VerificationError)
        assert role.step == "outputs"
        held = vars(role)
        assert [labels.size for labels in (*held["_room"], *held["_hiding"])] == [0] * 5


def test_more_outputs_than_an_aggregator_takes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "MAX_THIRD_BITS", 5)
    assert plan_of(find("less_u16").build(), 5, output="aggregator").most_instances == 5
    with pytest.raises(ConfigError, match=r"^instances: 6, with output to the aggregator 5 at most"):
        plan_of(find("less_u16").build(), 6, output="aggregator")


@pytest.mark.parametrize(
    ("security", "covert", "copies"),
    [
        (None, None, 0),
        (None, 4, 4),
        ("semi-honest", None, 0),
        ("semi-honest", 0, 0),
        ("covert", None, 4),
        ("covert", 2, 2),
        ("malicious", None, 0),
        ("malicious", 0, 0),
    ],
)
def test_a_security_and_copies_that_fit_give_the_copies(
    security: Security | None, covert: int | None, copies: int
) -> None:
    assert copies_of(security, covert) == copies


@pytest.mark.parametrize(("security", "covert"), [("semi-honest", 2), ("malicious", 4), ("covert", 0)])
def test_copies_that_are_not_for_a_security_are_refused(security: Security, covert: int) -> None:
    with pytest.raises(ConfigError, match=f"^security: '{security}' is not for"):
        copies_of(security, covert)
    fields = {"circuit": "add32", "garbler": "alice", "evaluator": "bob"}
    checked, issues = check_parameters(fields | {"security": security, "covert": covert}, 2)
    assert checked is None
    assert [issue.where for issue in issues] == ["security"]


def test_a_session_file_with_security_against_both_sides_has_no_tiles() -> None:
    fields = {"circuit": "add32", "garbler": "alice", "evaluator": "bob", "security": "malicious"}
    checked, issues = check_parameters(fields | {"random_inputs": [1]}, 2)
    assert issues == []
    assert checked is not None
    assert isinstance(planning.plan_evaluation(find("add32").build(), checked), planning.ActivePlan)
    tiled, _ = check_parameters(fields | {"mode": "tile"}, 2)
    assert tiled is not None
    with pytest.raises(ConfigError, match=r"^mode: 'tile' is not offered"):
        planning.plan_evaluation(find("add32").build(), tiled)


class Watched:
    """A role whose messages to others are compared, as long as nobody may have copied them."""

    def __init__(self, role: Any, retained: int) -> None:
        self.name, self.farewell = role.name, role.farewell
        self._role, self._retained = role, retained
        self.changed = 0

    def run(self) -> Generator[Any, Any, Any]:
        """Run the role, and count messages that change while at most `retained` later ones were asked for."""
        effects = self._role.run()
        sent: defaultdict[str, deque[tuple[Any, bytes]]] = defaultdict(
            lambda: deque(maxlen=1 + self._retained)
        )
        effect = next(effects)
        while True:
            if isinstance(effect, Send):
                sent[effect.to].append((effect.parts, b"".join(effect.parts)))
                self.changed += sum(b"".join(parts) != copy for parts, copy in sent[effect.to])
            answer = yield effect
            try:
                effect = effects.send(answer)
            except StopIteration as end:
                return end.value


@pytest.mark.parametrize(("retained", "change"), [(RETAINED, False), (10 * RETAINED, True)])
def test_messages_stay_as_they_are_until_others_may_have_been_sent(retained: int, change: bool) -> None:
    plan = plan_of(find("mul32").build(), 40)
    values = [[number * 77 + 3 for number in range(40)]] * 2
    watched = {name: Watched(role, retained) for name, role in Pair().roles(plan, values).items()}
    assert outputs_of(evaluate_in_memory(watched), plan)[0] == expected_of(plan.circuit, values)
    assert [one.changed > 0 for one in watched.values()] == [change, change]
