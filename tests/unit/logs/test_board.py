"""The log, its store and its server: prefixes after a crash, bounded reading, and places in errors."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.errors import Check, LocalError, PeerFault, VerificationError
from smpc_dp.files import replace_file
from smpc_dp.logs import board as boards
from smpc_dp.logs import log as board
from smpc_dp.logs.audits import log_server
from smpc_dp.logs.audits.log_server import LogServer
from smpc_dp.logs.board import BoardFolder
from smpc_dp.logs.log import Chain, Entry, Header, encode_line
from smpc_dp.logs.reader import BadLog, LogReader
from smpc_dp.logs.store import Store, is_begun, is_store
from smpc_dp.transport.strangers import STRANGERS
from smpc_dp.transport.web_server import MOST_ANSWERS

FIELDS: dict[str, Any] = {
    "session": "{}",
    "request": 1,
    "operation": "average 1/2",
    "number": 1,
    "runs": "00" * 32,
    "before": "00" * 32,
    "present": b"\xe0",
    "root": bytes(32),
    "run_id": "ab" * 32,
}


def a_log(entries: int = 5) -> tuple[Header, list[Entry]]:
    chain = Chain.begin(**FIELDS)
    made = [chain.append(f"user-{i}", "commit", bytes([i]) * i, bytes(64)) for i in range(entries)]
    return chain.header, made


def text_of(header: Header, entries: list[Entry]) -> bytes:
    return b"".join(encode_line(struct) + b"\n" for struct in (header, *entries))


def read(log: bytes) -> list[Entry]:
    return list(LogReader(io.BytesIO(log)).entries())


def test_what_is_written_is_read() -> None:
    header, entries = a_log()
    reader = LogReader(io.BytesIO(text_of(header, entries)))
    assert reader.header == header
    assert list(reader.entries()) == entries
    assert reader.bytes_read == len(text_of(header, entries))


def test_heads_depend_on_everything() -> None:
    digest = board.entry_digest(3, "ann", "coin", b"x", bytes(64))
    others = [
        board.entry_digest(4, "ann", "coin", b"x", bytes(64)),
        board.entry_digest(3, "ben", "coin", b"x", bytes(64)),
        board.entry_digest(3, "ann", "open", b"x", bytes(64)),
        board.entry_digest(3, "ann", "coin", b"y", bytes(64)),
        board.entry_digest(3, "ann", "coin", b"x", b"\x01" + bytes(63)),
        board.entry_digest(3, "annc", "oin", b"x", bytes(64)),
    ]
    assert len({digest, *others}) == 7
    assert board.next_head(bytes(32), [digest, others[0]]) != board.next_head(bytes(32), [others[0], digest])


def test_a_log_cut_at_any_byte_is_a_prefix_or_refused() -> None:
    header, entries = a_log()
    log = text_of(header, entries)
    ends = [index + 1 for index, byte in enumerate(log) if byte == ord("\n")]
    for cut in range(len(log)):
        if cut in ends:
            assert read(log[:cut]) == entries[: ends.index(cut)]
            continue
        with pytest.raises(BadLog) as error:
            read(log[:cut])
        line = sum(end <= cut for end in ends) + 1
        assert error.value.line == line
        assert error.value.byte == ([0, *ends][line - 1])


@pytest.mark.parametrize(
    ("make", "line", "reason"),
    [
        (lambda _lines: [], 1, "empty"),
        (lambda _lines: [b"\x00" * 4096], 1, "not a log"),
        (lambda _lines: [b"<html>"], 1, "not a log"),
        (lambda lines: [lines[0].replace(b'"version":2', b'"version":7')], 1, "version 7"),
        (lambda lines: [lines[0], b"{}"], 2, "missing required field"),
        (lambda lines: [lines[0], b"[" * 100_000], 2, "not an entry"),
        (lambda lines: [lines[0], b"\xff\xfe"], 2, "not an entry"),
        (lambda lines: [lines[0], b""], 2, "not an entry"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], 4, "entry 2 where entry 3 is due"),
        (lambda lines: [lines[0], *lines[2:]], 2, "entry 2 where entry 1 is due"),
        (
            lambda lines: [*lines[:2], lines[2].replace(b"user-1", b"user-9"), *lines[3:]],
            4,
            "does not follow",
        ),
        (lambda lines: [*lines, lines[0]], 7, "not an entry"),
        (lambda lines: [line + b"\r" for line in lines], 1, "not the canonical spelling"),
        (lambda lines: [lines[0], lines[1].replace(b":1,", b":1.0,")], 2, "not an entry"),
        (lambda lines: [lines[0], lines[1].replace(b":1,", b":01,")], 2, "not an entry"),
        (lambda lines: [lines[0], lines[1].replace(b"user-0", b"user-\\u0030")], 2, "canonical"),
        (lambda lines: [lines[0], lines[1].replace(b"user-0", b"User-0")], 2, "not an entry"),
    ],
)
def test_bad_logs_are_refused_with_their_place(make: Any, line: int, reason: str) -> None:
    header, entries = a_log()
    lines = text_of(header, entries).splitlines()
    with pytest.raises(BadLog, match=reason) as error:
        read(b"".join(part + b"\n" for part in make(lines)))
    assert error.value.line == line


def test_base64_has_one_spelling() -> None:
    header, entries = a_log()
    log = text_of(header, entries)
    # one byte is two characters and padding; the last four bits of the second are not used
    assert b'"payload":"AQ=="' in log
    with pytest.raises(BadLog, match="canonical"):
        read(log.replace(b'"payload":"AQ=="', b'"payload":"AR=="'))


class Endless(io.RawIOBase):
    """Gigabytes of one byte, after a beginning."""

    def __init__(self, start: bytes, filler: bytes) -> None:
        self.sent, self._start, self._filler = 0, start, filler

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        begin = self._start[self.sent : self.sent + len(buffer)]
        part = begin or self._filler * len(buffer)
        buffer[: len(part)] = part
        self.sent += len(part)
        return len(part)


@pytest.mark.parametrize("filler", [b"x", b"[", b"\x00"])
def test_endless_lines_are_left(filler: bytes) -> None:
    header, entries = a_log()
    start = text_of(header, entries) + b'{"sequence":'
    stream = Endless(start, filler)
    with pytest.raises(BadLog, match="longer than"):
        list(LogReader(io.BufferedReader(stream)).entries())
    assert stream.sent < 2 * board.MAX_LINE_BYTES
    garbage = Endless(b"", filler)
    with pytest.raises(BadLog, match="not a log"):
        LogReader(io.BufferedReader(garbage))
    assert garbage.sent < 1 << 20


def test_the_store_is_told_from_the_log() -> None:
    with pytest.raises(BadLog, match=r"line 1, byte 0: a board's own store.*\.jsonl"):
        LogReader(io.BytesIO(b"SQLite format 3\0" + bytes(100)))


def test_who_signed_is_checked() -> None:
    header, entries = a_log()

    def check(entry: Entry) -> None:
        if entry.sequence == 3:
            raise PeerFault(entry.party, "no", Check.BAD_SIGNATURE)

    with pytest.raises(BadLog, match="line 4, byte") as error:
        list(LogReader(io.BytesIO(text_of(header, entries))).entries(check))
    assert error.value.line == 4


# the store


def test_a_store_keeps_a_log(tmp_path: Path) -> None:
    header, entries = a_log()
    path = tmp_path / "run.board"
    with Store.create(path, header) as store:
        store.append(entries[:2])
        store.append([])
        store.append(entries[2:])
        with pytest.raises(LocalError, match="ends with 5"):
            store.append(entries[:1])
    assert is_store(path)
    assert path.stat().st_mode & 0o777 == 0o600
    with Store.open(path) as store:
        out = io.BytesIO()
        store.export(out)
        assert out.getvalue() == text_of(header, entries)
        assert store.extent() == (5, len(out.getvalue()))
        chain = store.resume()
        assert chain.length == 5
        with pytest.raises(LocalError, match="readonly"):
            store.append([chain.append("ann", "coin", b"", bytes(64))])
    with pytest.raises(LocalError, match="never overwritten"):
        Store.create(path, header)


def test_a_store_can_be_gone_on_with(tmp_path: Path) -> None:
    header, entries = a_log()
    path = tmp_path / "run.board"
    with Store.create(path, header) as store:
        store.append(entries)
    with Store.open(path, writable=True) as store:
        chain = store.resume()
        store.append([chain.append("ann", "coin", b"x", bytes(64))])
    with Store.open(path) as store:
        assert store.resume().head == chain.head


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\x00" + bytes(84)])
def test_other_files_are_no_boards(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.board"
    path.write_bytes(content)
    with pytest.raises(LocalError):
        Store.open(path)
    with pytest.raises(LocalError, match="no such board"):
        Store.open(tmp_path / "none")


WRITER = """
import sys
from pathlib import Path
from smpc_dp.logs.log import Chain
from smpc_dp.logs.store import Store
chain = Chain.begin(
    session="{}", request=1, operation="", number=1, runs="0" * 64, before="0" * 64,
    present=b"", root=b"", run_id="ab" * 32,
)
with Store.create(Path(sys.argv[1]), chain.header) as store:
    print("ready", flush=True)
    while True:
        store.append([chain.append("ann", "coin", bytes(200), bytes(64)) for _ in range(3)])
        print(chain.length, flush=True)
