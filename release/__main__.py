"""Build and check a release: `python -m release`, which `make release` runs in an environment of its own.

In `dist/release`: the wheel for this machine's processor, the sdist that it was built from, the wheel of
`smpc-dp-verify`, bills of materials, notes and checksums. Nothing is published.
"""

from __future__ import annotations

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
from pathlib import Path

from release.bills import check_crates, crates_bill, python_bill
from release.interpreters import interpreters, try_wheel
from release.notes import notes_of
from release.wheel import PRODUCT, ROOT, check_content, environment, install

OUT = ROOT / "dist" / "release"
VERIFY = ROOT / "verify"
# The oldest C library that the wheel runs with, as of the wheels of NumPy.
GLIBC = (2, 28)
# A log that the second auditor accepts, with its session and run.
LOG = ROOT / "tests" / "fixtures" / "0.1" / "request-1.jsonl"
SESSION = "33ae948b7b06ab2050b29c886e2cc8f66b690b390bce2a87ed4e7630bda7668c"
RUN = "c986e1af33449732fcfc3aa10e403f421698eb5910fe3b967b352a6a43468aac"


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
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
        own = ["--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(OUT), str(source)]
        subprocess.run([*pip, *own], check=True)
    return only("smpc_dp-*.tar.gz"), only("smpc_dp-*.whl"), only("smpc_dp_verify-*.whl")


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


def check_verify(wheel: Path, folder: Path) -> None:
    """Install the second auditor alone, and let it audit a stored log."""
    project = tomllib.loads((VERIFY / "pyproject.toml").read_text("utf-8"))["project"]
    names = frozenset(re.split("[<>=]", wanted)[0] for wanted in project["dependencies"])
    install(wheel, folder, wanted=names)
    command = [str(folder / "bin" / "smpc-dp-verify"), str(LOG), "--session", SESSION, "--run", RUN]
    done = subprocess.run(command, cwd=folder, env=environment(folder), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{wheel.name} refuses {LOG.name}: {done.stdout}{done.stderr}")
    print(f"{wheel.name}: it accepts the log {LOG.relative_to(ROOT)}")
    python_bill(VERIFY / "pyproject.toml", names, OUT / "smpc-dp-verify.python.cdx.json")


def write_checksums() -> None:
    """Write `SHA256SUMS` over all files of the release, as `sha256sum --check` reads it."""
    files = sorted(OUT.iterdir())
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (OUT / "SHA256SUMS").write_text("".join(lines), "utf-8")
    print("".join(lines), end="")


def main() -> None:
    """Build, check and describe the release."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    notes, date = notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    sdist, wheel, verify = build()
    check_sdist(sdist)
    check_content(wheel)
    shown = subprocess.run(["auditwheel", "show", wheel], check=True, capture_output=True, text=True)
    check_glibc(wheel, shown.stdout)
    check_crates(crates := crates_bill(wheel))
    (OUT / "smpc-dp.crates.cdx.json").write_text(json.dumps(crates, indent=2) + "\n", "utf-8")
    python_bill(ROOT / "pyproject.toml", frozenset({PRODUCT}), OUT / "smpc-dp.python.cdx.json")
    with tempfile.TemporaryDirectory() as folder:
        check_verify(verify, Path(folder) / "verify")
        for name, python in interpreters().items():
            print(f"Python {name}: {python}")
            try_wheel(wheel, Path(folder) / name, python)
    (OUT / "NOTES.md").write_text(notes, "utf-8")
    write_checksums()
    print(f"{OUT}: smpc-dp {version}, {date}. Nothing is published.")


if __name__ == "__main__":
    main()
