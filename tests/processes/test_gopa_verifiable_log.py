"""The log of a verifiable run over the session's channels: what parties see is what they signed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.engine.events import Deadline, Event
from smpc_dp.engine.state import State
from smpc_dp.errors import ConfigError, LocalError, PeerFault, TimeoutFault
from smpc_dp.logs import board
from smpc_dp.logs.log_messages import FETCH
from smpc_dp.session import aggregator
from smpc_dp.session.awaited import Awaited
from smpc_dp.session.connection_pool import InboundEvent
from smpc_dp.session.deadline import StepTimer
from smpc_dp.session.driver import Drive
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session import Session
from smpc_dp.session.session_file import Timeouts
from smpc_dp.session.session_state import SessionState
from smpc_dp.wire.envelope import Envelope

NAMES = ("alice", "bob", "carol", "dave")


BALL = {"l2_bound": 5.0}
BOX = {"lower": [0.0, 1.0], "upper": [3.0, 5.0]}


async def with_sessions(
    folder: Path, then: Callable[[list[Session]], Awaitable[None]], bounds: dict[str, Any] = BALL
) -> None:
    """Average once within bounds, in real time over real channels, then do something with the sessions."""
    parameters = {
        **bounds,
        "length": 2,
        "precision": 1.0,
        "epsilon": 8.0,
        "delta": 1e-3,
        "corrupt": 0.0,
        "verifiable": True,
    }
    path = create_local_session(folder, list(NAMES), parameters, protocol="gopa")
    serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
    async with contextlib.AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(smpc_dp.connect(path, name)) for name in NAMES]
        with pytest.raises(LocalError, match="there is no log"):
            sessions[0].log()
        results = await asyncio.gather(
            *(
                session.average(
                    [3.0, 4.0],
                    expect={"protocol": "gopa", "l2_bound": bounds.get("l2_bound"), "verifiable": True},
                )
                for session in sessions
            )
        )
        # Eight standard errors: a false alarm in 4e14 runs.
        assert np.abs(results[0].value - [3.0, 4.0]).max() < 8 * results[0].standard_error
        assert results[0].bias is not None
        await then(sessions)
    await serving


@pytest.mark.parametrize("bounds", [BALL, BOX], ids=["ball", "box"])
def test_a_user_audits_over_its_session(tmp_path: Path, bounds: dict[str, Any]) -> None:
    async def then(sessions: list[Session]) -> None:
        log = sessions[1].log()
        report = await log.audit()
        assert report.ok, report.conclusion
        assert report.session_checked
        lines = await log.lines()
        [path] = (tmp_path / "board").glob("request-*.jsonl")
        assert path.read_bytes() == b"".join(line + b"\n" for line in lines)
        assert await log.lines(3, 5) == lines[3:6]
        assert await log.lines(0, 0) == lines[:1]
        with pytest.raises(ConfigError, match="first"):
            await log.lines(5, len(log) + 1)

    asyncio.run(with_sessions(tmp_path, then, bounds))


@pytest.mark.parametrize(
    "lie", ["another-line", "another-header", "fewer-lines", "more-lines", "wrong-place"]
)
def test_a_relay_that_shows_another_log_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    true_lines = board.BoardFolder.lines

    def lines(self: board.BoardFolder, request: int, first: int, size: int) -> list[bytes]:
        result = true_lines(self, request, first, size)
        if lie == "another-line":
            result[4] = result[4].replace(b'"signature":"', b'"signature":"0')[:-3] + b'"}'
        elif lie == "another-header":
            result[0] = result[0].replace(b"request", b"Request", 1)
        elif lie == "more-lines":
            result.append(result[-1])
        elif lie == "wrong-place":
            result = result[1:]
        else:
            result = []
        return result

    async def then(sessions: list[Session]) -> None:
        with pytest.raises(PeerFault, match=r"does not show line 0|shows another log") as caught:
            await sessions[0].log().audit()
        assert caught.value.culprit == "aggregator"

    monkeypatch.setattr(board.BoardFolder, "lines", lines)
    asyncio.run(with_sessions(tmp_path, then))


@pytest.mark.long
@pytest.mark.slow
def test_a_party_audits_from_the_command_line(tmp_path: Path) -> None:
    parameters = {"length": 1, "lower": 0, "upper": 1, "precision": 0.5, "epsilon": 20.0, "delta": 1e-2}
    path = create_local_session(
        tmp_path, ["ann", "ben", "cyd"], {**parameters, "corrupt": 0.0, "verifiable": True}, protocol="gopa"
    )
    command = [sys.executable, "-m", "smpc_dp", "party", str(path), "--as"]
    relay = subprocess.Popen([*command, "aggregator"], stdout=subprocess.DEVNULL)
    parties = {}
    for name in ("ann", "ben", "cyd"):
        (tmp_path / f"{name}.json").write_text("[0.5]")
        given = [*command, name, "--input", str(tmp_path / f"{name}.json"), "--json"]
        given += ["--audit", str(tmp_path / "kept.jsonl")] if name == "ben" else []
        parties[name] = subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    claimed = {name: process.communicate(timeout=300) for name, process in parties.items()}
    assert relay.wait(60) == 0
    assert all(process.returncode == 0 for process in parties.values()), claimed
    assert "Everything holds for the session" in claimed["ben"][1].replace("\n", " ")
    assert json.loads(claimed["ben"][0])["bias"] > 0
    [log] = (tmp_path / "board").glob("request-*.jsonl")
    assert (tmp_path / "kept.jsonl").read_bytes() == log.read_bytes()


SMALL = {"length": 1, "lower": 0, "upper": 1, "precision": 0.5, "epsilon": 20.0, "delta": 1e-2}
SMALL |= {"corrupt": 0.0, "verifiable": True}
PARTIES = ("ann", "ben", "cyd")


def average_in_processes(folder: Path, path: Path) -> dict[str, tuple[int, str, str]]:
    """Average once, everyone in a process of its own; return exit codes, output and errors."""
    command = [sys.executable, "-m", "smpc_dp", "party", str(path), "--as"]
    (folder / "value.json").write_text("[0.5]")
    commands = {"aggregator": [*command, "aggregator"]}
    commands |= {name: [*command, name, "--input", str(folder / "value.json"), "--json"] for name in PARTIES}
    processes = {
        name: subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name, given in commands.items()
    }
    return {
        name: (process.returncode, *claimed)
        for name, process in processes.items()
        for claimed in [process.communicate(timeout=300)]
    }


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("retained", [0, 1], ids=["begun-anew", "rolled-back"])
def test_users_refuse_a_relay_that_is_back_at_an_older_list(tmp_path: Path, retained: int) -> None:
    """Each request has new processes: what was signed is in a file beside each party's key."""
    path = create_local_session(tmp_path, list(PARTIES), SMALL, protocol="gopa")
    board, older = tmp_path / "board", tmp_path / "older"
    for _ in range(retained + 1):
        if board.exists():
            shutil.copytree(board, older)
        done = average_in_processes(tmp_path, path)
        assert all(code == 0 for code, _, _ in done.values()), done
    runs = {name: (tmp_path / "keys" / f"{name}.runs").read_bytes() for name in PARTIES}
    shutil.rmtree(board)
    if retained:
        older.rename(board)
    before = {*board.glob("request-*.jsonl")}
    done = average_in_processes(tmp_path, path)
    signed = retained + 1
    for name in PARTIES:
        code, out, error = done[name]
        assert (code, out) == (1, "")
        shown = f"a session log of {signed} runs, one with {signed} was signed: it was rolled back"
        assert f"smpc-dp: aggregator: shows {shown}" in " ".join(error.split())
        assert (tmp_path / "keys" / f"{name}.runs").read_bytes() == runs[name]
    code, _, error = done["aggregator"]
    assert code == 1
    assert "missing in step 'attest-begin'" in error
    assert "(left: aggregator: broke the protocol)" in " ".join(error.split())
    # Nobody has signed its line, and nobody has said anything else.
    [log] = {*board.glob("request-*.jsonl")} - before
    assert log.read_bytes().count(b"\n") == 1


