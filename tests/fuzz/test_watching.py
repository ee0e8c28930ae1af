"""An input that needs too much memory, or too much time, ends a fuzz run, which says which it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = """
import sys, time
from pathlib import Path
from tests.fuzz.target import Target
from tests.fuzz.watching import watched

def decode(content):
    if content != b"seed":
        {work}

with watched(Path(sys.argv[1]), 2048, 0.2) as watch:
    Target("any", decode, (b"seed", b"bad")).run(0, {count}, watch)
"""


@pytest.mark.parametrize(
    ("work", "said"), [("bytes(1 << 32)", "MemoryError"), ("time.sleep(60)", "Timeout (0:00:01.2")]
)
@pytest.mark.parametrize("count", [1, 2])
def test_what_takes_too_much_is_left_behind(work: str, said: str, count: int, tmp_path: Path) -> None:
    file = tmp_path / "input"
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(work=work, count=count), file],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode == 0) == (count == 1)
    assert file.exists() == (count == 2)
    if count == 2:
        assert file.read_bytes() == b"1\nbad"
        assert said in done.stderr.decode()
