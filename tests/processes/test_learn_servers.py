"""Learners whose averages servers compute on shares: over real sockets, and as processes of their own."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp.capabilities.learn.block_gossip import GroupDraws
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.capabilities.learn.requirements import Learned
from smpc_dp.capabilities.servers.requests import computing_server
from smpc_dp.capabilities.servers.requests.computing_server import ComputingServer
from smpc_dp.capabilities.servers.requests.engine import Engine
from smpc_dp.errors import ConfigError, SmpcError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import Launcher, member_command
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership
from smpc_dp.session.requests import ServerLostError
from smpc_dp.session.session_file import Timeouts, parse_session
from tests.command import smpc_dp
from tests.processes.learn_supply import supply

NAMES = ("ann", "bob", "cas", "dan")
SERVERS = ("server1", "server2", "server3")
GIVEN: dict[str, Any] = {
    "learner": "block-gossip",
    "features": 2,
    "steps": 3,
    "group": 3,
    "epsilon": 5.0,
    "delta": 1e-5,
    "seed": 2,
    "averager": {"method": "mpyc"},
}
TIMEOUTS = Timeouts(connect=30.0, gather=30.0, step=20.0)


def table(party: int) -> np.ndarray:
    drawn = np.random.default_rng(party).normal(size=(8 + party, 2))
    return np.column_stack([drawn, (drawn[:, 0] > 0).astype(float)])


def session(folder: Path, change: Mapping[str, object], names: tuple[str, ...] = NAMES) -> Path:
    path = create_local_session(folder, names, GIVEN | dict(change), protocol="learn", timeouts=TIMEOUTS)
    tables = {name: table(party) for party, name in enumerate(names)}
    supply(folder / "inputs", folder, tables, 5.0, 1e-5)
    return path


async def one(path: Path, name: str) -> Learned | SmpcError:
    folder = path.parent
    try:
        return await learn(path, name, folder / "inputs" / f"{name}.npy", ledger=folder / f"{name}.ledger")
    except SmpcError as error:
        return error


async def serve_and_learn(
    path: Path, names: tuple[str, ...], begin_with: int | None = None
) -> tuple[dict[str, Learned | SmpcError], list[dict[int, str]]]:
    """Serve on all servers in this process, while these parties learn; mpyc's are processes."""
    serving = [
        asyncio.create_task(serve_learning(path, name=name, begin_with=begin_with)) for name in SERVERS
    ]
    result = await asyncio.gather(*(one(path, name) for name in names))
    return dict(zip(names, result, strict=True)), [await task for task in serving]


@pytest.mark.long
def test_servers_average_for_groups_and_members_are_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six requests; here mpyc's process is renewed after four, in the others of this module never."""
    path = session(tmp_path, {"weights": "points", "max_points": 20})
    opened, start = [], Engine._open

    async def counted(engine: Engine) -> Any:
        opened.append(engine._own)
        return await start(engine)

    monkeypatch.setattr(computing_server, "RETAINED_REQUESTS", 4)
    monkeypatch.setattr(Engine, "_open", counted)
    results, failures = asyncio.run(serve_and_learn(path, NAMES))
    assert sorted(opened) == sorted(2 * SERVERS)
    assert failures == [{}, {}, {}], failures
    groups = GroupDraws(4, 3, 2)
    for party, name in enumerate(NAMES):
        result = results[name]
        assert isinstance(result, Learned), result
        assert result.failures == ()
        assert result.done.tolist() == [groups.participations(3)[party]]
        assert result.guarantee is not None
        assert "one that deviates" in result.guarantee.assumption
        ledger = Ledger.open(tmp_path / f"{name}.ledger")
        assert len(ledger.entries()) == groups.participations(3)[party]
        spent = ledger.spent().epsilon
        assert spent is not None
        assert 0 < spent <= 5.0
    last = [results[NAMES[party]] for party in groups.draw(3)[-1]]
    models = [result.values for result in last if isinstance(result, Learned)]
    np.testing.assert_array_equal(models, [models[0]] * 3)


