"""Benchmark of channels over HTTPS: the same secure sum at `wss://` and at `host:port`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from smpc_dp.identity.roster import Member
from smpc_dp.session.local import create_local_session, free_port
from smpc_dp.session.session_file import Timeouts, load_session, write_session
from smpc_dp_lab.bench.figures import (
    Peer,
    Progress,
    Report,
    Steps,
    Target,
    alternate,
    cost,
    refuse,
    versions,
    within,
)
from smpc_dp_lab.bench.workers import together

PARTIES, LENGTH = 10, 1_000_000
# The most processor time beside that of `host:port`.
AT_MOST = 1.5
SECONDS = 900.0
# How the aggregator is reached: over TCP, by HTTPS that it ends itself, by plain HTTP behind what ends TLS.
WAYS = ("host:port", "wss", "wss behind a balancer")


def run_wss_bench(
    runs: int = 3,
    progress: Progress | None = None,
    *,
    parties: int = PARTIES,
    length: int = LENGTH,
) -> Report:
    """Measure the processor time of all members of a sum, and of the aggregator's side of the outer TLS.

    Raises:
        ConfigError: a number is out of range.
        LocalError: a run failed.
    """
    refuse(within("runs", runs, 1), within("parties", parties, 3, 100), within("length", length, 1))
    with tempfile.TemporaryDirectory() as folder:
        sessions = {
            way: _session(Path(folder) / str(number), way, parties, length) for number, way in enumerate(WAYS)
        }

        def seconds(way: str) -> float:
            """Return the processor time of a sum, once all are connected."""
            (output,) = together("wss_worker", [[str(sessions[way]), way]], f"a sum at {way}", SECONDS)
            taken: dict[str, Any] = json.loads(output)
            return float(taken["seconds"])

        measures = {way: lambda way=way: seconds(way) for way in WAYS}
        taken = alternate(runs, measures, Steps(progress, "sums", runs))
    name = f"sum of {parties} parties, {length:,} elements"
    peer = Peer.of("the same at host:port", version("smpc-dp"), taken[WAYS[0]])
    target = Target("ratio_to_peer", 1 / AT_MOST)
    note = "processor time of all members in one process"
    return Report(
        "wss",
        [
            cost(f"{name}: {WAYS[0]}", "s", taken[WAYS[0]], note),
            cost(
                f"{name}: {WAYS[1]}",
                "s",
                taken[WAYS[1]],
                f"{note}, both ends of the outer TLS included",
                peer=peer,
                target=target,
            ),
            cost(
                f"{name}: {WAYS[2]}",
                "s",
                taken[WAYS[2]],
                f"{note}, and of the relay that ends TLS",
                peer=peer,
            ),
        ],
        versions("websockets", "uvicorn", "starlette"),
        {"runs": runs, "parties": parties, "length": length},
    )


def _session(folder: Path, way: str, parties: int, length: int) -> Path:
    """Create the session of a way, and return its file."""
    names = [f"party{number}" for number in range(parties)]
    parameters = {
        "length": length,
        "lower": 0.0,
        "upper": 1.0,
        "precision": 1e-3,
        "dropout": 0.0,
        "corrupt": 0.0,
    }
    file = create_local_session(folder, names, parameters, timeouts=Timeouts(connect=120.0, step=300.0))
    if way == WAYS[0]:
        return file
    loaded = load_session(file)
    members: Sequence[Member] = [
        _at(member, f"wss://localhost:{free_port()}/smpc") if member.role == "aggregator" else member
        for member in loaded.roster
    ]
    write_session(file, loaded.protocol, loaded.version, loaded.parameters, members, loaded.timeouts)
    return file


def _at(member: Member, address: str) -> Member:
    """Return a member at another address."""
    return Member(
        member.name, member.role, address, member.public_key, member.certificate, member.checkpoint_key
    )
