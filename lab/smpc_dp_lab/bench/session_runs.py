"""Averages of a model among processes of this host: in a session of any checkout, and plain ones over TCP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import smpc_dp
import smpc_dp_lab
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp_lab.bench.control_group import ControlGroup, control_group
from smpc_dp_lab.bench.workers import together

WORKER_SECONDS = 3_600.0
_OWN = Path(smpc_dp.__file__).resolve().parents[1]
_LAB = Path(smpc_dp_lab.__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Average:
    """Measurements of one average: of aggregator, parties, and their memory (`group`, None if unknown)."""

    aggregator: dict[str, float]
    parties: list[dict[str, float]]
    group: ControlGroup | None = None

    @property
    def wall(self) -> float:
        """Seconds from the first party's request until the last one has its result."""
        return max(party["ended"] for party in self.parties) - min(party["begun"] for party in self.parties)

    def most(self, key: str) -> float:
        """Return the largest value of this measurement over all parties."""
        return max(party[key] for party in self.parties)

    def whole(self, key: str) -> float:
        """Return the sum of this measurement over aggregator and parties."""
        return self.aggregator[key] + sum(party[key] for party in self.parties)


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout of the project to measure: its folder, and its commit."""

    root: Path
    version: str

    @classmethod
    def own(cls) -> Checkout:
        """Return the checkout from which this benchmark runs."""
        return cls(_OWN, _commit(_OWN))

    @classmethod
    def at(cls, folder: str) -> Checkout:
        """Return another checkout; raise ConfigError where it is none, or its core is not compiled."""
        root = Path(folder).resolve()
        if not (root / "smpc_dp" / "__init__.py").is_file():
            raise ConfigError.at("before", f"{folder} has no package smpc_dp", ConfigCheck.MISSING)
        if not any((root / "smpc_dp").glob("_core.*")):
            reason = f"{folder}/smpc_dp has no compiled core, _core.abi3.so: build it there first"
            raise ConfigError.at("before", reason, ConfigCheck.MISSING)
        return cls(root, _commit(root))

    def average(self, parties: int, length: int) -> Average:
        """Average a model of so many values in a new session; raise LocalError where a process fails."""
        with tempfile.TemporaryDirectory(prefix="smpc-dp-") as folder:
            [created] = self._run([["create", folder, str(parties), str(length)]])
            if Path(created["root"]) != self.root:
                raise LocalError(f"smpc_dp is imported from {created['root']}, not from {self.root}")
            session = created["session"]
            calls = [["party", session, str(index), str(parties), str(length)] for index in range(parties)]
            with control_group() as group:
                aggregator, *others = self._run([["aggregator", session], *calls], group)
        return Average(aggregator, others, group)

    def _run(self, calls: Sequence[Sequence[str]], group: ControlGroup | None = None) -> list[dict[str, Any]]:
        # Without the working directory, which may have another version.
        paths = {"PYTHONPATH": os.pathsep.join((str(self.root), str(_LAB))), "PYTHONSAFEPATH": "1"}
        started: dict[str, Any] = {"env": [os.environ | paths] * len(calls)}
        if group is not None:
            started["preexec_fn"] = [group.join] * len(calls)
        printed = together("session_worker", calls, "a member", WORKER_SECONDS, **started)
        return [json.loads(output) for output in printed]


def plain_average(parties: int, length: int) -> Average:
    """Average as many values over plain sockets with numpy alone; raise LocalError where a process fails."""
    with socket.create_server(("127.0.0.1", 0), backlog=parties) as listener:
        descriptor, port = listener.fileno(), listener.getsockname()[1]
        calls = [["client", str(port), str(index), str(length)] for index in range(parties)]
        printed = together(
            "plain_worker",
            [["server", str(descriptor), str(parties), str(length)], *calls],
            "a member of a plain average",
            WORKER_SECONDS,
            pass_fds=[(descriptor,), *[()] * parties],
        )
    server, *clients = (json.loads(output) for output in printed)
    return Average(server, clients)


def _commit(root: Path) -> str:
    """Return the commit of a checkout, marked if files have changed since; without git its folder's name."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude=*"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return root.name
    return described.stdout.strip()
