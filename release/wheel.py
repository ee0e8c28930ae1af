"""Check a wheel: `python -m release.wheel FILE`.

It must hold the product alone, install without a compiler in a fresh environment, and run `smpc-dp demo`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Set
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements" / "dev.lock"
LAB = ROOT / "lab" / "smpc_dp_lab"
TEMPLATES = ROOT / "smpc_dp" / "report" / "templates"
PACKAGE = "smpc_dp"
# What lock files call the product, as what needs a version.
PRODUCT = "smpc-dp (pyproject.toml)"
# Words of a file's or folder's name that only development code has.
FOREIGN_WORDS = frozenset(
    {"bench", "benchmark", "benchmarks", "conftest", "figure", "figures", "fuzz", "lab", "mutants"}
    | {"plot", "plots", "reproduce", "test", "tests"}
)
# What a program needs that is compiled.
TOOLS = ("cargo", "rustc", "cc", "gcc", "clang")


def foreign(names: Iterable[str], version: str) -> list[str]:
    """Return the files of a wheel that a party neither imports nor runs."""
    return [name for name in names if _is_foreign(name, f"{PACKAGE}-{version}.dist-info")]


def _is_foreign(name: str, metadata: str) -> bool:
    top, _, index = name.partition("/")
    if top == metadata:
        return False
    words = set(re.split(r"[/._-]", index.lower()))
    # The lab's own modules, such as the generators in `vectors/`, at the place that they have there.
    from_lab = Path(index).name != "__init__.py" and (LAB / index).exists()
    return top != PACKAGE or bool(words & FOREIGN_WORDS) or from_lab or index.startswith("vectors/")


def check_content(wheel: Path) -> None:
    """Exit with a message unless the wheel is for the stable interface and holds the product alone."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    _, version, _, abi, _ = wheel.stem.split("-")
    if abi != "abi3":
        sys.exit(f"{wheel.name}: made for one Python alone ({abi}), not for abi3")
    if result := foreign(names, version):
        sys.exit("\n".join([f"{wheel.name} holds what no party runs:", *result]))
    if f"{PACKAGE}/_core.abi3.so" not in names:
        sys.exit(f"{wheel.name} lacks the compiled core")
    if lacks := {f"{PACKAGE}/report/templates/{file.name}" for file in TEMPLATES.iterdir()} - set(names):
        sys.exit(f"{wheel.name} lacks templates of pages: {', '.join(sorted(lacks))}")
    print(f"{wheel.name}: {len(names)} files, nothing of development among them")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of commands in a virtual environment: its programs are all that they find."""
    retained = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = str(folder / "bin")
    if result := [tool for tool in TOOLS if shutil.which(tool, path=path)]:
        sys.exit(f"{path} holds a compiler: {', '.join(result)}")
    return {**retained, "PATH": path, "VIRTUAL_ENV": str(folder)}


def needed(lock: str, wanted: Set[str] = frozenset({PRODUCT})) -> str:
    """Return the part of a lock file that these names need: `# via` says of each version what needs it."""
    retained: dict[str, str] = {}
    blocks = {
        block.partition("==")[0]: block for block in re.findall(r"^\w.*\n(?:[ ].*\n)*", lock, re.MULTILINE)
    }
    while result := {
        name: block
        for name, block in blocks.items()
        if name not in retained
        and {*wanted, *retained} & {name, *re.findall(r"^    #(?: via|  ) +(.+)$", block, re.MULTILINE)}
    }:
        retained |= result
    return "".join(retained.values())


def install(
    wheel: Path, folder: Path, python: str = sys.executable, wanted: Set[str] = frozenset({PRODUCT})
) -> None:
    """Install the wheel in a new environment of an interpreter, with the locked versions of what is wanted.

    Nothing is compiled.
    """
    made = [python, "-m", "venv", "--without-pip", "--clear", str(folder)]
    subprocess.run(made, env=environment(folder), check=True)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    listed = folder / "requirements.txt"
    own = f"{wheel.resolve().as_uri()} --hash=sha256:{digest}\n"
    listed.write_text(needed(LOCK.read_text("utf-8"), wanted) + own, "utf-8")
    install_locked(folder, listed)


def install_locked(folder: Path, listed: Path) -> None:
    """Install what a file lists with hashes, as wheels, into an environment, which needs no pip."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(folder / "bin" / "python"),
    ]
    only = ["--only-binary", ":all:", "--no-compile", "--require-hashes", "--requirement", str(listed)]
    subprocess.run([*pip, "install", "--quiet", *only], env=environment(folder), check=True)


def run_demo(folder: Path) -> None:
    """Run the demonstration from the environment, in a folder that holds no source."""
    with tempfile.TemporaryDirectory() as elsewhere:
        command = [str(folder / "bin" / "smpc-dp"), "demo", "--report", "report.html"]
        subprocess.run(command, cwd=elsewhere, env=environment(folder), check=True)


def main() -> None:
    """Check the wheel that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    wheel = parser.parse_args().wheel
    check_content(wheel)
    folder = wheel.resolve().parent / "venv"
    install(wheel, folder)
    run_demo(folder)


if __name__ == "__main__":
    main()
