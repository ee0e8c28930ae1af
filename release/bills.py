"""Software bills of materials (CycloneDX) of the wheels."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from release.wheel import LOCK, ROOT, needed

CRATES = ".dist-info/sboms/"


def python_bill(project: Path, wanted: frozenset[str], file: Path) -> None:
    """Write the bill of a distribution's dependencies in Python, with the locked versions.

    It was tested with these. The wheel does not hold them, and an installer may take others that
    `pyproject.toml` permits.
    """
    # It warns that nothing says which of them the distribution names itself: its metadata says that.
    command = [
        sys.executable,
        "-W",
        "ignore::UserWarning",
        "-m",
        "cyclonedx_py",
        "requirements",
        "-",
        "--pyproject",
        str(project),
    ]
    command += ["--mc-type", "library", "--output-reproducible", "--output-file", str(file)]
    subprocess.run(command, input=needed(LOCK.read_text("utf-8"), wanted), text=True, check=True)


def crates_bill(wheel: Path) -> dict[str, Any]:
    """Return the bill of the crates that are compiled into a wheel, which maturin puts there."""
    with zipfile.ZipFile(wheel) as file:
        names = [name for name in file.namelist() if CRATES in name and name.endswith(".cyclonedx.json")]
        if len(names) != 1:
            sys.exit(f"{wheel.name} holds {len(names)} bills of crates, not one")
        return dict(json.loads(file.read(names[0])))


def check_crates(bill: Mapping[str, Any]) -> None:
    """Exit with a message unless the bill lists the locked versions alone, and no folder of this machine."""
    locked = {
        (package["name"], package["version"])
        for package in tomllib.loads((ROOT / "Cargo.lock").read_text("utf-8"))["package"]
    }
    listed = {(component["name"], component["version"]) for component in bill["components"]}
    if unknown := listed - locked:
        sys.exit(f"the bill lists what Cargo.lock does not: {sorted(unknown)}")
    if lacks := {"pyo3", "smpc-core"} - {name for name, _ in listed}:
        sys.exit(f"the bill lacks {', '.join(sorted(lacks))}")
    text = json.dumps(bill)
    if found := [folder for folder in (str(ROOT), str(Path.home())) if folder in text]:
        sys.exit(f"the bill names a folder of this machine: {found[0]}")


def check_bill(file: Path) -> None:
    """Exit with a message unless a bill follows the schema of its version of CycloneDX."""
    # Of the release's own environment, which tests of the other checks do without.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = file.read_text("utf-8")
    if error := JsonStrictValidator(SchemaVersion.from_version(json.loads(text)["specVersion"])).validate_str(
        text
    ):
        sys.exit(f"{file.name} does not follow CycloneDX: {error}")
