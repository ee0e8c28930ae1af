"""Logs made to break their auditor, not to deceive it: they are refused with their place, and soon."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from smpc_dp import files
from smpc_dp.capabilities.gopa.verifiable import planned
from smpc_dp.errors import ConfigCheck, ConfigError, ConfigIssue, LocalError
from smpc_dp.files import Spool
from smpc_dp.logs import header as long_header
from smpc_dp.logs.audits import log_session
from smpc_dp.logs.audits.audit import audit, audit_stream
from smpc_dp.logs.audits.audit_report import Report
from smpc_dp.logs.audits.audit_selection import Wanted
from smpc_dp.logs.audits.log_session import parse_session_text
from smpc_dp.logs.log import encode_line
from smpc_dp.wire.canonical_session import MAX_DEPTH
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, off_by_one
from smpc_dp_lab.vectors.verifiable_runs import execute, honest
from tests.unit.logs.hostile_headers import with_session

SESSION = honest().header.session


@pytest.fixture(params=["whole", "long"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Read the header in both ways."""
    if request.param == "long":
        monkeypatch.setattr(long_header, "WHOLE_BYTES", 0)
    way: str = request.param
    return way


def audited(session: str) -> Report:
    header = replace(honest().header, session=session)
    return audit_stream(io.BytesIO(encode_line(header) + b"\n"), threads=1)


def with_parameter(key: str, value: object) -> str:
    document = json.loads(SESSION)
    document["parameters"][key] = value
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def refused(session: str, reason: str) -> None:
    report = audited(session)
    assert (report.code, report.line, report.byte) == (1, 1, 0)
    assert reason in report.conclusion, report.conclusion


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 300, 600, 900])
def test_parameters_within_parameters(depth: int) -> None:
    text = with_parameter("upper", 0).replace('"upper":0', f'"upper":{"[" * depth}{"]" * depth}')
    refused(text, f"more than {MAX_DEPTH} tables and arrays")
    refused(with_parameter("a", {"b": json.loads("[" * 40 + "]" * 40)}), "parameters.a.b[0]")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("key", ["lower", "precision", "kind", "a\ud800"])
def test_half_a_pair_is_no_text(key: str) -> None:
    refused(with_parameter(key, "x\udfff"), "is no Unicode text")


@pytest.mark.usefixtures("way")
def test_timeouts_are_no_part_of_a_session() -> None:
    refused(SESSION[:-1].replace(',"version"', ',"timeouts":{},"version"') + "}", "has timeouts")


def floods() -> dict[str, str]:
    """Return sessions of which much is wrong, in few bytes."""
    document = json.loads(SESSION)
    many = dict.fromkeys((f"{number:05}" for number in range(15_000)), 0)
    none = {"parameters": {}, "protocol": "gopa", "version": 1}
    changed = {
        "members": none | {"roster": [{}] * 50_000},
        "numbers": none | {"roster": [0] * 80_000},
        "nothing": document | {"parameters": {"a": [None] * 30_000}},
        "parameters": document | {"parameters": document["parameters"] | many},
        "keys": document | many,
        "keys of a member": document | {"roster": [document["roster"][0] | many]},
    }
    return {name: json.dumps(value, sort_keys=True, separators=(",", ":")) for name, value in changed.items()}


FLOODS = floods()


