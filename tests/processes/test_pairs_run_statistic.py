"""A pairwise statistic from the command line: every party a process, and wrong options refused at once."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from smpc_dp.logs.audits.audit import audit
from smpc_dp.session.local import create_local_session
from smpc_dp.session.session_file import Timeouts
from tests.baselines.schemas import faults
from tests.command import smpc_dp

PARTIES = ("alice", "bob", "carol", "dave")
PARAMETERS: dict[str, object] = {
    "length": 1,
    "lower": 0.0,
    "upper": 1.0,
    "precision": 0.1,
    "dropout": 0.25,
    "corrupt": 0.0,
}


@pytest.fixture
def session(tmp_path: Path) -> Path:
    timeouts = Timeouts(connect=60.0, step=20.0)
    path = create_local_session(tmp_path, PARTIES, PARAMETERS, addresses=True, timeouts=timeouts)
    (tmp_path / "inputs").mkdir()
    for index, name in enumerate(PARTIES):
        (tmp_path / "inputs" / f"{name}.json").write_text(json.dumps([index, 10 * index]))
    return path


def run(session: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return smpc_dp("run", str(session), *options)


@pytest.mark.long
def test_tau_of_concordant_records(session: Path) -> None:
    ended = run(session, "--statistic", "kendall_tau", "--epsilon", "12", "--partners", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert faults(result) == []
    assert (result["pairs"], result["failed"], result["privacy"]["epsilon"]) == (2, 0, 12)
    # Discrete Laplace of scale 1/6 on two pairs: off by 1.5 or more with a chance below 1e-3.
    assert abs(result["value"] - 1) < 1.5


@pytest.mark.long
def test_public_labels_come_from_a_file(session: Path) -> None:
    for name in PARTIES:
        (session.parent / "inputs" / f"{name}.json").write_text("[3]")
    labels = session.parent / "labels.json"
    labels.write_text(json.dumps(dict.fromkeys(PARTIES, 0) | {"alice": 1, "bob": 1}))
    options = ("--statistic", "auc", "--epsilon", "12", "--field", "0:9", "--labels", str(labels))
    ended = run(session, *options)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("auc: ")
    assert ".jsonl, which smpc-dp audit checks" in ended.stdout
    (log,) = (session.parent / "board").glob("request-*.jsonl")
    (head,) = re.findall(r"the log of the run ends with head ([0-9a-f]{64})", ended.stdout)
    assert audit(log, session=session, head=head).ok
    assert "epsilon 12, delta 0 for each record" in ended.stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--statistic", "kendall", "--epsilon", "1"), "'kendall' is none of"),
        (("--statistic", "kendall_tau"), "--epsilon: a statistic needs one"),
        (("--epsilon", "1"), "--epsilon: is for --statistic"),
        (("--statistic", "kendall_tau", "--epsilon", "1", "--clip"), "--clip: is for sums"),
        (("--statistic", "gini", "--epsilon", "1", "--field", "a:2"), "'a:2' is not LOW:HIGH"),
        (("--statistic", "gini", "--epsilon", "1", "--field", "0:9"), "has 1 values, here are 2"),
        (("--statistic", "gini", "--epsilon", "1"), "--field: 'gini' needs the bounds"),
        (("--statistic", "collision", "--epsilon", "40"), "smpc-dp: epsilon: 40.0 is not"),
        (
            ("--statistic", "collision", "--epsilon", "1", "--noise", "none"),
            "smpc-dp: noise: 'none' is none of",
        ),
        (("--statistic", "collision", "--epsilon", "1", "--partners", "0"), "smpc-dp: partners: 0 is not"),
        (("--statistic", "auc", "--epsilon", "1"), "needs each party's public label"),
        (
            ("--statistic", "kendall_tau", "--epsilon", "1", "--field", "0:9", "--field", "0:9"),
            "bob.json: value: 1 of 1 values are out of bounds",
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    session: Path, options: tuple[str, ...], named: str
) -> None:
    ended = run(session, *options)
    assert ended.returncode == 1
    assert named in ended.stderr
    assert "hello" not in ended.stderr
