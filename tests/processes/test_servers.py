"""Sums and statistics on shares: server processes, their mpyc, and parties over real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.pairs.circuits.builder import Bits, Builder
from smpc_dp.capabilities.pairs.circuits.gadgets import equal, less_than
from smpc_dp.capabilities.pairs.kernels import Field, auc, circuit_kernel, kendall_tau, table_kernel
from smpc_dp.capabilities.pairs.kernels.fields import Codes
from smpc_dp.capabilities.pairs.kernels.on_bits import Record
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.capabilities.servers.requests import connection, programs, shared
from smpc_dp.capabilities.servers.requests.computing_server import serve_shares
from smpc_dp.capabilities.servers.secret_sharing.agreement import Opened
from smpc_dp.capabilities.servers.secret_sharing.params import SharedParameters
from smpc_dp.capabilities.servers.statistics.plan import Program
from smpc_dp.errors import ConfigError, PeerFault, PrivacyError, SmpcError
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.events import Event, OnEvent, ignore
from smpc_dp.session.launcher import Launcher, member_command
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.baselines.schemas import faults

PARTIES = ("alice", "bob", "carol", "dave")
SERVERS = ("server1", "server2", "server3")
SUMS: dict[str, object] = {"length": 2, "lower": -100, "upper": 100, "kind": "integer", "dropout": 0.25}
TIMEOUTS = Timeouts(connect=60.0, step=30.0, gather=30.0)

Act = Callable[[smpc_dp.Session, int], Awaitable[object]]


def session(folder: Path, parameters: dict[str, object] = SUMS, servers: int = 3) -> Path:
    return create_local_session(
        folder, PARTIES, parameters, protocol="mpyc", servers=servers, timeouts=TIMEOUTS
    )


async def party(path: Path, index: int, act: Act, ledger: Path | None = None) -> object:
    try:
        async with smpc_dp.connect(path, party=PARTIES[index], ledger=ledger) as opened:
            return await act(opened, index)
    except SmpcError as error:
        return error


async def execute(
    path: Path,
    act: Act,
    *,
    ledgers: dict[str, Path] | None = None,
    on_event: OnEvent = ignore,
    requests: int = 1,
) -> tuple[list[object], list[list[Opened | SmpcError]]]:
    """Serve on all servers, in this process, while every party acts; their mpyc are processes."""
    serving = [
        asyncio.create_task(serve_shares(path, name, requests=requests, on_event=on_event))
        for name in SERVERS
    ]
    got = await asyncio.gather(
        *(party(path, index, act, (ledgers or {}).get(name)) for index, name in enumerate(PARTIES))
    )
    return list(got), [list(await task) for task in serving]


def vector(index: int) -> list[int]:
    return [index - 7, 10 * index]


@pytest.mark.long
@pytest.mark.parametrize("servers", [3, pytest.param(7, marks=pytest.mark.slow)])
def test_run_adds_up_among_server_processes(tmp_path: Path, servers: int) -> None:
    """Parties, servers and their mpyc are processes: with 7 servers 18 of them."""
    path = session(tmp_path, servers=servers)
    (tmp_path / "inputs").mkdir()
    for index, name in enumerate(PARTIES):
        (tmp_path / "inputs" / f"{name}.json").write_text(json.dumps(vector(index)))
    command = [sys.executable, "-m", "smpc_dp", "run", str(path), "--operation", "sum", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert faults(result) == []
    assert result["value"] == [sum(index - 7 for index in range(4)), 60]
    assert result["survivors"] == list(PARTIES)
    signed = result["evidence"]["survivors"]["signatures"]
    assert set(signed) == {f"server{index + 1}" for index in range(servers)}
    assert f"any {(servers - 1) // 2} of them" in result["privacy"]["claim"]
    assert any("a server that deviates" in reason for reason in result["privacy"]["not_protected"])


@pytest.mark.long
async def test_a_session_goes_on_from_sum_to_average_to_statistic(tmp_path: Path) -> None:
    """At epsilon 12 the noise of tau over 6 pairs is below 1 but once in 1e4 runs: concordant gives 1."""
    ledgers = {"bob": tmp_path / "bob.ledger"}
    Ledger.create(
        ledgers["bob"],
        party="bob",
        dataset="d",
        relation="substitution",
        epsilon=12.0,
        delta=1e-6,
        exact="outside",
    )
    kernel = kendall_tau(Field(0, 9), Field(0, 9))

    async def act(opened: smpc_dp.Session, index: int) -> object:
        total = await opened.sum(vector(index), expect={"protocol": "mpyc"}, label="first")
        mean = await opened.average(vector(index), expect={"protocol": "mpyc"})
        tau = await opened.pairwise(kernel, (index, index + 3), 12.0, engine="mpyc")
        return total, mean, tau

    reported: list[Event] = []
    got, served = await execute(session(tmp_path), act, ledgers=ledgers, requests=3, on_event=reported.append)
    # Parties, and servers, leave when they have what they came for: nobody is lost.
    assert not [event for event in reported if event.kind == "lost"]
    for answer in got:
        assert isinstance(answer, tuple), answer
        total, mean, tau = answer
        assert total.value.tolist() == [-22, 60]
        assert mean.value.tolist() == [-5.5, 15.0]
        assert tau.pairs == 6
        assert tau.value == got[0][2].value  # type: ignore[index]
        assert abs(tau.value - 1) < 1 + 1e-9
        assert tau.privacy.epsilon == 12.0
        assert tau.survivors == PARTIES
        assert set(tau.evidence.opened_by.signatures) == set(SERVERS)
    assert got[1][2].privacy.receipt is not None  # type: ignore[index]
    assert all(isinstance(ended, Opened) for ends in served for ended in ends)
    spent = Ledger.open(ledgers["bob"], party="bob").spent()
    assert spent.epsilon is not None
    assert 11 < spent.epsilon <= 12


async def test_channels_are_served_while_noise_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans that take a second each, of servers and parties, do not hold up the loop that all share."""
    beats: list[None] = []
    during: list[int] = []
    compiled = programs.compile_operation

    def slowly(parameters: SharedParameters, operation: str, *rest: Any) -> Program:
        before = len(beats)
        time.sleep(1.0)
        during.append(len(beats) - before)
        return compiled(parameters, operation, *rest)

    async def beat() -> None:
        while True:
            await asyncio.sleep(0.02)
            beats.append(None)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        if index == 0:
            monkeypatch.setattr(shared, "compile_operation", slowly)
            monkeypatch.setattr(connection, "compile_operation", slowly)
        return await opened.sum(vector(index))

    beating = asyncio.create_task(beat())
    got, _ = await execute(session(tmp_path), act)
    beating.cancel()
    assert all(answer.value.tolist() == [-22, 60] for answer in got)  # type: ignore[attr-defined]
    assert len(during) == len(SERVERS) + len(PARTIES)
    # Some fifty on a machine that is idle; none where the loop waits.
    assert min(during) >= 3


