"""An executor of shards on a cluster of Ray.

Arguments and values of shards go to the machines of the cluster, in the clear unless Ray is told to use
TLS: nothing secret may be among them. Ray repeats nothing by itself: a shard whose worker was lost is
submitted again here, which is safe since it depends on its arguments alone.
"""

from __future__ import annotations

import logging
import pickle
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from smpc_dp.errors import LocalError, printable
from smpc_dp.executors.build import build, difference
from smpc_dp.executors.shards import LostShard
from smpc_dp.optional import import_optional

__all__ = ["RayExecutor"]

T = TypeVar("T")

# How often a shard is submitted whose worker is lost each time.
TRIES = 3
# Seconds between two looks at the nodes while no shard ends, for a node's answer about its build, and for a
# connection to the cluster: Ray alone would wait for minutes.
POLL, NODE_SECONDS, CONNECT_SECONDS = 2.0, 60.0, 10.0
NO_ANSWER = "the cluster of Ray does not answer any more"


class _Value(Future[Any]):
    """Future of a call on a Ray cluster, which unpickles the value only when asked for the result."""

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call's pickled value, and return it unpickled."""
        return pickle.loads(super().result(timeout))  # noqa: S301 - the user's cluster


@dataclass
class _Shard:
    """Record of one call submitted to a Ray cluster: the pickled call, its future, and its losses."""

    call: bytes
    future: _Value = field(default_factory=_Value)
    lost: int = 0


class RayExecutor(Executor):
    """Executor that runs calls on a Ray cluster, whose nodes must all have this build of the package.

    Args:
        address: of a cluster, as `ray.init` takes it: "HOST:PORT", "ray://HOST:PORT", or "auto" for the one
            that runs on this machine. None: what this process is connected to.
        alone: whether a shard takes all processors of a node, of the largest ones.

    A shard whose worker or node is lost is repeated, three times in all; after that, or if no node is left,
    its future has a LocalError that says what was lost.

    Raises:
        LocalError: Ray is not installed, the cluster cannot be reached, or a node has another build.
    """

    def __init__(self, address: str | None = None, *, alone: bool = False) -> None:
        self._ray: Any = import_optional("ray")
        self._connected_here = not self._ray.is_initialized()
        if self._connected_here:
            self._connect(address)
        try:
            self._build = build()
            sizes = self._check_nodes()
        except BaseException:
            self._disconnect()
            raise
        self.workers = int(sum(sizes))
        # Processors that a shard takes.
        self._size = max(sizes) if alone else 1
        self._run = self._ray.remote(max_retries=0, num_cpus=self._size)(_run)
        self._shards: dict[Any, _Shard] = {}
        self._changed = threading.Condition()
        self._closed = self._cancelled = False
        self._collector = threading.Thread(target=self._collect, name="smpc-dp-ray", daemon=True)
        self._collector.start()

    def submit(self, function: Callable[..., T], /, *call: Any, **named: Any) -> Future[T]:
        """Submit a call to the Ray cluster; return a future of its value; RuntimeError after shutdown."""
        shard = _Shard(pickle.dumps((function, call, named)))
        with self._changed:
            if self._closed:
                raise RuntimeError("the executor is shut down")
            self._start(shard)
            self._changed.notify()
        return shard.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop taking calls; cancel pending ones if asked; if `wait`, wait for the rest and disconnect."""
        with self._changed:
            self._closed = True
            if cancel_futures:
                self._cancelled = True
                for reference, shard in self._shards.items():
                    self._ray.cancel(reference, force=True)
                    shard.future.cancel()
                self._shards.clear()
            self._changed.notify()
        if wait:
            self._collector.join()
            self._disconnect()

    def __exit__(self, *ended: object) -> None:
        """Shut down; what waits after an error is cancelled."""
        self.shutdown(cancel_futures=ended[0] is not None)

    def _connect(self, address: str | None) -> None:
        """Connect to a running Ray cluster at this address; LocalError if none can be reached."""
        try:
            _reach(address or "auto")
            self._ray.init(
                address=address or "auto",
                log_to_driver=False,
                logging_level=logging.ERROR,
                _skip_env_hook=True,
            )
        except (OSError, RuntimeError, ValueError) as error:
            reason = printable(str(error).partition("\n")[0])
            raise LocalError(f"no cluster of Ray can be reached at {address or 'auto'}: {reason}") from None

    def _disconnect(self) -> None:
        """Leave the Ray cluster, if this executor has connected to it."""
        if self._connected_here:
            self._ray.shutdown()

    def _nodes(self) -> dict[str, float]:
        """Return the number of processors of each live cluster node that has any, by node id."""
        return {
            node["NodeID"]: node["Resources"]["CPU"]
            for node in self._ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        }

    def _check_nodes(self) -> list[float]:
        """Return each node's number of processors; raise LocalError if none, or of another build."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = self._nodes()
        if not nodes:
            raise LocalError("the cluster of Ray has no node with a processor")
        ask = self._ray.remote(num_cpus=0, max_retries=0)(_own_build)
        answers = [
            ask.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
            for node in nodes
        ]
        for node, answer in zip(nodes, answers, strict=True):
            try:
                other = self._ray.get(answer, timeout=NODE_SECONDS)
            except self._ray.exceptions.RayTaskError:
                raise LocalError(
                    f"node {node[:8]} of the cluster has no smpc-dp, or cannot load it"
                ) from None
            except self._ray.exceptions.RayError as error:
                raise LocalError(f"node {node[:8]} of the cluster: {self._reason(error)}") from None
            if differs := difference(self._build, other):
                raise LocalError(f"node {node[:8]} of the cluster has another version: {differs}")
        return list(nodes.values())

    def _start(self, shard: _Shard) -> None:
        """Submit a call to Ray, or cancel its future if the executor is cancelled; needs the lock."""
        if self._cancelled:
            shard.future.cancel()
            return
        try:
            self._shards[self._run.remote(self._build, shard.call)] = shard
        except self._ray.exceptions.RayError as error:
            _fail(shard, LostShard(self._reason(error)))
        except (OSError, RuntimeError):
            _fail(shard, LostShard(NO_ANSWER))

    def _collect(self) -> None:
        """Take the values of calls as they end; the loop of a thread, until shutdown."""
        while True:
            with self._changed:
                while not self._shards and not self._closed:
                    self._changed.wait()
                if not self._shards:
                    return
                waiting = list(self._shards)
            try:
                ended, _ = self._ray.wait(waiting, timeout=POLL)
                is_there = bool(ended) or any(size >= self._size for size in self._nodes().values())
            except (self._ray.exceptions.RayError, OSError, RuntimeError):
                ended, is_there = [], False
            if not is_there:
                with self._changed:
                    for shard in self._shards.values():
                        _fail(shard, LostShard("no node of the cluster of Ray is left"))
                    self._shards.clear()
            for reference in ended:
                self._take(reference)

    def _take(self, reference: Any) -> None:
        """Store the value or error of an ended call in its future; submit a lost call again."""
        errors = self._ray.exceptions
        with self._changed:
            shard = self._shards.pop(reference, None)
        if shard is None:
            return
        try:
            value = self._ray.get(reference)
        except errors.RayTaskError as error:
            _fail(shard, error.cause if isinstance(error.cause, Exception) else _unknown(error))
        except errors.RayError as error:
            shard.lost += 1
            if shard.lost == TRIES:
                _fail(shard, LostShard(f"{self._reason(error)}, {TRIES} times"))
            else:
                with self._changed:
                    self._start(shard)
        except (OSError, RuntimeError):
            # Of a connection by ray://, which is not made again.
            _fail(shard, LostShard(NO_ANSWER))
        else:
            _end(shard, value)

    def _reason(self, error: Exception) -> str:
        """Return words that say why Ray could not finish a call."""
        errors = self._ray.exceptions
        for kinds, reason in (
            ((errors.OutOfMemoryError,), "a node of the cluster of Ray has run out of memory"),
            (
                (errors.ObjectStoreFullError, errors.OutOfDiskError),
                "the object store of the cluster of Ray is full",
            ),
            ((errors.ObjectLostError,), "the object store of the cluster of Ray has lost the value"),
            ((errors.GetTimeoutError,), f"no answer within {NODE_SECONDS:.0f} s"),
        ):
            if isinstance(error, kinds):
                return reason
        return "a worker of the cluster of Ray was lost: its process or its node has ended"


