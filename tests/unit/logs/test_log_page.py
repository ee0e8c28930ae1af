"""`smpc-dp board serve`: pages that follow a log, over real HTTP and in a browser."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import html
import http.client
import json
import math
import re
import socket
import threading
import time
import urllib.parse
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from smpc_dp.capabilities.gopa.log_view import VerifiableView
from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.cli import app
from smpc_dp.engine.result import Result
from smpc_dp.errors import LocalError
from smpc_dp.logs import growing_log
from smpc_dp.logs.audits import log_page, log_page_server, log_watch
from smpc_dp.logs.audits.log_page import LogPages
from smpc_dp.logs.audits.log_page_server import MOST_STREAMS, LogPageServer
from smpc_dp.logs.audits.log_watch import LogWatch, Run, newest_log
from smpc_dp.logs.growing_log import open_growing, read_line
from smpc_dp.logs.log import Header, decode_line
from smpc_dp.logs.receipt import LogReceipt
from smpc_dp.logs.store import Store
from smpc_dp.records.asked import Statistic
from smpc_dp.records.result import Estimate
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import RecordedRun, execute, honest
from tests.accessibility import serious_findings
from tests.browser import CHROMIUM, browser
from tests.unit.pairs.test_statistic_audit import ended as head_of
from tests.unit.pairs.test_statistic_audit import execute as statistic

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\" onload='x" + "y" * 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _quickly() -> Iterator[None]:
    """Look at the ends of logs more often than a server does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing_log, "POLL_SECONDS", 0.01)
        patch.setattr(log_watch, "LOOK_SECONDS", 0.01)
        patch.setattr(log_page_server, "LOOK_SECONDS", 0.05)
        yield


@functools.cache
def ran() -> RecordedRun:
    return execute({CHEAT: off_by_one})


def receipt_of(run: RecordedRun, name: str) -> LogReceipt:
    receipt = Result.of(run.parties[name].result, "average").receipt
    assert receipt is not None
    return receipt


@contextlib.contextmanager
def serving(path: Path, session: str | None = None) -> Iterator[LogPageServer]:
    with LogPageServer(watch := LogWatch(path, session)) as server, watch:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def answered(
    server: LogPageServer, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    try:
        connection.request(method, path, body, {"Accept": "text/html", **headers})
        answer = connection.getresponse()
        headers = {name.title(): value for name, value in answer.headers.items()}
        return answer.status, headers, answer.read().decode()
    finally:
        connection.close()


def text_of(page: str) -> str:
    """Return the text of a page as it is read, without its styles."""
    page = re.sub("<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", "", page)).split())


def shown(server: LogPageServer, path: str = "/") -> str:
    status, _, page = answered(server, path)
    assert status == 200
    return text_of(page)


