"""Sessions of real processes without any relay: who is killed is survived, or named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import Launcher, member_command
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.session_file import Timeouts, load_session
from tests import command

PARTIES = tuple(f"user{number}" for number in range(1, 7))
PARAMETERS: dict[str, object] = {
    "length": 2,
    "lower": 0.0,
    "upper": 1.0,
    "epsilon": 4.0,
    "delta": 1e-5,
    "dropout": 0.2,
    "corrupt": 0.1,
    "topology": "direct",
}
TIMEOUTS = Timeouts(connect=30.0, step=10.0, gather=20.0)


def vector(name: str) -> list[float]:
    return [PARTIES.index(name) / len(PARTIES), 0.5]


@pytest.fixture
def session(tmp_path: Path) -> Path:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, protocol="gopa", timeouts=TIMEOUTS)
    (tmp_path / "inputs").mkdir()
    for name in PARTIES:
        (tmp_path / "inputs" / f"{name}.json").write_text(json.dumps(vector(name)))
    return path


def launch(session: Path, on_event: Callable[[Launcher, Event], None]) -> tuple[Launcher, dict[str, Any]]:
    """Run every party as a process; return how they ended and their results."""
    outputs = {name: session.parent / f"{name}.out.json" for name in PARTIES}
    launcher = Launcher(lambda event: on_event(launcher, event))
    commands = {
        name: member_command("party", str(session), "--as", name, "--out", str(outputs[name]))
        for name in PARTIES
    }
    asyncio.run(launcher.run(commands, None))
    return launcher, {name: json.loads(p.read_text()) for name, p in outputs.items() if p.exists()}


def check_value(result: dict[str, Any]) -> None:
    """Seven standard errors in two coordinates: a false alarm in 2e11 runs."""
    truth = np.mean([vector(name) for name in result["survivors"]], axis=0)
    assert (np.abs(np.array(result["value"]) - truth) < 7 * result["standard_error"]).all()


@pytest.mark.long
def test_run_prints_one_average_of_all(session: Path) -> None:
    assert load_session(session).roster.aggregator is None
    done = command.smpc_dp("run", str(session), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["survivors"] == list(PARTIES)
    assert result["residual_pairs"] == 0
    assert set(result["evidence"]["survivors"]["signatures"]) <= set(PARTIES)
    check_value(result)


@pytest.mark.long
@pytest.mark.parametrize("step", ["roll", "publish"])
def test_a_user_killed_while_it_waits_is_survived(session: Path, step: str) -> None:
    """Before the certificate it is out; afterwards its value is in if it left in time, else its noise is."""
    victim = PARTIES[2]

    def kill(launcher: Launcher, event: Event) -> None:
        if (event.party, event.kind, event.step) == (victim, "step", step):
            launcher.kill(victim)

    launcher, results = launch(session, kill)
    if step == "roll" and any(result["residual_pairs"] for result in results.values()):
        # On a busy machine the kill may come after the certificate: once more.
        launcher, results = launch(session, kill)
    assert set(results) == set(PARTIES) - {victim}
    assert not launcher.outcomes[victim].ok
    totals = {tuple(result["fixed_point"]) for result in results.values()}
    assert len(totals) == 1, "everyone has the same"
    for result in results.values():
        gone = step == "roll" or result["absent"] == [victim]
        assert result["absent"] == ([victim] if gone else [])
        assert result["residual_pairs"] == (5 if gone and step == "publish" else 0)
        check_value(result)


def test_a_coordinator_that_is_killed_is_named_and_the_next_request_works(session: Path) -> None:
    """Party 1 coordinates the first request, party 2 the second."""
    coordinator = PARTIES[0]
    launcher = Launcher()
    process = member_command("party", str(session), "--as", coordinator)

    async def one(name: str) -> list[smpc_dp.Result | smpc_dp.SmpcError]:
        ended: list[smpc_dp.Result | smpc_dp.SmpcError] = []

        def watch(event: Event) -> None:
            if (event.kind, event.step) == ("step", "participants"):
                launcher.kill(coordinator)

        async with smpc_dp.connect(session, party=name, on_event=watch) as opened:
            for _ in range(2):
                try:
                    ended.append(await opened.average(vector(name), expect={"protocol": "gopa"}))
                except smpc_dp.SmpcError as error:
                    ended.append(error)
        return ended

    async def act() -> list[list[smpc_dp.Result | smpc_dp.SmpcError]]:
        launched = asyncio.create_task(launcher.run({coordinator: process}, None))
        ended = await asyncio.gather(*(one(name) for name in PARTIES[1:]))
        await launched
        return ended

    for first, second in asyncio.run(act()):
        assert isinstance(first, smpc_dp.TimeoutFault), first
        assert first.missing == {coordinator}
        assert isinstance(second, smpc_dp.Result), second
        assert second.absent == (coordinator,)
        check_value(second.to_json())


def test_who_comes_too_late_is_told_and_may_ask_with_the_next_request(tmp_path: Path) -> None:
    timeouts = Timeouts(connect=2.0, step=4.0, gather=8.0)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, protocol="gopa", timeouts=timeouts)
    first_is_over, late_is_there = asyncio.Event(), asyncio.Event()
    late = PARTIES[-1]

    async def one(name: str) -> list[smpc_dp.Result | smpc_dp.SmpcError]:
        ended: list[smpc_dp.Result | smpc_dp.SmpcError] = []
        if name == late:
            await first_is_over.wait()
        async with smpc_dp.connect(path, party=name) as opened:
            if name == late:
                late_is_there.set()
            number = None
            for _ in range(2):
                try:
                    ended.append(await opened.average(vector(name), number=number))
                except smpc_dp.OtherRequestError as error:
                    number = error.next
                    ended.append(error)
                except smpc_dp.SmpcError as error:
                    ended.append(error)
                first_is_over.set()
                await late_is_there.wait()
        return ended

    async def act() -> list[list[smpc_dp.Result | smpc_dp.SmpcError]]:
        return await asyncio.gather(*(one(name) for name in PARTIES))

    ended = dict(zip(PARTIES, asyncio.run(act()), strict=True))
    reported, second = ended.pop(late)
    assert isinstance(reported, smpc_dp.OtherRequestError)
    assert (reported.party, reported.number, reported.next) == (late, 1, 2)
    assert isinstance(second, smpc_dp.Result), second
    for first, after in ended.values():
        assert isinstance(first, smpc_dp.Result)
        assert first.absent == (late,)
        assert isinstance(after, smpc_dp.Result)
        assert after.absent == ()


def test_a_session_that_differs_is_refused_and_the_others_go_on(session: Path, tmp_path: Path) -> None:
    """Five of six are enough; who has another file is told what differs."""
    other = tmp_path / "other.toml"
    other.write_text(session.read_text().replace("epsilon = 4.0", "epsilon = 3.0"))

    async def one(name: str, path: Path) -> smpc_dp.Result | smpc_dp.SmpcError:
        try:
            async with smpc_dp.connect(path, party=name, key=session.parent / "keys" / f"{name}.key") as own:
                return await own.average(vector(name))
        except smpc_dp.SmpcError as error:
            return error

    async def act() -> list[smpc_dp.Result | smpc_dp.SmpcError]:
        paths = {name: session if name != PARTIES[3] else other for name in PARTIES}
        return await asyncio.gather(*(one(name, path) for name, path in paths.items()))

    ended = dict(zip(PARTIES, asyncio.run(act()), strict=True))
    odd = ended.pop(PARTIES[3])
    assert isinstance(odd, smpc_dp.ConfigError)
    assert "epsilon" in str(odd)
    for result in ended.values():
        assert isinstance(result, smpc_dp.Result), result
        assert result.absent == (PARTIES[3],)


def test_a_session_without_aggregator_has_no_evaluations(session: Path) -> None:
    async def act() -> None:
        async def one(name: str) -> None:
            async with smpc_dp.connect(session, party=name) as opened:
                with pytest.raises(smpc_dp.ConfigError, match="topology"):
                    await opened.evaluate("aes128", [1], peer=PARTIES[1], role="garbler")

        await asyncio.gather(*(one(name) for name in PARTIES))

    asyncio.run(act())


def test_files_with_an_aggregator_or_without_addresses_are_refused(session: Path, tmp_path: Path) -> None:
    text = session.read_text()
    for wrong, where in (
        (text.replace('role = "party"', 'role = "aggregator"', 1), "roster[0].role"),
        (text.replace("address =", "# address =", 1), "roster[0].address"),
    ):
        path = tmp_path / "wrong.toml"
        path.write_text(wrong)
        with pytest.raises(smpc_dp.ConfigError) as caught:
            load_session(path)
        assert where in {fault.where for fault in caught.value.issues}


async def test_a_user_that_should_be_called_may_not_call(tmp_path: Path) -> None:
    """One channel a pair: the smaller number listens. Two in opposite directions could race."""
    timeouts = Timeouts(connect=1.0, step=1.0)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, protocol="gopa", timeouts=timeouts)
    refused: list[str] = []

    def watch(event: Event) -> None:
        if event.kind == "refused":
            refused.append(event.detail)

    async def call() -> None:
        channel = await Membership.load(path, PARTIES[0]).endpoint().dial(PARTIES[1])
        with pytest.raises(smpc_dp.SmpcError):
            await channel.receive()

    calling = asyncio.create_task(call())
    with pytest.raises(smpc_dp.TimeoutFault) as caught:
        async with smpc_dp.connect(path, party=PARTIES[1], on_event=watch):
            pass
    await calling
    assert f"{PARTIES[0]}: {PARTIES[0]}: calls a party that calls it" in refused
    assert caught.value.missing == set(PARTIES) - {PARTIES[1]}
    assert caught.value.step == "connect"


@pytest.mark.parametrize(("topology", "address"), [("direct", "nowhere"), ("relay", "127.0.0.1:7100")])
async def test_where_to_listen_is_checked(tmp_path: Path, topology: str, address: str) -> None:
    given = PARAMETERS | {"topology": topology}
    path = create_local_session(tmp_path, PARTIES, given, protocol="gopa", timeouts=TIMEOUTS)
    with pytest.raises(smpc_dp.ConfigError, match="listen_on"):
        async with smpc_dp.connect(path, party=PARTIES[0], listen_on=address):
            pass