@pytest.mark.long
async def test_auc_with_public_labels_is_that_of_the_marks(tmp_path: Path) -> None:
    """Perfect scores give 1; the noise of 4 pairs at epsilon 12 is above 1 less than once in 1e5 runs."""
    scores, public_labels = [9, 8, 1, 0], [1, 1, 0, 0]

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.pairwise(auc(Field(0, 9)), scores[index], 12.0, public_label=public_labels[index])

    got, _ = await execute(session(tmp_path, {}), act)
    values = {answer.value for answer in got if isinstance(answer, StatisticResult)}
    assert len(values) == 1
    assert abs(values.pop() - 1) < 2


@pytest.mark.long
async def test_users_own_kernels_on_shares_and_pairs_with_noise_of_their_own(tmp_path: Path) -> None:
    """At epsilon 12 noise of 6 pairs is above 1 less than once in 1e4 runs, that of a pair once in 8e4."""

    def closer(builder: Builder, x: Record, y: Record) -> Bits:
        below = less_than(builder, x[0], y[0])
        return (builder.and_(below, builder.not_(equal(builder, x[1], y[1]))),)

    def plain(a: Codes, b: Codes) -> Codes:
        return np.asarray((a[..., 0] < b[..., 0]) & (a[..., 1] != b[..., 1]), np.int64)

    fine = Field(0, 65_535)
    kernel = circuit_kernel("below", closer, plain, fine, fine, low=0.0, high=1.0, symmetric=False)
    near = table_kernel("near", lambda x, y: float(abs(x[0] - y[0]) < 2), Field(0, 9), low=0, high=1)

    async def act(opened: smpc_dp.Session, index: int) -> object:
        whole = await opened.pairwise(near, index, 12.0)
        some = await opened.pairwise(kernel, (1000 * index, index), 12.0, P=3)
        each = await opened.pairwise(near, 5, 12.0, noise="randomised_response")
        return whole, some, each

    got, _ = await execute(session(tmp_path, {}), act, requests=3)
    for answer in got:
        assert isinstance(answer, tuple), answer
        whole, some, each = answer
        assert (whole.kernel, whole.pairs) == ("near", 6)
        assert abs(whole.value - 3 / 6) < 1
        assert (some.kernel, some.pairs) == ("below", 6)
        # Which of a pair comes first is drawn.
        assert abs(some.value - 0.5) < 0.5 + 1
        assert (each.pairs, each.partners, each.privacy.epsilon) == (2, 1, 12.0)
        assert abs(each.value - 1) < 1e-3
        assert [a.value for a in answer] == [a.value for a in got[0]]  # type: ignore[attr-defined]


