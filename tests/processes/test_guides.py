"""The shell blocks of the guides, run as they stand: each guide in an empty folder, with real processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from smpc_dp.runtime.local import free_port

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:7100"

# What a guide prints, whatever the noise is.
PRINTED = {
    "secure-sum": (
        "tolerates 1 lost, 0 corrupt of 4 parties",
        "sum over 4 of 4 parties: [8.0, 2.0]",
        "sum over 3 of 4 parties: [7.0, -1.0]",
        "without: dave",
    ),
    "private-average": (
        "average over 5 of 5 parties: [",
        "standard error: 0.35 in each coordinate",
        "ledger of alice: epsilon = 3.46867 of 5 spent at delta = 0.0001",
        "refused: epsilon is short: of epsilon = 5 at delta = 0.0001, 3.46867 is spent",
        "\nrefused\n",
    ),
    "verifiable-average": (
        "fine: alice, bob, carol, dave, erin",
        "privacy of each honest user: epsilon 4, delta 1e-05",
        "Everything holds for session",
        "This log does not hold: line 5",
        "exit code 1",
    ),
    "statistics-of-pairs": (
        "kendall_tau: ",
        "over 6 pairs of 6 parties",
        "epsilon 8, delta 0 for each record, all its pairs together",
        "the log of the run ends with head",
    ),
    "learning": (
        "block-gossip: 4 parties",
        "privacy: (8, 1e-05)-differentially private for each party's data",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("guide", PRINTED)
def test_the_commands_of_a_guide_run(guide: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((GUIDES / f"{guide}.md").read_text("utf-8"))
    assert ADDRESS in blocks[0]
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