def _end(shard: _Shard, value: bytes) -> None:
    """Set the future of a call to its pickled value, unless the future was cancelled."""
    if shard.future.set_running_or_notify_cancel():
        shard.future.set_result(value)


def _fail(shard: _Shard, error: Exception) -> None:
    """Set the future of a call to an error, unless the future was cancelled."""
    if shard.future.set_running_or_notify_cancel():
        shard.future.set_exception(error)


def _unknown(error: Exception) -> LocalError:
    """Return the LocalError for a worker's exception that cannot be pickled."""
    last = str(error).strip().rpartition("\n")[2] or type(error).__name__
    return LostShard(f"a worker of the cluster of Ray failed: {printable(last)}")


def _reach(address: str) -> None:
    """Try to connect to HOST:PORT (for "auto" do nothing); raise OSError or ValueError if that fails."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    elif address != "auto":
        raise ValueError("it is neither HOST:PORT, ray://HOST:PORT nor auto")


def _own_build() -> dict[str, str]:
    """Return this cluster node's package versions and code hash, which must equal the caller's."""
    return build()


def _run(expected: dict[str, str], call: bytes) -> bytes:
    """Run a pickled call, and return its pickled value; LocalError if this worker has another build."""
    if differs := difference(expected, build()):
        raise LocalError(f"a worker of the cluster of Ray has another version: {differs}")
    function, arguments, named = pickle.loads(call)  # noqa: S301 - of the one who started the work
    # Pickled here: arrays that Ray gives out are read-only, and those of other executors are not.
    return pickle.dumps(function(*arguments, **named))
