"""A sum each of whose messages is handled by a process of its own, some of which are killed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "one_process_per_message.py"


def run(*arguments: str) -> list[str]:
    """Run the example, and return what it says of each run."""
    command = [sys.executable, str(EXAMPLE), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.split(r"^seed \d+: ", done.stdout, flags=re.MULTILINE)[1:]


def assert_exact(runs: list[str]) -> None:
    assert sum(int(re.findall(r"(\d+) killed", text)[0]) for text in runs) > 2 * len(runs)
    for text in runs:
        assert "lost: nobody\n  sum of 5: [" in text
        assert "equals the uninterrupted run" in text


@pytest.mark.slow
def test_the_sum_is_exact_though_processes_are_killed() -> None:
    assert_exact(run("--seed", "1"))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("first", range(3, 43, 10))
def test_the_sum_is_exact_in_a_long_series(first: int) -> None:
    assert_exact(run("--seed", str(first), "--runs", "10"))


@pytest.mark.long
@pytest.mark.slow
def test_the_log_of_a_verifiable_run_holds_though_processes_are_killed() -> None:
    [text] = run("--seed", "1", "--protocol", "gopa-verifiable")
    assert int(re.findall(r"(\d+) killed", text)[0]) > 2
    assert "lost: nobody\n  sum of 5: [" in text
    assert "audit of 20 entries: exit code 0" in text
    assert "equals the uninterrupted run" in text


@pytest.mark.long
@pytest.mark.slow
def test_without_a_counter_the_killed_are_lost() -> None:
    """The run ends without them, over the vectors that are in it, or stops and names them."""
    ended, stopped = run("--seed", "11", "--no-counter")[0], run("--seed", "15", "--no-counter")[0]
    # Some are lost only while they are told that the run has stopped: it cannot name them.
    [late] = run("--seed", "2010", "--kill-rate", ".3", "--no-counter")
    assert "lost: party-00002, party-00004, party-00005\n  stopped: " in late
    assert "step 'attest-survivors': party-00002, party-00004 (" in late
    assert "lost: party-00001\n  sum of 4: [" in ended
    assert (
        "lost: party-00003, party-00004\n  stopped: missing in step 'attest-survivors': party-00003"
        in stopped
    )
