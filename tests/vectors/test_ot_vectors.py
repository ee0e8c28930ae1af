"""The published vectors of oblivious transfer: what the code makes, and what the twin makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp_lab import vectors
from tests.reference import ot_twin

FOLDER = Path(__file__).parents[2] / "protocols" / "pairwise" / "vectors"


def test_published_vectors_are_what_the_code_produces() -> None:
    assert vectors.check(FOLDER, "pairwise") == []


def test_a_changed_or_surplus_file_is_named(tmp_path: Path) -> None:
    vectors.write(tmp_path, "pairwise")
    assert vectors.check(tmp_path, "pairwise") == []
    changed = tmp_path / "ot-k2.json"
    changed.write_bytes(changed.read_bytes().replace(b'"k": 2', b'"k": 3'))
    (tmp_path / "ot-k8.json").write_bytes(b"{}")
    result = vectors.check(tmp_path, "pairwise")
    assert sorted(line.split(":")[0] for line in result) == ["ot-k2.json", "ot-k8.json"]


@pytest.mark.thin(2)
@pytest.mark.parametrize("k", [2, 4])
def test_the_twin_produces_the_published_transcript(k: int) -> None:
    vector: dict[str, Any] = json.loads((FOLDER / f"ot-k{k}.json").read_bytes())
    seeds = [bytes.fromhex(vector[name]) for name in ("context", "sender_seed", "receiver_seed")]
    twin = ot_twin.Extension(seeds[0], vector["k"], seeds[1], seeds[2])
    messages = [vector[name] for name in ("first", "base_response", "tree_corrections")]
    assert [message.hex() for message in twin.messages] == messages
    assert twin.delta.hex() == vector["delta"]
    for published in vector["chunks"]:
        count, first = published["count"], published["first_index"]
        choices = ot_twin.bits(bytes.fromhex(published["choices"]))[:count]
        chunk = twin.run(choices)
        assert chunk.first == first
        for name in ("corrections", "challenge", "response"):
            assert getattr(chunk, name).hex() == published[name]
        sent, received = chunk.q, chunk.t
        if published["kind"] == "random":
            others = [ot_twin.xor(row, twin.delta) for row in sent]
            pairs = zip(twin.pads(first, sent), twin.pads(first, others), strict=True)
            sent, received = [zero + one for zero, one in pairs], twin.pads(first, received)
        assert [row.hex() for row in sent] == published["sender_rows"]
        assert [row.hex() for row in received] == published["receiver_rows"]
