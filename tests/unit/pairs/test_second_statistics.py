"""Both auditors find the same in logs of pairwise statistics, true and false."""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from smpc_dp.capabilities.pairs.kernels import Field
from smpc_dp.capabilities.pairs.kernels.named import find_kernel
from smpc_dp.capabilities.pairs.ustatistic import messages as m
from smpc_dp.capabilities.pairs.ustatistic.audit import StatisticAuditor
from smpc_dp.engine.phases import messages as common
from smpc_dp.engine.phases.begin import attestation_digest
from smpc_dp.engine.phases.messages import Attestation
from smpc_dp.errors import LocalError
from smpc_dp.logs.audits.audit import audit, audit_stream
from smpc_dp.logs.audits.audit_selection import Wanted as First
from smpc_dp.logs.audits.second import differences
from smpc_dp.logs.log import Header, decode_line
from smpc_dp.logs.opinion import Opinion
from smpc_dp.logs.runs import NO_HEAD, CertifiedLine, MemorySessionLog
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import encode
from smpc_dp_verify import Wanted, verify
from smpc_dp_verify.statistic import StatisticAudit
from tests.fuzz.audits import judge, play_statistic
from tests.fuzz.drafts import StatisticCase, draft_of
from tests.unit.pairs.test_statistic_audit import (
    AGGREGATOR,
    CHEATS,
    NAMES,
    RecordedRun,
    claimed,
    ended,
    execute,
    outcome,
)


def both(log: bytes, folder: Path, **wanted: Any) -> tuple[list[str], int]:
    """Return in what the auditors differ, and the exit code of the first."""
    path = folder / "log.jsonl"
    path.write_bytes(log)
    report = audit_stream(io.BytesIO(log), wanted=First(**wanted), threads=1)
    opinion = json.dumps(dataclasses.asdict(verify(path, Wanted(**wanted))))
    return differences(report, msgspec.json.decode(opinion, type=Opinion)), report.code


@pytest.fixture(scope="module")
def honest() -> RecordedRun:
    return execute()


RUNS: dict[str, dict[str, Any]] = {
    "two matchings": {},
    "a second draw": {"withheld": ["cem coin"]},
    "wrong coins, three draws": {"wrong": ["ben coin", "eve coin-2"]},
    "left out": {"withheld": ["cem coin"], "lost": "ben coin"},
    "pairs that failed": {"unpaired": ["dot"]},
    "public labels": {"kernel": find_kernel("auc", Field(0, 9))},
    "no end": {"withheld": ["ada coin", "ben coin", "cem coin"]},
}


@pytest.mark.parametrize("case", RUNS)
def test_both_find_the_same_statistic(case: str, tmp_path: Path) -> None:
    ran = execute(**RUNS[case])
    if case == "no end":
        assert both(ran.log, tmp_path) == ([], 1)
        return
    assert both(ran.log, tmp_path) == ([], 3)
    last = ended(ran)
    assert both(ran.log, tmp_path, session=ran.session, head=last) == ([], 0)
    run = ran.aggregator.run_id.hex()
    assert both(ran.log, tmp_path, session=ran.session, run=run) == ([], 4)
    assert both(ran.log, tmp_path, session=ran.session, run="0" * 64) == ([], 1)
    assert both(ran.log, tmp_path, session="0" * 64) == ([], 1)


