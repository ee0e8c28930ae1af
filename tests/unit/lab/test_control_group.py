"""Memory of several processes: by a control group of this machine, if one can be made, and by given files."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from smpc_dp_lab.bench import control_group as module
from smpc_dp_lab.bench.control_group import OWN, ROOT, control_group

MIB = 1 << 20


def own_file(folder: Path, *lines: str) -> Path:
    """Write a file that names the groups of this process."""
    path = folder / "own"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_a_group_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    for own in (tmp_path / "absent", own_file(tmp_path, "0::/user", "4:memory:/a", "5:cpu:/", "no group")):
        with control_group(tmp_path / "not mounted", own) as group:
            assert group is None


def test_a_folder_without_the_controller_is_left_as_it_was(tmp_path: Path) -> None:
    """A group of version 2 has no file of memory where its parent does not hand the controller down."""
    mounted = tmp_path / "mounted" / "user"
    mounted.mkdir(parents=True)
    with control_group(tmp_path / "mounted", own_file(tmp_path, "0::/user")) as group:
        assert group is None
    assert not list(mounted.iterdir())


@pytest.mark.parametrize(
    ("line", "below", "version", "peak", "stat"),
    [
        ("0::/user", "user", 2, "memory.peak", "anon 5000\nfile 300\nfile_mapped 7\n"),
        (
            "4:hugetlb,memory:/user",
            "memory/user",
            1,
            "memory.max_usage_in_bytes",
            "rss 1\ntotal_rss 5000\ntotal_cache 300\n",
        ),
    ],
)
def test_both_versions_are_read(
    line: str, below: str, version: int, peak: str, stat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(prefix: str, dir: Path) -> str:
        assert dir == tmp_path / below
        folder = dir / f"{prefix}1"
        folder.mkdir(parents=True)
        for name, content in ((peak, "9000\n"), ("memory.stat", stat), ("cgroup.procs", "")):
            (folder / name).write_text(content)
        return str(folder)

    monkeypatch.setattr(tempfile, "mkdtemp", make)
    monkeypatch.setattr(module, "REMOVAL_SECONDS", 0.0)
    with control_group(tmp_path, own_file(tmp_path, line)) as group:
        assert group is not None
        group.join()
        until = time.monotonic() + 60
        while not group.cache and time.monotonic() < until:
            time.sleep(0.01)
    assert (group.version, group.peak, group.anonymous, group.cache) == (version, 9000, 5000, 300)
    assert (tmp_path / below / "smpc-dp-1" / "cgroup.procs").read_text() == "0"


def test_a_process_is_counted_and_its_group_removed() -> None:
    kept = 64
    with control_group() as group:
        if group is None:
            pytest.skip("this process can make no control group")
        code = f"import sys; kept = bytearray({kept * MIB}); sys.stdin.read()"
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=group.join) as process:
            until = time.monotonic() + 60
            while group.anonymous < kept * MIB and time.monotonic() < until:
                time.sleep(0.01)
            process.communicate()
    assert kept * MIB < group.peak < 8 * kept * MIB
    assert kept * MIB < group.anonymous <= group.peak
    parents = {parent for parent, _ in module._parents(ROOT, OWN)}
    assert not [path for parent in parents for path in parent.glob("smpc-dp-*")]
