"""Build and check a release: `python -m release`, which `make release` runs in an environment of its own.

In `dist/release`: the wheel for this machine's processor, the sdist that it was built from, the wheel of
`smpc-dp-verify`, the archive of it and an interpreter, bills of materials, notes and checksums. Nothing is
published. `--quick` tries the wheel with the oldest and the newest interpreter alone, without the core's
tests, and builds the archive once.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import json
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

from release import archive
from release.bills import check_bill, check_crates, crates_bill, python_bill
from release.interpreters import interpreters, oldest_and_newest, try_wheel
from release.notes import notes_of
from release.sample import try_auditor, write_sample
from release.wheel import PRODUCT, ROOT, check_content, environment, install

OUT = ROOT / "dist" / "release"
VERIFY = ROOT / "verify"
# The oldest C library that the wheel runs with, as of the wheels of NumPy.
GLIBC = (2, 28)
LICENSE = ROOT / "LICENSE"


def build() -> tuple[Path, Path, Path]:
    """Return the sdist, the wheel that is built from it, and the wheel of the second auditor."""
    major, minor = GLIBC
    # Not --locked: the sdist has fewer crates than the lock. The bill shows that they are the locked ones.
    maturin = ["maturin", "build", "--quiet", "--release", "--sdist", "--interpreter", sys.executable]
    maturin += ["--zig", "--compatibility", f"manylinux_{major}_{minor}", "--out", str(OUT)]
    subprocess.run(maturin, cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        # setuptools writes beside what it reads.
        source = shutil.copytree(VERIFY, Path(folder) / "verify", ignore=shutil.ignore_patterns("*.egg-info"))
        shutil.copy(LICENSE, source)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
        own = ["--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(OUT), str(source)]
        subprocess.run([*pip, *own], check=True)
    shorten_paths(wheel := only("smpc_dp-*.whl"))
    return only("smpc_dp-*.tar.gz"), wheel, only("smpc_dp_verify-*.whl")


def shorten_paths(wheel: Path) -> None:
    """Take the folder where maturin unpacked the sdist out of the bill in a wheel: its name is random."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["wheel", "unpack", "--dest", folder, wheel], check=True, stdout=subprocess.DEVNULL)
        (unpacked,) = Path(folder).iterdir()
        (bill,) = unpacked.glob("*.dist-info/sboms/*.cyclonedx.json")
        text = re.sub(
            rf"(?<=path\+file://)/[^\s#]*/{re.escape(unpacked.name)}(?=/)", "", bill.read_text("utf-8")
        )
        bill.write_text(text, "utf-8")
        pack = ["wheel", "pack", "--dest-dir", str(wheel.parent), str(unpacked)]
        subprocess.run(pack, check=True, stdout=subprocess.DEVNULL)


def only(pattern: str) -> Path:
    """Return the one file of the release with such a name; exit with a message unless it is alone."""
    found = [*OUT.glob(pattern)]
    if len(found) != 1:
        sys.exit(f"{OUT}: {len(found)} files are {pattern}, not one")
    return found[0]


def check_glibc(wheel: Path, report: str) -> None:
    """Exit with a message unless auditwheel finds the wheel consistent with the tag in its name, or below.

    `report` is what `auditwheel show` prints.
    """
    pattern = rf"manylinux_(\d+)_(\d+)_{re.escape(platform.machine())}"
    named = [(int(major), int(minor)) for major, minor in re.findall(pattern, wheel.stem.rpartition("-")[2])]
    found = re.search(rf'following platform tag:\s*"{pattern}"', report)
    if not named or found is None or (int(found[1]), int(found[2])) > min(named):
        sys.exit(f"{wheel.name}: auditwheel does not find this consistent\n{report}")
    print(f"{wheel.name}: auditwheel finds it consistent with {found[0].split()[-1]}")


def check_sdist(sdist: Path) -> None:
    """Exit with a message if the sdist holds tests, the lab or protocols, or lacks the locked crates."""
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    if lacks := {"Cargo.lock", "LICENSE", "pyproject.toml", "core/Cargo.toml", "bindings/Cargo.toml"} - names:
        sys.exit(f"{sdist.name} lacks {', '.join(sorted(lacks))}")
    if found := {name.partition("/")[0] for name in names} & {"tests", "lab", "protocols", "verify", "docs"}:
        sys.exit(f"{sdist.name} holds what no user needs: {', '.join(sorted(found))}")
    print(f"{sdist.name}: {len(names)} files; the wheel was built from them")


