"""`smpc-dp check`: what it says to do for each fault, and that sessions do not notice it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import errno
import fcntl
import json
import os
import shutil
import socket
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

import smpc_dp
from smpc_dp.errors import Check
from smpc_dp.identity.address import split_address
from smpc_dp.identity.keys import Identity
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.privacy.accountant.store import locked
from smpc_dp.session.check.folders import folder_line
from smpc_dp.session.check.host import HostOptions
from smpc_dp.session.check.lines import Line
from smpc_dp.session.check.member import check_member
from smpc_dp.session.events import Event, Kind
from smpc_dp.session.local import create_local_session, free_port
from smpc_dp.session.member import Membership, default_key
from smpc_dp.session.saved_session import OWNER
from smpc_dp.session.session_file import Timeouts, load_session, write_session
from smpc_dp.transport import handshake, inquiry, tls
from smpc_dp.transport.interfaces import PeerListener
from tests.command import smpc_dp as command
from tests.outer_certificates import Authority
from tests.relays import ConnectProxy, Relay
from tests.web_sessions import create_web_session

PARTIES = ("alice", "bob", "carol")
COUNTS: dict[str, object] = {"length": 1, "kind": "integer", "lower": 0, "upper": 100}
PARAMETERS = COUNTS | {"corrupt": 0.0}
TIMEOUTS = Timeouts(connect=20.0, step=20.0, gather=20.0)
Change = Callable[[Path, pytest.MonkeyPatch], object]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS)


@contextlib.asynccontextmanager
async def serving(path: Path, listen_on: str | None = None) -> AsyncIterator[list[Event]]:
    """Serve the session of `path`, without end; yield the aggregator's events once it listens."""
    reported: list[Event] = []
    task = asyncio.create_task(smpc_dp.serve(path, requests=0, listen_on=listen_on, on_event=reported.append))
    try:
        async with asyncio.timeout(60.0):
            # It listens before its first step.
            while not reported and not task.done():
                await asyncio.sleep(0.02)
        yield reported
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def edited(path: Path, **changes: Any) -> Path:
    """Write a session file with other parameters, addresses or entries beside `path`; return it."""
    session = load_session(path)
    parameters = {**session.parameters, **changes.get("parameters", {})}
    members = [changes.get("members", {}).get(member.name, member) for member in session.roster]
    other = path.with_name("edited.toml")
    write_session(other, session.protocol, session.version, parameters, members, session.timeouts)
    return other


async def until_reported(events: list[Event], kind: Kind, times: int = 1) -> None:
    async with asyncio.timeout(60.0):
        while sum(event.kind == kind for event in events) < times:
            await asyncio.sleep(0.02)


async def checked(path: Path, name: str, **options: Any) -> list[Line]:
    return await check_member(path, name, HostOptions(**options))


def one(lines: list[Line], name: str) -> Line:
    """Return the line of a check that has a fault, or else the last one."""
    those = [line for line in lines if line.check == name]
    return next((line for line in those if line.state in ("fix", "note")), those[-1])


# What is there, without an aggregator or with one.


async def test_a_party_that_can_take_part_has_nothing_to_fix(path: Path) -> None:
    async with serving(path) as events:
        lines = await checked(path, "alice")
        assert {event.kind for event in events} == {"step"}
    assert [line.check for line in lines] == [
        *("session", "key", "key folder"),
        *("name", "tcp", "channel", "versions", "digest", "clock", "connection"),
    ]
    assert {line.state for line in lines} == {"ok"}
    assert not any(line.todo for line in lines)
    assert {line.member for line in lines[3:]} == {"aggregator"}


async def test_the_command_prints_a_table_or_json_and_exits_by_what_is_to_fix(path: Path) -> None:
    async def run(*options: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "smpc_dp", "check", str(path), *options), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode()

    async with serving(path):
        code, table = await run("--as", "alice")
        assert (code, table.splitlines()[-1]) == (0, f"smpc-dp {smpc_dp.__version__}, alice: nothing to fix")
        code, printed = await run("--as", "aggregator", "--json")
        lines = json.loads(printed)["lines"]
        assert (code, json.loads(printed)["ok"], lines[-1]["check"]) == (0, True, "port")
        assert "'aggregator' listens there, with this session file" in lines[-1]["text"]
    code, printed = await run("--as", "alice", "--json")
    report = json.loads(printed)
    assert (code, report["member"], report["ok"]) == (1, "alice", False)
    assert report["release"] == smpc_dp.__version__
    states = {line["check"]: line["state"] for line in report["lines"]}
    assert states["tcp"] == "fix"
    assert {states[check] for check in ("channel", "versions", "digest", "clock", "connection")} == {
        "skipped"
    }
    code, table = await run("--as", "alice")
    assert code == 1
    assert "nothing listens at this port" in " ".join(table.replace("│", " ").split())
    assert table.splitlines()[-1].endswith(", alice: 1 to fix")


