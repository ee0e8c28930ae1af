"""Sessions of averages by GOPA whose members go on after their processes have ended."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.errors import LocalError
from smpc_dp.logs.seen import SeenRuns
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.seen import Seen
from smpc_dp.session.session_file import Timeouts
from tests.faults.saved_session_schedules import Crashed, lying, without_syncs
from tests.processes.test_saved_sessions import PARTIES, crash, scene

GOPA: dict[str, object] = {
    "length": 1,
    "lower": 0.0,
    "upper": 4.0,
    "epsilon": 8.0,
    "delta": 1e-3,
    "dropout": 0.25,
    "corrupt": 0.0,
}
VERIFIABLE = GOPA | {"precision": 1.0, "verifiable": True}
SHORT = Timeouts(connect=20.0, step=3.0, gather=20.0)


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


def same(results: list[Any]) -> bool:
    """Tell whether all have one total, of all parties."""
    return len({(*result.value, result.survivors) for result in results}) == 1 and all(
        result.survivors == PARTIES for result in results
    )


@pytest.mark.thin(4)
@pytest.mark.parametrize(
    ("given", "step"),
    [(GOPA, "average"), (VERIFIABLE, "begin"), (VERIFIABLE, "coins-certificate"), (VERIFIABLE, "closed")],
)
async def test_a_party_that_crashes_goes_on(tmp_path: Path, given: dict[str, object], step: str) -> None:
    async with scene(tmp_path, given, protocol="gopa") as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        await session.crash_at("alice", step, "round 1")
        result = await session.sum("alice", "round 1")
        assert result.resumed
        assert same([result, *await asyncio.gather(*others)])


async def test_logs_are_shown_after_members_have_crashed(tmp_path: Path) -> None:
    """To a party whose result comes from disk, by an aggregator that was started again twice."""
    async with scene(tmp_path, VERIFIABLE, protocol="gopa") as session:
        reached = asyncio.Event()

        def watch(event: smpc_dp.Event) -> None:
            if event.step == "publish" and not reached.is_set():
                reached.set()
                session.cut()

        session.watch = watch
        session.serve()
        alice = await session.open("alice")
        calls = [asyncio.create_task(alice.sum([1], label="round 1"))]
        calls += [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        await reached.wait()
        await session.stop()
        session.serve()
        assert same(await asyncio.gather(*calls))
        await crash(alice)
        await session.stop()
        session.serve()
        async with session.connect("alice") as opened:
            assert (await opened.sum([1], label="round 1")).resumed
            report = await opened.log().audit()
            assert report.ok, report.conclusion


async def test_what_a_party_has_attested_is_kept_before_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it cannot be kept the call raises, and the same call goes on when it can."""
    put, refused = SeenRuns.put, []

    def fail(file: SeenRuns, scope: bytes, before: Seen, after: Seen) -> None:
        if file.path.stem == "alice" and not refused:
            refused.append(after)
            raise LocalError(f"{file.path}: the disk is full")
        put(file, scope, before, after)

    monkeypatch.setattr(SeenRuns, "put", fail)
    async with scene(tmp_path, VERIFIABLE, protocol="gopa") as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        with pytest.raises(LocalError, match="the disk is full; this party's vector is in no total"):
            await session.sum("alice", "round 1")
        assert not (tmp_path / "keys" / "alice.runs").exists()
        result = await session.sum("alice", "round 1")
        assert same([result, *await asyncio.gather(*others)])
        assert refused[0].number == 1


