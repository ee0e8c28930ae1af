"""The published vectors of the samplers: what the code makes, and what the twin makes."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from smpc_dp_lab import vectors
from tests.reference import sampling_twin as twin

FOLDER = Path(__file__).parents[2] / "protocols" / "sampling" / "vectors"
FILES = sorted(FOLDER.glob("*.json"))


def test_published_vectors_are_what_the_code_produces() -> None:
    assert len(FILES) == 6
    assert vectors.check(FOLDER, "sampling") == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_twin_produces_the_first_values(path: Path) -> None:
    vector: dict[str, Any] = json.loads(path.read_bytes())
    source = twin.source_key(
        bytes.fromhex(vector["key"]), *(bytes.fromhex(part) for part in vector["context"])
    )
    for case in vector["cases"]:
        parameters = [Fraction(value) for value in case["parameters"]]
        drawn = twin.draw_distribution(source, case["call"], len(case["first"]), vector["law"], *parameters)
        assert [str(value) for value in drawn] == case["first"]
