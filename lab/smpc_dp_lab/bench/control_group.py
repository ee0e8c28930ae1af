"""Memory of several processes together, by a control group of Linux (version 1 or 2)."""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")
SAMPLE_SECONDS = 0.02
# Processes that have ended leave their group a moment later.
REMOVAL_SECONDS = 2.0
_LINE = re.compile(r"^(?:\d+:(?P<controllers>[^:]*)):(?P<path>/.*)$")


class _Files(NamedTuple):
    """The names that a version has for peak, process memory and page cache."""

    version: int
    peak: str
    anonymous: str
    cache: str


_V1 = _Files(1, "memory.max_usage_in_bytes", "total_rss", "total_cache")
_V2 = _Files(2, "memory.peak", "anon", "file")


@dataclass(slots=True)
class ControlGroup:
    """Linux control group that processes may join, and the peak of their memory in bytes.

    Attributes:
        version: of control groups.
        join: moves the process that calls it into the group.
        peak: the most that all its processes had together, page cache included, as the kernel counted.
        anonymous: the most of it that was memory of processes, among samples.
        cache: the most of it that was page cache, among samples.
    """

    version: int
    join: Callable[[], None]
    peak: int = 0
    anonymous: int = 0
    cache: int = 0


@contextmanager
def control_group(root: Path = ROOT, own: Path = OWN) -> Iterator[ControlGroup | None]:
    """Make a control group below this process's own, measure it, and remove it; None where that is refused.

    All processes that have joined must have ended before the block does, after which the group is measured.

    Args:
        root: where control groups are mounted.
        own: the file that names the groups of this process.
    """
    made = _make(root, own)
    if made is None:
        yield None
        return
    folder, files = made
    descriptor = os.open(folder / "cgroup.procs", os.O_WRONLY)
    # Written by the process itself, between fork and exec: 0 is the writer.
    group = ControlGroup(files.version, lambda: _write(descriptor, b"0"))
    ended = threading.Event()
    sampler = threading.Thread(target=_sample, args=(group, folder, files, ended), daemon=True)
    sampler.start()
    try:
        yield group
    finally:
        ended.set()
        sampler.join()
        os.close(descriptor)
        with suppress(OSError, ValueError):
            group.peak = int((folder / files.peak).read_text("ascii"))
        _remove(folder)


def _make(root: Path, own: Path) -> tuple[Path, _Files] | None:
    """Make a group with the controller of memory; return its folder and files, None where it cannot be."""
    for parent, files in _parents(root, own):
        try:
            folder = Path(tempfile.mkdtemp(prefix="smpc-dp-", dir=parent))
        except OSError:
            continue
        if (folder / files.peak).is_file() and os.access(folder / "cgroup.procs", os.W_OK):
            return folder, files
        _remove(folder)
    return None


def _parents(root: Path, own: Path) -> Iterator[tuple[Path, _Files]]:
    """Yield the folders of this process's own groups that may have the controller of memory."""
    try:
        lines = own.read_text("utf-8").splitlines()
    except OSError:
        return
    for match in filter(None, map(_LINE.match, lines)):
        below = match["path"].lstrip("/")
        if "memory" in match["controllers"].split(","):
            yield root / "memory" / below, _V1
        elif not match["controllers"]:
            yield root / below, _V2


def _sample(group: ControlGroup, folder: Path, files: _Files, ended: threading.Event) -> None:
    """Note the most of each kind of memory until the group has ended."""
    while not ended.wait(SAMPLE_SECONDS):
        with suppress(OSError):
            numbers = _numbers((folder / "memory.stat").read_text("ascii"))
            group.anonymous = max(group.anonymous, numbers.get(files.anonymous, 0))
            group.cache = max(group.cache, numbers.get(files.cache, 0))


def _numbers(text: str) -> Mapping[str, int]:
    """Parse lines `NAME NUMBER`, as of a kernel's file, to a mapping."""
    return {name: int(number) for name, number in re.findall(r"^(\w+) (\d+)$", text, re.MULTILINE)}


def _write(descriptor: int, content: bytes) -> None:
    os.write(descriptor, content)


def _remove(folder: Path) -> None:
    """Remove a control group's folder, trying for some seconds; give up silently after that."""
    until = time.monotonic() + REMOVAL_SECONDS
    while True:
        try:
            folder.rmdir()
        except OSError:
            if not folder.is_dir() or time.monotonic() > until:
                return
            time.sleep(SAMPLE_SECONDS)
        else:
            return
