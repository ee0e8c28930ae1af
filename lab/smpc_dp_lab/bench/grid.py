"""`smpc-dp bench session --grid`: one round of `SecureGrid` by part.

The server and all nodes are one process, behind a grid in memory: Flower's connections are not in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import smpc_dp
import smpc_dp_lab
from smpc_dp.errors import ConfigCheck, ConfigError, LocalError
from smpc_dp.secagg.params import check_parameters
from smpc_dp_lab.bench.figures import (
    Figure,
    Limit,
    Progress,
    Report,
    Steps,
    cost,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.grid_worker import MAX_WEIGHT, NODE, SERVER, grid_parameters
from smpc_dp_lab.bench.parts import REST
from smpc_dp_lab.bench.session_limit import aggregator_work, limit_parts, party_work
from smpc_dp_lab.bench.session_worker import PRECISION

# Parties and values.
SIZES = ((10, 1_000_000), (50, 1_000_000), (10, 10_000_000))
# A part with a smaller share of its member's time is not named.
SHARE = 0.05
# A part that held fewer models at once made no copy.
COPY = 0.5
# Of a round whose memory is traced: what a node holds at once is the same with more.
TRACED_PARTIES = 3
SECONDS = 7_200.0
HOW = "one process, a grid in memory, FedAvg; float32 in [-1, 1], secret weights; models are not drawn in it"
_IMPORTS = (
    "import json, time, flwr.clientapp; begun = time.process_time(); import smpc_dp.integrations.flower.mod; "
    "print(json.dumps(time.process_time() - begun))"
)
_PATHS = [str(Path(package.__path__[0]).resolve().parent) for package in (smpc_dp, smpc_dp_lab)]


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took: seconds of each part, and the bytes that each held at once, by member."""

    seconds: Mapping[str, Mapping[str, float]]
    copied: Mapping[str, Mapping[str, float]]
    wall: float
    error: float

    def whole(self, member: str) -> float:
        """Return the seconds of all parts of a member's work, added up."""
        return sum(self.seconds[member].values())

    def share(self, member: str, part: str) -> float:
        """Return which fraction of a member's time one part of its work takes."""
        return self.seconds[member].get(part, 0.0) / self.whole(member)


def run_grid_bench(
    sizes: Sequence[tuple[int, int]] = SIZES,
    runs: int = 1,
    progress: Progress | None = None,
    *,
    peer_python: str | None = None,
) -> Report:
    """Measure a round of `SecureGrid` of models of `sizes`, parties and values, by part.

    `peer_python`: an interpreter with `flwr` and this package's dependencies; None: our own.

    Raises:
        ConfigError: a number is out of range, or the interpreter has no `flwr`.
        LocalError: a round failed.
    """
    for parties, length in sizes:
        refuse(within("parties", parties, 3, 1_000), within("length", length, 1, 1 << 26))
    refuse(within("runs", runs, 1))
    python, step = peer_python or sys.executable, Steps(progress, "rounds", runs * len(sizes))
    figures: list[Figure] = []
    flower: str | None = None
    for parties, length in sizes:
        rounds = []
        for _ in range(runs):
            timed = _worker(python, parties, length)
            traced = _worker(python, TRACED_PARTIES, length, "memory")
            flower = timed["version"]
            rounds.append(Round(timed["seconds"], traced["copied"], timed["wall"], timed["error"]))
            step()
        figures += _figures(rounds, parties, length)
    imports = [float(_output([python, "-c", _IMPORTS])) for _ in range(runs)]
    note = "processor time of loading secure_mod in the process of a message, beyond flwr.clientapp"
    return Report(
        "grid",
        [*figures, cost("node, imports", "s", imports, note)],
        versions("numpy", "cryptography", flwr=flower),
        {"runs": runs, "precision": PRECISION, "max_weight": MAX_WEIGHT, "share": SHARE},
    )


def _figures(rounds: Sequence[Round], parties: int, length: int) -> list[Figure]:
    """Return the figures of a size: of each member its time, and the parts above SHARE."""
    size = f"{parties} parties, {length:,} values"
    parameters, issues = check_parameters(grid_parameters(length), parties)
    if parameters is None:
        raise LocalError(f"the session of the benchmark: {issues[0]}")
    works = {NODE: party_work(parameters), SERVER: aggregator_work(parameters)}
    figures = [
        cost(
            f"wall time: {size}",
            "s",
            [one.wall for one in rounds],
            f"{HOW}; nodes one after the other, so that it grows with their number",
        ),
        cost(f"largest difference: {size}", "", [one.error for one in rounds], "to the plain average"),
    ]
    for member, work in works.items():
        count = parties if member == NODE else 1
        parts = limit_parts(parameters, work)
        whole = [one.whole(member) / count for one in rounds]
        mean = "mean of the nodes; " if member == NODE else ""
        limit = Limit(f"as of a session: {', '.join(parts)}; each alone", sum(parts.values()))
        figures.append(
            cost(f"{member}, processor time: {size}", "s", whole, f"{mean}{HOW}", limit=limit),
        )
        shares = {part: [one.share(member, part) for one in rounds] for part in rounds[0].seconds[member]}
        named = sorted(
            (part for part, values in shares.items() if median(values) >= SHARE),
            key=lambda part: -median(shares[part]),
        )
        note = f"of the member's processor time; parts below {SHARE:.0%} are not named"
        figures += [
            cost(f"{member}, {part}: {size}", "%", [100 * value for value in shares[part]], note)
            for part in named
        ]
        figures += _copies(rounds, size, member, length)
    return figures


def _copies(rounds: Sequence[Round], size: str, member: str, length: int) -> list[Figure]:
    """Return, by part of a member, models held at once, where the median is at least COPY."""
    model = 4 * length
    note = f"models as float32 that a call held at once, made since it began; {TRACED_PARTIES} parties"
    held = {
        part: [one.copied[member].get(part, 0.0) / model for one in rounds]
        for part in rounds[0].copied[member]
    }
    return [
        cost(f"{member}, copies in {part}: {size}", "", values, note)
        for part, values in held.items()
        # Under the rest is all that a round keeps.
        if part != REST and median(values) >= COPY
    ]


def _worker(python: str, parties: int, length: int, *way: str) -> dict[str, Any]:
    """Return what a round printed; raise ConfigError if there is no Flower."""
    call = [python, "-m", "smpc_dp_lab.bench.grid_worker", str(parties), str(length), *way]
    printed: dict[str, Any] = json.loads(_output(call))
    if "absent" in printed:
        reason = f"{python}: cannot import flwr ({printed['absent']})"
        raise ConfigError.at("peer_python", reason, ConfigCheck.MISSING)
    return printed


def _output(call: Sequence[str]) -> bytes:
    """Run a command, and return what it prints on stdout; raise LocalError if it fails."""
    paths = {"PYTHONPATH": os.pathsep.join(_PATHS), "PYTHONSAFEPATH": "1"}
    try:
        ended = subprocess.run(call, env=os.environ | paths, capture_output=True, check=True, timeout=SECONDS)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise LocalError(f"a round of SecureGrid failed: {lines[-1]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalError(f"{call[0]}: {error}") from None
    return ended.stdout
