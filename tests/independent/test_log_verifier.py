"""The page on logs is enough to verify them: a verifier that was written from it alone takes real logs."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smpc_dp import simulate
from tests.independent import log_verifier
from tests.independent.log_verifier import H, Refused, verify

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "protocols" / "gopa" / "vectors"
RUNS = sorted(path.name for path in FOLDER.glob("verifiable-run-*.json"))
# In each line, and lines of a log that are moved or changed.
FLIPS, MOVED = 3, 8
# What only a verifier with the whole plan and the proofs refuses, or whoever expects an end.
INCOMPLETE = {
    "coin-withheld",
    "log-truncated",
    "log-truncated-before-the-tally",
    "opening-false-and-too-few-left",
}
# What only a verifier with a plan refuses: the bound of version 2 on a published value follows from it.
PLANNED = {"version-2-x-hat-out-of-bounds"}
# Of vectors that later lines would show false as well: what is wrong where they are.
REASONS = {
    "cheat-counted": "not the set of those to be counted",
    "coin-dropped": "a participant has no coin",
    "coin-exchanged": "not the coin that the author committed to",
    "edge-of-an-honest-user-opened": "the kind is out of order",
    "entries-reordered": "parties are out of order",
    "head-changed": "`previous` is not the head",
    "opened-noise-in-the-total": "the total is not the sum",
    "opening-by-an-excluded-user": "the author is not due to speak",
    "payload-not-canonical": "not a coin",
    "publication-twice": "parties are out of order",
    "residual-pairs-changed": "more residual pairs",
    "round-without-a-quorum": "the signers are no quorum",
    "round-without-a-reason": "not members of before",
    "total-changed": "the total is not the sum",
}


def vector(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text("utf-8"))
    return found


def lines_of(found: dict[str, Any]) -> list[bytes]:
    base = vector(found["base"])["log"] if "base" in found else []
    return [(base[line] if isinstance(line, int) else line).encode() + b"\n" for line in found["log"]]


def read(log: bytes) -> list[bytes]:
    return io.BytesIO(log).readlines()


@pytest.fixture(scope="module", params=["all", "one-drops-out", "three-rounds"])
def lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Two simulated logs, and one with three rounds of openings."""
    if request.param == "three-rounds":
        return lines_of(vector("verifiable-run-false-openings-in-two-rounds.json"))
    lost = int(request.param == "one-drops-out")
    path = tmp_path_factory.mktemp("log") / "board.jsonl"
    result = simulate.average(
        np.random.default_rng(1).uniform(0, 1, (6, 2)),
        lower=0.0,
        upper=1.0,
        method="gopa",
        epsilon=10.0,
        delta=1e-6,
        verifiable=True,
        dropout=0.2 * lost,
        planned_dropout=0.2,
        board=path,
        # With this seed the party that drops out takes part, and does not publish: noise is left.
        seed_for_simulation=11,
    )
    found = read(path.read_bytes())
    run, log = verify(found), result.evidence.log
    assert run.complete
    assert (len(run.said[6]), run.residual) == (6 - lost, 5 * lost)
    assert log is not None
    assert (run.head, run.session_head) == (log.head, log.session_head)
    return found


def refused_line(lines: list[bytes]) -> int:
    with pytest.raises(Refused, match=r"^line [0-9]+: ") as caught:
        verify(lines)
    return int(str(caught.value)[5:].partition(":")[0])


def some(indices: range) -> list[int]:
    return sorted(random.Random(7).sample(indices, min(len(indices), MOVED)))


