"""Tries the wheel with each interpreter of this machine: versions, demonstration, the core's tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from release.wheel import PRODUCT, ROOT, environment, install, run_demo

# What is tried of an interpreter: CPython from 3.11 on, with the modules of an environment.
TRIED = (
    "import ensurepip, json, sys, venv;"
    "print(json.dumps([sys.implementation.name, *sys.version_info[:2], sys.maxsize > 2**32]))"
)
OLDEST = (3, 11)
# The core's tests: those of its packages, and those that compare it with the published vectors.
CORE = (
    *(f"tests/unit/{name}" for name in ("crypto", "identity", "wire", "engine", "secagg", "records")),
    *(f"tests/unit/{name}" for name in ("logs", "privacy", "results", "session", "transport")),
    "tests/vectors",
)
# What these tests need beside the product, by the names of the lock.
TESTED_WITH = frozenset(
    {PRODUCT, "hypothesis", "networkx", "pycryptodome", "pycryptodome-test-vectors", "pytest"}
    | {"pytest-asyncio", "pytest-timeout", "pytest-xdist", "scikit-learn"}
)


def candidates() -> list[Path]:
    """Return where interpreters may be: on the path, and where pyenv keeps them."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = [file for folder in folders for file in folder.glob("python3.[0-9]*")]
    return [Path(sys.executable), *on_path, *pyenv.glob("3.*/bin/python")]


def interpreters() -> dict[str, str]:
    """Return by its minor version, such as "3.12", one interpreter of each that runs the product."""
    result: dict[str, str] = {}
    for file in candidates():
        if file.name.endswith("-config"):
            continue
        try:
            tried = subprocess.run([file, "-c", TRIED], capture_output=True, text=True, check=True)
            kind, major, minor, wide = json.loads(tried.stdout)
        except (OSError, subprocess.CalledProcessError, TypeError, ValueError):
            # Another program, a shim without its interpreter, or one without the modules.
            continue
        if kind == "cpython" and wide and (major, minor) >= OLDEST:
            result.setdefault(f"{major}.{minor}", str(file))
    return dict(sorted(result.items(), key=lambda item: int(item[0].partition(".")[2])))


def oldest_and_newest(found: Mapping[str, str]) -> dict[str, str]:
    """Return the first and the last of the interpreters that `interpreters` has found."""
    names = [*found]
    return {name: found[name] for name in names[:1] + names[-1:]}


def try_wheel(wheel: Path, folder: Path, python: str, *, tests: bool) -> None:
    """Install the wheel for an interpreter; print its versions, run the demonstration, and the core's tests.

    The tests are those of the checkout, the product is that of the wheel: the checkout stands behind
    `site-packages` on the path.
    """
    install(wheel, folder, python, TESTED_WITH if tests else frozenset({PRODUCT}))
    own = {**environment(folder), "PYTHONSAFEPATH": "1"}
    run = str(folder / "bin" / "python")
    where = "import pathlib, sysconfig, smpc_dp; print(sysconfig.get_path('purelib'), smpc_dp.__file__)"
    packages, product = subprocess.run(
        [run, "-c", where], cwd=folder, env=own, check=True, capture_output=True, text=True
    ).stdout.split()
    behind = [str(ROOT), str(ROOT / "lab"), str(ROOT / "verify")]
    Path(packages, "checkout.pth").write_text("".join(f"{path}\n" for path in behind), "utf-8")
    if not Path(product).is_relative_to(packages):
        sys.exit(f"{run} does not import the wheel, but {product}")
    subprocess.run([folder / "bin" / "smpc-dp", "--version"], env=own, check=True)
    run_demo(folder)
    if tests:
        subprocess.run([run, "-m", "pytest", "-n", "auto", *CORE], cwd=ROOT, env=own, check=True)
