"""Files of each release: this one still reads what earlier ones wrote, and refuses other versions by name."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from smpc_dp.capabilities.learn.commands.learn import MODEL_VERSION
from smpc_dp.capabilities.pairs.circuits.bristol import read_bristol
from smpc_dp.capabilities.pairs.published.library import PUBLISHED
from smpc_dp.capabilities.pairs.ustatistic import messages as statistic
from smpc_dp.engine import codec, seal
from smpc_dp.engine.registry import built_in_protocols
from smpc_dp.errors import ConfigError, LocalError, SmpcError
from smpc_dp.identity import keys as identity
from smpc_dp.identity.keys import Identity
from smpc_dp.logs import log, runs, seen, store
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.audit_selection import read_session_log
from smpc_dp.logs.board import FileSessionLog
from smpc_dp.logs.seen import SeenRuns
from smpc_dp.logs.store import Store
from smpc_dp.privacy.accountant import ledger
from smpc_dp.privacy.accountant.events import Event, Pure
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.seen import Seen
from smpc_dp.session.session_file import load_session
from smpc_dp.transport import handshake

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
# What the files of 0.1 say.
SESSION = "33ae948b7b06ab2050b29c886e2cc8f66b690b390bce2a87ed4e7630bda7668c"
RUN = "c986e1af33449732fcfc3aa10e403f421698eb5910fe3b967b352a6a43468aac"
SESSION_HEAD = "4e3514542c3dc81a245fb7f267913d9bb33ec5d92edd7065359a5c3440eecd8e"
LOG_HEAD = "00646c345be7a2fd3d7a2e420b2996e77e97c2d0d5408b8a715a5cfbb328676b"
ALICE = "e512bf7a87df0c9678e7e6cd74fa94a8ba720e4e50e4963668bc2ad6d1a32e29"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A copy of the files that 0.1 wrote, with the modes that secrets have."""
    folder = tmp_path / "0.1"
    shutil.copytree(FIXTURES / "0.1", folder)
    for path in folder.iterdir():
        path.chmod(0o600)
    return folder


def test_a_key_file_of_0_1(written: Path) -> None:
    alice = Identity.load(written / "alice.key", "alice")
    assert alice.public_key.hex() == ALICE
    assert alice.entry() in load_session(written / "session.toml", audited=True).roster.members


def test_a_session_file_of_0_1(written: Path) -> None:
    session = load_session(written / "session.toml", audited=True)
    assert (session.protocol, session.version, session.digest.hex()) == ("gopa", 2, SESSION)
    members = [member.name for member in session.roster.members]
    assert members == ["aggregator", "alice", "bob", "carol", "dave"]
    assert (session.parameters["epsilon"], session.parameters["upper"]) == (8.0, [3.0, 5.0])
    assert (session.timeouts.connect, session.timeouts.step, session.timeouts.gather) == (30.0, 30.0, 300.0)
    # Its logs are audited below; nobody takes part in it any more.
    match = "2 is of an earlier release: logs of it can be audited, no .* write version = 5 of 'gopa'"
    with pytest.raises(ConfigError, match=match):
        load_session(written / "session.toml")


def test_a_ledger_of_0_1(written: Path) -> None:
    book = Ledger.open(written / "alice.ledger", party="alice", dataset="vectors of 2026")
    assert (book.terms.epsilon, book.terms.delta, book.terms.relation) == (20.0, 0.01, "substitution")
    [entry] = book.entries()
    assert (entry.number, entry.run, entry.label) == (1, RUN, "request 1")
    assert entry.event.mechanism == "verifiable gopa"
    assert book.spent().epsilon == pytest.approx(4.85152502511373)
    book.charge(bytes(16), Event("pure", "substitution", (Pure(1.0, 0.0),)))
    assert [entry.number for entry in Ledger.open(written / "alice.ledger").entries()] == [1, 2]
    # The older entry is as it was written; the file is of version 2 from the first new charge on.
    assert Ledger.open(written / "alice.ledger").terms.unit == "party"
    now, before = (json.loads(file.read_bytes()) for file in (book.path, FIXTURES / "0.1" / "alice.ledger"))
    assert (now["version"], now["entries"][0]) == (2, before["entries"][0])


def test_the_logs_of_0_1(written: Path) -> None:
    report = audit(
        written / "request-1.jsonl",
        session=written / "session.toml",
        session_log=written / "session.jsonl",
        run=RUN,
    )
    assert (report.ok, report.code, report.faults) == (True, 0, ())
    assert (report.session, report.run_id, report.entries) == (SESSION, RUN, 17)
    assert (report.head, report.session_head) == (LOG_HEAD, SESSION_HEAD)
    assert report.verdict is not None
    assert report.verdict.average == (2.75, 3.0)
    assert json.loads((written / "result.json").read_text("utf-8"))["value"] == [2.75, 3.0]


