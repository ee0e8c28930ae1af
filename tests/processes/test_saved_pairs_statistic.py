"""Statistics of pairs in sessions whose members go on after their processes have ended."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.ustatistic.messages import RESULT
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.events import Event
from tests.faults.saved_session_schedules import without_syncs
from tests.processes.test_saved_sessions import PARTIES, Scene, crash, scene

EPSILON, PARTNERS = 4.0, 2


@pytest.fixture(autouse=True)
def _without_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    without_syncs(monkeypatch)


@pytest.mark.parametrize(
    "runs", [1, pytest.param(30, marks=[pytest.mark.long, pytest.mark.slow])], ids=["few", "many"]
)
def test_statistics_go_on_though_members_are_killed(runs: int) -> None:
    command = [sys.executable, "-m", "tests.processes.saved_pairs", "--runs", str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{runs} of {runs} went on" in done.stdout


async def asked(session: smpc_dp.Session, label: str = "", value: int = 1, **more: Any) -> Any:
    return await session.pairwise("collision", value, EPSILON, PARTNERS, label=label, covert=0, **more)


async def called(scene: Scene, name: str, label: str, value: int = 1) -> Any:
    """Return the result of a party's call in a session of its own, which is closed as a program does."""
    async with scene.connect(name) as session:
        return await asked(session, label, value)


async def test_statistics_and_sums_follow_one_another(tmp_path: Path) -> None:
    """Each label is one request, whose result is there until the next one."""
    async with scene(tmp_path) as session:
        session.serve()
        found = await asyncio.gather(*(called(session, name, "pairs") for name in PARTIES))
        assert {(one.value, one.failed, one.resumed) for one in found} == {(found[0].value, 0, False)}
        assert await session.everyone("sum") == [10] * len(PARTIES)
        await session.stop()
        session.serve()
        more = await asyncio.gather(*(called(session, name, "pairs 2") for name in PARTIES))
        assert [one.failed for one in more] == [0] * len(PARTIES)
        async with asyncio.timeout(60.0):
            # Parties have the result before the aggregator says so.
            while len(session.done()) < 4:
                await asyncio.sleep(0.01)
        # The result of the second was not taken.
        assert session.done() == [1, 2, 2, 3]


async def test_a_party_that_evaluates_and_dies_reports_its_pairs_as_failed(tmp_path: Path) -> None:
    """Its record is charged once, the others have the estimate of the other pairs, and it has that too."""
    ledger = tmp_path / "alice.ledger"
    Ledger.create(ledger, party="alice", dataset="d", relation="substitution", epsilon=99.0, delta=0.1)
    async with scene(tmp_path) as session:
        session.serve()
        others = [asyncio.create_task(called(session, name, "pairs")) for name in PARTIES[1:]]
        evaluates = asyncio.Event()

        def on_event(event: Event) -> None:
            if event.step == RESULT and event.detail.startswith("matching"):
                evaluates.set()

        alice = await session.open("alice", on_event, ledger=ledger)
        asking = asyncio.create_task(asked(alice, "pairs"))
        async with asyncio.timeout(60.0):
            await evaluates.wait()
        asking.cancel()
        await crash(alice, asking)
        assert len(Ledger.open(ledger).entries()) == 1
        again = await session.open("alice", ledger=ledger)
        # Another record is not looked at any more.
        found = await asked(again, "pairs", 0)
        await again.close()
        results = [found, *await asyncio.gather(*others)]
        assert len({(one.value, one.pairs, one.failed) for one in results}) == 1
        assert found.resumed
        assert found.failed > 0
        assert len(Ledger.open(ledger).entries()) == 1


async def test_an_aggregator_that_ends_while_pairs_are_evaluated(tmp_path: Path) -> None:
    """Outputs that it had count; nobody is blamed, and the sums that follow are right."""
    async with scene(tmp_path) as session:
        reached = asyncio.Event()
        session.serve()

        def on_event(event: Event) -> None:
            if event.step == RESULT and event.detail.startswith("matching 2"):
                reached.set()

        async with contextlib.AsyncExitStack() as stack:
            parties = []
            for name in PARTIES:
                parties.append(await session.open(name, on_event))
                stack.push_async_callback(parties[-1].close)
            asking = [asyncio.create_task(asked(party, "pairs")) for party in parties]
            async with asyncio.timeout(60.0):
                await reached.wait()
            await session.stop()
            session.serve()
            ended: list[Any] = [*await asyncio.gather(*asking, return_exceptions=True)]
            assert len({str(one) for one in ended}) == 1
            for one in ended:
                assert not isinstance(one, smpc_dp.PeerFault)
                assert isinstance(one, smpc_dp.TimeoutFault) or one.pairs + one.failed == 4
            totals = await asyncio.gather(*(party.sum([1], label="sum") for party in parties))
            assert [total.value.tolist() for total in totals] == [[4]] * len(PARTIES)


async def test_a_call_for_a_statistic_is_known_by_number_label_and_question(tmp_path: Path) -> None:
    async with scene(tmp_path) as session:
        session.serve()
        alice = await session.open("alice")
        with pytest.raises(smpc_dp.ConfigError, match="with a state each call has a number, or a label"):
            await asked(alice)
        with pytest.raises(smpc_dp.ConfigError, match="at most 200 characters"):
            await asked(alice, "x" * 201)
        for call in (
            alice.evaluate("adder64", [1], peer="bob", role="garbler"),
            alice.similarities([1.0, 2.0], 1.0),
        ):
            with pytest.raises(smpc_dp.ConfigError, match="is not saved yet"):
                await call
        asking = asyncio.create_task(asked(alice, "pairs"))
        while not alice._state.is_open(1):
            await asyncio.sleep(0.01)
        asking.cancel()
        await crash(alice, asking)
        again = await session.open("alice")
        for label, value in (("pairs 2", 1), ("sum", None)):
            with pytest.raises(smpc_dp.ConfigError, match="request 1 is under way for 'pairs pairs"):
                await (again.sum([1], label=label) if value is None else asked(again, label))
        with pytest.raises(smpc_dp.LocalError, match="begun with another input"):
            await asked(again, "pairs", 2)
        await again.close()
