"""Secure averages of Flower without Flower: nodes restored for each message, and servers that deviate."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from smpc_dp import database, generator_cache
from smpc_dp.crypto.vector_commitments import Generators
from smpc_dp.encoding import RingVector
from smpc_dp.engine.driver import Driver
from smpc_dp.engine.events import Event, Message
from smpc_dp.engine.phases import checked_total
from smpc_dp.engine.phases import messages as m
from smpc_dp.engine.phases.last_results import check_contradiction
from smpc_dp.engine.phases.parameters import SumParameters
from smpc_dp.errors import Code, ConfigCheck, ConfigError, LocalError, PeerFault, PrivacyError, SmpcError
from smpc_dp.identity.keys import Identity
from smpc_dp.integrations.flower.averages import TRAIN, Answer, Average, SecureAverage, task_of
from smpc_dp.integrations.flower.node import TRUSTED, Contribution, Node, read_node_file
from smpc_dp.integrations.flower.rounds import losses_text
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.session_file import load_session, write_session
from smpc_dp.session.tolerance import Tolerance
from smpc_dp.wire import large_fields
from smpc_dp.wire.abort import LEAVE
from smpc_dp.wire.envelope import Envelope
from smpc_dp.wire.signing import decode, decode_envelope, encode_envelope
from tests.unit.integrations.flower_scene import PARTIES, Scene, no_hash

NOISY: dict[str, object] = {"length": 5, "max_weight": None, "epsilon": 4.0, "delta": 1e-3}
GOSSIP: dict[str, object] = {
    "length": 5,
    "lower": 0.0,
    "upper": 1.0,
    "epsilon": 8.0,
    "delta": 1e-3,
    "corrupt": 0.0,
}
PRIVATE: dict[str, str | bool] = {"ledger": "node.ledger", "clip": True}
CHECKED: dict[str, object] = {"total": "checked"}
LOSING: dict[str, object] = {"same_survivors": False}
# The steps of a party that say nothing of its vector.
EARLY = {m.HELLO, m.ADVERTISE, m.REVEAL, m.DEAL, m.ATTEST_PARTICIPANTS, LEAVE}


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away: what is written is read by the same system."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")


def steps(scene: Scene, name: str = "") -> list[str]:
    """Return the steps of all that nodes have sent, or one of them."""
    return [
        decode(content, Envelope, sender).step
        for sender, answer in scene.answers
        for content in answer.messages
        if name in ("", sender)
    ]


def assert_average(scene: Scene, tree: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> None:
    expected = scene.expected(names)
    for key in ("weight", "bias"):
        np.testing.assert_allclose(tree["arrays"][key], expected[key], rtol=0, atol=1e-6)
    assert tree["metrics"] == {"loss": pytest.approx(expected["loss"], abs=1e-6)}


def open_rows(scene: Scene, name: str) -> list[str]:
    """Return the files that still have a key of a node's saved states."""
    return [file.name for file in (scene.folder / name / "state" / "keys").glob("*.keys")]


def create_ledgers(scene: Scene) -> None:
    for name in PARTIES:
        path, terms = scene.folder / name / "node.ledger", {"epsilon": 6.0, "delta": 1e-2}
        Ledger.create(path, party=name, dataset="d", relation="substitution", **terms)  # type: ignore[arg-type]


def test_the_average_is_weighted_by_secret_numbers_of_examples(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    outcome = scene.execute()
    assert (outcome.survivors, outcome.weight) == (PARTIES, 100)
    assert_average(scene, scene.tree(outcome), PARTIES)
    assert {answer.trust for _, answer in scene.answers} == {TRUSTED}
    assert all(scene.node(name).requests.last(scene.scope).number == 1 for name in PARTIES)
    assert [open_rows(scene, name) for name in PARTIES] == [[]] * 4
    assert scene.execute().survivors == PARTIES


@pytest.mark.parametrize("checked", [{}, CHECKED], ids=["unchecked", "checked"])
def test_large_messages_are_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: Mapping[str, object]
) -> None:
    # More than the other fields of an envelope have.
    monkeypatch.setattr(large_fields, "LARGE", 35)
    handled, handle = dict[str, type](), Driver.act

    def act(driver: Driver, event: Event) -> Sequence[Envelope]:
        if isinstance(event, Message):
            handled[event.envelope.step] = type(event.envelope.body)
        return handle(driver, event)

    monkeypatch.setattr(Driver, "act", act)
    scene = Scene(tmp_path, checked)
    outcome = scene.execute()
    assert_average(scene, scene.tree(outcome), PARTIES)
    assert [open_rows(scene, name) for name in PARTIES] == [[]] * 4
    # Of the aggregator and of nodes.
    assert handled[m.MASKED] is handled[m.RESULT] is memoryview


