"""Benchmark of channels over HTTPS: the same secure sum at `wss://` and at `host:port`."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from smpc_dp.identity.roster import Member
from smpc_dp.session.local import create_local_session, free_port
from smpc_dp.session.session_file import Timeouts, load_session, write_session
from smpc_dp_lab.bench.figures import Progress, Report, Steps, refuse, versions, within
from smpc_dp_lab.bench.ways import Way, compare_ways, measured_seconds

PARTIES, LENGTH = 10, 1_000_000
# The most processor time beside that of `host:port`.
AT_MOST = 1.5
_NOTE = "processor time of all members in one process"
PLAIN, OWN, BEHIND = "host:port", "wss", "wss behind a balancer"
# How the aggregator is reached: over TCP, by HTTPS that it ends itself, by plain HTTP behind what ends TLS.
WAYS = {
    PLAIN: Way(PLAIN, _NOTE),
    OWN: Way(OWN, f"{_NOTE}, both ends of the outer TLS included", AT_MOST),
    BEHIND: Way(BEHIND, f"{_NOTE}, and of the relay that ends TLS"),
}


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
            return measured_seconds("wss_worker", [str(sessions[way]), way], f"a sum at {way}")

        name, steps = f"sum of {parties} parties, {length:,} elements", Steps(progress, "sums", runs)
        figures = compare_ways(name, "the same at host:port", WAYS, seconds, runs, steps)
    known = versions("websockets", "uvicorn", "starlette")
    return Report("wss", figures, known, {"runs": runs, "parties": parties, "length": length})


def _session(folder: Path, way: str, parties: int, length: int) -> Path:
    """Create a session that connects in this way (plain or over HTTPS); return its file."""
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
    if way == PLAIN:
        return file
    loaded = load_session(file)
    members: Sequence[Member] = [
        _at(member, f"wss://localhost:{free_port()}/smpc") if member.role == "aggregator" else member
        for member in loaded.roster
    ]
    write_session(file, loaded.protocol, loaded.version, loaded.parameters, members, loaded.timeouts)
    return file


def _at(member: Member, address: str) -> Member:
    """Return a copy of a roster member with another address."""
    return Member(
        member.name, member.role, address, member.public_key, member.certificate, member.checkpoint_key
    )
