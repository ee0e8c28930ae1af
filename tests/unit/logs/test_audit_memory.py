"""The memory of an audit does not grow with the log: neither with its header nor with its entries."""

from __future__ import annotations

import functools
import io
import json
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from smpc_dp import files
from smpc_dp.capabilities.gopa.verifiable import audit as verifiable
from smpc_dp.capabilities.gopa.verifiable.edges import EdgeAudit
from smpc_dp.capabilities.gopa.verifiable.openings import OpeningAudit
from smpc_dp.capabilities.gopa.verifiable.params import VerifiableParameters, check_parameters
from smpc_dp.capabilities.gopa.verifiable.statements import Rules
from smpc_dp.encoding import RingVector
from smpc_dp.engine.phases.keys import run_identifier
from smpc_dp.identity.keys import Identity
from smpc_dp.identity.roster import Member
from smpc_dp.logs import header as long_header
from smpc_dp.logs.audits import log_session
from smpc_dp.logs.audits.audit import audit_stream
from smpc_dp.logs.log import Chain, encode_line
from smpc_dp.wire import batch_verifier
from smpc_dp.wire.canonical_session import canonical_session, session_digest, session_json
from smpc_dp.wire.sets import pack_set
from smpc_dp.wire.signing import Context
from tests.unit.logs.test_audit import write_log

GIVEN = {
    "length": 1,
    "lower": 0,
    "upper": 1,
    "precision": 0.02,
    "epsilon": 1.0,
    "delta": 1e-6,
    "corrupt": 0.1,
    "dropout": 0.0,
    "verifiable": True,
}


@functools.cache
def members(count: int) -> Sequence[Member]:
    identities = [Identity.from_seed(f"user-{number}", number.to_bytes(32)) for number in range(count + 1)]
    relay = Identity.from_seed("relay", b"\xff" * 32).entry("aggregator", "relay.example:1")
    return [relay, *(identity.entry() for identity in identities[1:])]


def header_of(count: int) -> bytes:
    """Return a log of which all is right, and that has no entry yet."""
    listed = [*members(5000)[: count + 1]]
    session = session_json(canonical_session("gopa", 4, GIVEN, listed))
    parameters, faults = check_parameters(GIVEN, count)
    assert not faults
    assert isinstance(parameters, VerifiableParameters)
    context = Context(
        protocol="gopa",
        version=4,
        session_digest=session_digest(session),
        request=1,
        names=[member.name for member in listed[1:]],
        aggregator="relay",
        keys={},
        operation=f"average {parameters.planned()}",
    )
    present, root = pack_set(range(1, count + 1), count), bytes(32)
    chain = Chain.begin(
        session=session.decode(),
        request=1,
        operation=context.operation,
        number=2,
        runs="00" * 32,
        before="00" * 32,
        present=present,
        root=root,
        run_id=run_identifier(context, context.operation, present, root).hex(),
    )
    return encode_line(chain.header) + b"\n"


def resident_bytes(log: Path) -> int:
    """Audit a log in a process of its own, and return the most memory that it had."""
    command = [sys.executable, "-m", "smpc_dp_lab.bench.log_worker", "audit", str(log), "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak: int = json.loads(done.stdout)["peak"]
    return peak


@pytest.mark.long
def test_memory_does_not_grow_with_the_roster(tmp_path: Path) -> None:
    peaks = []
    for count in (300, 5000):
        log = tmp_path / f"{count}.jsonl"
        log.write_bytes(header_of(count))
        report = audit_stream(io.BytesIO(log.read_bytes()))
        assert "the log ends where 'certify-begin' is due" in report.conclusion
        peaks.append(resident_bytes(log))
    # Held as a whole a roster of 5,000 took 17 MB more.
    assert peaks[1] - peaks[0] < 4e6, peaks


@pytest.mark.long
def test_no_byte_of_a_long_header_can_be_changed() -> None:
    log = header_of(500)
    assert len(log) > long_header.WHOLE_BYTES
    chooser = random.Random(500)
    # Some in what follows the session.
    behind = log.index(b'","request":')
    # The line of the session log is held against the first entry, which is not there.
    first, last = log.index(b'"number":', behind), log.index(b'"present":', behind)
    after = [*range(behind, first), *range(last, len(log) - 1)]
    indices = [*chooser.sample(range(behind), 12), *chooser.sample(after, 6)]
    expected = audit_stream(io.BytesIO(log), threads=1).conclusion
    assert "line 2" in expected
    assert "'certify-begin' is due" in expected
    for index in indices:
        changed = log[:index] + bytes([log[index] ^ (1 << index % 8)]) + log[index + 1 :]
        report = audit_stream(io.BytesIO(changed), threads=1)
        assert (report.code, report.line, report.byte) == (1, 1, 0), (index, report.conclusion)


def log_of(parties: int, path: Path) -> bytes:
    write_log(path, np.random.default_rng(parties).random((parties, 1)), parties)
    return path.read_bytes()


@pytest.mark.long
def test_memory_does_not_grow_with_the_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is bounded by a number has reached it after a few parties.
    for module, name, small in (
        (files, "SPOOL_MEMORY", 1 << 12),
        (files, "SPOOL_BLOCK", 1 << 12),
        (long_header, "WHOLE_BYTES", 1 << 12),
        (log_session, "VALUE_CHARACTERS", 1 << 12),
        (verifiable, "BATCH", 16),
        (batch_verifier, "ENTRIES", 4),
    ):
        monkeypatch.setattr(module, name, small)
    logs = {parties: log_of(parties, tmp_path / f"{parties}.jsonl") for parties in (80, 240)}
    peaks = {}
    # The first audit of each log also fills what a process of tests remembers of it.
    for parties in (80, 80, 240, 240):
        tracemalloc.start()
        report = audit_stream(io.BytesIO(logs[parties]), threads=1)
        peaks[parties] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert report.code == 3, report.conclusion
    # For a moment protocols/gopa/verifiable.md says 450 for each party. One held commit would be 300 more.
    assert (peaks[240] - peaks[80]) / 160 < 520, peaks


class Rightly(Rules):
    """Takes every opening for one of 64 terms of 16,384 coordinates."""

    def __init__(self) -> None:
        pass

    def check_open(self, party: int, *_: object) -> dict[int, RingVector]:
        return {peer: np.full(1 << 14, party, dtype=np.uint64) for peer in range(101, 165)}


def test_memory_does_not_grow_with_what_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 parties open 8 MiB each: of each party the sum is kept, in a file."""
    monkeypatch.setattr(files, "SPOOL_MEMORY", 1 << 12)
    edges = EdgeAudit([f"user-{number}" for number in range(200)], batch_verifier.Workers(), lambda: iter(()))
    openings = OpeningAudit(Rightly(), edges, 200, 1 << 14)
    tracemalloc.start()
    for party in range(1, 101):
        assert not openings.take(party, b"", "")
    left = openings.left(range(1, 51))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Two openings, and who opened to whom.
    assert peak < 40e6, peak
    assert set(left.opened.tolist()) == {64 * 50 * 51 // 2}
    assert left.unopened == []
