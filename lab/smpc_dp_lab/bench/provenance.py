"""Where a figure comes from: the commit of the measured code, and the work of other programs meanwhile."""

from __future__ import annotations

import json
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import distribution
from os import cpu_count, sysconf
from pathlib import Path

from smpc_dp_lab.bench.figures import Report

CHANGED = "+changes"
# Files of the checkout that a benchmark itself writes.
_RESULTS = (":(top,exclude)benchmarks/*.json", ":(top,exclude)benchmarks/*.html")
_GIT_SECONDS = 30.0


def commit_of(source: Path, package: str) -> str | None:
    """Return the commit of the checkout that holds `source`, with CHANGED if the checkout differs from it.

    Without a checkout it is the commit from which `package` was installed; None if that is unknown.
    """
    folder = source.parent
    # A checkout may hold an environment with this package, whose files are not its own.
    if _git(folder, "ls-files", "--error-unmatch", source.name) is None:
        return _installed_commit(package)
    commit = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--", ":(top)", *_RESULTS)
    return None if commit is None or changes is None else commit + (CHANGED if changes else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of git in a folder; None where git fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _installed_commit(package: str) -> str | None:
    """Return the commit that the metadata of an installed package name; None if they name none."""
    try:
        text = distribution(package).read_text("direct_url.json")
    except ModuleNotFoundError:
        return None
    commit = json.loads(text).get("vcs_info", {}).get("commit_id") if text else None
    return commit if isinstance(commit, str) else None


def observed(measure: Callable[[], Report]) -> Report:
    """Return the report of a benchmark with its commit and the work of other programs meanwhile."""
    # Before: the checkout may change while the loaded code measures.
    commit = commit_of(Path(__file__), "smpc-dp-lab")
    clock, everybody, own = time.monotonic(), _busy_seconds(), _own_seconds()
    report = measure()
    others = None
    if everybody is not None:
        possible = (time.monotonic() - clock) * (cpu_count() or 1)
        spent = (_busy_seconds() or everybody) - everybody - (_own_seconds() - own)
        # The system counts in clock ticks: of a short benchmark the difference may be negative.
        others = min(1.0, max(0.0, spent / possible)) if possible else 0.0
    return replace(report, commit=commit, others=others)


def _own_seconds() -> float:
    """Return the processor time of this process, and of the children that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def _busy_seconds() -> float | None:
    """Return the processor time of all programs of this machine since it started; None where unknown."""
    try:
        first = Path("/proc/stat").read_text("ascii").partition("\n")[0].split()
    except OSError:
        return None
    # user, nice, system, idle, iowait, irq, softirq: of all but the idle ones.
    ticks = [int(number) for number in first[1:8]]
    return (sum(ticks) - sum(ticks[3:5])) / sysconf("SC_CLK_TCK")