FORGETTING_RELAY = """
import asyncio, sys
from pathlib import Path
import smpc_dp
from smpc_dp.engine.registry import make_aggregator
from smpc_dp.logs.board import BoardFolder

def forgets(context, *given, board, **more):
    # Each request has a list of runs of its own.
    folder = Path(sys.argv[1]).with_name(f"board-{context.request}")
    return make_aggregator(context, *given, board=BoardFolder(folder, board.session), **more)

for ended in asyncio.run(smpc_dp.serve(sys.argv[1], requests=2, role=forgets)):
    print(ended if isinstance(ended, Exception) else "ended")
"""
PARTY_OF_TWO = """
import asyncio, sys
import smpc_dp

async def main():
    async with smpc_dp.connect(sys.argv[1], sys.argv[2]) as session:
        for _ in range(2):
            result = await session.average([0.5], expect={"protocol": "gopa", "verifiable": True})
            print("line", result.evidence.log.number, flush=True)

try:
    asyncio.run(main())
except smpc_dp.PeerFault as fault:
    print(fault.culprit, "|", fault)
"""


@pytest.mark.slow
@pytest.mark.long
def test_users_refuse_a_relay_that_forgets_its_list_between_two_requests(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, list(PARTIES), SMALL, protocol="gopa")
    commands = {"aggregator": [FORGETTING_RELAY, str(path)]}
    commands |= {name: [PARTY_OF_TWO, str(path), name] for name in PARTIES}
    processes = {
        name: subprocess.Popen([sys.executable, "-c", *given], stdout=subprocess.PIPE, text=True)
        for name, given in commands.items()
    }
    claimed = {name: process.communicate(timeout=300)[0].splitlines() for name, process in processes.items()}
    assert [process.returncode for process in processes.values()] == [0, 0, 0, 0]
    refused = "shows a session log of 1 runs, one with 1 was signed: it was rolled back"
    for name in PARTIES:
        assert claimed[name] == ["line 1", f"aggregator | aggregator: {refused}"]
    assert claimed["aggregator"][0] == "ended"
    assert "missing in step 'attest-begin'" in claimed["aggregator"][1]
    assert "left: aggregator: broke the protocol" in claimed["aggregator"][1]


