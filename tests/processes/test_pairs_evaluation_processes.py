"""Two-party evaluations between real processes: killed, stopped and absent ones, and their memory."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.capabilities.pairs.published.library import find
from smpc_dp.capabilities.pairs.requests.pairwise import AGGREGATOR, create_pairwise_session
from smpc_dp.session.session_file import Timeouts
from tests.deadlines import HOURS

MEMBER = Path(__file__).with_name("pairs_evaluation_member.py")
# Within which a survivor must have ended once it can know; nothing here waits so long when it is right.
MIB = 1 << 20


class Members:
    """The processes of one session."""

    def __init__(self, path: Path, names: list[str]) -> None:
        self.started = {
            name: subprocess.Popen([sys.executable, MEMBER, path, name], stdout=subprocess.PIPE, text=True)
            for name in names
        }

    def until(self, name: str, step: str) -> None:
        """Wait until a member is at this step."""
        while self.next(name).get("step") != step:
            pass

    def next(self, name: str) -> dict[str, Any]:
        """Return the next line of a member."""
        stdout = self.started[name].stdout
        assert stdout is not None
        line: dict[str, Any] = json.loads(stdout.readline())
        return line

    def end(self, name: str) -> dict[str, Any]:
        """Return the last line of a member."""
        claimed, _ = self.started[name].communicate(timeout=300)
        line: dict[str, Any] = json.loads(claimed.splitlines()[-1])
        return line

    def close(self) -> None:
        for process in self.started.values():
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@pytest.fixture
def members(request: pytest.FixtureRequest) -> Iterator[Any]:
    started: list[Members] = []

    def start(path: Path, *names: str) -> Members:
        started.append(Members(path, list(names)))
        return started[-1]

    yield start
    for each in started:
        each.close()


def session(
    folder: Path, circuit: str, instances: int, output: str = "both", timeouts: Timeouts | None = None
) -> Path:
    parameters = {"circuit": circuit, "instances": instances, "output": output}
    return create_pairwise_session(folder, parameters, timeouts=timeouts)


@pytest.mark.thin(2)
@pytest.mark.parametrize("victim", ["garbler", "evaluator"])
def test_whoever_is_killed_half_way_is_named_at_once(tmp_path: Path, members: Any, victim: str) -> None:
    """No timeout comes to help: they are longer than a test may take."""
    path = session(tmp_path, "mul64", 200_000, timeouts=HOURS)
    pair = members(path, "garbler", "evaluator")
    for name in ("garbler", "evaluator"):
        pair.until(name, "tables")
    pair.started[victim].kill()
    survivor = "evaluator" if victim == "garbler" else "garbler"
    end = pair.end(survivor)
    # What the system says of it may follow.
    assert end["text"].startswith(f"{victim}: the channel was cut")


@pytest.mark.thin(2)
@pytest.mark.parametrize("victim", ["garbler", "evaluator"])
def test_whoever_falls_silent_is_named_after_a_step(tmp_path: Path, members: Any, victim: str) -> None:
    path = session(tmp_path, "mul64", 200_000, timeouts=Timeouts(connect=60, step=2))
    pair = members(path, "garbler", "evaluator")
    for name in ("garbler", "evaluator"):
        pair.until(name, "tables")
    stopped = time.time()
    pair.started[victim].send_signal(signal.SIGSTOP)
    end = pair.end("evaluator" if victim == "garbler" else "garbler")
    assert (end["error"], end["named"]) == ("TimeoutFault", [victim])
    assert end["at"] - stopped > 1


@pytest.mark.thin(3)
@pytest.mark.parametrize("absent", ["garbler", "evaluator", AGGREGATOR])
def test_whoever_does_not_come_is_named(tmp_path: Path, members: Any, absent: str) -> None:
    path = session(tmp_path, "add32", 1, "aggregator", Timeouts(connect=1.0, step=20))
    names = {"garbler", "evaluator", AGGREGATOR} - {absent}
    come = members(path, *names)
    ends = {name: come.end(name) for name in names}
    named = {name for end in ends.values() for name in end["named"]}
    assert absent in named
    for end in ends.values():
        assert end["error"] in ("TimeoutFault", "ChannelClosed", "PeerFault")


@pytest.mark.long
def test_a_third_party_hears_of_a_killed_party_through_the_other(tmp_path: Path, members: Any) -> None:
    path = session(tmp_path, "mul64", 200_000, "aggregator", HOURS)
    all_three = members(path, "garbler", "evaluator", AGGREGATOR)
    for name in ("garbler", "evaluator"):
        all_three.until(name, "tables")
    all_three.started["evaluator"].kill()
    for name in ("garbler", AGGREGATOR):
        end = all_three.end(name)
        assert "evaluator" in end["text"]


@pytest.mark.long
def test_memory_does_not_grow_with_the_batch(tmp_path: Path, members: Any) -> None:
    """Eight blocks and one: the tables are 224 MiB more, a party's inputs and outputs 1 MiB."""
    small, large = 1 << 15, 1 << 18
    peaks: dict[int, dict[str, int]] = {}
    for instances in (small, large):
        folder = tmp_path / str(instances)
        folder.mkdir()
        pair = members(session(folder, "less_u32", instances), "garbler", "evaluator")
        ends = {name: pair.end(name) for name in ("garbler", "evaluator")}
        tables = 32 * find("less_u32").build().and_count * instances
        assert ends["garbler"]["sent"] > tables
        peaks[instances] = {name: end["peak"] for name, end in ends.items()}
    for name in ("garbler", "evaluator"):
        assert peaks[large][name] - peaks[small][name] < 16 * MIB, peaks
