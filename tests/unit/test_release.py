"""The checks of `make release` refuse what is wrong, and documents say whether a release is published.

`make release` runs them on the real files, and the archive of the second auditor where there is no Python.
"""

from __future__ import annotations

import io
import platform
import re
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import release.__main__ as command
from release import archive, unpacked
from release.bills import check_crates
from release.interpreters import CORE, candidates, interpreters, oldest_and_newest
from release.notes import notes_of
from release.sample import GOOD, LINE, TAMPERED, try_auditor, write_sample
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


METADATA = b"Metadata-Version: 2.4\nName: smpc-dp\nVersion: 1.2\n\nVersion: 3\n"
CONTENTS = {
    "smpc_dp/_core.abi3.so": b"\x7fELF",
    "smpc_dp-1.2.dist-info/METADATA": METADATA,
    "smpc_dp-1.2.dist-info/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
}


def wheel_of(folder: Path, contents: Mapping[str, bytes], version: str = "1.2") -> Path:
    path = folder / f"smpc_dp-{version}-cp311-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name, content in contents.items():
            file.writestr(name, content)
    return path


def test_a_wheel_of_this_version_with_its_licence_passes(tmp_path: Path) -> None:
    command.check_metadata(wheel_of(tmp_path, CONTENTS), "1.2")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"smpc_dp-1.2.dist-info/METADATA": METADATA.replace(b"1.2", b"1.1")}, "its version is 1.1, not 1.2"),
        ({"smpc_dp-1.2.dist-info/METADATA": b""}, "its version is None, not 1.2"),
        ({"smpc_dp-1.2.dist-info/licenses/LICENSE": b"other terms"}, "lacks the licence"),
        ({"smpc_dp_lab/a.py": b""}, "holds what is not of smpc_dp: smpc_dp_lab/a.py"),
        *(
            (
                {"smpc_dp/_core.abi3.so": b"\x7fELF" + folder.encode()},
                r"_core\.abi3\.so names a folder of this",
            )
            for folder in (f"{ROOT}/core/src", f"{Path.home()}/.cargo", f"{tempfile.gettempdir()}/.tmpX/core")
        ),
    ],
)
def test_a_wheel_with_one_fault_is_refused(
    changed: Mapping[str, bytes], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SystemExit, match=message):
        command.check_metadata(wheel_of(tmp_path, {**CONTENTS, **changed}), "1.2")


def test_a_wheel_of_another_version_is_refused_though_it_is_consistent(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"its version is 1\.2, not 1\.3"):
        command.check_metadata(wheel_of(tmp_path, CONTENTS), "1.3")


def test_checksums_are_of_all_files_as_they_are(tmp_path: Path) -> None:
    for name in ("a.whl", "b.tar.gz"):
        (tmp_path / name).write_text(name, "utf-8")
    command.write_checksums(tmp_path)
    command.check_checksums(tmp_path)
    (tmp_path / "b.tar.gz").write_text("other", "utf-8")
    with pytest.raises(SystemExit, match=r"wrong: b\.tar\.gz: FAILED"):
        command.check_checksums(tmp_path)
    (tmp_path / "b.tar.gz").unlink()
    with pytest.raises(SystemExit, match=r"differ: b\.tar\.gz"):
        command.check_checksums(tmp_path)
    (tmp_path / "b.tar.gz").write_text("b.tar.gz", "utf-8")
    (tmp_path / "c").write_text("not listed", "utf-8")
    with pytest.raises(SystemExit, match="differ: c"):
        command.check_checksums(tmp_path)


DYNAMIC = f"python{sys.version_info[0]}.{sys.version_info[1]}"
PACKED = {
    **{f"modules/{name}": b"" for name in ("json.decoder", "smpc_dp_verify.run", "Crypto", "cryptography")},
    **{name: b"" for name in ("modules/msgspec", "libffi.so.8", f"lib{DYNAMIC}.so.1.0", "unpacked")},
    **{name: b"" for name in (f"{DYNAMIC}/lib-dynload/_ctypes.so", "msgspec/_core.so", "beside/README.txt")},
    **{
        name: b"" for name in ("base_library.zip", "pyimod01_archive", "cryptography-44.0.dist-info/METADATA")
    },
}


