"""Both auditors find the same in all published logs, true and false: what one of them lacks is seen here."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.gopa.verifiable import messages as v
from smpc_dp.crypto.labels import Label
from smpc_dp.crypto.transcript import digest
from smpc_dp.engine.phases import messages as m
from smpc_dp.errors import LocalError
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.audit_selection import read_session_log
from smpc_dp.logs.audits.second import differences
from smpc_dp.logs.log import MAX_LINE_BYTES, Chain, Entry, encode_line
from smpc_dp.logs.opinion import Opinion
from smpc_dp.wire.sets import PartySet, pack_set
from smpc_dp.wire.signing import decode, encode
from smpc_dp_lab.vectors.verifiable_parties import CHEAT, OTHER
from smpc_dp_lab.vectors.verifiable_runs import (
    Cheater,
    RecordedRun,
    entry_of,
    execute,
    honest,
    parameters,
)
from smpc_dp_verify import Wanted, verify
from smpc_dp_verify import run as second
from smpc_dp_verify.errors import Refused
from smpc_dp_verify.session_log import SessionLog
from smpc_dp_verify.verify import _Lines
from tests.fuzz.audits import judge

FOLDER = Path(__file__).resolve().parents[3] / "protocols" / "gopa" / "vectors"
LOGS = sorted(FOLDER.glob("verifiable-*.json"))
LIST = json.loads((FOLDER / "session-log.json").read_text("utf-8"))
ENDED = (2, 4, 5)
FALSE_LISTS = [
    path
    for path in sorted(FOLDER.glob("session-log-negative-*.json"))
    if json.loads(path.read_text("utf-8"))["expect"]["refused_by"] == "audit"
]


@pytest.fixture(autouse=True)
def _few_proofs(monkeypatch: pytest.MonkeyPatch, stride: int) -> None:
    """Let the second auditor, which is slow, verify the proofs of who may cheat, or with --all of all."""
    if stride > 1:
        monkeypatch.setattr(second.Audit, "_is_proven", lambda _, name: name in (CHEAT, OTHER))


def lines_of(vector: dict[str, Any], base: list[str]) -> str:
    lines = [base[line] if isinstance(line, int) else line for line in vector["log"]]
    return "".join(f"{line}\n" for line in lines)


def both(log: Path, **wanted: Any) -> tuple[list[str], int]:
    """Return in what the auditors differ, and the exit code of the first."""
    report = audit(log, threads=1, **wanted)
    opinion = dataclasses.asdict(verify(log, Wanted(**wanted)))
    return differences(report, msgspec.convert(opinion, Opinion)), report.code


def one_of_each(vectors: Sequence[Path]) -> list[Any]:
    """Return vectors; a further one for one check in logs of one base is marked `long`.

    But not of logs without an end: each ends somewhere else.
    """
    seen: set[tuple[str, str]] = set()
    result = []
    for path in vectors:
        content = json.loads(path.read_text("utf-8"))
        check = content.get("check", path.stem)
        kind = (path.stem if check == "the log has an end" else check, content.get("base", ""))
        result.append(pytest.param(path, marks=pytest.mark.long if kind in seen else ()))
        seen.add(kind)
    return result


@pytest.mark.parametrize("vector", one_of_each(LOGS), ids=lambda path: path.stem)
def test_both_find_the_same(vector: Path, tmp_path: Path) -> None:
    content = json.loads(vector.read_text("utf-8"))
    base = json.loads((FOLDER / content["base"]).read_text("utf-8"))["log"] if "base" in content else []
    log = tmp_path / "log.jsonl"
    log.write_text(lines_of(content, base), "utf-8")
    session = content.get("session") or json.loads((FOLDER / content["base"]).read_text("utf-8"))["session"]
    found, code = both(log)
    assert not found
    refused = content.get("expect", {}).get("audit") == "refused"
    assert code == (1 if refused else 3)
    found, code = both(log, session=session)
    assert not found
    assert code == (1 if refused or content.get("expect", {}).get("audit") == "session" else 4)


def wanted_of(number: int) -> Iterator[dict[str, Any]]:
    """Yield what parties may have given of a run: of its own, and of others."""
    header = json.loads(LIST["runs"][number - 1]["log"][0])
    yield {"run": header["run_id"]}
    yield {"request": header["request"]}
    yield {"request": 7}
    for other in ENDED:
        run = LIST["runs"][other - 1]
        yield {"run": json.loads(run["log"][0])["run_id"]}
        yield {"head": run["head"]}
        yield {"head": run["session_head"], "request": header["request"]}


@pytest.mark.thin(3)
@pytest.mark.parametrize("number", ENDED)
def test_both_select_the_same_run(number: int, tmp_path: Path) -> None:
    log, session_log = tmp_path / "log.jsonl", tmp_path / "session.jsonl"
    log.write_text(lines_of(LIST["runs"][number - 1], []), "utf-8")
    session_log.write_text(lines_of(LIST, []), "utf-8")
    codes = set()
    for wanted in wanted_of(number):
        for beside in ({}, {"session_log": session_log}):
            found, code = both(log, session=LIST["session"], **wanted, **beside)
            assert not found, (wanted, beside)
            codes.add(code)
    assert codes == {0, 1, 4}


@pytest.mark.parametrize(
    "vector", FALSE_LISTS, ids=lambda path: path.stem.removeprefix("session-log-negative-")
)
def test_both_refuse_the_same_lists(vector: Path, tmp_path: Path) -> None:
    content = json.loads(vector.read_text("utf-8"))
    log, session_log = tmp_path / "log.jsonl", tmp_path / "session.jsonl"
    log.write_text(lines_of(LIST["runs"][content["run"] - 1], []), "utf-8")
    session_log.write_text(lines_of(content, LIST["log"]), "utf-8")
    try:
        found, code = both(log, session=LIST["session"], session_log=session_log, head=content["head"])
    except LocalError:
        # The first auditor does not begin with a session log that cannot be read.
        assert verify(log, Wanted(session_log=session_log)).code == 1
        return
    assert not found
    assert code == 1


def with_certificate(**fields: object) -> list[str]:
    """Return the session log with other fields in its first certificate, which no auditor verifies."""
    lines: list[str] = list(LIST["log"])
    index = next(i for i, line in enumerate(lines) if line.startswith('{"certifies"'))
    lines[index] = json.dumps(json.loads(lines[index]) | fields, separators=(",", ":"))
    return lines


@pytest.mark.parametrize(
    ("fields", "right"),
    [
        *(({"version": version}, True) for version in (0, 65_535, 65_536, (1 << 62) - 1)),
        *(({"version": version}, False) for version in (-1, 1 << 62, 2.0, True, "2")),
        *(
            ({"protocol": protocol}, right)
            for protocol, right in (("another", True), ("", False), (2, False))
        ),
        ({"members": "", "signers": "AA==", "signatures": ""}, True),
        ({"certifies": 2}, False),
    ],
    ids=str,
)
def test_both_take_any_earlier_certificate_of_its_types(
    fields: dict[str, object], right: bool, tmp_path: Path
) -> None:
    listed = tmp_path / "session.jsonl"
    listed.write_text(lines_of({"log": with_certificate(**fields)}, []), "utf-8")
    log, run = lines_of(LIST["runs"][1], []), json.loads(LIST["runs"][1]["log"][0])["run_id"]
    wanted = {"session": LIST["session"], "run": run, "session_log": listed}
    assert judge(log.encode(), wanted) == (0 if right else 1)


@pytest.mark.parametrize("more", [0, 1])
def test_both_read_no_longer_line_of_a_session_log(more: int, tmp_path: Path) -> None:
    """A line has 2^24 bytes at most, with its line feed: of an earlier certificate nothing else counts."""
    listed = tmp_path / "session.jsonl"
    lines = with_certificate(members="")
    index = next(i for i, line in enumerate(lines) if line.startswith('{"certifies"'))
    octets, rest = divmod(MAX_LINE_BYTES - 1 - len(lines[index]), 4)
    # Base64 has four characters for three bytes: a longer name does the rest.
    lines = with_certificate(members="AAAA" * octets, protocol="gopa" + "x" * (rest + more))
    assert len(lines[index]) == MAX_LINE_BYTES - 1 + more
    listed.write_text(lines_of({"log": lines}, []), "utf-8")
    if more:
        with pytest.raises(LocalError, match="longer than"):
            read_session_log(listed)
        with pytest.raises(Refused):
            SessionLog(_Lines(listed, whole=False))
    else:
        assert (
            read_session_log(listed).head().hex() == SessionLog(_Lines(listed, whole=False)).heads[-1].hex()
        )


def last_of(ran: RecordedRun, folder: Path, last: Entry) -> Path:
    """Write a log with another last entry, which no certificate covers."""
    log = folder / "log.jsonl"
    log.write_bytes(b"".join(line + b"\n" for line in ran.log([*ran.entries[:-1], last])))
    return log


def test_both_refuse_a_last_entry_that_the_aggregator_has_not_signed(tmp_path: Path) -> None:
    ran = honest()
    signed = ran.sign(ran.entries[-1], signer="ann")
    assert both(last_of(ran, tmp_path, signed)) == ([], 1)


def test_both_refuse_a_last_certificate_of_another_set(tmp_path: Path) -> None:
    """The signatures on it are right, and over the right set."""
    ran = honest()
    certified = decode(ran.entries[-1].payload, m.Certified, "relay")
    other = m.Certified(pack_set({1, 2, 3, 4}, 5), certified.signers, certified.signatures)
    signed = ran.sign(ran.entries[-1], encode(other))
    assert both(last_of(ran, tmp_path, ran.sign(ran.entries[-1])))[1] == 3
    assert both(last_of(ran, tmp_path, signed)) == ([], 1)


# What a quorum of corrupt parties has signed: the certificates hold, and each check counts by itself.


def signed_by_all(ran: RecordedRun, entries: list[Entry], signers: dict[str, bytes]) -> list[bytes]:
    """Return the lines of a log with these entries; `signers` of a kind are others than before."""
    chain, run_id = Chain(ran.header), bytes.fromhex(ran.header.run_id)
    again: list[Entry] = []
    for entry in entries:
        signed = entry
        if entry.kind.startswith("certify-") and entry.kind != "certify-begin":
            certified = decode(entry.payload, m.Certified, "relay")
            who = PartySet.unpack(signers.get(entry.kind, certified.signers), len(ran.context.names), "relay")
            step = entry.kind.replace("certify", "attest")
            parts = (run_id, step.encode(), chain.head, certified.members)
            attested = digest(Label.BOARD_ATTESTATION, *ran.context.bound, *parts)
            body = hashlib.sha256(encode(m.Attestation(attested))).digest()
            signatures = b""
            for party in who:
                name = ran.context.names[party - 1]
                signatures += ran.identities[name].sign(
                    ran.context.statement(run_id, step, name, "relay", body)
                )
            signed = ran.sign(entry, encode(m.Certified(certified.members, who.packed, signatures)))
        chain.append(signed.party, signed.kind, signed.payload, bytes.fromhex(signed.signature))
        again.append(signed)
    return ran.log(again)


def changed(ran: RecordedRun, kind: str, party: str, **fields: Any) -> list[Entry]:
    """Return the entries of a run, one with other fields, signed by its author."""
    kinds: dict[str, Any] = {"tally": v.Tally, "commit": v.Commit}
    result = []
    for entry in ran.entries:
        if (entry.kind, entry.party) == (kind, party):
            message = decode(entry.payload, kinds[kind], party)
            entry = ran.sign(entry, encode(replace(message, **fields)))
        result.append(entry)
    return result


def swapped(ran: RecordedRun) -> list[Entry]:
    """Return the entries with the first two commitments in the wrong order."""
    entries = list(ran.entries)
    first = next(index for index, entry in enumerate(entries) if entry.kind == "commit")
    entries[first : first + 2] = entries[first + 1], entries[first]
    return entries


def test_signatures_of_all_are_right_signatures(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(line + b"\n" for line in signed_by_all(honest(), honest().entries, {})))
    assert both(log) == ([], 3)


@pytest.mark.parametrize(("more", "code"), [(0, 3), (1, 1)])
def test_both_read_no_longer_payload_than_its_kind_may_have(more: int, code: int, tmp_path: Path) -> None:
    """A party that commits to something malformed is excluded, up to the longest line of a commitment."""
    log = tmp_path / "log.jsonl"
    beside = len(encode_line(replace(entry_of(honest(), v.COMMIT, "dan"), payload=b"")))
    # A line has 768 bytes beside the payload, which may take what the others leave.
    longest = 3 * ((768 - beside) // 4 - (-parameters().longest_entry(v.COMMIT) // 3))

    def tamper(_: Cheater, step: str, message: Any) -> Any:
        if step != v.COMMIT:
            return message
        padded = replace(message, range_proof=bytes(1 << 15))
        return replace(padded, range_proof=bytes((1 << 15) + longest + 3 * more - len(encode(padded))))

    lines = execute({"dan": tamper}).lines
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    assert both(log) == ([], code)


COLLUSIONS: dict[str, Callable[[RecordedRun], list[Entry]]] = {
    "total": lambda ran: changed(ran, "tally", "relay", total=bytes(16)),
    "residual pairs": lambda ran: changed(ran, "tally", "relay", residual_pairs=1),
    "counted": lambda ran: changed(ran, "tally", "relay", counted=pack_set({1, 2, 3, 4}, 5)),
    "coin": lambda ran: changed(ran, "commit", "ann", coin=bytes(32)),
    "order": swapped,
    "quorum": lambda ran: ran.entries,
}


@pytest.mark.parametrize("case", COLLUSIONS)
def test_both_refuse_what_a_corrupt_quorum_has_signed(case: str, tmp_path: Path) -> None:
    ran, log = honest(), tmp_path / "log.jsonl"
    signers = {"certify-tally": pack_set({1, 2, 3}, 5)} if case == "quorum" else {}
    lines = signed_by_all(ran, COLLUSIONS[case](ran), signers)
    log.write_bytes(b"".join(line + b"\n" for line in lines))
    assert both(log) == ([], 1)
