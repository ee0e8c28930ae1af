"""Checkpoints of the session log of the vectors, verified by the second auditor and by this library."""

from __future__ import annotations

import json
from pathlib import Path

from smpc_dp.decoding import from_base64
from smpc_dp.logs.checkpoint import check_inclusion_proof, check_witnesses, read_checkpoint
from smpc_dp.logs.hash_tree import check_consistency
from smpc_dp.logs.signed_note import NoteKey
from smpc_dp_lab.vectors.verifiable_listed import listed
from smpc_dp_lab.vectors.verifiable_sessions import checkpoints
from smpc_dp_verify.checkpoint import check_checkpoint
from smpc_dp_verify.session_log import SessionLog

FOLDER = Path(__file__).resolve().parents[2] / "protocols" / "gopa" / "vectors"
VECTOR = json.loads((FOLDER / "session-log-checkpoints.json").read_text("utf-8"))
LINES = json.loads((FOLDER / VECTOR["base"]).read_text("utf-8"))["log"]
KEY = bytes.fromhex(VECTOR["checkpoint_key"])
LAST = len(LINES)


def test_they_are_generated_again() -> None:
    assert checkpoints(listed()) == VECTOR


def test_both_read_each_checkpoint() -> None:
    second = SessionLog(LINES)
    for size, note in enumerate(VECTOR["notes"], 1):
        checkpoint, _ = read_checkpoint(note.encode(), KEY)
        assert checkpoint.size == size
        check_checkpoint(note.encode(), second, KEY, 0, (), 0)


def test_each_line_is_proven() -> None:
    for index, proof in enumerate(VECTOR["inclusion"]):
        found = check_inclusion_proof(proof.encode(), LINES[index].encode(), KEY)
        assert (found[0], found[1].size) == (index, LAST)


def test_each_earlier_tree_is_continued() -> None:
    new, _ = read_checkpoint(VECTOR["notes"][-1].encode(), KEY)
    for old, note in enumerate(VECTOR["notes"], 1):
        head, _, sent = VECTOR["requests"][old].partition("\n\n")
        assert sent == VECTOR["notes"][-1]
        proof = [from_base64(line) or b"" for line in head.split("\n")[1:]]
        check_consistency(old, read_checkpoint(note.encode(), KEY)[0].root, LAST, new.root, proof)


def test_the_cosignature_is_right() -> None:
    note = (VECTOR["notes"][-1] + VECTOR["cosignature"]).encode()
    _, signed = read_checkpoint(note, KEY)
    assert check_witnesses(signed, [NoteKey.parse(VECTOR["witness"])], 1) == ("w1",)
    check_checkpoint(note, SessionLog(LINES), KEY, 5, (VECTOR["witness"],), 1)