def test_an_archive_holds_the_second_auditor_and_python_alone() -> None:
    archive.check_contents(PACKED, [str(ROOT)])
    for name in (
        "modules/smpc_dp.audit",
        "modules/numpy",
        "libreadline.so.8",
        "libssl.so.3",
        "numpy/core.so",
    ):
        with pytest.raises(SystemExit, match=f"the archive holds {re.escape(name)}"):
            archive.check_contents({**PACKED, name: b""}, [])
    with pytest.raises(SystemExit, match="the archive lacks smpc_dp_verify"):
        archive.check_contents({name: b"" for name in PACKED if "smpc_dp" not in name}, [])


def test_an_archive_names_no_folder_that_it_was_built_in() -> None:
    with pytest.raises(SystemExit, match=f"{ROOT}, in unpacked"):
        archive.check_contents({**PACKED, "unpacked": f"co_filename {ROOT}/release".encode()}, [str(ROOT)])


def test_an_archive_needs_the_newest_c_library_that_a_part_of_it_asks_for() -> None:
    parts = [b"\0GLIBC_2.2.5\0GLIBC_2.9\0", b"\0GLIBC_2.35\0GLIBC_PRIVATE\0", b"", b"xGLIBC_2.99\0"]
    assert archive.glibc_of(parts) == 35


def test_an_archive_is_not_built_without_a_licence_of_each_package(tmp_path: Path) -> None:
    (tmp_path / "bare-1.dist-info").mkdir()
    (tmp_path / "bare-1.dist-info" / "METADATA").write_text("Name: bare\nVersion: 1\n", "utf-8")
    bare = Distribution.at(tmp_path / "bare-1.dist-info")
    with pytest.raises(SystemExit, match="bare 1 has no licence in its wheel"):
        archive.write_licenses(tmp_path, {"msgspec": distribution("msgspec"), "bare": bare})
    assert (tmp_path / "msgspec" / "LICENSE").exists()


def test_the_changed_sample_differs_in_one_character(tmp_path: Path) -> None:
    write_sample(tmp_path / "sample")
    good, tampered = ((tmp_path / "sample" / name).read_text("utf-8") for name in (GOOD, TAMPERED))
    (place,) = (i for i, (one, other) in enumerate(zip(good, tampered, strict=True)) if one != other)
    assert good[:place].count("\n") == LINE - 1


@pytest.mark.parametrize(
    "script",
    [
        "echo Everything holds.",
        "echo This log does not hold: line 14; exit 1",
        "echo Everything holds.; exit 1",
    ],
)
def test_an_auditor_that_takes_both_logs_or_none_is_refused(script: str, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="exit code"):
        try_auditor(["sh", "-c", script], "sample", {}, tmp_path)


def test_the_archive_without_arguments_or_folder_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["smpc-dp-verify"])
    assert unpacked.main() == 2
    assert "--unpack FOLDER" in capsys.readouterr().err
    monkeypatch.setattr(unpacked, "__file__", str(tmp_path / "unpacked.py"))
    (tmp_path / "beside").mkdir()
    monkeypatch.setattr(sys, "argv", ["smpc-dp-verify", "--unpack", str(tmp_path / "new")])
    assert unpacked.main() == 0
    assert unpacked.main() == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'new'}: File exists\n"
    # The bound is on this process, which holds the tests before it too.
    monkeypatch.setattr(sys, "argv", ["smpc-dp-verify", "--memory", "65536", str(tmp_path / "no.jsonl")])
    assert unpacked.main() == 1
    assert "no.jsonl" in capsys.readouterr().err


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


@pytest.mark.parametrize(("found", "tried"), [("", ""), ("a", "a"), ("ab", "ab"), ("abcd", "ad")])
def test_of_several_interpreters_the_oldest_and_the_newest_are_tried(found: str, tried: str) -> None:
    assert "".join(oldest_and_newest({name: name.upper() for name in found}).values()) == tried.upper()


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