@pytest.mark.parametrize("name", FLOODS)
def test_faults_without_end_take_no_memory(name: str) -> None:
    line = encode_line(replace(honest().header, session=FLOODS[name])) + b"\n"
    audit_stream(io.BytesIO(line), threads=1)
    tracemalloc.start()
    report = audit_stream(io.BytesIO(line), threads=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (report.code, report.line) == (1, 1)
    # As JSON alone an empty table of 3 characters has 72 bytes. With each fault listed it was 400 to 1.
    assert peak < 64 * len(line), peak / len(line)
    assert len(report.conclusion) < 1000


def box_of_many_widths() -> str:
    """Return a session of 5 kB whose plan composes 16 distributions again and again: 5 to 9 s of work."""
    document = json.loads(SESSION)
    given = document["parameters"]
    given |= {"length": 16, "lower": [0] * 16, "upper": [*range(10, 26)], "epsilon": 8.0}
    given.pop("precision", None)
    return json.dumps(document, sort_keys=True, separators=(",", ":"))


def with_its_run_id(session: str) -> bytes:
    """Return the line of a header whose run id is right for the session that it has."""
    return encode_line(with_session(honest().header, session)) + b"\n"


@pytest.mark.usefixtures("way")
def test_nothing_is_planned_for_a_header_that_does_not_agree_with_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans: list[object] = []

    def plan(*given: list[ConfigIssue]) -> None:
        plans.append(given)
        given[-1].append(ConfigIssue("epsilon", "is none", ConfigCheck.RANGE))

    monkeypatch.setattr(log_session, "plan_parameters", plan)
    session = box_of_many_widths()
    refused(session, "the run id is not that of this session")
    line = with_its_run_id(session)
    other = audit_stream(io.BytesIO(line), wanted=Wanted(session="ab" * 32), threads=1)
    assert other.code == 1
    assert "not abab" in other.conclusion
    assert plans == []
    audit_stream(io.BytesIO(line), threads=1)
    assert len(plans) == 1


@pytest.mark.usefixtures("way")
def test_the_plan_of_a_session_that_is_not_the_auditors_takes_bounded_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(LocalError, match="anybody may have written it: give the session file"):
        audit_stream(io.BytesIO(with_its_run_id(box_of_many_widths())), threads=1)
    # The plan of one that is the auditor's may take any; here next to none is allowed to others.
    monkeypatch.setattr(log_session, "STRANGERS_CELLS", 1000)
    line, digest = with_its_run_id(SESSION), parse_session_text(SESSION).digest
    planned.planned_noise.cache_clear()
    with pytest.raises(LocalError, match="give the session file"):
        audit_stream(io.BytesIO(line), threads=1)
    report = audit_stream(io.BytesIO(line), wanted=Wanted(session=digest.hex()), threads=1)
    assert "the log ends where 'certify-begin' is due" in report.conclusion


class Counted(io.BytesIO):
    """Counts the bytes that are read."""

    taken = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self.taken += len(line)
        return line


@pytest.mark.parametrize("kind", ["commit", "publish", "certify-commitments", "tally", "unheard-of"])
def test_no_more_of_an_entry_is_read_than_one_can_have(kind: str) -> None:
    ran = honest()
    entry = next(entry for entry in ran.entries if entry.kind == "commit")
    long = encode_line(replace(entry, kind=kind, payload=bytes(1 << 22))) + b"\n"
    stream = Counted(ran.lines[0] + b"\n" + long)
    report = audit_stream(stream, threads=1)
    assert (report.code, report.line) == (1, 2)
    assert "longer than" in report.conclusion
    # Of 10 parties and one coordinate: some KiB, not the 16 MiB that a line of any log may have.
    assert stream.taken < len(ran.lines[0]) + (1 << 16)


class Swapped(io.BytesIO):
    """Has another content from the second time on that it is read from its beginning."""

    def __init__(self, first: bytes, second: bytes) -> None:
        super().__init__(first)
        self._second: bytes | None = second

    def seek(self, index: int, whence: int = 0) -> int:
        if index == 0 and self._second is not None:
            super().seek(0)
            self.write(self._second)
            self.truncate()
            self._second = None
        return super().seek(index, whence)


def changes(log: bytes) -> dict[str, bytes]:
    third = len(log) // 3
    return {
        "empty": b"",
        "garbage": b"x" * 1000,
        "cut": log[:third],
        "header": log[: log.index(b"\n") + 1],
        "commitments": log[: log.index(b"\n", third) + 1],
        "bit": log[:third] + bytes([log[third] ^ 1]) + log[third + 1 :],
    }


# The cheat's value is out of range, so that the others' commitments are read again.
READ_TWICE = b"".join(line + b"\n" for line in execute({CHEAT: off_by_one}).lines)


@pytest.mark.parametrize("change", changes(READ_TWICE))
def test_a_log_that_changes_while_it_is_read(change: str) -> None:
    assert audit_stream(Swapped(READ_TWICE, READ_TWICE), threads=1).code == 3
    report = audit_stream(Swapped(READ_TWICE, changes(READ_TWICE)[change]), threads=1)
    assert report.code == 1
    assert "it changed meanwhile" in report.conclusion
    assert report.conclusion.count("line ") == 1


def test_a_log_begins_where_its_stream_was() -> None:
    stream = io.BytesIO(b"junk" + READ_TWICE)
    stream.seek(4)
    assert audit_stream(stream, threads=1).code == 3


def test_names_that_no_file_has(tmp_path: Path) -> None:
    log = tmp_path / "board.jsonl"
    log.write_bytes(READ_TWICE)
    for session in ("a" * 5000, "a\0b"):
        with pytest.raises(ConfigError, match="neither 64"):
            audit(log, session=session)
    for source in ("a" * 5000, "a\0b"):
        with pytest.raises(LocalError, match="cannot read the log"):
            audit(source)


@pytest.mark.parametrize("threads", [0, -1])
def test_threads_that_are_none(threads: int) -> None:
    with pytest.raises(ConfigError, match=f"threads: must be 1 or more, is {threads}"):
        audit_stream(io.BytesIO(READ_TWICE), threads=threads)


def outcome(line: bytes) -> tuple[object, ...]:
    report = audit_stream(io.BytesIO(line + b"\n"), threads=1)
    return report.code, report.conclusion, report.line, report.byte, report.roster, report.run_id


PIECES = (
    b"\\",
    b'"',
    b'\\"',
    b"\\\\",
    b"\\u0041",
    b"\\ud800",
    b"\xc3\xa9",
    b"\0",
    b",",
    b"}",
    b"1e400",
    b" ",
)


def mutated(line: bytes, chooser: random.Random) -> bytes:
    index, other = sorted(chooser.sample(range(50, len(line)), 2))
    ways: list[Callable[[], bytes]] = [
        lambda: line[:index] + bytes([line[index] ^ (1 << chooser.randrange(8))]) + line[index + 1 :],
        lambda: line[:index] + chooser.choice(PIECES) + line[index:],
        lambda: line[:index] + line[index + chooser.choice((1, 2, 50)) :],
        lambda: line[:index] + line[other : other + 200] + line[index:],
    ]
    return chooser.choice(ways)()


@pytest.mark.parametrize("block", [7, 1 << 16])
def test_both_ways_say_the_same(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    line, chooser = encode_line(honest().header), random.Random(block)
    # Behind the session too, which the long way reads apart.
    indices = chooser.sample(range(line.index(b'","request":'), len(line)), 20)
    lines = [line[:index] + b"?" + line[index + 1 :] for index in indices]
    lines += [mutated(line, chooser) for _ in range(60)]
    result = [outcome(changed) for changed in lines]
    monkeypatch.setattr(long_header, "WHOLE_BYTES", 0)
    monkeypatch.setattr(files, "SPOOL_BLOCK", block)
    for changed, expected in zip(lines, result, strict=True):
        assert expected[0] == 1
        assert outcome(changed) == expected


def test_what_is_written_far_behind_the_end_is_not_filled_up_in_memory() -> None:
    tracemalloc.start()
    with Spool("a test") as spool:
        spool.write(1 << 30, b"x")
        assert spool.read((1 << 30) - 1, 2) == b"\0x"
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_threads_add_to_one_spool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SPOOL_MEMORY", 1 << 10)
    with Spool("a test") as spool, ThreadPoolExecutor(8) as threads:
        [*threads.map(lambda number: spool.add(number.to_bytes(4)), range(4000))]
        assert spool.length == 16_000
        content = b"".join(spool.blocks())
    assert {content[index : index + 4] for index in range(0, 16_000, 4)} == {
        n.to_bytes(4) for n in range(4000)
    }