@pytest.mark.long
def test_servers_average_in_rounds_of_groups(tmp_path: Path) -> None:
    """Two groups a step, and each party is charged for its own."""
    names = (*NAMES, "eve", "fay")
    change = {"learner": "dual-averaging-groups", "steps": 2}
    path = session(tmp_path, change, names)
    results, failures = asyncio.run(serve_and_learn(path, names))
    assert failures == [{}, {}, {}], failures
    for name in names:
        result = results[name]
        assert isinstance(result, Learned), result
        assert (result.done.tolist(), result.failures) == ([2], ())
        assert len(Ledger.open(tmp_path / f"{name}.ledger").entries()) == 2


@pytest.mark.long
def test_a_group_fails_without_a_member_and_the_others_go_on(tmp_path: Path) -> None:
    path = session(tmp_path, {"group": 2, "steps": 4})
    results, failures = asyncio.run(serve_and_learn(path, NAMES[:3], begin_with=3))
    groups = GroupDraws(4, 2, 2).draw(4)
    hit = [step for step in range(4) if 3 in groups[step]]
    assert hit
    assert len(hit) < 4
    for reported in failures:
        assert sorted(reported) == sorted(number for step in hit for number in (2 * step + 1, 2 * step + 2))
        assert all("dan" in reason for reason in reported.values())
    for party, name in enumerate(NAMES[:3]):
        result = results[name]
        assert isinstance(result, Learned), result
        missed = sum(party in groups[step] for step in hit)
        assert result.done[0] == result.steps[0] - missed
        assert all("dan" in reason for reason in result.failures)
        # Whoever is missing is known before anybody shares.
        assert len(Ledger.open(tmp_path / f"{name}.ledger").entries()) == result.done[0]


def test_a_group_goes_on_without_a_member_where_that_is_planned(tmp_path: Path) -> None:
    path = session(tmp_path, {"group": 4, "steps": 1, "averager": {"method": "mpyc", "missing": 1}})
    results, failures = asyncio.run(serve_and_learn(path, NAMES[:3], begin_with=3))
    assert failures == [{}, {}, {}]
    models = [result.values for result in results.values() if isinstance(result, Learned)]
    np.testing.assert_array_equal(models, [models[0]] * 3)
    assert np.any(models[0] != 0)


@pytest.mark.long
def test_who_comes_late_joins_the_groups_that_are_left(tmp_path: Path) -> None:
    path = session(tmp_path, {"group": 2, "steps": 6})
    groups = GroupDraws(4, 2, 2).draw(6)
    mine = np.flatnonzero((groups == 3).any(axis=1))
    assert mine[0] < 2
    assert mine[-1] >= 4
    late = asyncio.Event()

    def watch(event: Event) -> None:
        # Requests 1 to 4 are of the first two steps.
        if event.party == "server1" and event.request >= 4 and event.kind in ("done", "failed"):
            late.set()

    async def come() -> Learned | SmpcError:
        await late.wait()
        return await one(path, "dan")

    async def run() -> tuple[list[Learned | SmpcError], list[dict[int, str]]]:
        serving = [
            asyncio.create_task(serve_learning(path, name=name, begin_with=3, on_event=watch))
            for name in SERVERS
        ]
        result = await asyncio.gather(*(one(path, name) for name in NAMES[:3]), come())
        return list(result), [await task for task in serving]

    results, failures = asyncio.run(run())
    dan = results[3]
    assert isinstance(dan, Learned), dan
    assert dan.steps[0] == len(mine)
    assert 1 <= dan.done[0] < len(mine)
    assert any("others are at" in reason for reason in dan.failures)
    # Nobody else fails but for dan's absence.
    assert all("dan" in reason for reported in failures for reason in reported.values())


