"""What a cluster of Ray loses becomes an error that says so, shown with a stand-in for Ray."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from smpc_dp.errors import LocalError
from smpc_dp.executors import ray as module
from smpc_dp.executors.build import build
from smpc_dp.executors.ray import TRIES, RayExecutor
from smpc_dp.executors.shards import run_shards


class RayError(Exception):
    pass


KINDS: dict[str, type[RayError]] = {
    name: type(name, (RayError,), {})
    for name in (
        "GetTimeoutError",
        "NodeDiedError",
        "ObjectLostError",
        "ObjectStoreFullError",
        "OutOfDiskError",
        "OutOfMemoryError",
        "RayTaskError",
        "WorkerCrashedError",
    )
}


class Ray:
    """Runs a task when its value is asked for; `fail` says what is raised in its place."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=RayError, **KINDS)
        self.fail: Callable[[], Exception | None] = lambda: None
        self.refused: Exception | None = None
        self.alive = True
        self.stuck = False
        self.processors = 2.0
        self.asked = 0

    def is_initialized(self) -> bool:
        return True

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda function: SimpleNamespace(remote=lambda *call: self._start(function, call))

    def _start(self, function: Any, call: Any) -> Any:
        if self.refused is not None:
            raise self.refused
        return lambda: function(*call)

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        del timeout
        return ([], references) if self.stuck else (references[:1], references[1:])

    def get(self, reference: Any) -> Any:
        self.asked += 1
        if (error := self.fail()) is not None:
            raise error
        return reference()

    def nodes(self) -> list[dict[str, Any]]:
        return [{"NodeID": "1" * 8, "Alive": self.alive, "Resources": {"CPU": self.processors}}]

    def cancel(self, _reference: Any, *, force: bool) -> None:
        pass


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    made = Ray()
    monkeypatch.setattr(module, "import_optional", lambda _: made)
    monkeypatch.setattr(RayExecutor, "_check_nodes", lambda self: [*self._nodes().values()])
    return made


@pytest.fixture
def executor(ray: Ray) -> Iterator[RayExecutor]:
    with RayExecutor() as made:
        yield made


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("WorkerCrashedError", "a worker of the cluster of Ray was lost: its process or its node has ended"),
        ("NodeDiedError", "a worker of the cluster of Ray was lost: its process or its node has ended"),
        ("ObjectLostError", "the object store of the cluster of Ray has lost the value"),
        ("ObjectStoreFullError", "the object store of the cluster of Ray is full"),
        ("OutOfDiskError", "the object store of the cluster of Ray is full"),
        ("OutOfMemoryError", "a node of the cluster of Ray has run out of memory"),
    ],
)
def test_what_is_lost_each_time_is_told_with_the_shard(
    ray: Ray, executor: RayExecutor, kind: str, text: str
) -> None:
    ray.fail = lambda: KINDS[kind]("lost")
    with pytest.raises(LocalError, match=rf"^pair 1: {text}, {TRIES} times$"):
        list(run_shards(executor, abs, [(-1,)], "pair"))
    assert ray.asked == TRIES


def test_what_is_lost_once_is_computed_again(ray: Ray, executor: RayExecutor) -> None:
    errors = [KINDS["ObjectLostError"]("lost"), KINDS["OutOfMemoryError"]("full")]
    ray.fail = lambda: errors.pop() if errors else None
    assert list(run_shards(executor, abs, [(-1,), (-2,)], "number")) == [1, 2]


def test_arguments_that_the_object_store_has_no_room_for(ray: Ray, executor: RayExecutor) -> None:
    ray.refused = KINDS["ObjectStoreFullError"]("full")
    with pytest.raises(LocalError, match=r"^number 1: the object store of the cluster of Ray is full$"):
        list(run_shards(executor, abs, [(-1,)], "number"))


def test_no_node_is_left(ray: Ray, executor: RayExecutor) -> None:
    ray.stuck, ray.alive = True, False
    with pytest.raises(LocalError, match=r"^number 1: no node of the cluster of Ray is left$"):
        list(run_shards(executor, abs, [(-1,)], "number"))


def test_no_node_is_left_that_is_large_enough(ray: Ray) -> None:
    with RayExecutor(alone=True) as executor:
        ray.stuck, ray.processors = True, 1.0
        with pytest.raises(LocalError, match=r"^number 1: no node of the cluster of Ray is left$"):
            list(run_shards(executor, abs, [(-1,)], "number"))


def test_a_worker_of_another_version_computes_nothing(
    executor: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = build()
    monkeypatch.setattr(module, "build", lambda: own | {"numpy": "1.0"})
    with pytest.raises(LocalError, match=r"another version: numpy 1\.0, and [0-9.]+ here"):
        module._run(own, b"what is no pickle")


def test_what_was_cancelled_does_not_stop_the_others(ray: Ray, executor: RayExecutor) -> None:
    ray.stuck = True
    futures = [executor.submit(abs, -number) for number in range(3)]
    assert futures[0].cancel()
    ray.stuck = False
    assert [future.result(timeout=60) for future in futures[1:]] == [1, 2]


class Unreadable:
    """Its pickle is refused where it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("no number",)


def test_a_value_that_cannot_be_read_is_the_error_of_its_shard(executor: RayExecutor) -> None:
    with pytest.raises(ValueError, match="no number"):
        executor.submit(Unreadable).result(timeout=60)
    assert executor.submit(abs, -1).result(timeout=60) == 1


def test_an_error_that_is_a_value_is_no_failure(executor: RayExecutor) -> None:
    assert str(executor.submit(LocalError, "a value").result(timeout=60)) == "a value"


@pytest.mark.parametrize("error", [ConnectionError("lost"), RuntimeError("no client")])
def test_a_connection_that_is_lost_is_told(ray: Ray, executor: RayExecutor, error: Exception) -> None:
    ray.fail = lambda: error
    with pytest.raises(LocalError, match=r"^number 1: the cluster of Ray does not answer any more$"):
        list(run_shards(executor, abs, [(-1,)], "number"))
    ray.refused = error
    with pytest.raises(LocalError, match=r"^number 1: the cluster of Ray does not answer any more$"):
        list(run_shards(executor, abs, [(-1,)], "number"))


def test_an_error_of_a_worker_without_a_text_is_named(ray: Ray, executor: RayExecutor) -> None:
    error = KINDS["RayTaskError"]("")
    error.cause = None  # type: ignore[attr-defined]
    ray.fail = lambda: error
    with pytest.raises(LocalError, match=r"^number 1: a worker of the cluster of Ray failed: RayTaskError$"):
        list(run_shards(executor, abs, [(-1,)], "number"))


def test_what_is_lost_while_all_is_cancelled_is_not_computed_again(ray: Ray) -> None:
    executor = RayExecutor()
    asked, cancelled = threading.Event(), threading.Event()

    def lose() -> Exception:
        asked.set()
        assert cancelled.wait(60)
        return KINDS["WorkerCrashedError"]("lost")

    ray.fail = lose
    future = executor.submit(abs, -1)
    assert asked.wait(60)
    executor.shutdown(wait=False, cancel_futures=True)
    cancelled.set()
    executor.shutdown()
    assert future.cancelled()
    assert ray.asked == 1


def test_without_ray_the_extra_is_named() -> None:
    if importlib.util.find_spec("ray") is None:
        with pytest.raises(LocalError, match=r"smpc-dp\[ray\]"):
            RayExecutor("auto")