"""


@pytest.mark.parametrize("after", [0, 1, 7])
def test_a_kill_leaves_what_was_acknowledged(tmp_path: Path, after: int) -> None:
    path = tmp_path / "run.board"
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    acknowledged = 0
    for line in process.stdout:
        acknowledged = 0 if line == "ready\n" else int(line)
        if acknowledged >= 3 * after:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with Store.open(path, writable=True) as store:
        chain = store.resume()
        assert chain.length >= acknowledged
        assert chain.length % 3 == 0


def test_a_torn_journal_leaves_a_prefix(tmp_path: Path) -> None:
    """Whatever of the write-ahead log has reached the disk, what is there is a log."""
    header, entries = a_log(40)
    path, copy = tmp_path / "run.board", tmp_path / "copy.board"
    store = Store.create(path, header)
    for index in range(0, 40, 2):
        store.append(entries[index : index + 2])
    journal = path.with_name("run.board-wal")
    size = journal.stat().st_size
    assert size > 0
    lengths: set[int] = set()
    for cut in [*range(0, size, size // 60), size]:
        shutil.copy(path, copy)
        copy.with_name("copy.board-wal").write_bytes(journal.read_bytes()[:cut])
        copy.with_name("copy.board-shm").unlink(missing_ok=True)
        try:
            with Store.open(copy, writable=True) as torn:
                length = torn.resume().length
        except (LocalError, VerificationError):
            # the first append, which makes the log, is not there yet
            assert not lengths
            continue
        assert length % 2 == 0
        lengths.add(length)
    store.close()
    assert max(lengths) == 40
    assert len(lengths) > 10


def test_a_closed_log_is_whole_in_its_file_while_a_reader_has_it_open(tmp_path: Path) -> None:
    """A reader may not write, so the journal is beside the file until it closes; it is copied without it."""
    header, entries = a_log(3)
    with Store.create(tmp_path / "run.board", header) as store:
        store.append(entries[:1])
        reader = Store.open(tmp_path / "run.board")
        assert len([*reader.lines()]) == 2
        store.append(entries[1:])
    (tmp_path / "copy.board").write_bytes((tmp_path / "run.board").read_bytes())
    with Store.open(tmp_path / "copy.board") as copy:
        assert len([*copy.lines()]) == 1 + len(entries)
    assert (tmp_path / "run.board-wal").stat().st_size == 0
    other = Store.open(tmp_path / "run.board")
    reader.close()
    # The last reader leaves the file alone.
    assert len([*other.lines()]) == 1 + len(entries)
    other.close()

    def files() -> list[str]:
        return [file.name for file in tmp_path.iterdir() if "run" in file.name]

    assert files() == ["run.board"]
    assert is_begun(tmp_path / "run.board")
    assert files() == ["run.board"]


def test_a_reader_leaves_the_journal_of_a_crash_as_it_is(tmp_path: Path) -> None:
    header, entries = a_log(3)
    with Store.create(tmp_path / "run.board", header) as store:
        store.append(entries)
        journal = (tmp_path / "run.board-wal").read_bytes()
        (tmp_path / "copy.board").write_bytes((tmp_path / "run.board").read_bytes())
        (tmp_path / "copy.board-wal").write_bytes(journal)
    with Store.open(tmp_path / "copy.board") as reader:
        assert len([*reader.lines()]) == 1 + len(entries)
    assert (tmp_path / "copy.board-wal").read_bytes() == journal


# the server

# Connections of one address that have made no request.
PLACES = STRANGERS // 2


@pytest.fixture(params=["store", "lines"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[LogServer, bytes]]:
    header, entries = a_log()
    path = tmp_path / "run.board"
    if request.param == "store":
        with Store.create(path, header) as store:
            store.append(entries)
    else:
        path.write_bytes(text_of(header, entries))
    with LogServer(path) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server, text_of(header, entries)
        server.shutdown()
        thread.join()


def request(server: LogServer, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=100)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_server_gives_the_log_and_nothing_else(served: tuple[LogServer, bytes]) -> None:
    server, log = served
    assert server.url.endswith("/board.jsonl")
    assert request(server, "/board.jsonl") == (200, log)
    assert request(server, "/board.jsonl", "HEAD") == (200, b"")
    assert b"/board.jsonl" in request(server, "/")[1]
    for path in ("/../etc/passwd", "/run.board", "/board.jsonl?x", "/%2e%2e/run.board"):
        assert request(server, path)[0] == 404
    for method in ("POST", "PUT", "DELETE"):
        assert request(server, "/board.jsonl", method)[0] == 405


def test_the_server_needs_a_board(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no such board"):
        LogServer(tmp_path / "none")


def opened(server: LogServer, sent: bytes = b"") -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", server.server_port), timeout=100)
    raw.sendall(sent)
    return raw


@contextlib.contextmanager
def serving(path: Path, request_seconds: float = 100.0, answer_seconds: float = 100.0) -> Iterator[LogServer]:
    seconds = {"request_seconds": request_seconds, "answer_seconds": answer_seconds}
    with LogServer(path, "127.0.0.1", 0, **seconds) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_clients_that_drip_are_hung_up_on(tmp_path: Path) -> None:
    """All places are taken by clients that send a byte now and then; after the deadline others are served."""
    header, entries = a_log()
    path = tmp_path / "run.jsonl"
    path.write_bytes(text_of(header, entries))
    with serving(path, request_seconds=3.0) as server:
        begun = time.monotonic()
        dripping = [opened(server, b"GET /board") for _ in range(PLACES)]
        while time.monotonic() < begun + 0.3:
            for raw in dripping:
                raw.sendall(b"x")
            time.sleep(0.05)
        # One more than there are places for is turned away at once.
        with opened(server) as raw:
            assert raw.recv(1) == b""
        for raw in dripping:
            # Never answered: cut. A reset says the same as an end.
            with contextlib.suppress(ConnectionResetError):
                assert raw.recv(1) == b""
            raw.close()
        assert time.monotonic() - begun > 2.9
        assert request(server, "/board.jsonl") == (200, path.read_bytes())


def test_a_client_that_does_not_read_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_server, "LEAST_RATE", 1 << 40)
    path = tmp_path / "run.jsonl"
    with path.open("wb") as file:
        file.truncate(64 << 20)
    with serving(path, answer_seconds=0.3) as server:
        waiting = [opened(server, b"GET /board.jsonl HTTP/1.0\r\n\r\n") for _ in range(MOST_ANSWERS)]
        time.sleep(1.0)
        assert request(server, "/")[0] == 200
        for raw in waiting:
            raw.close()


def test_a_log_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    header, entries = a_log()
    folder = BoardFolder(tmp_path / "board", "{}")
    folder.begin(header)
    folder.append(entries)
    assert folder.current is not None
    written = folder.current.with_suffix(".jsonl")
    written.write_bytes(b"an older one")

    def full(out: Any) -> None:
        out.write(b"half of it")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        replace_file(written, full)
    assert written.read_bytes() == b"an older one"
    assert folder.lines(1, 2, 10) == [encode_line(entries[1])]
    assert folder.lines(1, 4, 1 << 20) == [encode_line(entry) for entry in entries[3:]]
    assert folder.lines(1, 6, 10) == folder.lines(2, 0, 10) == []
    folder.close()
    assert written.read_bytes() == text_of(header, entries)
    # Nothing else is left behind but the store.
    assert {path.suffix for path in written.parent.iterdir()} <= {
        ".jsonl",
        ".board",
        ".board-shm",
        ".board-wal",
    }


def test_a_board_is_not_closed_while_a_thread_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process would crash: a thread goes on when what waits for it is cancelled."""
    folder = BoardFolder(tmp_path, "{}")
    header, entries = a_log()
    folder.begin(header)
    folder.append(entries)
    used: list[bool] = []
    others: list[threading.Thread] = []

    def slowly(path: Path, write: Any, *more: Any) -> None:
        store = folder._store
        other = threading.Thread(target=folder.close)
        others.append(other)
        other.start()
        other.join(0.2)
        used.append(folder._store is store)
        if used[-1]:
            replace_file(path, write, *more)

    monkeypatch.setattr(boards, "replace_file", slowly)
    folder.close()
    others[0].join(30.0)
    assert used == [True]
    assert (tmp_path / f"request-1-{'ab' * 8}.jsonl").read_bytes() == text_of(header, entries)