def test_an_unknown_member_and_a_wrong_address_are_errors_of_the_call(path: Path) -> None:
    result = command("check", str(path), "--as", "zoe")
    assert result.returncode == 1
    assert "'zoe' is not in the roster" in result.stderr
    result = command("check", str(path), "--as", "aggregator", "--listen", "here")
    assert result.returncode == 1
    assert "--listen: 'here' is not of the form host:port" in result.stderr


# Faults of this host.


def no_key(path: Path, _patch: pytest.MonkeyPatch) -> None:
    default_key(path, "alice").unlink()


def key_of_another(path: Path, _patch: pytest.MonkeyPatch) -> None:
    shutil.copy(default_key(path, "bob"), default_key(path, "alice"))


def new_key(path: Path, _patch: pytest.MonkeyPatch) -> None:
    default_key(path, "alice").unlink()
    Identity.generate("alice").save(default_key(path, "alice"))


def open_key(path: Path, _patch: pytest.MonkeyPatch) -> None:
    default_key(path, "alice").chmod(0o644)


def clock_of_1970(_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tls, "time", SimpleNamespace(time=lambda: 86_400.0))


def failing(number: int) -> Change:
    """Return what makes every file of a folder fail with an error of the system."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return lambda _path, patch: patch.setattr(tempfile, "TemporaryFile", refuse)


def without_locks(_path: Path, patch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    patch.setattr(fcntl, "flock", refuse)


def nearly_full(_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=(1 << 20)))


def evidence(path: Path, _patch: pytest.MonkeyPatch) -> None:
    digest = load_session(path).digest.hex()
    default_key(path, "alice").with_name(f"alice-{digest[:16]}.evidence.json").write_text("{}")


class Case(NamedTuple):
    """A fault: what makes it, the line that has it, and words of its text and of what to do."""

    change: Change
    check: str
    text: str
    todo: str


HOST = {
    "key file missing": Case(no_key, "key", "alice.key: there is no such file", "smpc-dp keygen alice"),
    "key of another member": Case(key_of_another, "key", "the identity of 'bob', not of 'alice'", "--show"),
    "new key": Case(new_key, "key", "roster[alice].public_key: is not the one of the key file", "--show"),
    "key that others can read": Case(open_key, "key", "run chmod 600 on it", "alone (`chmod 600 "),
    "clock before 2020": Case(clock_of_1970, "clock", "it shows 1970-01-02", "by NTP"),
    "disk full": Case(failing(errno.ENOSPC), "key folder", "No space left on device", "free some room"),
    "disk nearly full": Case(nearly_full, "key folder", "1 MiB are free, 16 are the least", "free some room"),
    "store read-only": Case(
        failing(errno.EROFS), "key folder", "Read-only file system", "mount it for writing"
    ),
    "folder of another user": Case(
        failing(errno.EACCES), "key folder", "Permission denied", "that runs smpc-dp"
    ),
    "no locks": Case(without_locks, "key folder", "No locks available", "a local disk"),
    "evidence": Case(evidence, "key folder", "refuses further sums", "smpc-dp audit"),
}


@pytest.mark.parametrize("case", HOST.values(), ids=HOST)
async def test_faults_of_a_host_say_what_to_do(
    path: Path, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    case.change(path, monkeypatch)
    lines = await checked(path, "alice")
    line = one(lines, case.check)
    assert line.state == "fix"
    assert case.text in line.text
    assert case.todo in line.todo
    if case.check in ("key", "clock"):
        # Nobody can be called without.
        assert {line.state for line in lines if line.member} == {"skipped"}


async def test_a_session_file_with_faults_has_a_line_for_each(tmp_path: Path) -> None:
    path = tmp_path / "session.toml"
    path.write_text('protocol = "secagg"\nversion = 7\n[parameters]\nlength = 0\n')
    lines = await checked(path, "alice")
    assert [(line.check, line.state) for line in lines] == [("session", "fix")] * len(lines)
    assert len(lines) >= 2
    assert all("smpc-dp roster" in line.todo for line in lines)
    [line] = await checked(tmp_path / "none.toml", "alice")
    assert "No such file" in line.text
    assert "Name the session file" in line.todo


async def test_pipes_are_not_waited_for(path: Path, tmp_path: Path) -> None:
    """Into which nobody writes: a thread that opens one could not be ended."""
    pipe, state = tmp_path / "pipe.toml", tmp_path / "state"
    os.mkfifo(pipe)
    state.mkdir()
    os.mkfifo(state / OWNER, 0o600)
    # A writer for each, so that a check that opens them fails here and does not hang.
    writers = [os.open(file, os.O_RDWR) for file in (pipe, state / OWNER)]
    try:
        async with asyncio.timeout(20.0):
            [line] = await checked(pipe, "alice")
            assert (line.state, line.text) == ("fix", f"{pipe}: is a pipe, not a file")
            line = one(await checked(path, "alice", state=state), "state")
            assert (line.state, line.text) == ("fix", f"{state / OWNER}: not a regular file")
    finally:
        for writer in writers:
            os.close(writer)


async def test_a_folder_that_cannot_be_looked_into_has_a_line(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"

    def exists(file: Path, **_: Any) -> bool:
        if closed in file.parents:
            raise PermissionError(errno.EACCES, "Permission denied")
        return True

    monkeypatch.setattr(Path, "exists", exists)
    lines = await checked(path, "alice", state=closed / "state", key=closed / "alice.key")
    assert [line.check for line in lines if line.state == "fix"] == [*("key", "key folder"), *("state",) * 2]
    line = folder_line("state", closed / "state", is_made=True)
    assert (line.state, line.text) == ("fix", f"{closed / 'state'}: cannot write a file (Permission denied)")
    assert "that runs smpc-dp" in line.todo


async def test_a_ledger_is_looked_at_and_not_charged(path: Path, tmp_path: Path) -> None:
    noisy = create_local_session(
        tmp_path / "noisy", PARTIES, {"length": 1, "lower": 0.0, "upper": 1.0, "epsilon": 1.0, "delta": 1e-6}
    )
    book = tmp_path / "alice.ledger"

    def create(epsilon: float, party: str = "alice") -> None:
        book.unlink(missing_ok=True)
        Ledger.create(
            book, party=party, dataset="d", relation="substitution", epsilon=epsilon, delta=1e-6, unit="party"
        )

    async def line() -> Line:
        return one(await checked(noisy, "alice", ledger=book), "ledger")

    create(2.0)
    before = book.read_bytes()
    assert (await line()).state == "ok"
    assert book.read_bytes() == before
    with locked(book):
        assert (await line()).state == "note"
    create(0.5)
    assert "is refused" in (await line()).text
    create(2.0, party="bob")
    assert "the ledger of party 'bob', not of 'alice'" in (await line()).text
    assert "leave --ledger out" not in (await line()).todo
    assert "leave --ledger out" in one(await checked(path, "alice", ledger=book), "ledger").todo
    default_key(noisy, "alice").rename(tmp_path / "key")
    assert (await line()).state == "skipped"
    (tmp_path / "key").rename(default_key(noisy, "alice"))
    book.unlink()
    assert "smpc-dp ledger create" in (await line()).todo
    [folder] = [
        line
        for line in await checked(path, "alice", ledger=tmp_path / "none" / "alice.ledger")
        if line.check == "ledger folder"
    ]
    assert (folder.state, folder.todo) == ("fix", f"Make it: mkdir -m 700 {tmp_path / 'none'}")


async def test_the_folder_of_saved_states(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, counter = tmp_path / "alice.state", tmp_path / "alice.counter"

    async def lines() -> list[Line]:
        result = await checked(path, "alice", state=folder, counter=counter)
        return [line for line in result if line.check in ("state", "counter")]

    # A session makes its state; the folder of the counter is made by whoever knows that nothing sets it back.
    assert [line.state for line in await lines()] == ["ok", "fix"]
    assert not folder.exists()
    folder.mkdir()
    counter.mkdir()
    assert [line.state for line in await lines()] == ["ok", "ok"]
    owner = {"format": "smpc-dp state of a session", "version": 2, "member": "alice", "counter": True}
    owner |= {"pair": "0" * 32}
    (folder / "owner").write_text(json.dumps(owner | {"session": load_session(path).digest.hex()}))
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [line.state for line in await lines()] == ["ok", "note", "ok"]
        # As another check does.
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert [line.state for line in await lines()] == ["ok", "ok"]
    assert [line.state for line in await lines()] == ["ok", "ok"]
    for other in ({"session": "0" * 64}, {"member": "bob", "session": load_session(path).digest.hex()}):
        (folder / "owner").write_text(json.dumps(owner | other))
        _, fault, _ = await lines()
        assert fault.state == "fix"
        assert "for this session alone" in fault.todo
    (folder / "owner").write_text("nothing")
    _, fault, _ = await lines()
    assert fault.state == "fix"
    failing(errno.EROFS)(path, monkeypatch)
    assert "Read-only file system" in (await lines())[0].text


# Faults of the connection.


def at(path: Path, address: str) -> Path:
    """Return a session file in which the aggregator has another address."""
    member = load_session(path).roster.member("aggregator")
    return edited(
        path,
        members={
            "aggregator": Identity.load(default_key(path, "aggregator")).entry(
                "aggregator", address, member.checkpoint_key
            )
        },
    )


async def test_a_host_without_an_address(path: Path) -> None:
    line = one(await checked(at(path, "no-such-host.invalid:7100"), "alice"), "name")
    assert line.state == "fix"
    assert "no-such-host.invalid has no address here" in line.text
    assert "getent hosts no-such-host.invalid" in line.todo


async def test_a_server_that_is_not_started(path: Path) -> None:
    line = one(await checked(path, "alice"), "tcp")
    assert line.state == "fix"
    assert "nothing listens at this port" in line.text
    assert "smpc-dp party session.toml --as aggregator --requests 0" in line.todo


async def test_a_port_that_is_closed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "ATTEMPT_SECONDS", 0.5)
    with contextlib.ExitStack() as stack:
        # A full queue drops packets, as a firewall does.
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        address = server.getsockname()
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        lines = await checked(at(path, f"127.0.0.1:{address[1]}"), "alice")
    line = one(lines, "tcp")
    assert line.state == "fix"
    assert "does not answer in" in line.text
    assert "firewalls of both networks" in line.todo


async def test_an_address_without_a_route(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise OSError(errno.ENETUNREACH, os.strerror(errno.ENETUNREACH))

    monkeypatch.setattr("smpc_dp.session.check.connection.connect", refuse)
    line = one(await checked(path, "alice"), "tcp")
    assert "Network is unreachable" in line.text
    assert "VPN" in line.todo


async def listening_as(path: Path, name: str) -> PeerListener:
    """Return the listener of a party at its address."""
    membership = Membership.load(path, name)
    endpoint = membership.endpoint()
    return await endpoint.listen(*membership.address(None), lambda _: None, lambda *_: None)


async def test_another_member_at_the_address(tmp_path: Path) -> None:
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, timeouts=TIMEOUTS, addresses=True)
    session = load_session(path)
    aggregator, bob = session.roster.member("aggregator"), session.roster.member("bob")
    swapped = edited(
        path,
        members={
            name: Identity.load(default_key(path, name)).entry(member.role, other.address)
            for name, member, other in (("aggregator", aggregator, bob), ("bob", bob, aggregator))
        },
    )
    # bob's process has the address that the aggregator has in alice's file: it shows its own key.
    listener = await listening_as(swapped, "bob")
    try:
        line = one(await checked(path, "alice"), "channel")
    finally:
        await listener.close()
    assert line.state == "fix"
    assert "'bob' answers there in the place of 'aggregator'" in line.text
    assert "where its host forwards this port" in line.todo


async def test_the_key_that_was_met_is_shown(path: Path) -> None:
    mine = at(path, load_session(path).roster.member("aggregator").address or "")
    other = Identity.generate("aggregator")
    default_key(path, "aggregator").unlink()
    other.save(default_key(path, "aggregator"))
    entry = other.entry("aggregator", load_session(path).roster.member("aggregator").address)
    async with serving(edited(path, members={"aggregator": entry})):
        line = one(await checked(path, "alice"), "channel")
    assert mine.exists()
    assert line.state == "fix"
    expected = load_session(path).roster.member("aggregator").public_key.hex()
    assert line.text == f"'aggregator' answers with the key {other.public_key.hex()}, not {expected}"
    assert "smpc-dp keygen aggregator --show" in line.todo


def self_signed(folder: Path) -> ssl.SSLContext:
    """Return the context of a web server with a certificate of its own."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web.example.org")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime.datetime(2021, 1, 1))
        .not_valid_after(datetime.datetime(2099, 1, 1))
        .sign(key, SHA256())
    )
    file = folder / "web.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


