"""The evidence of a party's refusal, as the audit judges it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.errors import LocalError
from smpc_dp.identity.keys import Identity
from smpc_dp.results.refusal import audit_refusal
from smpc_dp_lab.vectors.signed_results import CHECKED, SignedScenario
from tests.command import smpc_dp

VECTORS = Path(__file__).parents[3] / "protocols" / "secagg" / "vectors"


def vector(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_bytes())
    return content


CONTRADICTIONS = vector("contradictions")


class OfContradictions(SignedScenario):
    """A session with the aggregator of the vectors of contradictions."""

    def identity(self, name: str) -> Identity:
        if name != "relay":
            return super().identity(name)
        return Identity.from_seed(
            name, bytes.fromhex(vector("run-second")["identities"][name]["signing_seed"])
        )


@pytest.mark.parametrize("case", CONTRADICTIONS["cases"], ids=lambda case: case["name"])
def test_evidence_is_judged(case: dict[str, Any], tmp_path: Path) -> None:
    file, session = tmp_path / "alice-0.evidence.json", tmp_path / "session.toml"
    file.write_text(json.dumps(case["evidence"]))
    assert audit_refusal(file).code == 3
    session.write_text(OfContradictions("contradictions", "", CHECKED.parameters).text)
    report = audit_refusal(file, session=session)
    assert (report.code, report.culprit) == ((8, "relay") if case["good"] else (1, None))
    session.write_text(CHECKED.text)
    report = audit_refusal(file, session=session)
    assert (report.code, report.culprit) == (1, None)


def test_the_command_judges_evidence(tmp_path: Path) -> None:
    file, session = tmp_path / "alice-0.evidence.json", tmp_path / "session.toml"
    file.write_text(json.dumps(CONTRADICTIONS["cases"][0]["evidence"]))
    session.write_text(CHECKED.text)
    done = smpc_dp("audit", str(file), "--session", str(session))
    assert done.returncode == 1
    assert "It does not convict relay" in done.stdout
    assert smpc_dp("audit", str(file)).returncode == 3
    assert smpc_dp("audit", str(file), "--session", str(session), "--request", "1").returncode == 1
    for cut in ("", "{", "[]", "[" * 100_000):
        file.write_text(cut)
        done = smpc_dp("audit", str(file), "--session", str(session))
        assert done.returncode == 1
        assert "is no evidence of a refusal" in done.stderr
    with pytest.raises(LocalError):
        audit_refusal(file, session=session)
