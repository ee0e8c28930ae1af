"""`smpc-dp audit`: no byte of a log can be changed, and whatever is no log is refused with its place."""

from __future__ import annotations

import functools
import io
import json
import re
import socketserver
import sys
import threading
from collections.abc import Hashable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from smpc_dp import simulate
from smpc_dp.cli import app
from smpc_dp.crypto import proofs
from smpc_dp.engine.result import Result
from smpc_dp.errors import ConfigError, LocalError, TimeoutFault
from smpc_dp.logs.audits import audit as runtime
from smpc_dp.logs.audits.audit import audit, audit_stream
from smpc_dp.logs.audits.audit_selection import read_session_log
from smpc_dp.logs.audits.log_server import LogServer
from smpc_dp.logs.audits.log_session import LogSession, parse_session_text
from smpc_dp.session.memory.simulated_run import RememberingVerifier
from smpc_dp.wire.signing import Context
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import execute, honest
from tests.unit.logs.hostile_headers import with_session


def write_log(path: Path, values: np.ndarray, seed: int) -> Result:
    """Write the log of parties with one coarse value each, shape (n, 1)."""
    return simulate.average(
        values,
        lower=0,
        upper=1,
        precision=0.5,
        method="gopa",
        epsilon=20.0,
        delta=1e-2,
        verifiable=True,
        planned_dropout=0.0,
        corrupt=0.0,
        board=path,
        seed_for_simulation=seed,
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The log of three parties with one coarse value each."""
    path = tmp_path_factory.mktemp("small") / "board.jsonl"
    result = write_log(path, np.array([[0.0], [1.0], [0.5]]), 3)
    log = path.read_bytes()
    report = audit(path)
    assert report.code == 3
    assert report.verdict is not None
    assert report.verdict.average == tuple(result.value)
    assert report.verdict.standard_error == pytest.approx(result.standard_error)
    assert report.verdict.bias == pytest.approx(result.bias)
    return log


class RememberingBatch(proofs.Batch):
    """Knows which statements have been found true in this process, and verifies all others."""

    good: ClassVar[set[object]] = set()

    def __init__(self) -> None:
        super().__init__()
        self._added: list[object] = []

    def add_range(self, tag: Hashable, *statement: Any) -> None:
        self._added.append((tag, statement))
        super().add_range(tag, *statement)

    def add_noise(self, tag: Hashable, *statement: Any) -> None:
        self._added.append((tag, statement))
        super().add_noise(tag, *statement)

    def add_opening(self, tag: Hashable, plus: Any, minus: Any, values: Any, blinding: bytes) -> None:
        self._added.append((tag, tuple(plus), tuple(minus), tuple(values), blinding))
        super().add_opening(tag, plus, minus, values, blinding)

    def verify(self, threads: int = 1) -> None:
        statements, self._added = tuple(self._added), []
        if statements not in self.good:
            super().verify(threads)
            self.good.add(statements)


def test_no_byte_can_be_changed(small: bytes, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The same session is not parsed, and the same statement not checked, ten thousand times.
    monkeypatch.setattr(runtime, "parse_session_text", functools.lru_cache(4)(parse_session_text))
    plans: dict[bytes, object] = {}

    def planned(session: LogSession, known: bytes | None = None) -> object:
        if session.digest not in plans:
            plans[session.digest] = plan(session, known)
        return plans[session.digest]

    plan = LogSession.planned
    monkeypatch.setattr(LogSession, "planned", planned)
    remembering = functools.partial(Context, verify=RememberingVerifier())
    monkeypatch.setattr(runtime, "Context", remembering)
    monkeypatch.setattr(proofs, "Batch", RememberingBatch)
    ends = [index for index, byte in enumerate(small) if byte == ord("\n")]
    for index in range(0, len(small), stride):
        # Another bit at each byte.
        changed = bytes([small[index] ^ (1 << index % 8)])
        report = audit_stream(io.BytesIO(small[:index] + changed + small[index + 1 :]), threads=1)
        assert report.code == 1, index
        # The line is named, or the next one, which does not follow any more.
        line = 1 + sum(end < index for end in ends)
        assert report.line in (line, line + 1), (index, report.conclusion)


def test_a_log_cut_at_any_byte_does_not_hold(small: bytes) -> None:
    for cut in range(0, len(small), 61):
        assert audit_stream(io.BytesIO(small[:cut]), threads=1).code == 1, cut
    for more in (b"\n", b" ", b"{}\n", small[:100], b"\x00" * 100):
        assert audit_stream(io.BytesIO(small + more), threads=1).code == 1, more


def test_threads_find_the_same() -> None:
    log = b"".join(line + b"\n" for line in execute({CHEAT: off_by_one}).lines)
    one, four = (audit_stream(io.BytesIO(log), threads=threads) for threads in (1, 4))
    assert one.verdict == four.verdict
    assert one.code == 3
    assert [item.party for item in one.excluded] == [CHEAT]


@pytest.mark.parametrize(
    ("session", "reason"),
    [
        ("", "not JSON"),
        ("[]", "canonical"),
        ("{", "not JSON"),
        ("[" * 5000, "not JSON"),
        ("{}", "protocol"),
        ('{"upper":' + "9" * 400 + "}", "upper"),
        ('{"kind":"real","upper":-' + "9" * 400 + "}", "upper"),
        ('{"epsilon":1e-320}', "epsilon"),
        ('{"a":NaN}', "not JSON"),
        ('{"a":1,"a":1}', "canonical"),
    ],
)
def test_sessions_that_are_none(session: str, reason: str) -> None:
    ran = honest()
    changes = json.loads(session) if reason in ("upper", "epsilon") else None
    if changes is not None:
        document = json.loads(ran.header.session)
        document["parameters"] |= changes
        session = json.dumps(document, sort_keys=True, separators=(",", ":"))
        header = with_session(ran.header, session)
    else:
        header = replace(ran.header, session=session)
    lines = ran.log(ran.entries, header)
    report = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in lines)), threads=1)
    assert report.code == 1
    assert report.line == 1
    assert reason in report.conclusion


def test_a_log_does_not_speak_to_the_terminal() -> None:
    ran = honest()
    session = json.loads(ran.header.session)
    session["parameters"]["\x1b[2Jhello"] = 1
    text = json.dumps(session, sort_keys=True, separators=(",", ":"))
    lines = ran.log(ran.entries, with_session(ran.header, text))
    report = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in lines)), threads=1)
    assert report.code == 1
    assert "hello" in report.conclusion
    assert report.conclusion.isprintable()


def test_the_session_must_be_verifiable() -> None:
    ran = honest()
    session = ran.header.session.replace(',"verifiable":true', "").replace('"version":3', '"version":1')
    lines = ran.log(ran.entries, replace(ran.header, session=session))
    report = audit_stream(io.BytesIO(b"".join(line + b"\n" for line in lines)), threads=1)
    assert "not verifiable" in report.conclusion


# The command.


@pytest.fixture
def log(tmp_path: Path, small: bytes) -> Path:
    path = tmp_path / "board.jsonl"
    path.write_bytes(small)
    return path


def invoke(*arguments: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, ["audit", *arguments, "--json"])
    return done.exit_code, json.loads(done.stdout)


def test_the_command_and_its_json(log: Path) -> None:
    code, reported = invoke(str(log))
    assert code == reported["code"] == 3
    assert not reported["ok"]
    assert not reported["session_checked"]
    assert "no session was given" in reported["conclusion"]
    assert (reported["parameters"]["upper"], reported["parameters"]["corrupt"]) == (1, 0.0)
    assert reported["verdict"]["counted"] == ["party-00001", "party-00002", "party-00003"]
    session, run = reported["session"], reported["run_id"]
    code, reported = invoke(str(log), "--session", session)
    assert code == reported["code"] == 4
    assert (reported["ok"], reported["session_checked"]) == (False, True)
    assert reported["conclusion"].startswith("This is a run of request 1")
    for selected in (("--run", run), ("--head", reported["head"]), ("--head", reported["session_head"])):
        code, reported = invoke(str(log), "--session", session, *selected)
        assert code == reported["code"] == 0
        assert reported["ok"]
        assert reported["conclusion"].startswith("Everything holds for the session and run that were given: ")
        assert (reported["session"], reported["request"], reported["run_id"]) == (session, 1, run)
        assert "at most c = 0" in reported["limits"]
        # What the verdict does not say comes first, digests last.
        first, *_, session_line, run_line, _ = (
            CliRunner().invoke(app, ["audit", str(log), "--session", session, *selected]).stdout.splitlines()
        )
        assert first.startswith(
            "Not detected: false inputs within the bounds. All this holds only if at most c = 0"
        )
        assert reported["conclusion"] in first
        assert (session_line, run_line) == (f"session: {session}", f"run: {run}")
        assert "false inputs within the bounds" in reported["limits"]
    code, reported = invoke(str(log), "--session", "ab" * 32)
    assert code == 1
    assert not reported["ok"]
    assert reported["faults"][0].startswith("line 1, byte 0: the session is")
    for given, fault in (
        (("--request", "2"), "the log is of request 1, not of request 2"),
        (("--run", "ab" * 32), "the run is"),
        (("--head", "ab" * 32), "the head that was given is not of this run"),
    ):
        code, reported = invoke(str(log), "--session", session, *given)
        assert code == 1
        assert fault in reported["faults"][0]


def test_a_simulated_run_is_audited_with_its_session_log(tmp_path: Path) -> None:
    """As a real one: with the list of all runs, and a head of a party, it is try 1 of 1."""
    path, values = tmp_path / "x.jsonl", np.array([[0.0], [1.0], [0.5]])
    evidence = write_log(path, values, 5).evidence
    assert evidence.log is not None
    given = [str(path), "--session", evidence.session_digest.hex()]
    given += ["--session-log", str(tmp_path / "x.session.jsonl")]
    for head in (evidence.log.head, evidence.log.session_head):
        code, reported = invoke(*given, "--head", head.hex())
        assert (code, reported["ok"], reported["place"], reported["tries"]) == (0, True, 1, 1)
        assert (reported["verdict"]["tries"], reported["verdict"]["tries_listed"]) == (1, True)
    code, reported = invoke(*given)
    assert (code, reported["tries"]) == (4, 1)
    assert "a session log can be cut short" in reported["conclusion"]
    # The list of another session does not have this run.
    write_log(tmp_path / "y.jsonl", values, 6)
    given[-1] = str(tmp_path / "y.session.jsonl")
    code, reported = invoke(*given, "--head", evidence.log.head.hex())
    assert code == 1
    assert "the session log is of another session" in reported["conclusion"]


def test_a_simulated_run_that_stops_is_in_its_session_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its log has no end, and the list has the try."""
    kills = {"party-00001": 7}
    monkeypatch.setattr(sys.modules["smpc_dp.simulate.average"], "draw_kills", lambda *_: kills)
    with pytest.raises(TimeoutFault, match="coin"):
        write_log(tmp_path / "x.jsonl", np.array([[0.0], [1.0], [0.5]]), 3)
    session_log = read_session_log(tmp_path / "x.session.jsonl")
    assert [line.number for line in session_log.lines] == [1]
    assert session_log.certified is not None
    report = audit(tmp_path / "x.jsonl", session_log=tmp_path / "x.session.jsonl")
    assert report.code == 1
    assert "the run was not finished" in report.conclusion


def test_the_command_says_where_it_fails(log: Path, small: bytes) -> None:
    index = len(small) // 2
    log.write_bytes(small[:index] + bytes([small[index] ^ 1]) + small[index + 1 :])
    line = small.count(b"\n", 0, index) + 1
    done = CliRunner().invoke(app, ["audit", str(log)])
    assert done.exit_code == 1
    assert f"line {line}, byte" in done.output or f"line {line + 1}, byte" in done.output
    code, reported = invoke(str(log))
    assert code == 1
    assert reported["line"] in (line, line + 1)


def test_bad_arguments(log: Path) -> None:
    with pytest.raises(ConfigError, match="neither 64"):
        audit(log, session="nonsense")
    with pytest.raises(LocalError, match="cannot read the log"):
        audit(log.with_name("none"))
    with pytest.raises(LocalError, match="cannot read the log"):
        audit(log.parent)
    with pytest.raises(LocalError, match="cannot read the log"):
        audit("http://127.0.0.1:9/board.jsonl")


def test_over_http(log: Path) -> None:
    with LogServer(log) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert audit(server.url).code == 3
            with pytest.raises(LocalError, match="Not Found"):
                audit(server.url + "x")
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"garbage\r\n\r\n", "no right HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{", "no right HTTP"),
        (b"HTTP/1.0 302 x\r\nLocation: file:///etc/passwd\r\n\r\n", "not allowed"),
        (b"HTTP/1.0 302 x\r\nLocation: ftp://127.0.0.1:9/x\r\n\r\n", "redirects to another server"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", "cannot read"),
        (b"", "closed connection"),
    ],
)
def test_servers_that_are_none(answer: bytes, reason: str) -> None:
    class Says(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            self.request.sendall(answer)

    with socketserver.TCPServer(("127.0.0.1", 0), Says) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        with pytest.raises(LocalError, match=reason):
            audit(f"HTTP://127.0.0.1:{server.server_address[1]}/board.jsonl")
        thread.join()


def test_a_url_that_is_none() -> None:
    with pytest.raises(LocalError, match="no right HTTP"):
        audit("http://127.0.0.1:9/a b")


def test_every_field_of_a_verdict_is_documented(log: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "commands.md").read_text("utf-8")
    section = text.partition("\n### audit\n")[2].partition("\n##")[0]
    reported = invoke(str(log))[1]
    assert set(reported["verdict"]) <= set(re.findall(r"`(\w+)`", section))