@pytest.mark.long
def test_a_killed_server_stops_the_run_and_budgets_are_right(tmp_path: Path) -> None:
    """It is killed when it computes the second step's average: all of that group have shared, and paid."""
    path = session(tmp_path, {"steps": 6})

    def kill(event: Event) -> None:
        if (event.party, event.request, event.step) == ("server2", 4, "compute"):
            launcher.kill("server2")

    launcher = Launcher(kill)
    commands = {name: member_command("party", str(path), "--as", name) for name in SERVERS}

    async def run() -> list[Learned | SmpcError]:
        async with asyncio.timeout(60):
            running = asyncio.create_task(launcher.run(commands, None))
            result = await asyncio.gather(*(one(path, name) for name in NAMES))
            await running
        return list(result)

    for error in asyncio.run(run()):
        assert isinstance(error, ServerLostError), error
        assert "server2" in str(error)
    for name in ("server1", "server3"):
        assert launcher.outcomes[name].exit_code == 1
        assert "server2" in launcher.outcomes[name].reason
    paid = [len(Ledger.open(tmp_path / f"{name}.ledger").entries()) for name in NAMES]
    assert paid == GroupDraws(4, 3, 2).participations(2).tolist()


@pytest.mark.long
def test_a_server_that_loses_another_tells_the_third_before_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session(tmp_path, {"steps": 6})
    aggregators: dict[str, ComputingServer] = {}
    open_computing_server = ComputingServer.open.__func__  # type: ignore[attr-defined]

    async def opened(cls: type[ComputingServer], membership: Membership, *given: Any, **options: Any) -> Any:
        aggregators[membership.name] = await open_computing_server(cls, membership, *given, **options)
        return aggregators[membership.name]

    def cut(event: Event) -> None:
        if (event.request, event.step) == (4, "compute"):
            aggregators["server2"]._pool.connections["server3"].channel.abort()

    monkeypatch.setattr(ComputingServer, "open", classmethod(opened))

    async def run() -> list[Any]:
        serving = [serve_learning(path, name="server1"), serve_learning(path, name="server3")]
        serving.append(serve_learning(path, name="server2", on_event=cut))
        parties = [one(path, name) for name in NAMES]
        return await asyncio.gather(*serving, *parties, return_exceptions=True)

    errors = asyncio.run(run())
    for error in errors:
        assert isinstance(error, ServerLostError), error
    # The first server has a connection to both: one of them has told it whom it lost.
    assert re.search(r"missing in step 'compute': .*server[23] had nothing from server[23]", str(errors[0]))


@pytest.mark.long
def test_run_starts_servers_and_parties(tmp_path: Path) -> None:
    path = session(tmp_path, {"steps": 1}, NAMES[:3])
    done = smpc_dp("run", str(path), "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["parties"]
    assert [results[name]["done"] for name in NAMES[:3]] == [[1]] * 3
    assert len({tuple(results[name]["values"][0]) for name in NAMES[:3]}) == 1
    assert "shared among servers" in results["ann"]["claim"]


@pytest.mark.parametrize(
    ("servers", "averager", "reason"),
    [
        (2, {"method": "mpyc"}, "3 are needed: with 2 servers a share is the secret itself"),
        (0, {"method": "mpyc"}, "has 0 members with the role 'server', 3 are needed"),
        (4, {"method": "mpyc"}, "take 3 or 5"),
    ],
)
def test_a_roster_without_enough_servers_is_refused(
    tmp_path: Path, servers: int, averager: dict[str, object], reason: str
) -> None:
    given = GIVEN | {"averager": averager}
    with pytest.raises(ConfigError, match=re.escape(reason)):
        create_local_session(tmp_path, NAMES, given, protocol="learn", servers=servers)


def test_servers_and_an_aggregator_do_not_go_together(tmp_path: Path) -> None:
    path = session(tmp_path, {})
    text = path.read_text()
    other = text.replace('method = "mpyc"', 'method = "secagg"')
    with pytest.raises(ConfigError, match="here is 'learn'"):
        parse_session(other)
    with pytest.raises(ConfigError, match="there is no aggregator, servers compute"):
        parse_session(text.replace('role = "server"', 'role = "aggregator"', 1))