async def test_a_ledger_that_refuses_shares_nothing_and_the_others_go_on(tmp_path: Path) -> None:
    ledgers = {"alice": tmp_path / "alice.ledger"}
    Ledger.create(
        ledgers["alice"], party="alice", dataset="d", relation="substitution", epsilon=1.0, delta=1e-6
    )

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.pairwise(kendall_tau(Field(0, 9), Field(0, 9)), (index, index), 12.0)

    (alice, *others), _ = await execute(session(tmp_path), act, ledgers=ledgers)
    assert isinstance(alice, PrivacyError)
    for answer in others:
        assert isinstance(answer, StatisticResult)
        assert answer.survivors == PARTIES[1:]
        assert answer.absent == ("alice",)
        assert all(fault.startswith("alice: left out") for fault in answer.faults)
    assert not Ledger.open(ledgers["alice"], party="alice").entries()


async def test_what_cannot_be_computed_is_refused_at_the_user(tmp_path: Path) -> None:
    kernel = kendall_tau(Field(0, 9), Field(0, 9))
    calls: list[tuple[dict[str, object], str]] = [
        ({"epsilon": 1e-9}, "epsilon"),
        ({"epsilon": 1.0, "P": 9}, "partners"),
        ({"epsilon": 1.0, "noise": "exponential"}, "noise"),
        ({"epsilon": 1.0, "noise": "pair_laplace", "P": 33}, "partners"),
        ({"epsilon": 1.0, "engine": "garbled"}, "engine"),
        ({"epsilon": 1.0, "public_label": 1}, "public_label"),
    ]

    async def act(opened: smpc_dp.Session, index: int) -> object:
        for arguments, where in calls:
            with pytest.raises(ConfigError) as caught:
                await opened.pairwise(kernel, (index, index), **arguments)  # type: ignore[arg-type]
            assert where in str(caught.value)
        with pytest.raises(PrivacyError, match="out of bounds"):
            await opened.pairwise(kernel, (index, 10), 1.0)
        return True

    got, _ = await execute(session(tmp_path), act)
    assert got == [True] * len(PARTIES)


@pytest.mark.thin(3)
@pytest.mark.parametrize("step", ["connected", "shares", "compute"])
def test_a_killed_server_ends_everybody_and_is_named(tmp_path: Path, step: str) -> None:
    path = session(tmp_path)
    # Everybody must be connected to everybody: a member that is not yet names a server that has ended for it.
    expected = {(server, party) for server in SERVERS for party in PARTIES} | {
        ("server2", "server1"),
        ("server2", "server3"),
    }
    known: set[tuple[str, str]] = set()

    def kill(event: Event) -> None:
        known.add((event.party, event.detail))
        if step == "connected":
            if expected <= known:
                launcher.kill("server2")
        elif (event.party, event.kind, event.step) == ("server2", "step", step):
            launcher.kill("server2")

    launcher = Launcher(kill)
    commands = {name: member_command("party", str(path), "--as", name) for name in SERVERS}

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.sum(vector(index))

    async def run() -> list[object]:
        running = asyncio.create_task(launcher.run(commands, None))
        got = await asyncio.gather(*(party(path, index, act) for index in range(len(PARTIES))))
        await running
        return list(got)

    for answer in asyncio.run(run()):
        assert isinstance(answer, SmpcError)
        assert "server2" in str(answer)
    for name in ("server1", "server3"):
        assert launcher.outcomes[name].exit_code == 1
        assert "server2" in launcher.outcomes[name].reason
    assert has_ended({process.pid for process in launcher._processes.values()})


async def test_a_killed_mpyc_names_its_server_and_the_session_ends(tmp_path: Path) -> None:
    """All servers are in this process: which of the three is hit is known by the error alone."""

    async def hit() -> None:
        while not (own := mpyc_processes({os.getpid()})):
            await asyncio.sleep(0.01)
        os.kill(min(own), signal.SIGKILL)

    hitting = asyncio.create_task(hit())

    async def act(opened: smpc_dp.Session, index: int) -> object:
        return await opened.sum(vector(index))

    got, served = await execute(session(tmp_path), act, requests=3)
    await hitting
    culprits = set()
    for answer in got:
        assert isinstance(answer, PeerFault)
        culprits.add(answer.culprit)
    assert len(culprits) == 1
    assert [len(ended) for ended in served] == [1, 1, 1]
    assert has_ended({os.getpid()})


@pytest.mark.long
def test_the_example_is_within_its_planned_error() -> None:
    """Four borrowers, and noise alone: Laplace noise is 14 deviations off once in 4e8 runs."""
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "three_servers.py"))
    result = asyncio.run(example["main"](4))
    assert result["pairs"] == 6
    assert abs(result["value"] - result["truth"]) < 14 * result["noise_error"]


def has_ended(servers: set[int]) -> bool:
    """Wait until no mpyc process of these servers is left; return whether that came about in a minute."""
    deadline = time.monotonic() + 60
    while mpyc_processes(servers):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def mpyc_processes(servers: set[int]) -> set[int]:
    """Return the mpyc processes of these servers: the last argument of one is its server's process id.

    Tests that run beside this one have servers and mpyc processes of their own.
    """
    result = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")[:-1]
            except OSError:
                continue
            boots = any(b"smpc_dp.capabilities.servers.requests.child" in argument for argument in arguments)
            if boots and arguments[-1] in {str(server).encode() for server in servers}:
                result.add(int(entry.name))
    return result
