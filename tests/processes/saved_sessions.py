"""Sessions with saved states whose members are killed at random times, and started again at once.

`python -m tests.processes.saved_sessions --runs 100` plays so many seeded runs, and prints what became of
each. Members are processes of their own, forked from this one, and ended by SIGKILL.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import smpc_dp

# Loaded before the members are forked: each would import them for itself.
from smpc_dp import generator_cache  # noqa: F401
from smpc_dp.capabilities.gopa import capability  # noqa: F401
from smpc_dp.capabilities.gopa.verifiable import states as verifiable_states  # noqa: F401
from smpc_dp.engine import saved_collector  # noqa: F401
from smpc_dp.errors import SmpcError
from smpc_dp.logs.store import Store
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.mechanisms import distributed  # noqa: F401
from smpc_dp.secagg import check, checkers, claim, noisy, protocol, states  # noqa: F401
from smpc_dp.secagg.requests import vector_requests, vector_task  # noqa: F401
from smpc_dp.session import aggregator, connection, opening, saved_session  # noqa: F401
from smpc_dp.session.local import AGGREGATOR, create_local_session
from smpc_dp.session.session_file import Timeouts
from smpc_dp_verify.verify import HOLDS, Wanted, verify

NAMES = ("alice", "bob", "carol", "dave")
EXACT: dict[str, object] = {
    "length": 2,
    "kind": "integer",
    "lower": 0,
    "upper": 100,
    "dropout": 0,
    "corrupt": 0,
}
NOISY: dict[str, object] = {
    "length": 2,
    "lower": 0.0,
    "upper": 9.0,
    "precision": 0.1,
    "epsilon": 9.0,
    "delta": 1e-6,
}
KINDS: Mapping[str, Mapping[str, object]] = {
    "checked": EXACT,
    "exact": EXACT | {"total": "unchecked"},
    "noisy": NOISY,
    "gopa": NOISY | {"dropout": 0, "corrupt": 0},
    "roll-back": NOISY | {"dropout": 0, "corrupt": 0, "on_dropout": "roll-back"},
    "verifiable": NOISY | {"dropout": 0, "corrupt": 0, "precision": 1.0, "verifiable": True},
}
# Their vectors have noise, and their parties a ledger.
NOISY_KINDS = ("noisy", "gopa", "roll-back", "verifiable")
# Where nobody is lost, no step ends by its time but on a machine that is too busy.
TIMEOUTS = {
    counted: Timeouts(connect=20.0, step=30.0 if counted else 10.0, gather=20.0) for counted in (True, False)
}
# Seconds a request within which members are killed, the most kills, and when a run counts as hanging.
SPAN, KILLS, LIMIT = 0.4, 3, 300.0


def given(party: str, number: int) -> list[int]:
    """Return the vector of a party for a request."""
    return [1 + NAMES.index(party), number]


def expected(survivors: list[str], number: int) -> list[int]:
    """Return the exact sum of a request."""
    return [sum(column) for column in zip(*(given(name, number) for name in survivors), strict=True)]


@dataclass
class Ended:
    """What became of a run: by party its results and its error, by member how often it was killed."""

    seed: int
    kind: str
    parties: tuple[str, ...]
    requests: int
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    kills: Counter[str] = field(default_factory=Counter)
    charges: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_noisy(self) -> bool:
        """Whether totals have noise, which is charged."""
        return self.kind in NOISY_KINDS

    @property
    def errors(self) -> dict[str, str]:
        """The error of each party that has one."""
        return {name: one["error"] for name, lines in self.results.items() for one in lines if "error" in one}

    @property
    def went_on(self) -> bool:
        """Whether every party has every total, of the vectors of all."""
        return all(
            [one.get("survivors") for one in lines] == [[*self.parties]] * self.requests
            for lines in self.results.values()
        )

    @property
    def heads(self) -> set[tuple[int, str]]:
        """The requests with logs that ended well, and the heads of these."""
        lines = (one for got in self.results.values() for one in got if one.get("head"))
        return {(one["request"], one["head"]) for one in lines}

    def check(self) -> None:
        """Raise AssertionError for totals that differ, wrong ones, missing logs and wrong charges."""
        for number in range(1, self.requests + 1):
            totals = [one for lines in self.results.values() for one in lines if one.get("request") == number]
            assert len({json.dumps([one["value"], one["survivors"]]) for one in totals}) <= 1, self
            assert len({one.get("head") for one in totals}) <= 1, self
            for one in totals:
                assert self.kind != "verifiable" or one["head"], self
                wanted = expected(one["survivors"], number)
                assert self.is_noisy or one["value"] == wanted, self
        for name, lines in self.results.items():
            got = [one["request"] for one in lines if "request" in one]
            assert got == sorted(set(got)), self
            # Nothing is released uncharged, nothing is charged twice.
            assert not self.is_noisy or len(got) <= self.charges[name] <= self.requests, self

    def __str__(self) -> str:
        killed = ", ".join(f"{name} {count}x" for name, count in self.kills.items()) or "nobody"
        resumed = sum(one.get("resumed", False) for lines in self.results.values() for one in lines)
        became = f"went on, {resumed} results resumed" if self.went_on else f"stopped: {self.errors}"
        return f"seed {self.seed} ({self.kind}): killed {killed}: {became} ({self.seconds:.1f} s)"


class Members:
    """The processes of one session, in a folder.

    Attributes:
        helpers: members that are no parties.
    """

    helpers: ClassVar[tuple[str, ...]] = (AGGREGATOR,)

    def __init__(self, folder: Path, ended: Ended, *, counter: bool) -> None:
        self.folder, self.kind, self.counter = folder, ended.kind, counter
        self.requests = ended.requests
        self.is_noisy = ended.is_noisy
        self.path = self.create(ended.parties)
        self.names = (*self.helpers, *ended.parties)
        for name in self.names:
            (folder / f"{name}.counter").mkdir()
        for name in ended.parties if self.is_noisy else ():
            Ledger.create(
                self.ledger(name), party=name, dataset="d", relation="substitution", epsilon=99.0, delta=1e-4
            )
        self.processes: dict[str, int] = {}

    def create(self, parties: tuple[str, ...]) -> Path:
        """Write the session file and the keys."""
        named = "secagg" if self.kind in ("checked", "exact", "noisy") else "gopa"
        return create_local_session(
            self.folder, parties, KINDS[self.kind], protocol=named, timeouts=TIMEOUTS[self.counter]
        )

    def ledger(self, name: str) -> Path:
        return self.folder / f"{name}.ledger"

    def results(self, name: str) -> list[dict[str, Any]]:
        """Return what a party has written."""
        file = self.folder / f"{name}.results"
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def start(self, name: str) -> None:
        """Start a member as a process, with its folders."""
        process = os.fork()
        if process:
            self.processes[name] = process
            return
        code = 1
        try:
            log = os.open(self.folder / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            work: Callable[[str], Awaitable[None]] = self.serve if name == AGGREGATOR else self.compute
            asyncio.run(self._run(work(name)))
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)

    async def _run(self, work: Awaitable[None]) -> None:
        await work

    def media(self, name: str) -> dict[str, Any]:
        media: dict[str, Any] = {"state": self.folder / f"{name}.state"}
        return media | {"counter": self.folder / f"{name}.counter"} if self.counter else media

    async def serve(self, name: str) -> None:
        """Serve until the process is killed."""
        await smpc_dp.serve(
            self.path, requests=0, on_event=lambda event: print(event.text, flush=True), **self.media(name)
        )

    async def compute(self, name: str) -> None:
        """Take part in the requests whose results are not written yet, as a restarted program does."""
        ledger: dict[str, Any] = {"ledger": self.ledger(name)} if self.is_noisy else {}
        first = len(self.results(name)) + 1
        written = os.open(self.folder / f"{name}.results", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            async with smpc_dp.connect(self.path, party=name, **ledger, **self.media(name)) as session:
                for number in range(first, self.requests + 1):
                    result = await session.sum(given(name, number), label=f"round {number}")
                    line = {
                        "request": number,
                        "value": result.value.tolist(),
                        "survivors": list(result.survivors),
                        "resumed": result.resumed,
                        "head": log.head.hex() if (log := result.evidence.log) else None,
                    }
                    os.write(written, json.dumps(line).encode() + b"\n")
        except SmpcError as error:
            os.write(written, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode() + b"\n")

    def kill(self, name: str) -> bool:
        """Kill a member's process and start it again; return False if it had ended."""
        process = self.processes[name]
        if os.waitpid(process, os.WNOHANG)[0]:
            del self.processes[name]
            return False
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        self.start(name)
        return True

    def wait(self) -> None:
        """Wait until all parties have ended; then end the aggregator. Raises TimeoutError."""
        until = time.monotonic() + LIMIT
        while set(self.processes) - {AGGREGATOR}:
            for name in [*self.processes]:
                if os.waitpid(self.processes[name], os.WNOHANG)[0]:
                    del self.processes[name]
            if time.monotonic() > until:
                raise TimeoutError(f"still computing: {', '.join(self.processes)} in {self.folder}")
            time.sleep(0.01)

    def end(self) -> None:
        """Kill all that is left."""
        for process in self.processes.values():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        self.processes.clear()


