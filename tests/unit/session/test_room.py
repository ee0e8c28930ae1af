"""Disk and memory that an aggregator needs: a machine with less is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from smpc_dp.errors import LocalError
from smpc_dp.session import room
from smpc_dp.session.room import available_memory, check_room
from smpc_dp.transport.spool import SpoolFolder

MACHINE = "MemTotal:       9000 kB\nMemFree:         100 kB\nMemAvailable:   2000 kB\n"


def group(folder: Path, limit: str, used: int, files: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {files}\nactive_file 3\n")


def system(root: Path) -> Path:
    """Write the files of a machine with 2,000 KiB, whose process is in the group /a/b."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(MACHINE)
    (root / "proc/self/cgroup").write_text("12:cpu:/other\n0::/a/b\n")
    return root


def test_a_system_that_does_not_say(tmp_path: Path) -> None:
    assert available_memory(tmp_path) is None


def test_without_a_limit_the_machine_counts(tmp_path: Path) -> None:
    root = system(tmp_path)
    assert available_memory(root) == 2000 << 10
    group(root / "sys/fs/cgroup/a/b", "max", 100, 50)
    assert available_memory(root) == 2000 << 10


@pytest.mark.parametrize("path", ["a/b", "a"])
def test_the_least_of_groups_and_machine_counts(tmp_path: Path, path: str) -> None:
    root = system(tmp_path)
    group(root / "sys/fs/cgroup" / path, "1000", 700, 50)
    assert available_memory(root) == 350
    group(root / "sys/fs/cgroup" / path, "1000", 2000, 50)
    assert available_memory(root) == 0


def test_room_for_totals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(SpoolFolder, "check_room", lambda _folder, needed: asked.append(needed))
    for available in (None, 200, 300):
        monkeypatch.setattr(room, "available_memory", lambda available=available: available)
        check_room(SpoolFolder(str(tmp_path)), 1000, 100)
    monkeypatch.setattr(room, "available_memory", lambda: 199)
    with pytest.raises(LocalError, match="need 200 bytes of memory, 199 are available"):
        check_room(SpoolFolder(str(tmp_path)), 1000, 100)
    # What arrives, and the message that is used.
    assert asked == [1100] * 4
