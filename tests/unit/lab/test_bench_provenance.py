"""Commit and load of a stored result, in checkouts of their own."""

from __future__ import annotations

import importlib.metadata
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from smpc_dp_lab.bench import provenance
from smpc_dp_lab.bench.figures import Report, versions
from smpc_dp_lab.bench.provenance import CHANGED, commit_of, observed


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with a committed module, and a stored result."""
    (tmp_path / "code").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "code" / "module.py").write_text("")
    (tmp_path / "benchmarks" / "results-ot.json").write_text("{}")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    return tmp_path


def test_a_checkout_without_changes_has_its_commit(checkout: Path) -> None:
    source = checkout / "code" / "module.py"
    assert commit_of(source, "none") == git(checkout, "rev-parse", "HEAD")
    # What benchmarks write is no change of the code.
    (checkout / "benchmarks" / "results-ot.json").write_text("[]")
    (checkout / "benchmarks" / "index.html").write_text("")
    assert commit_of(source, "none") == git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize("changed", ["code/module.py", "other.py", "benchmarks/driver.h"])
def test_a_changed_or_new_file_is_said(checkout: Path, changed: str) -> None:
    (checkout / changed).write_text("changed")
    assert commit_of(checkout / "code" / "module.py", "none") == git(checkout, "rev-parse", "HEAD") + CHANGED


class Installed:
    """Metadata of an installed package."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.text


@pytest.mark.parametrize(
    ("text", "commit"),
    [
        ('{"url": "git+x", "vcs_info": {"vcs": "git", "commit_id": "0123abcd"}}', "0123abcd"),
        ('{"url": "file:///x", "dir_info": {}}', None),
        (None, None),
    ],
)
def test_an_installed_package_has_the_commit_of_its_metadata(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, commit: str | None
) -> None:
    """Also where it is installed below an unrelated checkout, which does not know the file."""
    monkeypatch.setattr(provenance, "distribution", lambda _: Installed(text))
    (checkout / "code" / "installed.py").write_text("")
    assert commit_of(checkout / "code" / "installed.py", "some") == commit


def test_no_checkout_and_no_package_have_no_commit(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution("no-such-package")
    assert commit_of(tmp_path / "module.py", "no-such-package") is None


def test_no_git_is_no_commit(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    assert commit_of(checkout / "code" / "module.py", "no-such-package") is None


def report() -> Report:
    return Report("some", [], versions())


@pytest.mark.parametrize(
    ("busy", "own", "others"),
    [
        # Of two cores over ten seconds: 12 s of all, 3 s of ours.
        ((100.0, 112.0), (1.0, 4.0), 0.45),
        ((100.0, 103.0), (1.0, 4.0), 0.0),
        # Clock ticks: less than ours.
        ((100.0, 102.9), (1.0, 4.0), 0.0),
        ((100.0, 140.0), (1.0, 1.0), 1.0),
    ],
)
def test_the_work_of_other_programs_is_a_part_of_the_cores(
    monkeypatch: pytest.MonkeyPatch, busy: tuple[float, float], own: tuple[float, float], others: float
) -> None:
    for name, values in (("_busy_seconds", busy), ("_own_seconds", own)):
        monkeypatch.setattr(provenance, name, iter(values).__next__)
    monkeypatch.setattr(provenance, "time", SimpleNamespace(monotonic=iter((50.0, 60.0)).__next__))
    monkeypatch.setattr(provenance, "cpu_count", lambda: 2)
    monkeypatch.setattr(provenance, "commit_of", lambda *_: "0123abcd")
    shown = observed(report).to_json()
    assert shown["others"] == pytest.approx(others)
    assert shown["commit"] == "0123abcd"


def test_where_the_system_does_not_say_the_work_of_others_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "_busy_seconds", lambda: None)
    assert observed(report).others is None