async def test_what_was_attested_before_a_crash_is_kept_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends when the state with the attestation is on disk, and nothing else."""
    put, fallen = SeenRuns.put, list[str]()

    def fall(file: SeenRuns, scope: bytes, before: Seen, after: Seen) -> None:
        if file.path.stem == "alice" and not fallen:
            fallen.append("alice")
            raise Crashed
        put(file, scope, before, after)

    monkeypatch.setattr(SeenRuns, "put", fall)
    async with scene(tmp_path, VERIFIABLE, protocol="gopa") as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        alice = await session.open("alice")
        with pytest.raises(Crashed):
            await alice.sum([1], label="round 1")
        await crash(alice)
        # She attests nothing that another process of hers has not kept.
        file = SeenRuns(tmp_path / "keys" / "alice.runs")
        scope = alice._requests.membership.session.digest
        put(file, scope, file.get(scope), Seen(1, bytes(32)))
        with pytest.raises(LocalError, match="line 1 of a session log is kept with another head"):
            await session.sum("alice", "round 1")
        file.path.unlink()
        result = await session.sum("alice", "round 1")
        assert same([result, *await asyncio.gather(*others)])
        assert file.get(scope).number == 1


@pytest.mark.parametrize("is_made", [False, True])
async def test_false_statements_are_charged_once_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    """The process ends before or after the charge, and nothing that follows from them was sent."""
    charge, fallen = Ledger.charge, list[bytes]()

    def fall(ledger: Ledger, run: bytes, *given: Any, **named: Any) -> Any:
        if named.get("forced") and not fallen:
            fallen.append(run)
            if is_made:
                charge(ledger, run, *given, **named)
            raise Crashed
        return charge(ledger, run, *given, **named)

    monkeypatch.setattr(Ledger, "charge", fall)
    path = tmp_path / "alice.ledger"
    Ledger.create(path, party="alice", dataset="d", relation="substitution", epsilon=99.0, delta=0.1)
    async with scene(tmp_path, VERIFIABLE, protocol="gopa") as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:3]]
        dave = await session.open("dave", role=lying)
        others.append(asyncio.create_task(dave.sum([1], label="round 1")))
        alice = await session.open("alice", ledger=path)
        with pytest.raises(Crashed):
            await alice.sum([1], label="round 1")
        await crash(alice)
        again = await session.open("alice", ledger=path)
        result = await again.sum([1], label="round 1")
        ended = await asyncio.gather(*others, return_exceptions=True)
        assert isinstance(ended[-1], smpc_dp.PeerFault)
        await crash(dave)
        await again.close()
        assert result.survivors == ended[0].survivors == PARTIES[:3]
    planned, raised = Ledger.open(path).entries()
    run = result.evidence.run_id
    assert (planned.run, raised.run) == (run.hex(), run.hex() + f"{1:016x}")
    assert fallen == [bytes.fromhex(raised.run)]


async def test_who_has_not_added_up_the_total_does_not_say_so_later(tmp_path: Path) -> None:
    async with scene(tmp_path, VERIFIABLE, protocol="gopa") as session:
        session.serve()
        others = [asyncio.create_task(session.sum(name, "round 1")) for name in PARTIES[1:]]
        reached = asyncio.Event()
        alice = await session.open("alice", lambda event: reached.set() if event.step == "closed" else None)
        alice._requests.connection.check_total = False
        asked = asyncio.create_task(alice.sum([1], label="round 1"))
        await reached.wait()
        asked.cancel()
        await crash(alice, asked)
        result = await session.sum("alice", "round 1")
        assert not result.evidence.checked
        assert all(other.evidence.checked for other in await asyncio.gather(*others))


async def test_a_survivor_is_sent_the_result_while_logs_are_served(tmp_path: Path) -> None:
    """After the last request of the command, where another party still asks for lines of the log."""
    async with scene(tmp_path, VERIFIABLE, SHORT, protocol="gopa") as session:
        serving = session.serve(requests=1)
        async with contextlib.AsyncExitStack() as stack:
            others = [await stack.enter_async_context(session.connect(name)) for name in PARTIES[1:]]
            calls = [asyncio.create_task(each.sum([1], label="round 1")) for each in others]
            await session.crash_at("alice", "closed", "round 1")
            results = await asyncio.gather(*calls)
            # She is waited for until the time of a step is over; then logs are served.
            for _ in range(4):
                await others[0].log().lines(0, 0)
                await asyncio.sleep(1.0)
            result = await session.sum("alice", "round 1")
            assert same([result, *results])
            assert result.resumed
        assert len(await serving) == 1
