"""Local reports between processes: drawn once, sent again as they were, to the roster's analyst alone."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import smpc_dp
from smpc_dp.capabilities.reports.local_names import NamedCategories
from smpc_dp.capabilities.reports.reports import (
    REPORT,
    STORED,
    LocalReport,
    Sent,
    SentReport,
    auc_error_of_lost,
)
from smpc_dp.capabilities.reports.requests.reporting import collect_reports, report_parameters
from smpc_dp.identity.keys import Identity
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.connection import AggregatorConnection
from smpc_dp.session.events import ignore
from smpc_dp.session.local import create_local_session
from smpc_dp.session.member import Membership, from_wire
from smpc_dp.session.session_file import Timeouts, load_session, write_session
from smpc_dp.transport.interfaces import PeerChannel
from smpc_dp.wire.signing import decode, encode
from tests.baselines.schemas import faults
from tests.command import smpc_dp as command

PARTIES = ("alice", "bob", "carol", "dave", "erin", "frank")
LABELS = [1, 0, 1, 0, 1, 0]
GINI: Mapping[str, object] = {
    "kernel": "gini",
    "label": "scores of 2026",
    "epsilon": 4.0,
    "fields": [{"lower": 0, "upper": 5, "exact": True}],
}
AUC: Mapping[str, object] = {
    "kernel": "auc",
    "epsilon": 4.0,
    "levels": 3,
    "fields": [{"lower": 0.0, "upper": 1.0, "step": 0.01}],
    "labels": LABELS,
}
pytestmark = pytest.mark.filterwarnings("ignore::smpc_dp.session.planned.NoiseWarning")


def new(folder: Path, parameters: Mapping[str, object], connect: float = 20.0, epsilon: float = 4.0) -> Path:
    path = create_local_session(
        folder, PARTIES, parameters, protocol="reports", timeouts=Timeouts(connect=connect, step=20.0)
    )
    (folder / "ledgers").mkdir()
    (folder / "inputs").mkdir()
    for number, name in enumerate(PARTIES):
        budget = {"relation": "substitution", "epsilon": epsilon, "delta": 0.0}
        Ledger.create(ledger_of(path, name), party=name, dataset="d", **budget)  # type: ignore[arg-type]
        (folder / "inputs" / f"{name}.txt").write_text(str(min(number, 5) / (1 if parameters is GINI else 5)))
    return path


def ledger_of(path: Path, name: str) -> Path:
    return path.parent / "ledgers" / f"{name}.ledger"


def spent(path: Path, name: str) -> int:
    return len(Ledger.open(ledger_of(path, name), party=name).entries())


async def send(path: Path, name: str, record: Any) -> SentReport:
    async with smpc_dp.connect(path, party=name, ledger=ledger_of(path, name)) as session:
        return await session.report(record)


def stored_of(path: Path, name: str) -> bytes:
    (file,) = (path.parent / "keys" / "reports").glob(f"{name}-*.report")
    return file.read_bytes()


def start(path: Path, name: str) -> subprocess.Popen[str]:
    arguments = ["party", str(path), "--as", name]
    if name in PARTIES:
        arguments += ["--ledger", str(ledger_of(path, name))]
    return subprocess.Popen(
        [sys.executable, "-m", "smpc_dp", *arguments, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


class Silent:
    """An analyst that takes what a party sends, and confirms nothing."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self._reading: list[asyncio.Task[None]] = []

    def welcome(self, channel: PeerChannel) -> None:
        async def read() -> None:
            _, envelope = from_wire(await channel.receive(), channel.peer)
            await self.received.put(decode(envelope.body, Sent, channel.peer).report)

        self._reading.append(asyncio.get_running_loop().create_task(read()))


async def test_a_killed_party_sends_the_same_bytes_when_it_is_started_again(tmp_path: Path) -> None:
    """And is charged once: its record may have changed, and its file of records be gone."""
    path = new(tmp_path, GINI)
    analyst = Membership.load(path, "aggregator", role="aggregator")
    silent = Silent()
    listener = await analyst.endpoint(aggregator=True).listen(
        *analyst.address(None), silent.welcome, lambda *_: None
    )
    alice = start(path, "alice")
    first = await asyncio.wait_for(silent.received.get(), 60)
    alice.send_signal(signal.SIGKILL)
    assert await asyncio.to_thread(alice.wait) == -signal.SIGKILL
    await listener.close()
    assert first == stored_of(path, "alice")
    assert spent(path, "alice") == 1
    (tmp_path / "inputs" / "alice.txt").unlink()

    collecting = asyncio.create_task(collect_reports(path))
    again = start(path, "alice")
    others = [send(path, name, [number % 6]) for number, name in enumerate(PARTIES) if name != "alice"]
    await asyncio.gather(*others)
    printed, errors = await asyncio.to_thread(again.communicate)
    assert again.returncode == 0, errors
    answer = json.loads(printed)
    assert (answer["again"], faults(answer)) == (True, [])
    result = await collecting
    assert result.reported == PARTIES
    assert not result.faults
    (received,) = (tmp_path / "board").glob("*/alice.report")
    assert received.read_bytes() == first
    assert [spent(path, name) for name in PARTIES] == [1] * 6


