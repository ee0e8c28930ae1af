"""Flower's own strategies over secure averages: real ClientApps behind a Grid in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs flwr: make test-flower")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbBagging,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
)
from flwr.supercore.task_identity import TaskIdentity

from smpc_dp import database
from smpc_dp.errors import ConfigError, LocalError
from smpc_dp.integrations.flower import Average, SecureGrid, Terms, secure_mod
from smpc_dp.integrations.flower.averages import task_of
from smpc_dp.integrations.flower.mod import app_hash, node_file, running_app_hash
from smpc_dp.integrations.flower.node import TRUSTED
from smpc_dp.integrations.flower.records import ENVELOPES, HEAD, task_parts
from smpc_dp.session.local import create_local_session
from tests.snippets import block

PARTIES = ("alice", "bob", "carol", "dave")
MODEL = {"weight": np.zeros((2, 3), np.float32), "bias": np.zeros(2)}
SESSION: dict[str, object] = {
    "length": 9,
    "lower": -8.0,
    "upper": 8.0,
    "precision": 1e-6,
    "max_weight": 100,
    "dropout": 0.25,
    "corrupt": 0.0,
    "same_survivors": False,
}
Handle = Callable[[Message, Context], Message]


class MemoryGrid(Grid):  # type: ignore[misc]
    """Calls each node's app with the bytes of a message, as a process that knows nothing of earlier ones."""

    def __init__(self, app: Handle, configs: Mapping[int, Mapping[str, str]]) -> None:
        self.app, self.configs = app, configs
        self.lose: Callable[[int, int], bool] = lambda _node, _count: False
        self.states = {node: RecordDict() for node in configs}
        self.count, self.replies = dict.fromkeys(configs, 0), []  # type: ignore[var-annotated]

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.configs)

    def send_and_receive(
        self,
        messages: Iterable[Message],
        *,
        timeout: float | None = None,  # noqa: ARG002 - Flower's
    ) -> list[Message]:
        replies = []
        for message in messages:
            node = message.metadata.dst_node_id
            self.count[node] += 1
            if self.lose(node, self.count[node]):
                continue
            context = Context(
                run_id=1, node_id=node, node_config=self.configs[node], state=self.states[node], run_config={}
            )
            replies.append(self.app(message, context))
        self.replies += replies
        return replies


def test_a_node_does_not_load_the_commands_of_flower() -> None:
    code = "import sys, smpc_dp.integrations.flower.mod; print('flwr.cli.build' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert printed.stdout == "False\n"