@contextlib.asynccontextmanager
async def answering(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any], context: ssl.SSLContext | None = None
) -> AsyncIterator[str]:
    """Yield the address of another service."""
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def speak_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(10)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)
    writer.close()


async def test_a_web_server_at_the_address(path: Path, tmp_path: Path) -> None:
    async with answering(hang_up, self_signed(tmp_path)) as address:
        line = one(await checked(at(path, address), "alice"), "channel")
    assert "no member of the session answers (certificate SHA-256 " in line.text
    assert "a proxy that ends TLS" in line.todo


@pytest.mark.parametrize(
    ("answer", "text", "todo"),
    [
        (speak_http, "no TLS of smpc-dp answers (wrong version number)", "Another service has this port"),
        (hang_up, "the connection ends during the TLS handshake", "must pass the bytes on unchanged"),
        (say_nothing, "no TLS answer in", "has stopped"),
    ],
    ids=["http", "hangs up", "silent"],
)
async def test_other_services_at_the_address(
    path: Path, answer: Any, text: str, todo: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiry, "ATTEMPT_SECONDS", 2.0)
    async with answering(answer) as address:
        line = one(await checked(at(path, address), "alice"), "channel")
    assert line.state == "fix"
    assert text in line.text
    assert todo in line.todo


async def test_another_session_file_shows_both_digests_and_what_differs(path: Path) -> None:
    other = edited(path, parameters={"upper": 99})
    async with serving(path) as events:
        lines = await checked(other, "alice")
        await until_reported(events, "refused")
    line = one(lines, "digest")
    assert line.state == "fix"
    mine, theirs = load_session(other).digest.hex(), load_session(path).digest.hex()
    assert line.text == f"{mine} here, {theirs} there; parameters.upper: 99 here, 100 there"
    assert "same session file" in line.todo
    # The lines after it are there all the same.
    assert (lines[-1].check, lines[-1].state) == ("connection", "ok")


