"""The published vectors of proofs: what the code makes, and what both verifiers say of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.crypto import commit, proofs
from smpc_dp.errors import Check, VerificationError
from smpc_dp_lab import vectors
from smpc_dp_verify import proofs as twin
from smpc_dp_verify.errors import Refused

FOLDER = Path(__file__).parents[2] / "protocols" / "proofs" / "vectors"
Case = dict[str, Any]


def _cases(name: str) -> list[Case]:
    cases: list[Case] = json.loads((FOLDER / f"{name}.json").read_bytes())["cases"]
    return cases


def test_published_vectors_are_what_the_code_produces() -> None:
    assert vectors.check(FOLDER, "proofs") == []


@pytest.mark.parametrize("case", _cases("commitment"), ids=lambda case: ",".join(case["values"]))
def test_commitments(case: Case) -> None:
    values, blinding = [int(value) for value in case["values"]], bytes.fromhex(case["blinding"])
    assert commit.commit(values, blinding).hex() == twin.commit(values, blinding).hex() == case["commitment"]


def _statement(name: str, case: Case) -> tuple[Any, ...]:
    keys = {
        "box": ("context", "commitment", "length", "lo", "hi", "proof"),
        "range": ("context", "commitment", "length", "lo", "hi", "proof"),
        "noise": ("context", "secret_commitment", "noise_commitment", "length", "bits", "coins", "proof"),
        "norm": ("context", "commitment", "length", "bound_squared", "proof"),
    }[name]
    numbers = ("length", "lo", "hi", "bits", "bound_squared")
    return tuple(_number(case[key]) if key in numbers else bytes.fromhex(case[key]) for key in keys)


def _number(spelt: str | int | list[str]) -> int | list[int]:
    return [int(number) for number in spelt] if isinstance(spelt, list) else int(spelt)


CASES = [(name, case) for name in ("range", "box", "noise", "norm") for case in _cases(name)]


@pytest.mark.parametrize(
    ("name", "case"),
    CASES,
    ids=[f"{name}-{case['fault'] or 'valid'}-{i}" for i, (name, case) in enumerate(CASES)],
)
def test_both_verifiers_say_what_is_published(name: str, case: Case) -> None:
    statement = _statement(name, case)
    name = "range" if name == "box" else name
    core, reference = getattr(proofs, f"verify_{name}"), getattr(twin, f"verify_{name}")
    if case["valid"]:
        core(*statement)
        # The widest range has 101 bits, which takes the twin many seconds.
        if len(case["proof"]) < 1200:
            reference(*statement)
        return
    with pytest.raises(VerificationError) as refused:
        core(*statement)
    assert refused.value.check == Check.BAD_PROOF
    if case["fault"] != "a zero byte after it":
        with pytest.raises(Refused):
            reference(*statement)