@pytest.mark.thin(2)
@pytest.mark.parametrize("noisy", [False, True], ids=["exact", "noisy"])
def test_each_node_checks_the_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noisy: bool) -> None:
    """Nodes read generators from their files: each message may have a process of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(generator_cache, "IN_PROCESS", Generators())
    scene = Scene(tmp_path, CHECKED | NOISY, {}, **PRIVATE) if noisy else Scene(tmp_path, CHECKED)
    if noisy:
        create_ledgers(scene)
    outcome = scene.execute()
    assert (outcome.survivors, outcome.evidence.checked) == (PARTIES, True)
    if not noisy:
        assert_average(scene, scene.tree(outcome), PARTIES)
    assert {answer.code for _, answer in scene.answers} == {""}
    assert len(list((tmp_path / "cache").rglob("000"))) == 1


def test_no_node_takes_a_false_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server adds one to an element of the total that it sends; restored nodes blame it."""
    original = checked_total.checked_result

    def lie(parameters: SumParameters, total: RingVector, *more: Any) -> m.CheckedResult:
        honest, changed = original(parameters, total, *more), total.copy()
        changed[0] += 1
        return replace(honest, total=parameters.encoding.pack(changed))

    monkeypatch.setattr(checked_total, "checked_result", lie)
    scene = Scene(tmp_path, CHECKED)
    scene.execute()
    ended = [answer for _, answer in scene.answers[-len(PARTIES) :]]
    assert [answer.note for answer in ended] == [
        f"{name}: left request 1: aggregator: the total is not that of the commitments" for name in PARTIES
    ]
    assert [open_rows(scene, name) for name in PARTIES] == [[]] * 4


