"""The checks of `make release` refuse what is wrong, and documents say whether a release is published."""

from __future__ import annotations

import io
import platform
import re
import sys
import tarfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

import release.__main__ as command
from release.bills import check_crates
from release.interpreters import CORE, candidates, interpreters
from release.notes import notes_of
from release.wheel import LOCK, ROOT, needed
from tests.command import smpc_dp

CHANGELOG = (ROOT / "CHANGELOG.md").read_text("utf-8")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def test_all_parts_have_one_version() -> None:
    found = {}
    for path in ("lab/pyproject.toml", "verify/pyproject.toml"):
        found[path] = tomllib.loads((ROOT / path).read_text("utf-8"))["project"]["version"]
    found["Cargo.toml"] = tomllib.loads((ROOT / "Cargo.toml").read_text("utf-8"))["workspace"]["package"][
        "version"
    ]
    found["--version"] = smpc_dp("--version").stdout.split()[1]
    assert set(found.values()) == {VERSION}, found


def test_the_version_says_protocols_kernels_and_libraries() -> None:
    release, protocols, kernels, libraries = smpc_dp("--version").stdout.splitlines()
    assert release == f"smpc-dp {VERSION}"
    assert re.fullmatch(r"protocols: gopa 4 and 5, .*, secagg 2 and 3; channel 3", protocols)
    assert re.fullmatch(r"kernels: (portable|aes-ni|vaes-256|vaes-512)(; also there: portable.*)?", kernels)
    assert re.match(r"CPython 3\.\d+\.\d+, cryptography \d", libraries)


def test_notes_are_the_section_of_the_version() -> None:
    text, date = notes_of(CHANGELOG, VERSION)
    assert text.startswith(f"# smpc-dp {VERSION}\n\n### Added\n")
    assert date == "unreleased" or date > "2026"
    two = "# Changelog\n\n## [1.1.0] - unreleased\n\nnew\n\n## [1.0.0] - 2027-01-02\n\nold\n"
    assert notes_of(two, "1.0.0") == ("# smpc-dp 1.0.0\n\nold\n", "2027-01-02")
    assert notes_of(two, "1.1.0") == ("# smpc-dp 1.1.0\n\nnew\n", "unreleased")


@pytest.mark.parametrize(
    "text", ["", "## [1.0.0]\n\nx\n", "## [1.0.0] - soon\n\nx\n", "## [1.0.0] - unreleased\n\n"]
)
def test_without_a_dated_section_there_are_no_notes(text: str) -> None:
    with pytest.raises(ValueError, match=r"has no section \[1.0.0\]"):
        notes_of(text, "1.0.0")


REPORT = 'is consistent with\nthe following platform tag:\n"{}".\n'


@pytest.mark.parametrize("tag", ["manylinux_2_17_x86_64", "manylinux_2_28_x86_64"])
def test_a_wheel_for_this_c_library_or_an_older_one_passes(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    command.check_glibc(Path("smpc_dp-1-cp311-abi3-manylinux_2_28_x86_64.whl"), REPORT.format(tag))


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("manylinux_2_28_x86_64", "manylinux_2_34_x86_64"),
        ("manylinux_2_28_x86_64", "linux_x86_64"),
        ("manylinux_2_9_x86_64", "manylinux_2_28_x86_64"),
        ("manylinux_2_28_x86_64.manylinux_2_17_x86_64", "manylinux_2_28_x86_64"),
        ("manylinux_2_28_aarch64", "manylinux_2_28_x86_64"),
        ("linux_x86_64", "manylinux_2_28_x86_64"),
    ],
)
def test_a_wheel_that_claims_more_than_auditwheel_finds_is_refused(
    name: str, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    with pytest.raises(SystemExit, match="auditwheel does not find this consistent"):
        command.check_glibc(Path(f"smpc_dp-1-cp311-abi3-{name}.whl"), REPORT.format(tag))


def packed(folder: Path, names: Sequence[str]) -> Path:
    path = folder / "smpc_dp-1.tar.gz"
    with tarfile.open(path, "w:gz") as file:
        for name in names:
            file.addfile(tarfile.TarInfo(f"smpc_dp-1/{name}"), io.BytesIO())
    return path


SOURCES = (
    "Cargo.lock",
    "LICENSE",
    "pyproject.toml",
    "core/Cargo.toml",
    "bindings/Cargo.toml",
    "smpc_dp/a.py",
)


def test_an_sdist_has_the_locked_crates_and_no_tests(tmp_path: Path) -> None:
    command.check_sdist(packed(tmp_path, SOURCES))
    with pytest.raises(SystemExit, match=r"lacks Cargo\.lock"):
        command.check_sdist(packed(tmp_path, SOURCES[1:]))
    with pytest.raises(SystemExit, match="what no user needs: lab, tests"):
        command.check_sdist(packed(tmp_path, [*SOURCES, "tests/a.py", "lab/a.py"]))


def test_a_bill_of_crates_has_the_locked_versions_and_no_folder_of_this_machine() -> None:
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text("utf-8"))["package"]
    components = [{"name": one["name"], "version": one["version"]} for one in packages]
    check_crates({"components": components})
    with pytest.raises(SystemExit, match=r"Cargo\.lock does not: \[\('pyo3', '0\.0\.1'\)\]"):
        check_crates({"components": [*components, {"name": "pyo3", "version": "0.0.1"}]})
    with pytest.raises(SystemExit, match="the bill lacks pyo3"):
        check_crates({"components": [one for one in components if one["name"] != "pyo3"]})
    with pytest.raises(SystemExit, match="names a folder of this machine"):
        check_crates({"components": components, "where": f"file://{ROOT}/core"})


