"""The examples of the guides: shell blocks as they stand, with real processes; programs over real sockets.

Each guide starts in an empty folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.local import create_local_session, free_port
from tests.snippets import block, execute, run_as

PARTIES = ("alice", "bob", "carol", "dave", "erin", "frank")

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:7100"

# What a guide prints, whatever the noise is.
PRINTED = {
    "secure-sum": (
        "tolerates 1 lost, 1 corrupt of 5 parties, quorum 4",
        "sum over 5 of 5 parties: [10.0, 1.0]",
        "every party checks the total",
        '"checked": true',
        "sum over 4 of 5 parties: [9.0, -2.0]",
        "without: dave",
    ),
    "make-session": (
        "statistics over 5 of 5 parties",
        "ledger of north: epsilon = ",
        "average, each coordinate: ",
        "session words  ",
    ),
    "private-average": (
        "4 of 5 shares are counted on; the error is 1.14 times that of a trusted curator of all 5 parties",
        "average over 5 of 5 parties: [",
        "0.35 in each coordinate (a trusted curator over only the honest parties counted on: 0.38)",
        "ledger of alice: epsilon = 3.46867 of 5 spent at delta = 0.0001",
        "alice, 'vectors of 2026'): of epsilon = 5 at delta = 0.0001, 3.46867 is spent",
        "\nrefused\n",
    ),
    "verifiable-average": (
        "fine: alice, bob, carol, dave, erin",
        "privacy of each honest party: epsilon 4, delta 1e-05",
        "Everything holds for the session",
        "This log does not hold: line 5",
        "exit code 1",
    ),
    "statistics-of-pairs": (
        "kendall_tau: ",
        "over 6 pairs of 6 parties",
        "epsilon 8, delta 0 for each record, all its pairs together",
        "the log of the run ends with head",
        "│ 1       │ pairs of each party; best: 1 ",
        "each request costs: epsilon = 8, delta = 0 for one party (substitution)",
        "from 6 reports of 6 parties",
    ),
    "record-statistics": (
        "each request costs: epsilon = 1, delta = 1e-06 for one record (add-remove)",
        "3 of 5 shares are counted on, of discrete Laplace noise; the error is 1.29 times that of a trusted "
        "curator of all 5 parties",
        "2000 rows, all of which count",
        "statistics over 5 of 5 parties",
        "  mean(bmi) [sex = f]: ",
        "level of each interval: 0.95, for the noise alone; where it says both, for the noise and for rows",
        "unit: epsilon and delta protect one record",
        "ledger of alice: epsilon = 0.999999 of 2 spent at delta = 1e-06",
        'ward: values = ["other", "cardiology", "surgery"]',
    ),
    "learning": (
        "block-gossip: 4 parties",
        "privacy: (8, 1e-05)-differentially private for each party's data",
    ),
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("guide", PRINTED)
def test_the_commands_of_a_guide_run(guide: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((GUIDES / f"{guide}.md").read_text("utf-8"))
    assert any(ADDRESS in block for block in blocks)
    script = "".join(blocks).replace(ADDRESS, f"127.0.0.1:{free_port()}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    for line in PRINTED[guide]:
        assert line in done.stdout, done.stdout


async def test_the_program_of_a_secure_sum_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    create_local_session(
        tmp_path, PARTIES, {"length": 2, "lower": -10.0, "upper": 10.0, "precision": 0.25, "corrupt": 0.0}
    )
    program = block("docs/guides/secure-sum.md", "python no-run", "session.sum")
    for variables in await execute({name: run_as(name, program, {}) for name in PARTIES}):
        assert variables["total"].value.tolist() == [9.0, -13.5]


async def test_the_program_of_the_concepts_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parameters = {"length": 2, "lower": -10.0, "upper": 10.0, "epsilon": 4.0, "delta": 1e-6, "corrupt": 0.0}
    create_local_session(tmp_path, PARTIES, parameters)
    for name in PARTIES:
        ledger = f"{name}.ledger"
        Ledger.create(ledger, party=name, dataset="d", relation="substitution", epsilon=5.0, delta=1e-4)
    program = block("docs/concepts.md", "python no-run", "session.sum")
    for variables in await execute({name: run_as(name, program, {}) for name in PARTIES}):
        result = variables["result"]
        assert (result.kind, result.privacy.epsilon) == ("sum", 4.0)
        assert result.privacy.receipt.run == result.evidence.run_id.hex()


async def test_the_program_of_a_private_average_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parameters = {"length": 2, "lower": 0.0, "upper": 1.0, "epsilon": 4.0, "delta": 1e-5, "corrupt": 0.0}
    create_local_session(tmp_path, PARTIES, parameters, protocol="gopa")
    program = block("docs/guides/private-average.md", "python no-run", "expect=")
    names = {"vector": np.array([0.25, 0.75])}
    Path("ledgers").mkdir()
    for name in PARTIES:
        ledger = Path("ledgers", f"{name}.ledger")
        Ledger.create(ledger, party=name, dataset="d", relation="substitution", epsilon=5.0, delta=1e-4)
    for variables in await execute({name: run_as(name, program, names) for name in PARTIES}):
        average = variables["average"]
        assert average.privacy.receipt is not None
        # Six standard errors: a false alarm has a probability below 1e-8.
        assert np.all(np.abs(average.value - names["vector"]) < 6 * average.standard_error)


@pytest.mark.long
async def test_the_program_of_a_statistic_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    create_local_session(
        tmp_path, PARTIES, {"length": 1, "lower": 0.0, "upper": 1.0, "precision": 0.5, "corrupt": 0.0}
    )
    program = block("docs/guides/statistics-of-pairs.md", "python no-run", "session.pairwise")
    for variables in await execute({name: run_as(name, program, {}) for name in PARTIES}):
        assert (variables["tau"].pairs, variables["tau"].failed) == (6, 0)