def test_undeclared_metrics_and_unknown_kinds_are_not_answered(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert set(scene.tree(scene.execute())["metrics"]) == {"loss"}
    with pytest.raises(ConfigError, match="alice: no average is declared for 'evaluate'"):
        scene.node("alice").begin("evaluate", 9, "evaluate", lambda: scene.work("alice"))


def test_a_node_that_is_lost_in_the_middle_is_not_in_the_average(tmp_path: Path) -> None:
    scene = Scene(tmp_path, LOSING)

    lost = []

    def lose(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        late = any(decode_envelope(one, "aggregator").step == m.PARTICIPANTS for one in messages)
        lost.extend(["bob"] if late else [])
        return None if lost and scene.nodes[node] == "bob" else scene.answer(node, number, messages)

    outcome = scene.execute(lose)
    assert (outcome.survivors, outcome.absent) == (("alice", "carol", "dave"), ("bob",))
    assert_average(scene, scene.tree(outcome), outcome.survivors)
    # Its saved state is destroyed when it is asked for the next request.
    assert len(open_rows(scene, "bob")) == 1
    assert scene.execute().survivors == PARTIES
    assert open_rows(scene, "bob") == []


def test_the_lines_of_a_round_name_the_nodes_that_were_lost() -> None:
    tolerated = str(Tolerance(4, 1, 0, 0))
    assert losses_text({}, tolerated) == ""
    assert losses_text({21: "bob", 7: ""}, tolerated) == (
        "; lost nodes: 21 (bob), 7 (no hello); a request tolerates 1 lost, 0 corrupt of 4 parties; after the "
        "first request 0 lost"
    )


def test_exact_sums_of_all_runs_are_over_the_same_survivors(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.execute()

    def lose(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        return None if scene.nodes[node] == "bob" else scene.answer(node, number, messages)

    scene.answers.clear()
    with pytest.raises(SmpcError, match="bob"):
        scene.execute(lose)
    # A server that has forgotten the first set does not find nodes that have.
    (scene.folder / "aggregator.requests").unlink()
    scene.requests.take(scene.scope, 5)
    with pytest.raises(SmpcError):
        scene.execute(lose)
    assert set(steps(scene)) <= EARLY | {m.MASKED}
    notes = [answer.note for _, answer in scene.answers if "rule against differences" in answer.note]
    assert len(notes) == 3


def test_one_ledger_is_charged_by_all_runs_once_for_each_release(tmp_path: Path) -> None:
    scene = Scene(tmp_path, NOISY, {}, **PRIVATE)
    create_ledgers(scene)
    first = scene.execute()
    scene.execute()
    entries = [len(scene.node(name).ledger.entries()) for name in PARTIES]  # type: ignore[union-attr]
    assert (first.privacy.epsilon, entries) == (4.0, [2] * 4)
    scene.answers.clear()
    with pytest.raises(SmpcError):
        scene.execute()
    assert set(steps(scene)) <= EARLY
    assert any("epsilon is short" in answer.note for _, answer in scene.answers)


@pytest.mark.parametrize(
    "bound", [{}, {"lower": None, "upper": None, "precision": None, "l2_bound": 8.0}], ids=["box", "ball"]
)
def test_whether_a_private_node_answers_does_not_depend_on_bounds(
    bound: dict[str, object], tmp_path: Path
) -> None:
    """A server that chooses models moves them beyond the bounds where the data are as it guesses."""
    scene = Scene(tmp_path, NOISY | bound, {}, **PRIVATE)
    create_ledgers(scene)
    arrays = {"weight": np.full((2, 2), 90.0), "bias": np.zeros(1)}
    far = Contribution(arrays, {"num-examples": 3})
    answer = scene.node("alice").begin(TRAIN, 1, scene.task, lambda: far)
    assert len(answer.messages) == 1
    assert "request 1: " in answer.note
    assert "were clipped" in answer.note
    path = tmp_path / "alice" / "node.toml"
    path.write_text(path.read_text().replace("clip = true", ""))
    with pytest.raises(ConfigError, match="alice: the session of 'train' has epsilon: write clip = true"):
        scene.node("alice")


# What nodes refuse


class Harmful(Exception):
    """An error of the app."""


def test_bad_input_leaves_the_request_before_anything_is_sent(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    good = scene.work("alice")
    broken = {
        "nan": (Contribution({**good.arrays, "bias": np.array([np.nan])}, good.metrics), r"\['bias'\]"),
        "far": (
            Contribution({**good.arrays, "bias": np.array([9.0])}, good.metrics),
            r"outside \[-8.0, 8.0\]",
        ),
        "loss": (Contribution(good.arrays, {"num-examples": 3}), r"metrics\['loss'\]"),
        "no examples": (Contribution(good.arrays, {"loss": 1.0}), "examples"),
        "many": (Contribution(good.arrays, {"num-examples": 101, "loss": 1.0}), "weight"),
        "half": (Contribution(good.arrays, {"num-examples": 1.5, "loss": 1.0}), "weight"),
        "shape": (Contribution({"bias": np.zeros(4)}, good.metrics), "has 5 values"),
    }
    for number, (contribution, reason) in enumerate(broken.values(), 1):
        with pytest.raises((ConfigError, PrivacyError), match=reason):
            scene.node("alice").begin(TRAIN, number, scene.task, partial(Contribution, *contribution))
        with pytest.raises(PrivacyError, match="not under way"):
            scene.node("alice").proceed(TRAIN, number, [b"anything"])


def test_a_node_whose_work_fails_is_lost_for_its_request_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)

    def fail() -> Contribution:
        raise Harmful("patient 7")

    with pytest.raises(Harmful):
        scene.node("alice").begin(TRAIN, 1, scene.task, fail)
    with pytest.raises(PrivacyError, match="request 1 comes after request 1"):
        scene.node("alice").begin(TRAIN, 1, scene.task, lambda: scene.work("alice"))
    assert scene.node("alice").begin(TRAIN, 2, scene.task, lambda: scene.work("alice")).messages


def test_a_request_that_was_overtaken_while_the_node_trained_is_given_up(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    answers = []

    def overtaken() -> Contribution:
        answers.append(scene.node("alice").begin(TRAIN, 2, scene.task, lambda: scene.work("alice")))
        return scene.work("alice")

    with pytest.raises(PrivacyError, match="request 2 has begun"):
        scene.node("alice").begin(TRAIN, 1, scene.task, overtaken)
    assert len(answers[0].messages) == 1
    assert scene.node("alice").requests.last(scene.scope).number == 2


def test_nodes_with_other_models_are_named_with_the_difference(tmp_path: Path) -> None:
    scene = Scene(tmp_path, LOSING)

    def differ(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        if scene.nodes[node] != "bob" or messages:
            return scene.answer(node, number, messages)
        good = scene.work("bob")
        arrays = {"weight": good.arrays["weight"].reshape(4), "bias": good.arrays["bias"]}
        return scene.node("bob").begin(TRAIN, number, scene.task, lambda: Contribution(arrays, good.metrics))

    outcome = scene.execute(differ)
    assert outcome.absent == ("bob",)
    assert any("theirs" in fault and "['weight']" in fault for fault in outcome.faults)
    assert set(steps(scene, "bob")) <= {LEAVE}


def write_node(folder: Path, text: str) -> Path:
    (folder / "node.toml").write_text(text)
    return folder / "node.toml"


def test_faults_of_a_nodes_file_are_named(tmp_path: Path) -> None:
    session = '[train]\nsession = "session.toml"\n'
    head = 'party = "alice"\nstate = "state"\n'
    for text, where in (
        ("party = 3", "party"),
        (head + 'counter = "state/counter"\n' + session, "within"),
        (head + 'counter = "nowhere"\n' + session, "no folder"),
        (head + 'counter = "."\nunknown = 1\n' + session, "unknown"),
        (head + 'counter = "."\napp = "abc"\n' + session, "64 lower-case hex"),
        ("[[", "node.toml"),
    ):
        with pytest.raises(ConfigError, match=where):
            read_node_file(write_node(tmp_path, text))
    scene = Scene(tmp_path / "noisy", NOISY, {})
    with pytest.raises(ConfigError, match="a ledger is needed"):
        scene.node("alice")
    (tmp_path / "noisy" / "keys" / "bob.key").unlink()
    with pytest.raises(LocalError, match=r"bob\.key"):
        scene.node("bob")


# Servers that deviate


def crooked(scene: Scene, dropouts: int) -> None:
    """Make the aggregator go on with more lost parties than the session says."""
    membership = scene.server.membership
    parameters = membership.parameters
    plan = replace(parameters.plan, max_dropouts=dropouts)
    changed = dataclasses.replace(membership, parameters=replace(parameters, plan=plan))
    scene.server = SecureAverage(changed, scene.server.metrics)


@pytest.mark.parametrize(
    ("version", "upper", "reason"),
    [(3, 9.0, "several leaves differ"), (2, 8.0, "0 of 4 parties are left")],
    ids=["bound", "version"],
)
def test_a_server_that_alters_terms_gets_no_vector(
    version: int, upper: float, reason: str, tmp_path: Path
) -> None:
    """Its session file has another bound or version; the nodes' own files are as they were."""
    scene = Scene(tmp_path, LOSING)
    session = load_session(scene.session)
    altered = tmp_path / "altered.toml"
    members = [scene.server.membership.session.roster.aggregator, *session.roster.parties]
    parameters = {**session.parameters, "upper": upper}
    assert (version, parameters) != (session.version, session.parameters)
    write_session(altered, "secagg", version, parameters, [one for one in members if one is not None])
    scene.server = SecureAverage.load(
        Average(str(altered), scene.metrics), "aggregator", tmp_path / "keys" / "aggregator.key", "aggregator"
    )
    with pytest.raises(SmpcError, match=reason):
        scene.execute()
    assert set(steps(scene)) <= {m.HELLO, LEAVE}


def test_a_server_that_sends_one_node_another_model_does_not_get_its_vector(tmp_path: Path) -> None:
    """A model that silences all but one node would make the sum that one's vector."""
    scene = Scene(tmp_path, LOSING)

    def alter(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        if scene.nodes[node] != "dave" or messages:
            return scene.answer(node, number, messages)
        answer = scene.node("dave").begin(TRAIN, number, task_of(TRAIN, [b"x"]), lambda: scene.work("dave"))
        scene.answers.append(("dave", answer))
        return answer

    outcome = scene.execute(alter)
    assert outcome.absent == ("dave",)
    assert any(fault.startswith("dave: asks 'average train") for fault in outcome.faults)
    assert set(steps(scene, "dave")) <= {m.HELLO, LEAVE}


def test_a_server_that_replays_a_round_gets_codes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    sent: list[tuple[int, Sequence[bytes]]] = []

    def record(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        sent.append((node, messages))
        return scene.answer(node, number, messages)

    scene.execute(record)
    scene.answers.clear()
    for node, messages in sent:
        scene.answer(node, 1, messages)
    assert {(answer.messages, answer.code) for _, answer in scene.answers} <= {
        ((), Code.PAST),
        ((), Code.OWN),
    }
    # Messages of the first request do not do for the second.
    scene.answers.clear()
    for node in scene.nodes:
        scene.answer(node, 2, ())
        scene.answer(node, 2, next(messages for at, messages in sent if at == node and messages))
    assert set(steps(scene)) == {m.HELLO, LEAVE}


def test_a_server_that_drops_two_replies_gets_no_sum(tmp_path: Path) -> None:
    """One may be lost. An honest server stops; nodes open nothing to one that goes on."""
    for name, deviates in (("honest", False), ("crooked", True)):
        scene = Scene(tmp_path / name, LOSING)
        if deviates:
            crooked(scene, 2)

        def drop(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
            answer = scene.answer(node, number, messages)
            late = any(decode(one, Envelope, "").step == m.MASKED for one in answer.messages)
            return None if late and scene.nodes[node] in ("alice", "bob") else answer

        with pytest.raises(SmpcError):
            scene.execute(drop)
        assert m.MASKED in steps(scene)
        assert m.UNMASK not in steps(scene)
        assert m.ATTEST_SURVIVORS not in steps(scene)


def test_a_server_that_samples_a_subset_gets_no_vector(tmp_path: Path) -> None:
    scene = Scene(tmp_path, LOSING)
    crooked(scene, 2)
    with pytest.raises(SmpcError):
        scene.aggregation().execute([10, 11])
    assert set(steps(scene)) == {m.HELLO, LEAVE}


def test_a_server_that_asks_twice_in_one_round_gets_one_answer(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    works = []

    def twice(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        answer = scene.answer(node, number, messages)
        if not messages:
            works.append(scene.nodes[node])
            with pytest.raises(PrivacyError, match="comes after"):
                scene.node(scene.nodes[node]).begin(TRAIN, number, scene.task, lambda: scene.work("nobody"))
        elif answer.messages:
            assert scene.answer(node, number, messages).messages == answer.messages
        return answer

    assert scene.execute(twice).survivors == PARTIES
    assert sorted(works) == sorted(PARTIES)


def test_a_server_that_asks_two_ways_in_one_round_gets_a_tombstone(tmp_path: Path) -> None:
    """A second `participants`, of another set, is signed by the server as well as the first."""
    scene = Scene(tmp_path)
    identity = Identity.load(tmp_path / "keys" / "aggregator.key", "aggregator")

    def two_ways(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        answer = scene.answer(node, number, messages)
        first = decode_envelope(messages[0], "aggregator") if messages else None
        if first is None or first.step != m.SURVIVORS or scene.nodes[node] != "bob":
            return answer
        context = scene.server.membership.context(number)
        other = m.Survivors(b"\x00\xb0")
        [second] = context.write(identity, first.run_id, m.SURVIVORS, ["bob"], other)
        left = scene.answer(node, number, [encode_envelope(second)])
        assert [decode(content, Envelope, "bob").step for content in left.messages] == [LEAVE]
        assert scene.answer(node, number, messages).code == Code.OWN
        return left

    assert scene.execute(two_ways).survivors == PARTIES
    assert m.UNMASK not in steps(scene, "bob")
    assert m.UNMASK in steps(scene, "alice")


def test_of_two_processes_of_one_node_one_sends(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    tried: list[str] = []

    def side_by_side(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        name = scene.nodes[node]
        if name != "bob" or not messages or tried:
            return scene.answer(node, number, messages)
        opened = scene.node("bob")
        operation = opened.requests.last(scene.scope).operation
        one, two = (opened._restore(TRAIN, number, operation) for _ in range(2))
        event = Message(decode_envelope(messages[0], "aggregator"))
        sent = one.handle(event)
        with pytest.raises(LocalError):
            two.handle(event)
        assert two.resend() == ()
        tried.append(name)
        return Answer(tuple(map(encode_envelope, sent)))

    assert scene.execute(side_by_side).survivors == PARTIES
    assert tried


def test_a_store_that_is_set_back_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path, LOSING)
    state, copy = tmp_path / "bob" / "state", tmp_path / "copy"

    def set_back(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        step = decode_envelope(messages[0], "aggregator").step if messages else ""
        if scene.nodes[node] == "bob" and step == m.START:
            shutil.copytree(state, copy)
        if scene.nodes[node] == "bob" and step == m.DELIVER:
            shutil.rmtree(state)
            shutil.copytree(copy, state)
        return scene.answer(node, number, messages)

    assert scene.execute(set_back).absent == ("bob",)
    assert any("set back" in answer.note for name, answer in scene.answers if name == "bob")


def test_a_server_that_ships_another_app_finds_no_node_that_has_pinned_one(tmp_path: Path) -> None:
    Scene(tmp_path, app="a" * 64)
    path = tmp_path / "alice" / "node.toml"
    with pytest.raises(PrivacyError, match="another app"):
        Node.load(path, lambda: "b" * 64)
    assert "has pinned, aaaa" in Node.load(path, lambda: "a" * 64).trust
    path.write_text(path.read_text().replace("a" * 64, "signed"))
    assert "signed by others" in Node.load(path, no_hash).trust
    path.write_text(path.read_text().replace("signed", ""))
    assert Node.load(path, no_hash).trust == TRUSTED


def test_a_node_that_claims_anothers_name_is_not_taken_for_it(tmp_path: Path) -> None:
    """A node number means nothing: a second node that sends bob's own hello gets none of his messages."""
    scene = Scene(tmp_path)
    seen: list[int] = []
    hellos: list[Answer] = []

    def copy(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        seen.append(node)
        if node == 99:
            return hellos[0]
        answer = scene.answer(node, number, messages)
        hellos.extend([answer] if scene.nodes[node] == "bob" else [])
        return answer

    aggregation = scene.aggregation(copy)
    assert aggregation.execute([10, 11, 12, 13, 99]).survivors == PARTIES
    assert aggregation.refusals == {99: "node 99: another node is bob"}
    assert seen.count(99) == 1


def test_rounds_carry_no_other_protocol(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    members = [*load_session(scene.session).roster.members]
    write_session(scene.session, "gopa", 4, GOSSIP, members)
    with pytest.raises(ConfigError, match=r"protocol: is 'gopa' in .*: Flower needs 'secagg'"):
        SecureAverage.load(Average(str(scene.session)), "aggregator", role="aggregator")


def test_checks_have_a_kind(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(ConfigError) as raised:
        SecureAverage.load(Average(str(scene.session)), "alice", None, "aggregator")
    assert raised.value.issues[0].check == ConfigCheck.CONFLICT


def test_a_node_that_is_sent_another_result_refuses_all_later_rounds(tmp_path: Path) -> None:
    """Each message is handled by another process: result and evidence are stored."""
    scene = Scene(tmp_path, LOSING | {"total": "unchecked"})
    membership = scene.server.membership

    def two_results(scene: Scene, node: int, number: int, messages: Sequence[bytes]) -> Answer | None:
        if scene.nodes[node] == "bob":
            messages = [*map(other, messages)]
        return scene.answer(node, number, messages)

    def other(message: bytes) -> bytes:
        envelope = decode_envelope(message, "aggregator")
        if envelope.step != m.RESULT:
            return message
        total = bytearray(decode(envelope.body, m.Result, "aggregator").total)
        total[0] ^= 1
        [signed] = membership.context(1).write(
            membership.identity, envelope.run_id, m.RESULT, ("bob",), m.Result(bytes(total))
        )
        return encode_envelope(signed)

    assert scene.execute(two_results).survivors == PARTIES
    assert scene.execute().survivors == ("alice", "carol", "dave")
    assert any("names another result than it has sent" in answer.note for _, answer in scene.answers)
    evidence = msgspec.msgpack.decode(scene.node("bob").requests.last_results(scene.scope)["/refused"])
    key = membership.session.roster.keys["aggregator"]
    check_contradiction(key, evidence)
    with pytest.raises(PeerFault, match="names another result than it has sent") as caught:
        scene.node("bob").begin(TRAIN, 3, scene.task, lambda: pytest.fail("trains"))
    assert caught.value.evidence == evidence
    # Without its file the aggregator has forgotten, and the others report it.
    scene.requests.path.rename(tmp_path / "gone")
    scene.answers.clear()
    assert scene.aggregation(number=3).execute(list(scene.nodes)).survivors == ("alice", "carol", "dave")
    unnamed = {
        name for name, answer in scene.answers if "does not name the run" in answer.note and answer.warns
    }
    assert unnamed == {"alice", "carol", "dave"}