def test_an_opinion_on_a_statistic_has_all_its_fields(honest: RecordedRun, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(honest.log)
    report = audit(path, threads=1)
    opinion = msgspec.convert(dataclasses.asdict(verify(path, Wanted())), Opinion)
    assert differences(report, opinion) == []
    assert opinion.statistic is not None
    other = {**opinion.statistic, "partners": 7}
    assert differences(report, replace(opinion, statistic=other)) == ["partners: 2 and 7"]
    missing = replace(opinion, statistic=None)
    assert differences(report, missing) == ["kind of run: False and True"]
    with pytest.raises(LocalError, match="the second auditor failed: it ended with 3"):
        differences(report, replace(opinion, statistic={**other, "partners": "7"}))


@pytest.mark.parametrize("cheat", CHEATS)
def test_both_refuse_the_same_statistics(cheat: str, honest: RecordedRun, tmp_path: Path) -> None:
    assert both(CHEATS[cheat][0](honest), tmp_path, session=honest.session) == ([], 1)


def test_both_refuse_an_outcome_that_the_aggregator_has_not_signed(
    honest: RecordedRun, tmp_path: Path
) -> None:
    last = honest.entries[-1]
    forged = honest.signed(replace(last, party="ada"), last.payload)
    entries = [*honest.entries[:-1], replace(last, signature=forged.signature)]
    assert both(honest.relinked(entries), tmp_path) == ([], 1)


def test_both_read_a_certificate_of_many_parties(honest: RecordedRun) -> None:
    names = tuple(f"party-{number}" for number in range(200))
    context = dataclasses.replace(honest.context, names=names)
    header = decode_line(honest.lines[0], Header)
    first = StatisticAuditor(context, replace(header, present=pack_set({*range(1, 201)}, 200)), 20)
    certified = common.Certified(bytes(26), bytes(26), bytes(64 * 200))
    assert first.longest(common.CERTIFY_BEGIN) >= len(encode(certified))
    second = object.__new__(StatisticAudit)
    second.names, second._terms = [*names], {"partners": 2}
    for kind in (common.CERTIFY_BEGIN, m.TERMS, m.HELLO, "coin", "again-2"):
        assert second._longest(kind) == first.longest(kind)


def test_both_find_the_same_pair_disputed(honest: RecordedRun, tmp_path: Path) -> None:
    left_out = claimed(m.OUTCOME, AGGREGATOR, outcome(pairs=3, failed=[(1, 0)]))(honest)
    assert both(left_out, tmp_path) == ([], 3)
    # No pair twice.
    twice = claimed(m.OUTCOME, AGGREGATOR, outcome(pairs=2, failed=[(1, 0), (1, 0)]))(honest)
    assert both(twice, tmp_path) == ([], 1)


def instead(fields: Any) -> Callable[[bytes, RecordedRun], bytes]:
    """Return what puts these fields in the place of a payload."""
    return lambda _payload, _ran: msgspec.msgpack.encode(fields)


# What reads like the pair [0, 0], or an array of it.
PAIRS: dict[str, Any] = {
    "a byte string": [b"\0\0"],
    "a map": [{0: 1, 1: 2}],
    "text": ["\0\0"],
    "a real number": [[0, 0.0]],
    "booleans": [[False, False]],
    "three numbers": [[0, 0, 0]],
    "one number": [[0]],
    "a number": [0],
    "a map of pairs": {0: [0, 0]},
}


@pytest.mark.parametrize("case", PAIRS)
def test_both_take_failed_pairs_as_arrays_of_two_integers_alone(case: str, honest: RecordedRun) -> None:
    def failed(value: Any) -> bytes:
        fields = msgspec.msgpack.decode(honest.entries[-1].payload)
        fields[6:8] = [fields[6] - 1, value]
        return claimed(m.OUTCOME, AGGREGATOR, instead(fields))(honest)

    assert judge(failed([[0, 0]]), {}) == 3
    assert judge(failed(PAIRS[case]), {}) == 1


@pytest.mark.parametrize("place", range(6))
def test_both_take_figures_as_finite_real_numbers_alone(place: int, honest: RecordedRun) -> None:
    for figure in (1, True, "1.0", b"1", [1.0], float("inf"), float("nan"), None):
        fields = msgspec.msgpack.decode(honest.entries[-1].payload)
        fields[place] = figure
        log = claimed(m.OUTCOME, AGGREGATOR, instead(fields))(honest)
        assert judge(log, {}) == (3 if figure is None and place in (1, 2, 3) else 1), figure


def nested(depth: int) -> Any:
    return 1 if depth == 0 else [nested(depth - 1)]


TERMS: dict[str, tuple[Any, int]] = {
    "a table of numbers": ({"a": [1, -0.5, True, "é"], "b": {}}, 3),
    "a large number": (10**400, 3),
    "31 arrays": (nested(31), 3),
    "32 arrays": (nested(32), 1),
    # About where Python's own parser ends.
    "many arrays": (nested(900), 1),
    "nothing": (None, 1),
    "half of a surrogate pair": ("\ud800", 1),
    "a key that is half of a surrogate pair": ({"\udfff": 1}, 1),
}


@pytest.mark.parametrize("case", TERMS)
def test_both_take_the_same_terms(case: str) -> None:
    given, code = TERMS[case]
    played, lines = statistic_case()
    draft = draft_of(lines, played)
    index = next(i for i, (_, kind, _) in enumerate(draft.entries) if kind == m.TERMS)
    party, kind, (terms, circuit) = draft.entries[index]
    draft.entries[index] = (party, kind, [terms | {"more": given}, circuit])
    assert judge(played.sign(draft).log, {}) == code


@pytest.mark.parametrize(
    ("partners", "code"), [(0, 1), (1, 3), (1000, 3), (1001, 1), (2.0, 1), (True, 1), ("2", 1)]
)
def test_both_take_as_many_partners_as_a_party_does(partners: Any, code: int) -> None:
    played, lines = statistic_case()
    draft = draft_of(lines, played)
    party, kind, (terms, circuit) = draft.entries[1]
    draft.entries[1] = (party, kind, [terms | {"partners": partners}, circuit])
    draft.entries[:] = [entry for entry in draft.entries if entry[1] != m.DONE]
    assert judge(played.sign(draft).log, {}) == code


@functools.cache
def statistic_case() -> tuple[StatisticCase, list[bytes]]:
    return play_statistic()


@pytest.mark.parametrize("protocol", ["gopa", "pairwise-statistic"])
def test_both_take_a_certificate_of_either_protocol_in_a_session_log(
    protocol: str, honest: RecordedRun, tmp_path: Path
) -> None:
    """A session has averages and statistics: its last certificate may be of the other kind of run."""
    header, (name, version) = decode_line(honest.lines[0], Header), (protocol, 2 if protocol == "gopa" else 3)
    context = dataclasses.replace(honest.context, protocol=name, version=version)
    log = MemorySessionLog(context.session_digest, context.session_digest)
    log.begin(header.request, bytes.fromhex(header.run_id), NO_HEAD)
    last = log.begin(header.request + 1, b"2" * 32, bytes.fromhex(ended(honest)))
    run = bytes.fromhex(last.run_id)
    attested = Attestation(attestation_digest(context, run, log.head(), header.present))
    signatures = b"".join(
        context.write(honest.identities[party], run, common.ATTEST_BEGIN, (AGGREGATOR,), attested)[
            0
        ].signature
        for party in NAMES
    )
    log.keep(CertifiedLine(2, name, version, header.present, header.present, signatures))
    (tmp_path / "session.jsonl").write_bytes(log.export())
    (tmp_path / "log.jsonl").write_bytes(honest.log)
    given: dict[str, Any] = {"session_log": tmp_path / "session.jsonl", "head": ended(honest)}
    report = audit(tmp_path / "log.jsonl", session=honest.session, threads=1, **given)
    assert (report.code, report.tries) == (0, 1)
    opinion = verify(tmp_path / "log.jsonl", Wanted(honest.session, **given))
    assert (opinion.code, opinion.tries) == (0, 1)


def test_both_refuse_every_changed_byte(honest: RecordedRun, tmp_path: Path) -> None:
    for index in range(5, len(honest.log), 997):
        changed = bytearray(honest.log)
        changed[index] ^= 1
        assert both(bytes(changed), tmp_path) == ([], 1), index