async def test_a_roster_with_another_key_of_this_member(path: Path) -> None:
    new = Identity.generate("alice")
    other = edited(path, members={"alice": new.entry()})
    key = path.with_name("new.key")
    new.save(key)
    async with serving(path):
        line = one(await checked(other, "alice", key=key), "channel")
    assert line.state == "fix"
    assert "hangs up: its roster has another key of this member" in line.text
    assert "Compare the digests that `smpc-dp roster edited.toml` prints on both hosts" in line.todo


async def test_another_version_of_the_channel(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> tuple[str, str, Check]:
        return "protocol", "speaks another version", Check.UNKNOWN_FORMAT

    monkeypatch.setattr(handshake, "_verdict", refuse)
    async with serving(path):
        lines = await checked(path, "alice")
    line = one(lines, "versions")
    assert line.state == "fix"
    assert "it speaks another protocol or version" in line.text
    assert "the same release on both hosts" in line.todo
    assert one(lines, "channel").state == "ok"


@pytest.mark.parametrize(
    ("seconds", "state", "text"),
    [
        (0.0, "ok", " s apart"),
        (30.0, "ok", " s apart"),
        # Not at the half of a digit: what is shown is the middle of the round trip.
        (88_000.0, "note", "1.0 days behind that of 'aggregator'"),
        (-7_200.0, "note", "2.0 hours ahead of that of 'aggregator'"),
    ],
)
async def test_a_clock_that_is_off(
    path: Path, seconds: float, state: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "time", SimpleNamespace(time=lambda: time.time() + seconds))
    async with serving(path):
        lines = await checked(path, "alice")
    line = one(lines, "clock")
    assert line.state == state
    assert text in line.text
    if state == "note":
        assert "timedatectl" in line.todo
    assert not any(line.state == "fix" for line in lines)


async def test_an_aggregator_that_has_stopped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smpc_dp.session.check.connection.HELLO_SECONDS", 0.5)

    async def wait(*_: object, **__: object) -> None:
        await asyncio.sleep(30.0)

    monkeypatch.setattr(handshake, "answer_greeting", wait)
    async with serving(path):
        line = one(await checked(path, "alice"), "channel")
    assert line.text == "no answer in 0.5 s"
    assert "look at its log" in line.todo


# The way over HTTPS.


class Web(NamedTuple):
    """A session at `wss://`: its file, the balancer and the proxy before its aggregator, and certificates."""

    path: Path
    port: int
    balancer: Relay
    proxy: ConnectProxy
    authority: Authority

    async def lines(self, **options: Any) -> list[Line]:
        settings = {"web": smpc_dp.WebSettings(self.authority.file)} | options
        return await checked(self.path, "alice", **settings)


@pytest.fixture
async def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Web]:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    authority, port = Authority(tmp_path), free_port()
    balancer = Relay(port, authority.sign("localhost"))
    async with balancer.open(), ConnectProxy().open() as proxy:
        path = create_web_session(tmp_path, PARTIES, PARAMETERS, balancer.port, timeouts=TIMEOUTS)
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        yield Web(path, port, balancer, proxy, authority)