def check_metadata(wheel: Path, version: str) -> None:
    """Exit with a message unless a wheel is of this version, with the licence, and names no folder here."""
    with zipfile.ZipFile(wheel) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    package, named, *_ = wheel.stem.split("-")
    metadata = f"{package}-{named}.dist-info"
    if foreign := [name for name in contents if name.partition("/")[0] not in (package, metadata)]:
        sys.exit(f"{wheel.name} holds what is not of {package}: {', '.join(foreign)}")
    stated = email.message_from_bytes(contents.get(f"{metadata}/METADATA", b""))["Version"]
    if {stated, named} != {version}:
        sys.exit(f"{wheel.name}: its version is {stated}, not {version}")
    if contents.get(f"{metadata}/licenses/LICENSE") != LICENSE.read_bytes():
        sys.exit(f"{wheel.name} lacks the licence")
    for name, content in contents.items():
        # The sdist is unpacked in the temporary folder, under a name that begins so.
        for folder in (f"{ROOT}/", f"{Path.home()}/", f"{tempfile.gettempdir()}/.tmp"):
            if folder.encode() in content:
                sys.exit(f"{wheel.name}: {name} names a folder of this machine: {folder}")
    print(f"{wheel.name}: version {version}, with its licence, without a folder of this machine")


def check_verify(wheel: Path, folder: Path, version: str, *, quick: bool) -> None:
    """Install the second auditor alone and let it audit; make the archive from that, and let that audit."""
    project = tomllib.loads((VERIFY / "pyproject.toml").read_text("utf-8"))["project"]
    names = frozenset(re.split("[<>=]", wanted)[0] for wanted in project["dependencies"])
    own = folder / "verify"
    install(wheel, own, wanted=names)
    write_sample(folder / "sample")
    try_auditor([str(own / "bin" / archive.NAME)], str(folder / "sample"), environment(own), own)
    bill = OUT / f"{archive.NAME}.python.cdx.json"
    python_bill(VERIFY / "pyproject.toml", names, bill)
    archive.try_archive(archive.build(own, bill, version, OUT, twice=not quick), folder / "root")


def write_checksums(folder: Path) -> None:
    """Write `SHA256SUMS` over all files of the release, as `sha256sum --check` reads it."""
    lines = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(lines), "utf-8")
    print("".join(lines), end="")


def check_checksums(folder: Path) -> None:
    """Exit with a message unless `SHA256SUMS` lists every other file, and `sha256sum` finds each right."""
    listed = {line.partition("  ")[2] for line in (folder / "SHA256SUMS").read_text("utf-8").splitlines()}
    if other := listed ^ {file.name for file in folder.iterdir() if file.name != "SHA256SUMS"}:
        sys.exit(f"SHA256SUMS and {folder} differ: {', '.join(sorted(other))}")
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"SHA256SUMS is wrong: {done.stdout}{done.stderr}")


def main() -> None:
    """Build, check and describe the release."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    notes, date = notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
    workflows = [str(file) for file in sorted((ROOT / ".github" / "workflows").iterdir())]
    subprocess.run(
        ["check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows], check=True
    )
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    sdist, wheel, verify = build()
    check_sdist(sdist)
    check_content(wheel)
    check_metadata(wheel, version)
    check_metadata(verify, version)
    shown = subprocess.run(["auditwheel", "show", wheel], check=True, capture_output=True, text=True)
    check_glibc(wheel, shown.stdout)
    check_crates(crates := crates_bill(wheel))
    (OUT / "smpc-dp.crates.cdx.json").write_text(json.dumps(crates, indent=2) + "\n", "utf-8")
    python_bill(ROOT / "pyproject.toml", frozenset({PRODUCT}), OUT / "smpc-dp.python.cdx.json")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        check_verify(verify, folder, version, quick=quick)
        found = interpreters()
        for minor, python in (oldest_and_newest(found) if quick else found).items():
            print(f"Python {minor}: {python}")
            try_wheel(wheel, folder / minor, python, tests=not quick)
    for file in sorted(OUT.glob("*.cdx.json")):
        check_bill(file)
    (OUT / "NOTES.md").write_text(notes, "utf-8")
    write_checksums(OUT)
    check_checksums(OUT)
    print(f"{OUT}: smpc-dp {version}, {date}. Nothing is published.")


if __name__ == "__main__":
    main()
