"""A log that the second auditor accepts, and the same with one character changed, which it refuses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from release.wheel import ROOT

LOG = ROOT / "tests" / "fixtures" / "0.1" / "request-1.jsonl"
SESSION = "33ae948b7b06ab2050b29c886e2cc8f66b690b390bce2a87ed4e7630bda7668c"
RUN = "c986e1af33449732fcfc3aa10e403f421698eb5910fe3b967b352a6a43468aac"
# The line that is changed: what a party published.
LINE = 14
GOOD, TAMPERED = "log.jsonl", "tampered.jsonl"
WANTED = ("--session", SESSION, "--run", RUN)


def write_sample(folder: Path) -> None:
    """Write both logs."""
    folder.mkdir(parents=True)
    lines = LOG.read_text("utf-8").splitlines(keepends=True)
    (folder / GOOD).write_text("".join(lines), "utf-8")
    place = lines[LINE - 1].index('"payload":"') + 100
    other = "A" if lines[LINE - 1][place] != "A" else "B"
    lines[LINE - 1] = lines[LINE - 1][:place] + other + lines[LINE - 1][place + 1 :]
    (folder / TAMPERED).write_text("".join(lines), "utf-8")


def try_auditor(command: Sequence[str], sample: str, env: Mapping[str, str], folder: Path) -> None:
    """Exit with a message unless the auditor accepts the log, and refuses the changed one by its line.

    `sample` is the folder of the logs as the auditor sees it.
    """
    for name, code, said in (
        (GOOD, 0, "Everything holds."),
        (TAMPERED, 1, f"This log does not hold: line {LINE}"),
    ):
        run = [*command, f"{sample}/{name}", *WANTED]
        done = subprocess.run(run, cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode != code or said not in done.stdout:
            printed = done.stdout + done.stderr
            sys.exit(f"{command[-1]}: exit code {done.returncode} for {name}, not {code}\n{printed}")
    print(f"{Path(command[-1]).name}: accepts a log, and refuses it with one character changed")