def test_a_session_log_of_0_1(written: Path) -> None:
    read = read_session_log(written / "session.jsonl")
    assert (read.first.session, read.head().hex()) == (SESSION, SESSION_HEAD)
    assert [(line.number, line.request, line.run_id) for line in read.lines] == [(1, 1, RUN)]
    scope = bytes.fromhex(SESSION)
    again = FileSessionLog(written / "session.jsonl", scope, scope)
    again.begin(2, b"r" * 32, bytes.fromhex(LOG_HEAD))
    assert len(read_session_log(written / "session.jsonl").lines) == 2


def test_a_board_of_0_1(written: Path) -> None:
    with Store.open(written / "request-1.board") as retained:
        chain = retained.resume()
        lines = list(retained.lines())
    assert (chain.length, chain.head.hex()) == (17, LOG_HEAD)
    assert b"".join(line + b"\n" for line in lines) == (written / "request-1.jsonl").read_bytes()


def test_a_file_of_runs_seen_of_0_1(written: Path) -> None:
    known = SeenRuns(written / "alice.runs").get(bytes.fromhex(SESSION))
    assert known == Seen(1, bytes.fromhex(SESSION_HEAD), 1, bytes.fromhex(LOG_HEAD))
    SeenRuns(written / "alice.runs").put(
        bytes.fromhex(SESSION), known, Seen(2, b"h" * 32, 1, known.closed_head)
    )
    assert SeenRuns(written / "alice.runs").get(bytes.fromhex(SESSION)).number == 2


def test_a_circuit_of_0_1(written: Path) -> None:
    circuit = read_bristol(written / "less_u16.txt")
    assert circuit.digest == PUBLISHED["less_u16"].build().digest
    assert (circuit.inputs, circuit.outputs) == ((16, 16), (1,))


def test_the_document_states_the_versions_that_are_written() -> None:
    document = (FIXTURES.parents[1] / "docs" / "reference" / "compatibility.md").read_text("utf-8")
    section = document.partition("## Formats\n")[2].partition("\n##")[0]
    items = [line[2:].partition(": ") for line in section.splitlines() if line.startswith("- ")]
    stated = {name.partition(",")[0]: text.partition(";")[0] for name, _, text in items}
    of = {one.name: one.versions for one in built_in_protocols() if one.versions}
    versions = ", ".join(f"`{name}` {' and '.join(map(str, sorted(of[name])))}" for name in sorted(of))
    assert stated == {
        "channel (hello": str(handshake.VERSION),
        "session file": versions,
        "pairwise statistics within a session": str(statistic.VERSION),
        "key file `NAME.key`": str(identity.VERSION),
        "privacy ledger `NAME.ledger`": f"{ledger.VERSIONS[0]} and {ledger.VERSIONS[1]}, both read",
        "what a learner has learned": str(MODEL_VERSION),
        "log of a run": str(log.VERSION),
        "the aggregator's store of a log": str(store.VERSION),
        "session log": str(runs.VERSION),
        "runs seen": str(seen.VERSION),
        "[saved states](../../protocols/saved-states/README.md)": (
            f"store, key file and counter {seal.VERSION}, record {codec.VERSION}"
        ),
        "circuit file": "[Bristol Fashion](https://nigelsmart.github.io/MPC-Circuits) has no version",
    }


def replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Return what replaces bytes of a file, which are in it once or more: the first of them."""

    def change(path: Path) -> None:
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new, 1))

    return change


def user_version(number: int) -> Callable[[Path], None]:
    """Return what gives a SQLite file a version."""

    def change(path: Path) -> None:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {number}")

    return change


def audited(path: Path) -> None:
    """Audit a log; raise what it says of a log that does not hold."""
    report = audit(path)
    if report.code == 1:
        raise LocalError(report.conclusion)


def session_log_of_relay(path: Path) -> None:
    FileSessionLog(path, bytes.fromhex(SESSION), bytes.fromhex(SESSION))


def resumed(path: Path) -> None:
    with Store.open(path) as retained:
        retained.resume()


def header_in_store(path: Path) -> None:
    """Give the header in a board's store version 7, and a field that this release does not know."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        [(line,)] = connection.execute("SELECT line FROM log WHERE sequence = 0").fetchall()
        line = line.replace(b'"version":2,', b'"version":7,"more":1,', 1)
        connection.execute("UPDATE log SET line = ? WHERE sequence = 0", (line,))
        connection.commit()


def seen_of(path: Path) -> None:
    SeenRuns(path).get(bytes.fromhex(SESSION))


def of_version_7(old: bytes, new: bytes, more: bytes) -> list[Callable[[Path], None]]:
    """Return two changes: only the version, and with it what a later release may add."""
    return [replaced(old, new), replaced(old, new + more)]


