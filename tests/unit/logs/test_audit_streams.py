"""Logs that cannot be sought, such as pipes, are audited all the same, also where they must be read twice."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from smpc_dp import files
from smpc_dp.errors import LocalError
from smpc_dp.logs import log_source
from smpc_dp.logs.audits.audit import audit, audit_stream
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.log_server import LogServer, LogSite
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import execute, honest
from tests.audits import ONE


class Pipe(io.RawIOBase):
    """Gives its bytes once."""

    def __init__(self, content: bytes) -> None:
        self._left = content

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(piece)] = piece
        return len(piece)


def piped(content: bytes) -> Report:
    return audit_stream(cast("BinaryIO", io.BufferedReader(Pipe(content))), threads=1)


@pytest.fixture(scope="module")
def read_twice() -> bytes:
    """A log with an excluded party: the others' commitments to it are found by reading them again."""
    return b"".join(line + b"\n" for line in execute({CHEAT: off_by_one}, setting=ONE).lines)


def check(report: Report) -> None:
    assert report.code == 3, report.conclusion
    assert [item.party for item in report.excluded] == [CHEAT]


@pytest.mark.parametrize("memory", [1 << 18, 64])
def test_a_pipe_is_read_twice(read_twice: bytes, monkeypatch: pytest.MonkeyPatch, memory: int) -> None:
    monkeypatch.setattr(files, "SPOOL_MEMORY", memory)
    check(piped(read_twice))
    check(audit_stream(io.BytesIO(read_twice), threads=1))


def test_what_is_put_aside_is_bounded(read_twice: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    first_coin = read_twice.index(b'"kind":"coin"')
    # What follows the commitments is not read again, and need not be there.
    monkeypatch.setattr(log_source, "STORED_BYTES", first_coin)
    check(piped(read_twice))
    monkeypatch.setattr(log_source, "STORED_BYTES", first_coin // 2)
    with pytest.raises(LocalError, match=f"read twice.* longer than {first_coin // 2} bytes; give a file"):
        piped(read_twice)
    # A log of which nothing is read twice needs no room.
    assert piped(b"".join(line + b"\n" for line in honest().lines)).code == 3


def test_a_full_disk_is_an_error_only_if_it_matters(
    read_twice: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_spool: files.Spool, _content: bytes) -> None:
        raise LocalError("cannot put the log aside (No space left on device)")

    # The first line is put aside too: that disk is another.
    monkeypatch.setattr(log_source, "Spool", type("Full", (files.Spool,), {"add": full}))
    assert piped(b"".join(line + b"\n" for line in honest().lines)).code == 3
    with pytest.raises(LocalError, match=r"read twice.*No space left on device"):
        piped(read_twice)


def test_standard_input(read_twice: bytes) -> None:
    command = [sys.executable, "-m", "smpc_dp", "audit", "-"]
    done = subprocess.run(command, input=read_twice, capture_output=True, check=False)
    assert done.returncode == 3, done.stderr
    assert f"excluded: {CHEAT}".encode() in done.stdout


def test_a_named_pipe(read_twice: bytes, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(read_twice,))
    writer.start()
    check(audit(pipe))
    writer.join()


class CountingSite(LogSite):
    """Counts the requests for its log."""

    requests = 0

    async def send_log(self, request: Request) -> Response:
        self.requests += 1
        return await super().send_log(request)


class CountingServer(LogServer):
    """Server of such a site."""

    def make_site(self, _answer_seconds: float) -> CountingSite:
        return CountingSite(self.path)


def test_a_url_is_fetched_once(read_twice: bytes, tmp_path: Path) -> None:
    log = tmp_path / "board.jsonl"
    log.write_bytes(read_twice)
    with CountingServer(log) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        check(audit(server.url))
        server.shutdown()
        thread.join()
        assert isinstance(server.site, CountingSite)
        assert server.site.requests == 1