async def test_a_party_that_reaches_an_aggregator_over_https_has_nothing_to_fix(web: Web) -> None:
    async with serving(web.path, listen_on=f"127.0.0.1:{web.port}") as events:
        lines = await web.lines()
        assert {event.kind for event in events} == {"step"}
        port = one(
            await checked(
                web.path,
                "aggregator",
                listen=f"127.0.0.1:{web.port}",
                web=smpc_dp.WebSettings(web.authority.file),
            ),
            "port",
        )
    assert [line.check for line in lines[3:]] == [
        *("name", "tcp", "proxy", "outer TLS", "upgrade", "channel"),
        *("versions", "digest", "clock", "connection"),
    ]
    assert {line.state for line in lines} == {"ok"}
    assert web.proxy.targets[0] == f"localhost:{web.balancer.port}"
    assert "lets connections to localhost" in one(lines, "proxy").text
    assert port.state == "ok"


async def fails(site: Web, check: str, text: str, todo: str, **options: Any) -> None:
    lines = await site.lines(**options)
    [line] = [line for line in lines if line.state == "fix"]
    assert line.check == check
    assert text in line.text
    assert todo in line.todo
    assert lines[-1].state == "skipped"


async def test_a_wrong_proxy(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    await fails(web, "tcp", "of HTTPS_PROXY does not accept a connection", "Correct HTTPS_PROXY")
    monkeypatch.setenv("HTTPS_PROXY", "http://no-such-proxy.invalid:3128")
    await fails(web, "name", "no-such-proxy.invalid of the proxy in HTTPS_PROXY", "Correct HTTPS_PROXY")
    # What follows the sign would be a password; what is before it is one's beginning.
    for sign in "#?/":
        monkeypatch.setenv("HTTPS_PROXY", f"http://alice:2026{sign}secret@127.0.0.1:3128")
        await fails(web, "proxy", "is no URL of an HTTP proxy", "Correct HTTPS_PROXY")
        assert not [line for line in await web.lines() if "2026" in line.text + line.todo]
    monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1080")
    await fails(web, "proxy", "SOCKS is not supported", "Correct HTTPS_PROXY")
    # An HTTPS server is no proxy.
    monkeypatch.setenv("HTTPS_PROXY", web.proxy.url)
    web.proxy.answer = b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"
    await fails(web, "proxy", "is HTTPS_PROXY the address of a proxy?", "let CONNECT to localhost:")
    web.proxy.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    await fails(web, "proxy", "its rules forbid it", "let CONNECT to localhost:")
    web.proxy.answer = b"220 mail.example.org\r\n\r\n"
    await fails(web, "proxy", "something else than HTTP", "Correct HTTPS_PROXY")


@pytest.mark.parametrize(
    ("host", "first", "last", "text"),
    [
        ("localhost", -3.0, -1.0, "has expired: whoever runs localhost must renew it"),
        ("localhost", 1.0, 2.0, "is not valid yet: is this machine's clock right (it shows 20"),
        ("other.example.org", -1.0, 1.0, "is of another host than localhost"),
    ],
    ids=["expired", "clock off by a day", "another host"],
)
async def test_a_wrong_outer_certificate(
    tmp_path: Path, web: Web, host: str, first: float, last: float, text: str
) -> None:
    other = Relay(web.port, web.authority.sign(host, first=first, last=last))
    async with other.open():
        path = create_web_session(tmp_path / "other", PARTIES, PARAMETERS, other.port, timeouts=TIMEOUTS)
        await fails(web._replace(path=path), "outer TLS", text, "renews or corrects its certificate")
        line = one(await web._replace(path=path).lines(), "outer TLS")
        assert "clock of this host (`date -u`)" in line.todo


async def test_certificates_that_are_not_trusted(web: Web, tmp_path: Path) -> None:
    await fails(web, "outer TLS", "signed by none that this machine trusts", "--ca", web=None)
    missing = smpc_dp.WebSettings(tmp_path / "none.pem")
    await fails(web, "outer TLS", "cannot read the CA certificates", "--ca", web=missing)


async def test_a_port_of_https_where_nothing_listens(
    web: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HTTPS_PROXY")
    path = create_web_session(tmp_path / "other", PARTIES, PARAMETERS, free_port(), timeouts=TIMEOUTS)
    site = web._replace(path=path)
    await fails(site, "tcp", "(Connection refused)", "Whoever runs localhost starts the web server")


async def test_a_wrong_path_and_a_server_that_is_not_started(web: Web, tmp_path: Path) -> None:
    await fails(web, "upgrade", "which may not be running", "must be running")
    other = create_web_session(
        tmp_path / "other", PARTIES, PARAMETERS, web.balancer.port, path="/elsewhere", timeouts=TIMEOUTS
    )
    async with serving(web.path, listen_on=f"127.0.0.1:{web.port}"):
        await fails(
            web._replace(path=other), "upgrade", "nothing has this path there", "Compare host and path"
        )


async def test_another_aggregator_at_the_path(web: Web, tmp_path: Path) -> None:
    other = create_web_session(tmp_path / "other", PARTIES, PARAMETERS, web.balancer.port, timeouts=TIMEOUTS)
    met = load_session(web.path).roster.member("aggregator").public_key.hex()
    async with serving(web.path, listen_on=f"127.0.0.1:{web.port}"):
        await fails(
            web._replace(path=other), "channel", f"'aggregator' answers with the key {met}, not ", "--show"
        )


def test_certificates_are_for_an_aggregator_at_wss(path: Path) -> None:
    result = command("check", str(path), "--as", "alice", "--ca", "ca.pem")
    assert result.returncode == 1
    assert "--ca: is for an aggregator at wss://" in result.stderr


# Members that listen.


async def test_a_name_to_listen_at_that_is_none(path: Path) -> None:
    line = one(await checked(path, "aggregator", listen="no-such-host.invalid:7100"), "port")
    assert (line.state, "ss -ltnp" in line.todo) == ("fix", False)
    assert "give --listen 0.0.0.0:7100" in line.todo


async def test_the_port_of_an_aggregator(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inquiry, "ATTEMPT_SECONDS", 2.0)
    line = one(await checked(path, "aggregator"), "port")
    assert (line.state, line.text.partition(": ")[2]) == ("ok", "no process listens there yet")
    async with serving(path) as events:
        line = one(await checked(path, "aggregator"), "port")
        assert line.state == "ok"
        assert "'aggregator' listens there" in line.text
        line = one(await checked(edited(path, parameters={"upper": 99}), "aggregator"), "port")
        assert line.state == "fix"
        assert "'aggregator' listens there: " in line.text
        assert "parameters.upper: 99 here, 100 there" in line.text
        assert "same session file" in line.todo
        await until_reported(events, "refused")
    address = load_session(path).roster.member("aggregator").address or ""
    with socket.create_server(split_address(address)):
        line = one(await checked(path, "aggregator"), "port")
    assert line.state == "fix"
    assert "Address already in use" in line.text
    line = one(await checked(path, "aggregator", listen="192.0.2.7:7100"), "port")
    assert "--listen 0.0.0.0:7100" in line.todo
    assert one(await checked(path, "aggregator", listen=f"0.0.0.0:{free_port()}"), "port").state == "ok"


async def test_the_folders_of_an_aggregator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged = {"length": 1, "lower": 0.0, "upper": 1.0, "epsilon": 9.0, "delta": 1e-3, "verifiable": True}
    path = create_local_session(tmp_path, PARTIES, logged, protocol="gopa")
    line = one(await checked(path, "aggregator"), "logs")
    assert line.state == "ok"
    assert not (tmp_path / "board").exists()
    (tmp_path / "board").write_text("a file")
    line = one(await checked(path, "aggregator"), "logs")
    assert (line.state, "is no folder" in line.text) == ("fix", True)
    large = create_local_session(tmp_path / "large", PARTIES, PARAMETERS | {"length": 1_000_000})
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    line = one(await checked(large, "aggregator"), "temporary files")
    assert line.state == "fix"
    assert "TMPDIR" in line.todo


async def test_servers_and_direct_parties_call_those_that_listen(tmp_path: Path) -> None:
    servers = create_local_session(tmp_path / "servers", PARTIES, COUNTS, protocol="mpyc")
    lines = await checked(servers, "alice")
    assert {line.member for line in lines} == {"", "server1", "server2", "server3"}
    lines = await checked(servers, "server2")
    assert {line.member for line in lines} == {"", "server1", "server3"}
    direct = create_local_session(
        tmp_path / "direct",
        PARTIES,
        {"length": 1, "lower": 0.0, "upper": 1.0, "epsilon": 9.0, "delta": 1e-3, "topology": "direct"},
        protocol="gopa",
    )
    assert {line.member for line in await checked(direct, "carol")} == {"", "alice", "bob"}
    lines = await checked(direct, "alice")
    assert {line.member for line in lines} == {""}
    assert one(lines, "port").state == "ok"


# Beside a session.


async def summed(session: smpc_dp.Session) -> int:
    result = await session.sum([1 + PARTIES.index(session.party)])
    return int(result.value[0])


async def test_checks_disturb_neither_a_waiting_party_nor_a_running_session(path: Path) -> None:
    """Those of the same identity: they are no second connection, and join no request."""
    async with contextlib.AsyncExitStack() as stack:
        events = await stack.enter_async_context(serving(path))
        reported: list[Event] = []
        alice = await stack.enter_async_context(
            smpc_dp.connect(path, party="alice", on_event=reported.append)
        )
        # alice waits for a sum that only alice asks for.
        waiting = asyncio.create_task(summed(alice))
        for _ in range(3):
            line = one(await checked(path, "alice"), "connection")
            assert (line.state, line.text) == ("ok", "'alice' is connected there now")
        # Checks of a party that is not there do not make it present.
        for _ in range(3):
            line = one(await checked(path, "bob"), "connection")
            assert line.text == "'bob' is not connected there now"
        assert not waiting.done()
        others = [await stack.enter_async_context(smpc_dp.connect(path, party=name)) for name in PARTIES[1:]]
        checking = asyncio.create_task(check_again(path))
        stack.callback(checking.cancel)
        totals = [*await asyncio.gather(waiting, *map(summed, others))]
        for _ in range(4):
            totals += await asyncio.gather(*map(summed, (alice, *others)))
        assert totals == [6] * 15
        checks = await finish(checking)
        # A party has its total before the aggregator says that the request is done.
        await until_reported(events, "done", 5)
        events, reported = [*events], [*reported]
    assert checks > 0
    assert Counter(event.detail for event in events if event.kind == "connected") == Counter(PARTIES)
    assert [event.request for event in events if event.kind == "done"] == [1, 2, 3, 4, 5]
    assert not {"refused", "lost", "warned", "failed"} & {event.kind for event in (*events, *reported)}


async def check_again(path: Path) -> int:
    """Check alice and bob until cancelled; return how many times."""
    count = 0
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            for name in PARTIES[:2]:
                lines = await checked(path, name)
                assert not any(line.state == "fix" for line in lines)
                count += 1
    return count


async def finish(task: asyncio.Task[int]) -> int:
    task.cancel()
    return await task