def wait_for(server: LogPageServer, words: str) -> str:
    """Wait for words on the first page, at each event; return the text of a page that was made after that."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.request("GET", "/events")
    events = connection.getresponse()
    assert events.headers["Content-Type"] == "text/event-stream"
    with contextlib.closing(connection):
        while events.readline():
            if words in (text := shown(server)):
                # That page was made while the audit went on: another part of it may be older than the words.
                return shown(server)
    raise AssertionError(f"{words} is not in: {text}")


def post(server: LogPageServer, receipt: str) -> str:
    body = urllib.parse.urlencode({"receipt": receipt})
    status, _, page = answered(server, "/receipt", "POST", body)
    assert status == 200
    return text_of(page)


def begun(folder: Path, run: RecordedRun) -> Store:
    return Store.create(folder / f"request-1-{run.header.run_id[:16]}.board", run.header)


def first_of(run: RecordedRun, kind: str) -> int:
    return next(entry.sequence for entry in run.entries if entry.kind == kind)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogPageServer]:
    """A server of the log of a run that has ended, with a party that cheats."""
    path = tmp_path_factory.mktemp("ended") / "log.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in ran().lines))
    with serving(path, ran().context.session_digest.hex()) as server:
        wait_for(server, "Every check of this log passed")
        yield server


def test_a_run_is_watched_until_the_page_names_the_cheat(tmp_path: Path) -> None:
    run, entries = ran(), ran().entries
    committed, published = first_of(run, v.CERTIFY_COMMITMENTS), first_of(run, v.PUBLISH)
    with serving(tmp_path) as server:
        assert "No run has begun" in shown(server)
        assert answered(server, "/board.jsonl")[0] == 500
        with begun(tmp_path, run) as store:
            store.append(entries[: committed - 1])
            text = wait_for(server, f"{committed - 1} entries hold so far; next is 'commit'")
            assert "committed; its proofs wait to be verified" in text
            assert "Nobody, in what has been verified so far" in text
            store.append(entries[committed - 1 : published])
            text = wait_for(server, f"{published} entries hold so far; next is 'publish'")
            assert "opened its coin, as it had committed to it" in text
            assert f"Left out: {CHEAT}" not in text
            store.append(entries[published:])
            text = wait_for(server, "Every check of this log passed")
    counted = len(run.context.names) - 1
    assert f"The average is that of {counted} parties, all of whose proofs hold" in text
    assert f"Left out: {CHEAT}, who signed something false" in text
    assert re.search(rf"{CHEAT}, entry \d+: ", text)
    assert "What is not proven That this page tells the truth: it is the word of whoever" in text
    assert "names, bounds and epsilon are what the log says" in text


def test_a_party_finds_its_contribution(ended: LogPageServer) -> None:
    receipt = receipt_of(ran(), "ann")
    text = post(ended, json.dumps(receipt.to_json()))
    assert f"Found. The contribution of ann is entry {receipt.index}: counted" in text
    assert "This is the word of whoever runs this server" in text
    assert "smpc-dp audit http://127.0.0.1" in text
    assert "/board.jsonl --receipt receipt.json" in text


def other_entry(receipt: LogReceipt) -> LogReceipt:
    return replace(receipt, index=receipt.index - 1)


WRONG: dict[str, tuple[Callable[[], str], str]] = {
    "of-another-run": (lambda: json.dumps(receipt_of(honest(run=2), "ann").to_json()), "is of run"),
    "of-another-entry": (
        lambda: json.dumps(other_entry(receipt_of(ran(), "ben")).to_json()),
        "is not that of the receipt of ben",
    ),
    "of-a-later-entry": (
        lambda: json.dumps(replace(receipt_of(ran(), "ann"), index=10_000).to_json()),
        "the receipt is of entry 10000",
    ),
    "of-another-end": (
        lambda: json.dumps(replace(receipt_of(ran(), "ann"), head="0" * 64).to_json()),
        "is of a log with another end",
    ),
    "without-a-quorum": (
        lambda: json.dumps(replace(receipt_of(ran(), "ann"), signatures={}).to_json()),
        "no quorum's signatures",
    ),
    "no-json": (lambda: HOSTILE[:5000], "This is no receipt"),
    "nothing": (lambda: "", "This is no receipt"),
}


@pytest.mark.parametrize(("text", "reason"), WRONG.values(), ids=[*WRONG])
def test_another_receipt_is_not_found(ended: LogPageServer, text: Callable[[], str], reason: str) -> None:
    page = post(ended, text())
    assert "Not found." in page
    assert reason in page
    assert "Found. The" not in page


def test_what_is_posted_is_bounded(ended: LogPageServer) -> None:
    assert answered(ended, "/receipt", "POST", "", **{"Content-Length": str(1 << 30)})[0] == 413
    assert answered(ended, "/receipt", "POST", "", **{"Content-Length": "-1"})[0] == 400
    assert answered(ended, "/receipt", "POST")[0] == 411
    # Chunks would count, and the length not.
    chunked = {"Content-Length": "7", "Transfer-Encoding": "chunked"}
    assert answered(ended, "/receipt", "POST", "2\r\nx=\r\n0\r\n\r\n", **chunked)[0] == 411
    for path in ("/", "/board.jsonl", "/parties"):
        assert answered(ended, path, "POST", "x=1")[0] == 405
    # With too many fields none is read.
    assert "Party" in shown(ended, "/parties?name=no&" + "a=1&" * 9)
    status, _, page = answered(ended, "/receipt", "POST", "receipt=%7B%7D&" + "a=1&" * 9)
    assert (status, "This is no receipt" in page) == (200, True)


def test_each_entry_has_a_page(ended: LogPageServer) -> None:
    for entry in ran().entries:
        text = shown(ended, f"/entry/{entry.sequence}")
        assert entry.signature in text
        assert f"Entry {entry.sequence}" in text
    number = first_of(ran(), v.PUBLISH)
    assert answered(ended, f"/entry/{number}.json")[2].encode() == ran().lines[number] + b"\n"
    for path in ("0", str(len(ran().entries) + 1), "1.html", "-1", "9" * 13):
        assert answered(ended, f"/entry/{path}")[0] == 404


def test_the_command_audits_the_log(ended: LogPageServer, tmp_path: Path) -> None:
    [code] = re.findall("<code>(.*smpc-dp.*)</code>", answered(ended, "/")[2])
    command = text_of(code).removeprefix("smpc-dp ")
    digest = ran().context.session_digest.hex()
    done = CliRunner().invoke(app, command.replace("session.toml", digest).split())
    assert done.exit_code == 0
    assert "Everything holds for the session" in done.output.replace("\n", " ")
    assert "The run id in it is this log's: compare it with a party's result" in shown(ended)
    # Behind another name the command has that name, and nothing that is no name.
    assert "http://audit.example/board.jsonl" in answered(ended, "/", Host="audit.example")[2]
    assert "evil" not in answered(ended, "/", Host="evil; rm -rf")[2]


def test_answers_let_nothing_else_in(ended: LogPageServer) -> None:
    for path in ("/", "/parties", "/entries", "/entry/1", "/receipt", "/page.js"):
        status, headers, page = answered(ended, path)
        assert status == 200
        assert "Set-Cookie" not in headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        assert not re.search(r"(src|href|action)=\"?(https?:)?//", page)
        assert not re.search(r"\son[a-z]+=|style=\"|<script>", page)
    # Whoever asks for no page gets what was there before.
    assert json.loads(answered(ended, "/", Accept="*/*")[2])["log"] == "/board.jsonl"
    assert answered(ended, "/board.jsonl")[2].encode() == b"".join(line + b"\n" for line in ran().lines)
    assert answered(ended, "/", "HEAD")[2] == ""


def test_hostile_values_are_text(tmp_path: Path) -> None:
    watch = LogWatch(tmp_path)
    names = [HOSTILE[:5000], "ann"]
    context = SimpleNamespace(names=names, scope=b"s" * 32, session_digest=b"s" * 32, aggregator=HOSTILE)
    session = SimpleNamespace(
        names=names, aggregator=HOSTILE, digest=b"s" * 32, parameters={HOSTILE: HOSTILE}
    )
    run = Run(tmp_path / "log", replace(ran().header, operation=HOSTILE), cast("Any", session))
    run.context, run.kind_names, run.failure = cast("Any", context), [HOSTILE], HOSTILE
    run.parties, run.kinds, run.bytes = array("i", [0, -1]), array("H", [0, 0]), array("q", [0, 9])
    run.steps, run.view = {v.COMMIT: array("i", [1, 0])}, VerifiableView()
    watch.run = run
    pages = LogPages(watch, "http://127.0.0.1:1")
    made = [pages.overview(HOSTILE), pages.parties(1, HOSTILE), pages.entries(), pages.receipt(HOSTILE)]
    for page in made:
        assert "<script>alert" not in page
        assert not {"\x1b", "\u202e"} & {*page}
        assert len(page) < 60_000
    assert "&lt;script&gt;alert(1)" in made[0]
    assert r"\u202e" in made[0]


def test_a_log_of_10000_parties_pages(tmp_path: Path) -> None:
    watch, count = LogWatch(tmp_path), 10_000
    names = [f"party-{number:05}" for number in range(1, count + 1)]
    context = SimpleNamespace(names=names, scope=b"s" * 32, session_digest=b"s" * 32)
    run = Run(tmp_path / "log", context=cast("Any", context), kind_names=["commit"], view=VerifiableView())
    run.parties, run.bytes = array("i", range(count)), array("q", range(count))
    run.kinds, run.steps = array("H", bytes(2 * count)), {v.COMMIT: array("i", range(1, count + 1))}
    watch.run = run
    pages = LogPages(watch, "http://127.0.0.1:1")
    for page, first in ((pages.parties(9_901), "party-09901"), (pages.entries(9_901), "party-09901")):
        assert len(page) < 60_000
        assert text_of(page).count("party-") == 100
        assert first in page
        assert "?from=9801" in page
        assert '?from=1"' in page
        assert "next" not in text_of(page)
    found = text_of(pages.parties(1, "party-0777"))
    assert found.count("party-0777") == 10
    assert len(pages.overview()) < 30_000
    assert "All 10000 parties" in text_of(pages.overview())


def test_a_statistic_is_watched_until_the_page_names_who_opened_a_wrong_coin(tmp_path: Path) -> None:
    run = statistic(wrong=["ben coin"], unpaired=["dot"])
    entries = run.entries
    hellos, coins, again = (
        next(i for i, each in enumerate(entries) if each.kind == kind)
        for kind in ("coin", "again-2", "coin-2")
    )
    header = decode_line(run.lines[0], Header)
    with serving(tmp_path, run.session) as server:
        with Store.create(tmp_path / "request-3-0.board", header) as store:
            store.append(entries[:hellos])
            text = wait_for(server, f"{hellos} entries hold so far; next is 'coin or again-2'")
            assert text.count("committed to its coins; that of draw 1 is not open") == 5
            assert "--head HEAD" in text
            store.append(entries[hellos:coins])
            text = wait_for(server, f"{coins} entries hold so far")
            assert "Shown to have signed something false: ben." in text
            assert "excluded: opened a coin that is not the one it has committed to" in text
            assert text.count("opened its coin, as it had committed to it") == 4
            store.append(entries[coins:again])
            text = wait_for(server, f"{again} entries hold so far")
            assert text.count("that of draw 2 is not open") == 4
            store.append(entries[again:-1])
            text = wait_for(
                server, f"{len(entries) - 1} entries hold so far; next is 'pairs-done or outcome'"
            )
            assert (
                text.count("reported its pairs hello") + text.count("reported its pairs statistic-hello") == 4
            )
            store.append(entries[-1:])
        text = wait_for(server, "Every check of this log passed")
        assert "Left out: ben, who signed something false." in text
        assert f"--head {head_of(run)} The head in it is" in text
        assert "were drawn, in draw 2. The aggregator alone signs it." in text
        assert "in 2 pairs, of which 2 failed" in text
        assert "Not detected: false records, and a false estimate." in text
        assert "a coin is missing or wrong: the matchings are drawn again" in shown(server, "/entries")
        assert "report" in shown(server, f"/entry/{len(entries) - 1}")


def test_a_changed_line_is_named(tmp_path: Path) -> None:
    lines = [*ran().lines]
    lines[4] = lines[4].replace(b'"signature":"', b'"signature":"0')[:-3] + b'"}'
    (tmp_path / "log.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    with serving(tmp_path / "log.jsonl") as server:
        text = wait_for(server, "This log does not hold.")
    assert "line 5, byte" in text or "line 6, byte" in text
    assert "Nobody, in what has been verified so far." in text


def test_a_log_that_does_not_hold_has_no_contribution(tmp_path: Path) -> None:
    lines = [*ran().lines]
    lines[-1] = lines[-1].replace(b'"payload":"', b'"payload":"AAAA')
    (tmp_path / "log.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    with serving(tmp_path / "log.jsonl") as server:
        wait_for(server, "This log does not hold.")
        page = post(server, json.dumps(receipt_of(ran(), "ann").to_json()))
    assert "Not found. This log does not hold: line" in page
    assert "The log has not ended" not in page


def test_the_log_of_another_session_does_not_hold(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"".join(line + b"\n" for line in ran().lines))
    with serving(tmp_path / "log.jsonl", "0" * 64) as server:
        wait_for(server, "the session is " + ran().context.session_digest.hex())


@pytest.mark.parametrize("content", [HOSTILE.encode(), b"", b"\x00" * 100 + b"\n"])
def test_what_is_no_log_is_no_crash(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(content)
    with serving(tmp_path / "log.jsonl") as server:
        status, _, page = answered(server, "/")
        assert status == 200
        if content:
            page = wait_for(server, "This log does not hold.")
            assert "not a log of smpc-dp" in page
        assert "alert(1)</script>" not in page


def test_a_newer_log_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with begun(tmp_path, ran()) as store:
            store.append(ran().entries[:3])
        wait_for(server, "3 entries hold so far")
        other = honest(run=2)
        with Store.create(tmp_path / "request-2-0.board", other.header) as store:
            store.append(other.entries)
        text = wait_for(server, "Every check of this log passed")
        assert other.header.run_id in text
        assert answered(server, "/board.jsonl")[2].encode() == b"".join(line + b"\n" for line in other.lines)


def test_a_viewer_that_does_not_read_holds_nobody_up(ended: LogPageServer) -> None:
    waiting = [socket.create_connection(("127.0.0.1", ended.server_port)) for _ in range(MOST_STREAMS)]
    for viewer in waiting:
        viewer.sendall(b"GET /events HTTP/1.0\r\n\r\n")
    end = time.monotonic() + 30
    while stream_status(ended) != 503:
        assert time.monotonic() < end
    text = shown(ended)
    assert "Every check of this log passed" in text
    assert text.index("Not detected: false") < text.index("all of whose proofs hold")
    for viewer in waiting:
        viewer.close()
    while stream_status(ended) != 200:
        assert time.monotonic() < end
        time.sleep(0.05)


def stream_status(server: LogPageServer) -> int:
    """Open a stream of events, and leave."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/events")
        return connection.getresponse().status