def values_of(party: str, model: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Return what a party makes of a model."""
    index = PARTIES.index(party)
    return {key: (value + index / 3 + 0.1).astype(value.dtype) for key, value in model.items()}


def examples_of(party: str) -> int:
    return 10 * (PARTIES.index(party) + 1)


def party_of(context: Context) -> str:
    """Return a node's party, which it knows by `node_config` alone."""
    return str(context.node_config["party"])


def train(message: Message, context: Context) -> Message:
    party = party_of(context)
    model = {key: array.numpy() for key, array in message.content["arrays"].items()}
    arrays = ArrayRecord({key: Array(np.asarray(v)) for key, v in values_of(party, model).items()})
    metrics = MetricRecord(
        {"num-examples": examples_of(party), "loss": float(PARTIES.index(party)), "secret": 4.5}
    )
    context.state["private"] = ConfigRecord({"patient": 7})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def make_app(mods: list[Any], failing: str = "") -> ClientApp:
    """Return an app that trains and evaluates, and fails at one party."""
    app = ClientApp(mods=mods)

    @app.train()  # type: ignore[untyped-decorator]
    def train_or_fail(message: Message, context: Context) -> Message:
        if party_of(context) == failing:
            raise ValueError("patient 7 has no age")
        return train(message, context)

    @app.evaluate()  # type: ignore[untyped-decorator]
    def evaluate(message: Message, context: Context) -> Message:
        party = party_of(context)
        metrics = MetricRecord({"num-examples": examples_of(party), "accuracy": PARTIES.index(party) / 4})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


class Scene:
    """Sessions, node files and grids of one test."""

    def __init__(self, folder: Path, failing: str = "") -> None:
        self.folder = folder
        train = create_local_session(folder / "train", PARTIES, SESSION)
        evaluate = create_local_session(folder / "evaluate", PARTIES, SESSION | {"length": 1})
        self.terms = Terms(
            Average(str(train), {"loss": (0.0, 10.0)}), Average(str(evaluate), {"accuracy": (0.0, 1.0)})
        )
        for party in PARTIES:
            (folder / party / "counter").mkdir(parents=True)
            (folder / party / "node.toml").write_text(
                f'party = "{party}"\nstate = "state"\ncounter = "counter"\n'
                '[train]\nsession = "../train/session.toml"\nmetrics = {loss = [0.0, 10.0]}\n'
                '[evaluate]\nsession = "../evaluate/session.toml"\nmetrics = {accuracy = [0.0, 1.0]}\n'
            )
        self.configs = {
            20 + index: {"smpc-node": str(folder / party / "node.toml"), "party": party}
            for index, party in enumerate(PARTIES)
        }
        self.grid = MemoryGrid(make_app([secure_mod], failing), self.configs)
        self.secure = SecureGrid(self.grid, self.terms)
        self.plain = MemoryGrid(make_app([]), self.configs)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here takes the power away; messages need the ids of a run."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(database, "SYNCHRONOUS", "OFF")
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


def model() -> ArrayRecord:
    return ArrayRecord({key: Array(value) for key, value in MODEL.items()})


def assert_close(result: Any, expected: Any, within: float = 2e-6) -> None:
    assert result.arrays.keys() == expected.arrays.keys()
    for key, array in expected.arrays.items():
        ours = result.arrays[key].numpy()
        assert ours.dtype == array.numpy().dtype
        np.testing.assert_allclose(ours, array.numpy(), rtol=0, atol=within)


@pytest.mark.parametrize("make", [FedAvg, FedAvgM, FedAdam, FedYogi, FedAdagrad, FedProx])
def test_strategies_run_unchanged(make: Any, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    result = scene.secure.start(make(), initial_arrays=model(), num_rounds=2)
    expected = make().start(grid=scene.plain, initial_arrays=model(), num_rounds=2)
    # Adaptive steps divide by the root of squared differences.
    assert_close(result, expected, 2e-6 if make in (FedAvg, FedAvgM, FedProx) else 1e-4)
    for round_number in (1, 2):
        ours, theirs = (one.train_metrics_clientapp[round_number] for one in (result, expected))
        assert set(ours) == {"loss"}
        assert ours["loss"] == pytest.approx(theirs["loss"], abs=1e-5)
        ours, theirs = (one.evaluate_metrics_clientapp[round_number] for one in (result, expected))
        assert dict(ours) == {"accuracy": pytest.approx(theirs["accuracy"], abs=1e-6)}
    assert [(one.kind, one.error, one.lost) for one in scene.secure.rounds] == [
        ("train", "", ()),
        ("evaluate", "", ()),
    ] * 2
    assert all(one.trust.startswith(TRUSTED) for one in scene.secure.rounds)


def test_replies_have_nothing_but_envelopes(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.secure.start(FedAvg(), initial_arrays=model(), num_rounds=1)
    assert scene.grid.replies
    for reply in scene.grid.replies:
        assert set(reply.content) == {HEAD, ENVELOPES}
        assert dict(reply.content[HEAD]) == {"trust": TRUSTED}
    # What the app itself has written to its state; no handle, no secret.
    assert [set(state) for state in scene.grid.states.values()] == [{"private"}] * 4


def test_one_node_lost_in_the_middle_of_a_round(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.grid.lose = lambda node, count: node == 21 and count > 4
    result = scene.secure.start(FedAvg(fraction_evaluate=0.0), initial_arrays=model(), num_rounds=2)
    plain = MemoryGrid(make_app([]), {node: c for node, c in scene.configs.items() if node != 21})
    expected = FedAvg(fraction_evaluate=0.0).start(grid=plain, initial_arrays=model(), num_rounds=2)
    assert_close(result, expected)
    assert [one.lost for one in scene.secure.rounds] == [("bob",)] * 2
    assert [[*one.lost_nodes] for one in scene.secure.rounds] == [[21], [21]]
    assert all(one.tolerated.startswith("tolerates 1 lost") for one in scene.secure.rounds)


def test_a_round_that_stops_is_an_error_with_names(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.grid.lose = lambda node, count: node in (21, 22) and count > 3
    result = scene.secure.start(FedAvg(fraction_evaluate=0.0), initial_arrays=model(), num_rounds=1)
    [stopped] = scene.secure.rounds
    assert not result.arrays
    assert stopped.result is None
    assert "bob" in stopped.error
    assert "carol" in stopped.error


@pytest.mark.parametrize(
    "strategy",
    [
        FedMedian(),
        FedTrimmedAvg(),
        Krum(),
        MultiKrum(),
        Bulyan(),
        QFedAvg(client_learning_rate=0.1, q=0.1),
        FedXgbBagging(),
        DifferentialPrivacyServerSideFixedClipping(FedAvg(), 0.1, 1.0, 4),
        type("FedUnknown", (FedAvg,), {})(),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_strategies_that_need_single_replies_are_refused_by_name(strategy: Any, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(ConfigError, match=type(strategy).__name__):
        scene.secure.start(strategy, initial_arrays=model(), num_rounds=1)
    assert not scene.grid.replies


def test_a_strategy_that_is_not_started_by_the_grid_is_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with pytest.raises(ConfigError, match=r"SecureGrid\.start"):
        FedMedian().start(grid=scene.secure, initial_arrays=model(), num_rounds=1)
    assert not scene.grid.replies


def test_samples_and_single_replies_are_refused(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for strategy in (FedAvg(fraction_train=0.5), FedAvg(fraction_evaluate=0.5)):
        with pytest.raises(ConfigError, match="surrounds"):
            scene.secure.start(strategy, initial_arrays=model(), num_rounds=1)
    with pytest.raises(ConfigError, match="train_metrics_aggr_fn"):
        scene.secure.start(
            FedAvg(train_metrics_aggr_fn=lambda _records, _key: MetricRecord()),
            initial_arrays=model(),
            num_rounds=1,
        )
    for call in (scene.secure.push_messages, scene.secure.pull_messages):
        with pytest.raises(ConfigError, match="only averages"):
            call([])
    assert not scene.grid.replies


CLIENT = """\
from flwr.clientapp import ClientApp
app = ClientApp()
app.train()(train)
"""
SERVER = """\
def main(strategy, grid, arrays):
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=2,
    )
    return result
"""


def patched(text: str, diff: list[str]) -> str:
    """Return a text with lines of a diff: an import at its top, or some lines in the place of others."""
    removed = "".join(f"{line[1:]}\n" for line in diff if line[0] == "-")
    added = "".join(f"{line[1:]}\n" for line in diff if line[0] == "+" and "import" not in line)
    imports = "".join(f"{line[1:]}\n" for line in diff if line[0] == "+" and "import" in line)
    assert text.count(removed) == 1
    return imports + text.replace(removed, added)


def test_five_lines_of_the_guide_make_the_averages_of_an_app_secure(tmp_path: Path) -> None:
    """An app whose lines are those of Flower's quickstart."""
    diff = block("docs/guides/integrations.md", "diff", "secure_mod")
    assert sum(line.startswith("+") for line in diff.splitlines()) == 5
    client_diff, server_diff = (
        part.splitlines()[1:] for part in diff.split(" # ")[1:] if "_app.py" in part.splitlines()[0]
    )
    scene = Scene(tmp_path)
    path = create_local_session(tmp_path / "plain", PARTIES, SESSION | {"length": 8})
    for party in PARTIES:
        (tmp_path / party / "node.toml").write_text(
            f'party = "{party}"\nstate = "state"\ncounter = "counter"\n[train]\nsession = "{path}"\n'
        )
    models = {}
    for name, changed in (("plain", False), ("secure", True)):
        client = patched(CLIENT, client_diff) if changed else CLIENT
        server = patched(SERVER, server_diff) if changed else SERVER
        variables: dict[str, Any] = {"train": train}
        exec(client, variables)  # noqa: S102 - the guide's own lines
        exec(server.replace("/etc/smpc/session.toml", str(path)), variables)  # noqa: S102
        grid = MemoryGrid(variables["app"], scene.configs)
        models[name] = variables["main"](FedAvg(fraction_evaluate=0.0), grid, model())
        private = {HEAD, ENVELOPES}
        assert all((set(reply.content) <= private) == changed for reply in grid.replies)
    assert_close(models["secure"], models["plain"])


# What the mod answers to others than `SecureGrid`


def ask(scene: Scene, content: RecordDict, kind: str = "train", node: int = 20) -> Message:
    [reply] = scene.grid.send_and_receive([Message(content, dst_node_id=node, message_type=kind)])
    return reply


def test_the_mod_answers_a_plain_server_with_a_code(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    plain = RecordDict({"arrays": model(), "config": ConfigRecord({})})
    for kind in ("train", "evaluate"):
        assert ask(scene, plain, kind).error == Error(6, "fault")
    numbered = RecordDict({**plain, HEAD: ConfigRecord({"request": "1"}), ENVELOPES: ArrayRecord()})
    assert ask(scene, numbered).error == Error(6, "fault")
    named = RecordDict({HEAD: ConfigRecord({"request": 1}), ENVELOPES: model()})
    assert ask(scene, named).error == Error(6, "fault")


def test_an_error_of_the_app_stays_on_the_node(tmp_path: Path) -> None:
    scene = Scene(tmp_path, failing="bob")
    scene.secure.start(FedAvg(fraction_evaluate=0.0), initial_arrays=model(), num_rounds=1)
    [done] = scene.secure.rounds
    assert done.lost == ("bob",)
    errors = [reply.error for reply in scene.grid.replies if reply.has_error()]
    assert errors == [Error(6, "own")]


def test_an_error_without_a_text_stays_on_the_node(tmp_path: Path) -> None:
    """What an error raises when it is turned into a text would be sent to the server."""

    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise ValueError("patient 7")

    def fail(_message: Message, _context: Context) -> Message:
        raise UnprintableError

    scene = Scene(tmp_path)
    scene.grid.app = lambda message, context: secure_mod(message, context, fail)
    request = RecordDict({HEAD: ConfigRecord({"request": 1}), ENVELOPES: ArrayRecord(), "arrays": model()})
    assert ask(scene, request).error == Error(6, "own")


def test_all_that_an_app_may_look_at_is_in_the_task() -> None:
    """Apps take arrays by position: a server that swaps two of the same shape sends another model."""

    def task(content: RecordDict, group: str = "", config: Mapping[str, Any] | None = None) -> str:
        message = Message(content, dst_node_id=20, message_type="train", group_id=group)
        return task_of("train", task_parts(message, config or {}))

    one, two = Array(np.zeros(2)), Array(np.ones(2))
    arrays, swapped = ArrayRecord({"0": one, "1": two}), ArrayRecord({"1": two, "0": one})
    config = ConfigRecord({"rate": 1})
    tasks = [
        task(RecordDict({"arrays": arrays, "config": config})),
        task(RecordDict({"arrays": swapped, "config": config})),
        task(RecordDict({"config": config, "arrays": arrays})),
        task(RecordDict({"arrays": arrays, "config": ConfigRecord({"rate": 1.0})})),
        task(RecordDict({"arrays": arrays, "config": config}), group="2"),
        task(RecordDict({"arrays": arrays, "config": config}), config={"steps": 1}),
    ]
    assert len(set(tasks)) == len(tasks)
    # The order of a run's configuration is not kept on its way.
    orders = [{"a": 1, "b": 2}, {"b": 2, "a": 1}]
    assert len({task(RecordDict({"arrays": arrays}), config=order) for order in orders}) == 1


def test_a_node_without_a_file_answers_a_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    scene.configs[20].pop("smpc-node")
    request = RecordDict({HEAD: ConfigRecord({"request": 1}), ENVELOPES: ArrayRecord(), "arrays": model()})
    assert ask(scene, request).error == Error(6, "own")
    monkeypatch.setenv("SMPC_DP_NODE", str(tmp_path / "{partition-id}.toml"))
    assert node_file({"partition-id": 3}) == tmp_path / "3.toml"
    assert node_file({"smpc-node": "/n.toml", "partition-id": 3}) == Path("/n.toml")


@pytest.fixture
def app_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an app that Flower has put on the path to load it."""
    app = tmp_path / "app"
    app.mkdir()
    (app / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1.0.0"\ndescription = ""\nlicense = {file = "LICENSE"}\n'
        'dependencies = ["flwr>=1.41"]\n[tool.flwr.app]\npublisher = "p"\n'
        '[tool.flwr.app.components]\nserverapp = "a:s"\nclientapp = "a:c"\n'
    )
    (app / "LICENSE").write_text("none")
    (app / "a.py").write_text("s = c = 1\n")
    monkeypatch.syspath_prepend(app)
    return app


def test_an_app_that_a_node_has_pinned_runs_and_another_one_does_not(
    app_folder: Path, tmp_path: Path
) -> None:
    scene = Scene(tmp_path / "scene")
    pinned = app_hash(app_folder)
    for party in PARTIES:
        path = scene.folder / party / "node.toml"
        path.write_text(f'app = "{pinned}"\n{path.read_text()}')
    strategy = FedAvg(fraction_evaluate=0.0)
    scene.secure.start(strategy, initial_arrays=model(), num_rounds=1)
    assert scene.secure.rounds[0].trust.count(f"pinned, {pinned[:16]}") == 4
    (app_folder / "a.py").write_text("s = c = 2\n")
    scene.grid.replies.clear()
    scene.secure.start(strategy, initial_arrays=model(), num_rounds=1)
    assert scene.secure.rounds[1].result is None
    assert [reply.error for reply in scene.grid.replies] == [Error(6, "own")] * 4


def test_which_of_two_apps_runs_is_not_guessed(
    app_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert running_app_hash() == app_hash(app_folder)
    shutil.copytree(app_folder, tmp_path / "other")
    monkeypatch.syspath_prepend(tmp_path / "other")
    with pytest.raises(LocalError, match="2 folders"):
        running_app_hash()