def other_analyst(path: Path, folder: Path) -> Membership:
    """Return an analyst with another key, at the same address, who has the same session otherwise."""
    session = load_session(path)
    folder.mkdir()
    mallory = Identity.generate("aggregator")
    members = [
        mallory.entry("aggregator", member.address) if member.role == "aggregator" else member
        for member in session.roster
    ]
    mallory.save(folder / "aggregator.key")
    write_session(folder / "session.toml", "reports", 1, session.parameters, members)
    return Membership.load(
        folder / "session.toml", "aggregator", folder / "aggregator.key", role="aggregator"
    )


async def test_an_analyst_who_is_not_named_gets_no_report(tmp_path: Path) -> None:
    """Another key than the roster's, and a party of the roster in the analyst's place: nothing is drawn."""
    path = new(tmp_path, GINI, connect=3.0)
    host, port = Membership.load(path, "aggregator", role="aggregator").address(None)
    for endpoint in (
        other_analyst(path, tmp_path / "mallory").endpoint(aggregator=True),
        Membership.load(path, "bob").endpoint(aggregator=True),
    ):
        silent = Silent()
        listener = await endpoint.listen(host, port, silent.welcome, lambda *_: None)
        with pytest.raises((smpc_dp.PeerFault, smpc_dp.TimeoutFault, smpc_dp.ConfigError)) as refused:
            await send(path, "alice", [1])
        assert not isinstance(refused.value, smpc_dp.ConfigError) or "public_key" in str(refused.value)
        await listener.close()
        assert silent.received.empty()
    assert spent(path, "alice") == 0
    assert not (tmp_path / "keys" / "reports").exists()


@pytest.mark.long
def test_the_hierarchical_auc_between_processes_counts_missing_parties(tmp_path: Path) -> None:
    """A party that cannot pay is missing; the error grows by what is proven of lost sample."""
    path = new(tmp_path, AUC, connect=4.0)
    poor = ledger_of(path, "frank")
    poor.unlink()
    Ledger.create(poor, party="frank", dataset="d", relation="substitution", epsilon=1.0, delta=0.0)
    done = command("run", str(path), "--ledgers", str(tmp_path / "ledgers"), "--json")
    assert done.returncode == 0, done.stderr
    assert "epsilon is short: the release is refused" in done.stderr
    result = json.loads(done.stdout)
    assert faults(result) == []
    assert (result["missing"], result["reports"]) == (["frank"], 5)
    labels = dict(zip(PARTIES, LABELS, strict=True))
    assert result["standard_error"] > auc_error_of_lost(labels, PARTIES[:5]) > 0
    assert any("bias from parties without a report" in line for line in result["privacy"]["not_protected"])
    assert spent(path, "frank") == 0
    # The analyst can be started again: with frank's report nobody is missing.
    poor.unlink()
    Ledger.create(poor, party="frank", dataset="d", relation="substitution", epsilon=4.0, delta=0.0)
    text = command("run", str(path), "--ledgers", str(tmp_path / "ledgers"))
    assert "from 6 reports of 6 parties" in text.stdout
    assert "lost sample" not in text.stdout
    assert [spent(path, name) for name in PARTIES] == [1] * 6


async def send_raw(path: Path, name: str, content: bytes) -> bool:
    """Send any bytes as a party's report; return whether the analyst confirms them."""
    member = Membership.load(path, name)
    connection = await AggregatorConnection.open(member, member.endpoint(), ignore)
    context = member.context(1)
    [message] = context.write(member.identity, context.session_digest, REPORT, ("aggregator",), Sent(content))
    try:
        await connection.fetch(1, message, STORED, 3.0)
    except smpc_dp.TimeoutFault:
        return False
    finally:
        await connection.close()
    return True


async def test_reports_that_do_not_count_are_refused_and_two_are_kept(tmp_path: Path) -> None:
    path = new(tmp_path, GINI, connect=5.0)
    collecting = asyncio.create_task(collect_reports(path))
    await asyncio.gather(*(send(path, name, [3]) for name in PARTIES[:5]))
    member = Membership.load(path, "alice")
    request = report_parameters(member).request(member.session.roster)
    first, second = stored_of(path, "alice"), stored_of(path, "alice")
    for number in range(40):
        # Another ledger and folder; two draws may be the same, but not of every record.
        if second == first:
            file = tmp_path / f"{number}.ledger"
            book = Ledger.create(
                file, party="alice", dataset="d", relation="substitution", epsilon=4.0, delta=0.0
            )
            second = request.report([number % 6], member.identity, book, tmp_path / str(number))
    signed, other = (decode(content, LocalReport, "alice") for content in (first, second))
    forged = encode(LocalReport("alice", signed.request, other.report, signed.signature))
    with pytest.raises(smpc_dp.PeerFault, match="in another's name") as sent:
        request.check(stored_of(path, "bob"), "alice")
    assert sent.value.culprit == "alice"
    confirmed = [
        await send_raw(path, "alice", content)
        for content in (stored_of(path, "bob"), forged, b"junk", first, second, first)
    ]
    assert confirmed == [False, False, False, True, False, False]
    result = await collecting
    assert (result.reported, result.missing) == (PARTIES[1:5], ("alice", "frank"))
    assert result.faults == ("alice: two different reports to one request",)


