"""The peers of benchmarks, each in a process of its own.

A peer may pin other versions of our dependencies, so it may live in another environment: `python` is any
interpreter that can import it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from smpc_dp.errors import LocalError


class PeerProcess:
    """Client of a worker that measures CPU times, a context manager; `version` is None without the peer."""

    name: ClassVar[str]
    worker: ClassVar[str]
    """The script beside this file that the peer's interpreter runs."""
    # -P: the worker's folder is ours and must not be where Flower's imports are looked up.
    flags: ClassVar[tuple[str, ...]] = ("-P",)

    def __init__(self, python: str | None = None, *arguments: str) -> None:
        """Start the worker, with arguments, under `python`, or under the interpreter that runs us.

        Raises:
            LocalError: `python` cannot be run or does not answer as a worker.
        """
        self._python = python or sys.executable
        try:
            self._process = subprocess.Popen(
                [self._python, *self.flags, str(Path(__file__).with_name(self.worker)), *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError as error:
            raise LocalError(f"{self._python}: cannot be run ({error.strerror})") from None
        greeting = self._read()
        version = greeting.get("version")
        self.version: str | None = version if isinstance(version, str) else None

    def seconds(self, task: str, **request: int | bool) -> float | None:
        """Return the CPU seconds of one task of the worker, or None where the peer is absent."""
        answer = self.answer(task, **request)
        if answer is None:
            return None
        seconds = answer.get("seconds")
        if not isinstance(seconds, float):
            raise LocalError(f"{self._python}: the worker of {self.name} gave no time for '{task}'")
        return seconds

    def answer(self, task: str, **request: float | bool) -> dict[str, object] | None:
        """Return the worker's JSON answer to one task; None if the peer is not installed."""
        if self.version is None or self._process.stdin is None:
            return None
        self._process.stdin.write(json.dumps({"task": task, **request}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, object]:
        line = self._process.stdout.readline() if self._process.stdout is not None else ""
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            self.close()
            raise LocalError(f"{self._python}: the worker of {self.name} ended without an answer")
        return answer

    def close(self) -> None:
        """Close the worker's pipes, and wait for its end; kill it after five seconds."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class FlowerPeer(PeerProcess):
    """Worker process that times Flower's SecAgg+ functions; absent without `flwr`."""

    name = "flwr secaggplus functions"
    worker = "flower_worker.py"


class OpenDpPeer(PeerProcess):
    """Worker process that times OpenDP's integer samplers; absent without `opendp`."""

    name = "opendp vector sampler"
    worker = "opendp_worker.py"

    def noise(
        self, l1: float, l2: float, epsilon: float, delta: float, length: int, count: int
    ) -> NDArray[np.int64] | None:
        """Return `count` noise vectors of OpenDP's best mechanism, at its least scale; None if absent.

        `l1`, `l2`: the sensitivity of integer vectors. None where the peer is absent.
        """
        given = {"l1": l1, "l2": l2, "epsilon": epsilon, "delta": delta}
        answer = self.answer("noise", **given, length=length, count=count)
        if answer is None:
            return None
        return np.array(answer["noise"], dtype=np.int64).reshape(count, length)


class GostaPeer(PeerProcess):
    """The authors' code of GoSta in a given folder, run by a Python with numpy below 1.23."""

    name = "the authors' gosta"
    worker = "gosta_worker.py"
    # As -P, which Pythons with such a numpy do not know.
    flags = ("-I",)

    def __init__(self, folder: str | None, python: str | None = None) -> None:
        """Start the worker on `folder`; None: the peer is absent. Raises LocalError as `PeerProcess` does."""
        super().__init__(python if folder is not None else None, str(Path(folder or "").resolve()))