def test_the_stream_of_a_log_waits_for_the_rest_of_a_line(tmp_path: Path) -> None:
    path, finished = tmp_path / "log", threading.Event()
    path.write_bytes(b"first\nsec")

    def write() -> None:
        with path.open("ab") as file:
            file.write(b"ond\n")
        finished.set()

    with open_growing(path, finished) as stream:
        assert stream.readline() == b"first\n"
        threading.Timer(0.05, write).start()
        assert stream.readline() == b"second\n"
        assert stream.readline() == b""
        assert read_line(path, 1, 6, 100) == b"second"
        path.write_bytes(b"x")
        with pytest.raises(LocalError, match="is shorter than it was"):
            stream.readline()


def test_a_reader_of_a_store_reads_the_same(tmp_path: Path) -> None:
    with begun(tmp_path, ran()) as store:
        store.append(ran().entries)
        path = newest_log(tmp_path)
        assert path is not None
        with open_growing(path) as stream:
            assert stream.read() == b"".join(line + b"\n" for line in ran().lines)
        assert read_line(path, 2, 0, 1 << 24) == ran().lines[2]


def test_the_command_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_server: LogPageServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LogPageServer, "serve_forever", stop)
    done = CliRunner().invoke(app, ["board", "serve", str(tmp_path), "--port", "0"])
    assert done.exit_code == 0
    assert re.search(r"the page: http://127\.0\.0\.1:\d+/\n", done.output)
    done = CliRunner().invoke(app, ["board", "serve", str(tmp_path / "none"), "--port", "0"])
    assert "no such board" in str(done.exception)


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_a_statistic(tmp_path: Path, subtests: pytest.Subtests) -> None:
    (tmp_path / "log.jsonl").write_bytes(statistic(wrong=["ben coin"]).log)
    with serving(tmp_path / "log.jsonl") as server, browser() as page:
        address = f"http://127.0.0.1:{server.server_port}/"
        page.open(address, 390, "dark")
        page.until("document.getElementById('status').innerText.includes('Left out: ben')")
        for path in ("", "parties", "entries", "entry/2", "entry/3"):
            page.open(address + path, 390)
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            with subtests.test("accessible", path=path):
                assert serious_findings(page) == [], path
        assert page.console == []


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_watches_a_run_until_the_page_names_the_cheat(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    run, half = ran(), first_of(ran(), v.PUBLISH)
    with serving(tmp_path) as server, browser() as page, browser() as other, socket.socket() as slow:
        address = f"http://127.0.0.1:{server.server_port}/"
        page.open(address, 390)
        other.open(address, 1400, "dark")
        # A third viewer asks for the events, and reads none.
        slow.connect(("127.0.0.1", server.server_port))
        slow.sendall(b"GET /events HTTP/1.0\r\n\r\n")
        with begun(tmp_path, run) as store:
            store.append(run.entries[:half])
            page.until(f"document.body.innerText.includes('{half} entries hold so far')")
            assert CHEAT not in page.evaluate("document.getElementById('status').innerText")
            store.append(run.entries[half:])
            for each in (page, other):
                each.until(f"document.getElementById('status').innerText.includes('Left out: {CHEAT}')")
        # Of the same page, which was opened once: what is live was replaced.
        assert page.evaluate("performance.getEntriesByType('navigation').length") == 1
        for path in ("", "parties", "entries", "entry/2"):
            page.open(address + path, 390)
            assert page.evaluate("document.documentElement.scrollWidth") == 390
            with subtests.test("accessible", path=path):
                assert serious_findings(page) == [], path
        page.open(address + "receipt", 1400, "dark")
        with subtests.test("accessible"):
            assert serious_findings(page) == []
        receipt = json.dumps(json.dumps(receipt_of(run, "ann").to_json()))
        page.evaluate(f"document.getElementById('receipt').value = {receipt}")
        page.evaluate("document.querySelector('form').submit()")
        page.until("document.body.innerText.includes('Found. The contribution of ann')")
        assert page.console == []
        assert {request for request in page.requests if not request.startswith(address)} <= {"about:blank"}


def test_more_cheats_than_assumed_are_said(ended: LogPageServer) -> None:
    run = ended.watch.run
    assert run is not None
    report = run.report
    assert report is not None
    assert report.verdict is not None
    assert log_page.verdict(run)["kind"] == "good"
    fewer = replace(report, verdict=replace(report.verdict, corrupt=0))
    said = log_page.verdict(dataclasses.replace(run, report=fewer))
    assert (said["kind"], "there may be another log of this run" in said["text"]) == ("warning", True)


def shown_answers(
    server: LogPageServer, monkeypatch: pytest.MonkeyPatch, *estimates: dict[str, Any], **given: Any
) -> str:
    """Return the text of the first page of a log whose run has answered questions about records."""
    run = server.watch.run
    assert run is not None
    report = run.report
    assert report is not None
    assert report.verdict is not None
    answers = {"estimates": [*estimates], "level": 0.95, "unit": "person", "simultaneous": False} | given
    monkeypatch.setattr(run, "report", replace(report, verdict=replace(report.verdict, answers=answers)))
    return shown(server)


def an_answer(**given: Any) -> dict[str, Any]:
    """Return an answer about records with these members, as JSON data."""
    statistic = Statistic("count by sex", "count")
    one = Estimate.of(statistic, "count", "rows", (-math.inf, 1951.25), cell={"sex": "<b>f"}, error=2.75)
    return {**one.to_json(), "value": 1945.82, "note": "flagged", **given}


def test_answers_about_records_have_names_units_and_intervals(
    ended: LogPageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown_answers(ended, monkeypatch, *[an_answer()] * 150)
    assert "The answers are those of" in text
    assert "the first 100 of 150; each interval has the level 0.95" in text
    assert "count [sex = <b>f]1945.822.75-1951.25rowsflagged" in text
    assert "Privacy of each person: epsilon" in text
    assert "Average:" not in text
    assert "sampling error" not in text
    assert "p-value" not in text
    assert "ask next" not in text


def test_answers_about_records_have_what_they_say_about_a_population(
    ended: LogPageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = an_answer(cell={}, sampling_error=0.25, population_low=1940.5, population_high=1951.5)
    tested |= {"p_value": 0.031, "follow_up": "sandwich(y ~ x, [0.5], [0.25], [1], 3, 17)"}
    text = shown_answers(ended, monkeypatch, tested, an_answer(), simultaneous=True)
    headings = ["answer", "value", "standard error of the noise", "low", "high", "sampling error"]
    headings += ["population, low", "population, high", "p-value", "unit", "note"]
    assert f"all intervals together have the level 0.95 {''.join(headings)}" in text
    assert "count1945.822.75-1951.250.251940.51951.50.031rowsflagged" in text
    assert "count [sex = <b>f]1945.822.75-1951.25----rowsflagged" in text
    assert "Low and high are about the noise alone" in text
    assert "those of the population are about both" in text
    assert "for robust sampling errors ask next: sandwich(y ~ x, [0.5], [0.25], [1], 3, 17)" in text


def test_long_names_of_answers_keep_their_ends(ended: LogPageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "odds_ratio(" + "e" * 60 + ") by drug"
    names = [question + f": {part}" for part in ("treated", "control")]
    both = [an_answer(statistic=question, name=name, cell={}) for name in names]
    endless = [an_answer(statistic="x" * 300_000, name=f"{'x' * 300_000}{end}", cell={}) for end in "ab"]
    text = shown_answers(ended, monkeypatch, *both, *endless)
    assert all(f"{name}1945.82" in text for name in names)
    assert all("x" * 60 + end + "1945.82" in text for end in "ab")
    assert len(text) < 20_000