async def test_a_session_of_reports_has_nothing_else(tmp_path: Path) -> None:
    """And what a party cannot report is refused before anything is charged; values are clipped."""
    path = new(tmp_path, GINI)
    with pytest.raises(smpc_dp.ConfigError, match="'reports' has no sums"):
        await smpc_dp.serve(path)
    collecting = asyncio.create_task(collect_reports(path))
    async with smpc_dp.connect(path, party="alice") as session:
        with pytest.raises(smpc_dp.ConfigError, match="'reports' has no sums"):
            await session.sum([1.0])
        with pytest.raises(smpc_dp.ConfigError, match="a report needs one"):
            await session.report([1])
        plan = session.plan()
        assert plan is not None
        assert (plan.delta, plan.unit) == (0.0, "party")
        assert plan.epsilon == pytest.approx(4.0)
    for record, reason in (
        ([np.nan], "not a number"),
        ([0.5], "no multiples"),
        ([1, 2], "not the numbers of one record"),
        (None, "no report is stored"),
    ):
        with pytest.raises((smpc_dp.ConfigError, smpc_dp.PrivacyError), match=reason):
            await send(path, "alice", record)
    assert spent(path, "alice") == 0
    sent = await asyncio.gather(*(send(path, name, [9]) for name in PARTIES))
    assert [(one.clipped, one.again) for one in sent] == [(1, False)] * 6
    assert (await collecting).reported == PARTIES


NAMES: Mapping[str, object] = {
    "records": {"columns": {"ward": {"values": ["other"], "other": "other"}}, "max_rows": 1000},
    "undeclared": ["ward"],
    "label": "wards",
    "epsilon": 1.0,
    "delta": 1e-6,
}


async def test_names_of_categories_go_to_the_analyst_for_the_statistics_that_follow(tmp_path: Path) -> None:
    """Certain names of every party; each is charged once, in its ledger's unit."""
    path = create_local_session(
        tmp_path, PARTIES[:3], NAMES, protocol="reports", timeouts=Timeouts(connect=20.0, step=20.0)
    )
    (tmp_path / "ledgers").mkdir()
    for name in PARTIES[:3]:
        ledger = ledger_of(path, name)
        Ledger.create(
            ledger, party=name, dataset="d", unit="record", relation="add-remove", epsilon=1.0, delta=1e-6
        )
    collecting = asyncio.create_task(collect_reports(path))
    tables = [{"ward": [f"ward of {name}"] * 100 + ["surgery"] * 90 + ["x"]} for name in PARTIES[:3]]
    sent = [send(path, name, table) for name, table in zip(PARTIES[:3], tables, strict=True)]
    assert not any(one.again for one in await asyncio.gather(*sent))
    result = await collecting
    expected = ("other", "surgery", *(f"ward of {name}" for name in PARTIES[:3]))
    assert isinstance(result, NamedCategories)
    assert result.values == {"ward": expected}
    assert (result.reported, result.missing, result.faults) == (PARTIES[:3], (), ())
    assert [spent(path, name) for name in PARTIES[:3]] == [1] * 3


@pytest.mark.long
def test_a_run_prints_names_as_a_session_file_has_them(tmp_path: Path) -> None:
    """A table without the column is refused before anything starts; the guide runs the rest."""
    path = create_local_session(tmp_path, PARTIES[:3], NAMES, protocol="reports")
    (tmp_path / "inputs").mkdir()
    (tmp_path / "ledgers").mkdir()
    for name in PARTIES[:3]:
        (tmp_path / "inputs" / f"{name}.csv").write_text("ward\n" + "surgery\n" * 100)
        ledger = ledger_of(path, name)
        Ledger.create(
            ledger, party=name, dataset="d", unit="record", relation="add-remove", epsilon=1.0, delta=1e-6
        )
    done = command("run", str(path), "--ledgers", str(tmp_path / "ledgers"))
    assert done.returncode == 0, done.stderr
    assert 'ward: values = ["other", "surgery"]' in done.stdout
    (tmp_path / "inputs" / "bob.csv").write_text("station\nsurgery\n")
    refused = command("run", str(path), "--ledgers", str(tmp_path / "ledgers"))
    assert refused.returncode == 1, refused.stderr
    assert "bob: the table has no column 'ward'" in refused.stderr


def test_a_check_audits_released_names(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES[:3], NAMES, protocol="reports")
    done = command("plan", "check", "--session", str(path), "--samples", "10000", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["violations"] == []
    lied = command("plan", "check", "--session", str(path), "--samples", "10000", "--epsilon", "0.2")
    assert lied.returncode == 1, lied.stderr
    assert "VIOLATION" in lied.stdout
    planned = command("plan", "session", str(path))
    assert "rows in a party is released with a chance of a half" in planned.stdout