def test_there_is_this_interpreter_and_no_other_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("python3.12", "python3.13-config"):
        (tmp_path / name).write_text("#!/bin/sh\necho 3.12\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert tmp_path / "python3.12" in candidates()
    assert list(interpreters()) == [".".join(map(str, sys.version_info[:2]))]


def test_the_core_has_tests_where_the_release_looks() -> None:
    assert all([*(ROOT / path).glob("test_*.py")] for path in CORE)


def test_locked_versions_of_a_name_have_what_it_needs() -> None:
    names = re.findall(r"^([\w-]+)==", needed(LOCK.read_text("utf-8"), {"pytest"}), re.MULTILINE)
    assert set(names) == {"pytest", "iniconfig", "packaging", "pluggy", "pygments"}


# Whether a release is published: it stands in CHANGELOG, and beside each `pip install smpc-dp`.
PUBLISHED = re.search(r"^## \[[^\]]+\] - \d{4}-", CHANGELOG, re.MULTILINE) is not None
SENTENCE = f"smpc-dp is {'' if PUBLISHED else 'not '}published on PyPI"
INSTALLS = re.compile(r"pip install (?!-e |\.)[^\n`]*\bsmpc[-_]dp(?![-_.\w*])")


def wrong_installs(text: str) -> list[str]:
    """Return the paragraphs that install from PyPI and do not say whether that is possible."""
    paragraphs = re.split(r"\n\s*\n|\n(?=- )", text)
    return [part for part in paragraphs if INSTALLS.search(part) and SENTENCE not in part]


def test_documents_say_whether_the_package_is_published_where_they_install_it() -> None:
    folders = ("docs", "protocols", "benchmarks", "lab", "verify", "examples", "circuits", "core", "deploy")
    documents = [*ROOT.glob("*.md"), *(path for name in folders for path in (ROOT / name).rglob("*.md"))]
    assert len(documents) > 100
    assert {path: found for path in documents if (found := wrong_installs(path.read_text("utf-8")))} == {}
    assert any(INSTALLS.search(path.read_text("utf-8")) for path in documents)


@pytest.mark.parametrize(
    "line", ["`pip install smpc-dp`", "pip install --upgrade 'smpc-dp[ray]'", "pip install smpc_dp"]
)
def test_an_install_without_the_sentence_is_found(line: str) -> None:
    assert wrong_installs(f"{SENTENCE}.\n\n{line}\n") == [f"{line}\n"]
    assert wrong_installs(f"{SENTENCE}: {line}\n") == []


def test_the_workflow_says_that_it_was_not_run() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    assert "NOT RUN" in workflow
    assert "**It was never run**" in (ROOT / "docs" / "reference" / "compatibility.md").read_text("utf-8")
