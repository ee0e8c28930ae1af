"""The report of an audit: answers about records with their names, units and intervals."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from smpc_dp.cli.reporting import make_report
from smpc_dp.logs.audits.audit import audit
from smpc_dp.logs.audits.audit_report import audit_sections
from smpc_dp.report.document import render

HONEST = Path(__file__).resolve().parents[3] / "protocols/gopa/vectors/verifiable-run-honest.json"


def test_the_report_of_statistics_of_records_has_answers_in_their_units(tmp_path: Path) -> None:
    content = json.loads(HONEST.read_text("utf-8"))
    log = tmp_path / "log.jsonl"
    log.write_text("".join(f"{line}\n" for line in content["log"]), "utf-8")
    report = audit(log, session=content["session"])
    assert report.verdict is not None
    cell: dict[str, Any] = {
        "statistic": "count by sex",
        "name": "count",
        "cell": {"sex": "<b>f"},
        "unit": "rows",
        "note": "",
        "noise": "normal",
        "part_of": "",
    }
    cell |= {"value": 1945.82, "low": 1940.5, "high": 1951.25, "standard_error": 2.74, "sampling_error": None}
    cell |= dict.fromkeys(("population_low", "population_high", "p_value"))
    answers = {"estimates": [cell], "level": 0.95, "simultaneous": False, "unit": "person"}
    parameters = {"records": {"columns": {"sex": {"values": ["f", "m"]}}}}
    verdict = msgspec.structs.replace(report.verdict, answers=answers)
    report = msgspec.structs.replace(report, verdict=verdict, parameters=parameters)
    page = render(make_report("Audit", "", [], audit_sections(report, ["smpc-dp", "audit"])))
    shown = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
    assert "count [sex = &lt;b&gt;f] 1,946 2.74 1,940 1,952 rows" in shown
    assert "Level of each interval: 0.95." in shown
    assert "standard deviations of its noise at most" in shown
    assert "epsilon of each person" in shown
    assert "columns = {sex = {values = [f, m]}}" in shown
    assert "coordinate" not in shown
    assert "the sums over the parties; the answers" in shown
    assert "any row; the sums of any party without noise" in shown
    assert "the average;" not in shown
