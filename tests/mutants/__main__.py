"""Run the tests of the concerned part against each mutant: `python -m tests.mutants [NAME ...]`.

Every mutant is applied to a copy of the tree. It is caught if tests fail that pass without it. The exit code
is 1 if one survives, or if tests fail without any mutant.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant, load

# Exit codes of pytest.
PASSED, FAILED = 0, 1
SECONDS = 1_800


class Copy:
    """A copy of the tree, in which mutants are applied one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        files = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
        # The compiled core is not tracked.
        files += [str(path.relative_to(ROOT)) for path in (ROOT / "smpc_dp").glob("_core*.so")]
        for name in files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        self._changes = 0

    def test(self, tests: Sequence[str], mutant: Mutant | None = None) -> tuple[int, str]:
        """Run tests, with a mutant if one is given; return pytest's exit code and its last lines."""
        if mutant is None:
            return self._run(tests)
        path = self._folder / mutant.file
        text = path.read_text("utf-8")
        self._write(path, mutant.apply(text))
        try:
            return self._run(tests)
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        # Cached bytecode is told by size and whole seconds: no two versions of a file may share both.
        self._changes += 1
        moment = int(time.time()) - 1_000_000 + self._changes
        os.utime(path, (moment, moment))

    def _run(self, tests: Sequence[str]) -> tuple[int, str]:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        try:
            done = subprocess.run(
                [*command, *tests],
                cwd=self._folder,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(str(self._folder / part) for part in ("", "lab", "verify")),
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            # Whoever waits for ever has noticed too.
            return FAILED, f"FAILED: not over after {SECONDS} s"
        return done.returncode, done.stdout


def main() -> int:
    """Run the mutants that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants; all if none is given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="copies that run side by side")
    given = parser.parse_args()
    known = {mutant.name: mutant for mutant in load()}
    if unknown := [name for name in given.names if name not in known]:
        parser.error(f"no such mutant: {', '.join(unknown)}")
    mutants = [known[name] for name in given.names] or list(known.values())
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
        for number in range(given.jobs):
            copies.put(Copy(Path(folder) / str(number)))

        def test(tests: Sequence[str], mutant: Mutant | None = None) -> tuple[int, str]:
            copy = copies.get()
            try:
                return copy.test(tests, mutant)
            finally:
                copies.put(copy)

        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            tests = sorted({mutant.tests for mutant in mutants})
            failing = [
                one for one, (code, _) in zip(tests, pool.map(test, tests), strict=True) if code != PASSED
            ]
            for one in failing:
                print(f"fails without any mutant: {' '.join(one)}", flush=True)
            if failing:
                return 1
            survived = 0
            for mutant, (code, output) in zip(
                mutants, pool.map(lambda mutant: test(mutant.tests, mutant), mutants), strict=True
            ):
                caught = code == FAILED
                survived += not caught
                print(f"{mutant.name:40} {_verdict(code, output)}", flush=True)
    print(f"{len(mutants) - survived} of {len(mutants)} mutants are caught")
    return 1 if survived else 0


def _verdict(code: int, output: str) -> str:
    if code == PASSED:
        return "SURVIVED"
    if code != FAILED:
        return f"BROKEN: pytest ends with {code}: {output[-300:]}"
    first = next((line for line in output.splitlines() if line.startswith("FAILED")), "FAILED")
    return f"caught by {first.removeprefix('FAILED ').partition(' - ')[0]}"


if __name__ == "__main__":
    sys.exit(main())