def audit(folder: Path, request: int, head: str) -> None:
    """Raise AssertionError unless both auditors accept the log of a request with this head."""
    [runs] = (folder / "board").glob("session-*.jsonl")
    accepted = []
    for board in (folder / "board").glob(f"request-{request}-*.board"):
        # The aggregator may have been killed before it wrote the lines to a file of their own.
        log = board.with_suffix(".lines")
        with log.open("wb") as out, Store.open(board) as store:
            store.export(out)
        wanted: dict[str, Any] = {"head": head, "request": request, "session_log": runs}
        report = smpc_dp.audit(log, session=folder / "session.toml", **wanted)
        opinion = verify(log, Wanted(report.session, **wanted))
        accepted += [report.ok and opinion.code == HOLDS] if report.head == head else []
    assert accepted == [True], (folder, request, head)


def play(
    seed: int, folder: Path, parties: int, requests: int, kinds: Sequence[str], *, counter: bool
) -> Ended:
    """Play one run of sums; return what became of it."""
    drawn = random.Random(seed)
    ended = Ended(seed, drawn.choice(kinds), NAMES[:parties], requests)
    kill_some(Members(folder, ended, counter=counter), ended, drawn, SPAN * requests)
    return ended


def kill_some(
    members: Members, ended: Ended, drawn: random.Random, span: float, at_once: Sequence[int] = (1,)
) -> None:
    """Run the members, with kills of random ones at up to KILLS random times within `span` seconds.

    `at_once`: how many are killed each time, one of these numbers.
    """
    begun = time.monotonic()
    times = sorted(drawn.uniform(0.0, span) for _ in range(drawn.randint(1, KILLS)))
    try:
        for name in members.names:
            members.start(name)
        for at in times:
            time.sleep(max(0.0, begun + at - time.monotonic()))
            for name in drawn.sample(members.names, drawn.choice(at_once)):
                if name in members.processes and members.kill(name):
                    ended.kills[name] += 1
        members.wait()
    finally:
        members.end()
    ended.results = {name: members.results(name) for name in ended.parties}
    if ended.is_noisy:
        ended.charges = {name: len(Ledger.open(members.ledger(name)).entries()) for name in ended.parties}
    ended.seconds = time.monotonic() - begun


def main() -> None:
    """Play seeded runs; the exit code is 1 if one has stopped that should have gone on."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--parties", type=int, default=len(NAMES), choices=range(3, len(NAMES) + 1))
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--kind", action="append", choices=KINDS)
    parser.add_argument("--no-counter", action="store_true")
    parser.add_argument("--folder", help="where the members' files are, and stay where a run has stopped")
    chosen = parser.parse_args()
    stopped = 0
    for seed in range(chosen.first, chosen.first + chosen.runs):
        folder = Path(tempfile.mkdtemp(dir=chosen.folder))
        kinds = chosen.kind or [*KINDS]
        ended = play(seed, folder, chosen.parties, chosen.requests, kinds, counter=not chosen.no_counter)
        print(ended, flush=True)
        ended.check()
        for request, head in ended.heads:
            audit(folder, request, head)
        stopped += not ended.went_on
        if ended.went_on or not chosen.folder:
            shutil.rmtree(folder)
    print(f"{chosen.runs - stopped} of {chosen.runs} went on")
    sys.exit(int(stopped > 0 and not chosen.no_counter))


if __name__ == "__main__":
    main()