def test_a_relay_does_not_linger_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parties who stay and ask nothing, or again and again, cannot keep it."""
    monkeypatch.setattr(aggregator, "LINGER_STEPS", 0)

    async def ask_on(session: Session) -> None:
        for _ in range(1000):
            await session.log().lines(0, 0)

    async def then(sessions: list[Session]) -> None:
        # The relay has left, or leaves while this is asked.
        with pytest.raises(TimeoutFault):
            await ask_on(sessions[0])

    asyncio.run(with_sessions(tmp_path, then))


class Flood:
    """News of a party that asks for lines faster than they are shown, without end."""

    async def get(self) -> InboundEvent:
        return InboundEvent("mallory", 1, Envelope(b"", FETCH, "mallory", "relay", b"", b""))

    def take_all(self) -> list[InboundEvent]:
        return [InboundEvent("mallory", 1, Envelope(b"", FETCH, "mallory", "relay", b"", b""))]


class Waiting:
    """A machine that waits for somebody until its time is over."""

    name, step, finished, has_enough = "relay", v.COMMIT, False, False
    waiting_for, waiting_count, releases, state = frozenset[str](), 0, frozenset[str](), State()
    role, member = SimpleNamespace(longest=lambda _member: 0), None

    def handle(self, event: Event) -> tuple[()]:
        self.finished = self.finished or isinstance(event, Deadline)
        return ()


def flooded() -> Any:
    """Return an aggregator that a party floods, with steps of 20 ms."""
    timeouts = Timeouts(connect=0.02, step=0.02, gather=0.02)
    server: Any = object.__new__(aggregator.RequestServer)
    server._membership = SimpleNamespace(session=SimpleNamespace(timeouts=timeouts))
    awaited = Awaited("relay", lambda _name: True, lambda _event: None)
    server._pool = SimpleNamespace(
        inbound=Flood(),
        awaited=awaited,
        next=partial(awaited.next, Flood().get),
        connections=["mallory"],
        is_live=lambda _name: True,
        is_gone=lambda _name: False,
        admit_all=lambda: None,
        take_early=lambda _number: [],
        send=lambda *_: None,
    )

    async def show(_inbound: InboundEvent) -> None:
        await asyncio.sleep(0)

    async def make(_drive: Drive) -> list[InboundEvent]:
        return [await Flood().get()]

    server._show, server._ask = show, make
    server._culprits, server.beside = {}, None
    server._state, server._is_first = SessionState(), False
    server._on_event = lambda _event: None
    server._board = SimpleNamespace(close=lambda: None)
    timer = StepTimer(timeouts, first=False)
    server._drive = Drive(2, Waiting(), server._pool, timer, server, server._on_event)
    return server


def test_a_user_that_asks_without_a_pause_cannot_keep_a_relay() -> None:
    async def linger() -> None:
        await flooded().linger()

    asyncio.run(linger())


def test_a_user_that_asks_without_a_pause_does_not_stop_the_clock_of_a_step() -> None:
    async def run() -> None:
        server = flooded()
        assert await server._run(is_new=True)
        assert server._drive.run.finished

    asyncio.run(run())