def chained_again(lines: list[bytes]) -> list[bytes]:
    """Return a log with numbers and heads that fit, as anybody can make it."""
    head, chained = H("board-header", lines[0][:-1]), [lines[0]]
    for number, line in enumerate(lines[1:], start=1):
        entry = json.loads(line) | {"sequence": number, "previous": head.hex()}
        chained.append(json.dumps(entry, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
        payload = log_verifier.read_value(entry["payload"], "base64")
        parts = entry["party"].encode(), entry["kind"].encode(), hashlib.sha256(payload).digest()
        digest = H("board-entry", number.to_bytes(8, "big"), *parts, bytes.fromhex(entry["signature"]))
        head = H("board-head", head, digest)
    return chained


def test_it_has_nothing_of_the_library() -> None:
    imported = set()
    for node in ast.walk(ast.parse(Path(log_verifier.__file__).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            imported.add(str(node.module).partition(".")[0])
    assert imported - sys.stdlib_module_names == {"Crypto", "cryptography", "msgspec"}


@pytest.mark.parametrize("name", RUNS)
def test_it_takes_the_vectors_of_finished_runs(name: str) -> None:
    found = vector(name)
    run = verify(lines_of(found))
    assert run.complete
    assert run.residual == 0
    assert run.digest.hex() == found["session"]
    if "ball" not in name and "box" not in name:
        assert run.total == found["total"]


@pytest.mark.thin(2)
@pytest.mark.parametrize("path", sorted(FOLDER.glob("verifiable-negative-*.json")), ids=lambda p: p.stem[20:])
def test_it_refuses_what_needs_no_proof_to_be_refused(path: Path) -> None:
    found, name = vector(path.name), path.stem.removeprefix("verifiable-negative-")
    lines = lines_of(found)
    if name in INCOMPLETE:
        assert not verify(lines).complete
    elif name == "publication-withheld":
        assert verify(lines).residual == 4
    elif found["expect"]["audit"] == "refused" and name not in PLANNED:
        with pytest.raises(Refused, match=f"^line [0-9]+: {REASONS.get(name, '')}"):
            verify(lines)
    else:
        run = verify(lines)
        assert (run.complete, run.residual) == (True, 0)


@pytest.mark.parametrize("other", ["AR==", "AQ", "AQ==\n", "_w=="])
def test_bytes_have_one_spelling(other: str) -> None:
    assert log_verifier.read_value("AQ==", "base64") == b"\x01"
    with pytest.raises(Refused):
        log_verifier.read_value(other, "base64")


def test_a_set_has_one_spelling() -> None:
    # Of all but one of 17 parties the others are listed, of all but two it has bits.
    assert log_verifier.read_set(bytes.fromhex("010300"), 17) == set(range(1, 18)) - {3}
    assert log_verifier.read_set(bytes.fromhex("00dfff00"), 17) == set(range(1, 17)) - {3}
    for other in ("00dfff80", "0103001100", "01030003", "011200", "00f1", "00dfff40", "02", ""):
        with pytest.raises(Refused):
            log_verifier.read_set(bytes.fromhex(other), 17)


def test_the_digests_on_the_page_are_those_of_the_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    made: set[str] = set()

    def recorded(label: str, *parts: bytes) -> bytes:
        digest = H(label, *parts)
        made.add(digest.hex())
        return digest

    monkeypatch.setattr(log_verifier, "H", recorded)
    logs = [lines_of(vector(name)) for name in RUNS]
    logs.append(lines_of(vector("verifiable-negative-publication-withheld.json")))
    logs += [lines_of(run) for run in vector("session-log.json")["runs"]]
    heads = [verify(lines).session_head.hex() for lines in logs]
    honest = verify(lines_of(vector("verifiable-run-honest.json"))).digest
    group = (b"ann", b"cyd", b"eve")
    recorded("session-log", bytes(32))
    recorded("group", *group)
    recorded("sub-session", honest, *group)
    page = (ROOT / "protocols" / "log" / "README.md").read_text("utf-8")
    shown = set(re.findall(r"`([0-9a-f]{64})`", page))
    assert len(shown) >= 20
    assert shown <= made
    # head(1) and head(5) of the session log
    assert {heads[-5], heads[-1]} <= shown


@pytest.mark.long
def test_a_flipped_bit_is_refused_in_its_line(lines: list[bytes]) -> None:
    chooser = random.Random(7)
    for index, line in enumerate(lines):
        for bit in chooser.sample(range(8 * len(line)), FLIPS):
            changed = bytearray(line)
            changed[bit // 8] ^= 1 << bit % 8
            log = b"".join([*lines[:index], bytes(changed), *lines[index + 1 :]])
            # The chain, not the run id, binds a header's place in the session log.
            assert refused_line(read(log)) in ((1, 2) if index == 0 else (index + 1,))


CHANGES: dict[str, tuple[Callable[[list[bytes], int], list[bytes]], int]] = {
    "dropped": (lambda lines, i: [*lines[:i], *lines[i + 1 :]], 1),
    "repeated": (lambda lines, i: [*lines[: i + 1], *lines[i:]], 2),
    "swapped": (lambda lines, i: [*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]], 1),
}


@pytest.mark.thin(4)
@pytest.mark.parametrize("change", CHANGES)
def test_a_moved_line_is_refused_where_it_is(change: str, lines: list[bytes]) -> None:
    make, later = CHANGES[change]
    for index in some(range(len(lines) - 1)):
        assert refused_line(make(lines, index)) == index + later


@pytest.mark.thin(2)
@pytest.mark.parametrize("change", CHANGES)
def test_who_has_no_key_cannot_chain_a_moved_entry_again(change: str, lines: list[bytes]) -> None:
    make, _ = CHANGES[change]
    for index in some(range(1, len(lines) - 1)):
        assert refused_line(chained_again(make(lines, index))) > index


def test_who_has_no_key_cannot_chain_a_changed_entry_again(lines: list[bytes]) -> None:
    for index in some(range(1, len(lines))):
        entry = json.loads(lines[index])
        payload = entry["payload"]
        entry["payload"] = payload[:8] + ("B" if payload[8] == "A" else "A") + payload[9:]
        line = json.dumps(entry).encode() + b"\n"
        assert refused_line(chained_again([*lines[:index], line, *lines[index + 1 :]])) == index + 1


def test_a_cut_log_is_a_valid_beginning(lines: list[bytes]) -> None:
    for length in some(range(1, len(lines))):
        assert not verify(lines[:length]).complete
        assert refused_line([*lines[: length - 1], lines[length - 1][:-1]]) == length


def test_entries_after_the_last_certificate_may_be_missing(lines: list[bytes]) -> None:
    published = [index for index, line in enumerate(lines) if b'"kind":"publish"' in line]
    beginning = [line for index, line in enumerate(lines[: published[-1] + 1]) if index != published[1]]
    assert not verify(chained_again(beginning)).complete