JSON_7 = (b'"version":2,', b'"version":7,', b'"more":1,')
RUNS_7 = (b'"version":1,', b'"version":7,', b'"more":1,')
OTHERS: dict[str, tuple[str, list[Callable[[Path], None]], Callable[[Path], object], str]] = {
    "key": (
        "alice.key",
        of_version_7(b"name =", b"version = 7\nname =", b' "alice"\nkind = 1\nalso ='),
        Identity.load,
        r"alice\.key: is a key file of version 7; this release reads 1",
    ),
    "ledger": (
        "alice.ledger",
        of_version_7(b'"version": 1,', b'"version": 7,', b' "more": 1,'),
        Ledger.open,
        r"alice\.ledger: is a ledger of version 7; this release reads 1 or 2",
    ),
    "session file": (
        "session.toml",
        of_version_7(b"version = 2", b"version = 7", b"\nmore = 1"),
        load_session,
        r"version: 7 is unknown; this release reads version 4 or 5 of 'gopa'",
    ),
    "log": (
        "request-1.jsonl",
        of_version_7(*JSON_7),
        audited,
        "version 7 of the board is unknown, this reads 2",
    ),
    "log of a relay": (
        "request-1.board",
        [header_in_store],
        resumed,
        "version 7 of the board is unknown, this reads 2",
    ),
    "board's store": (
        "request-1.board",
        [user_version(7)],
        Store.open,
        r"request-1\.board: is a board's store of version 7; this release reads 1",
    ),
    "session log": (
        "session.jsonl",
        of_version_7(*RUNS_7),
        read_session_log,
        r"session\.jsonl: .*the format is 'smpc-dp session log' 7, not 'smpc-dp session log' 1\)",
    ),
    "session log of a relay": (
        "session.jsonl",
        of_version_7(*RUNS_7),
        session_log_of_relay,
        r"session\.jsonl: .*'smpc-dp session log' 7, not 'smpc-dp session log' 1\)",
    ),
    "runs seen": (
        "alice.runs",
        [user_version(7)],
        seen_of,
        r"alice\.runs: is a file of runs seen of version 7; this release reads 1",
    ),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_another_version_is_refused_by_name_and_left_as_it_is(kind: str, written: Path) -> None:
    name, changes, read, text = OTHERS[kind]
    original = (written / name).read_bytes()
    for change in changes:
        (written / name).write_bytes(original)
        change(written / name)
        changed = (written / name).read_bytes()
        with pytest.raises(SmpcError, match=text):
            read(written / name)
        assert (written / name).read_bytes() == changed


def test_a_key_file_may_say_that_it_is_of_version_1(written: Path) -> None:
    path = written / "alice.key"
    assert b"version" not in path.read_bytes()
    replaced(b"name =", b"version = 1\nname =")(path)
    assert Identity.load(path).public_key.hex() == ALICE


def test_a_new_key_file_says_its_version(tmp_path: Path) -> None:
    path = tmp_path / "bob.key"
    bob = Identity.generate("bob")
    bob.save(path)
    assert tomllib.loads(path.read_text("ascii"))["version"] == identity.VERSION == 1
    assert Identity.load(path).public_key == bob.public_key
    replaced(b"version = 1", b"version = 7")(path)
    with pytest.raises(LocalError, match=r"bob\.key: is a key file of version 7; this release reads 1"):
        Identity.load(path)


@pytest.mark.parametrize("version", [b'"1"', b"1.0", b"true"])
def test_a_version_of_a_key_file_is_an_integer(version: bytes, written: Path) -> None:
    path = written / "alice.key"
    replaced(b"name =", b"version = " + version + b"\nname =")(path)
    with pytest.raises(LocalError, match=r"alice\.key: not an identity file \('version' is not an integer\)"):
        Identity.load(path)


def test_new_files_are_as_those_of_0_1(tmp_path: Path, written: Path) -> None:
    """A key with its version and a ledger of this release hold what a reader of 0.1 takes, nothing else."""
    seed = written.joinpath("alice.key").read_text("ascii").partition('seed = "')[2][:64]
    Identity.from_seed("alice", bytes.fromhex(seed)).save(tmp_path / "alice.key")
    replaced(b"name =", b"version = 1\nname =")(written / "alice.key")
    assert (tmp_path / "alice.key").read_bytes() == (written / "alice.key").read_bytes()
    path = tmp_path / "new.ledger"
    Ledger.create(path, party="alice", dataset="d", relation="substitution", epsilon=1.0, delta=0.0)
    new, old = (json.loads(file.read_bytes()) for file in (path, written / "alice.ledger"))
    assert (new["format"], new["version"], new.keys()) == (old["format"], old["version"], old.keys())


def test_a_session_file_names_the_protocol_that_it_lacks(written: Path) -> None:
    replaced(b'protocol = "gopa"', b'protocol = "gipa"')(written / "session.toml")
    with pytest.raises(ConfigError, match="protocol: 'gipa' is unknown, the known ones are "):
        load_session(written / "session.toml")
