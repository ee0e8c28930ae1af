"""The package without the folder of a capability: all else is imported, shows its help, and adds up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from smpc_dp.extensions import CAPABILITIES
from smpc_dp.session.local import create_local_session
from tests.unit.absent import BUILT_ON
from tests.unit.blocked import SITECUSTOMIZE
from tests.unit.test_absent_capabilities import check_pages

ROOT = Path(__file__).resolve().parents[2]
PARTIES = ("alice", "bob", "carol")
SUM = {"length": 2, "lower": 0.0, "upper": 10.0, "precision": 0.01, "dropout": 0.0, "corrupt": 0.0}
# What stands above the capabilities and builds on some: absent with each of them.
ABOVE: Mapping[str, frozenset[str]] = {
    "smpc_dp.demo.cheating_lender": frozenset({"gopa"}),
    "smpc_dp.integrations.sklearn": frozenset(BUILT_ON),
    "smpc_dp.simulate": frozenset(BUILT_ON),
}
# Modules of integrations may need what is not installed.
IMPORTING = """
import importlib, sys
from smpc_dp.errors import LocalError
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except LocalError as error:
        if not name.startswith("smpc_dp.integrations.") or "is not installed" not in str(error):
            raise
from tests.baselines import help
print(help.text(), end="")
"""


def below(name: str, packages: set[str]) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in packages)


def modules_without(gone: set[str]) -> list[str]:
    """Return all modules of the package but those of absent capabilities, and what builds on these."""
    absent = {f"{CAPABILITIES}.{name}" for name in gone}
    absent |= {name for name, needed in ABOVE.items() if needed & gone}
    parts = (file.relative_to(ROOT).with_suffix("").parts for file in (ROOT / "smpc_dp").rglob("*.py"))
    names = {".".join(part for part in one if part != "__init__") for one in parts}
    return sorted(name for name in names - {"smpc_dp.__main__"} if not below(name, absent))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(BUILT_ON))
def test_all_else_works_without_the_folder_of_a_capability(name: str, tmp_path: Path) -> None:
    """The short test of the same is test_absent_capabilities.py, in one process."""
    gone = {name, *BUILT_ON[name]}
    names = [f"{CAPABILITIES}.{one}" for one in sorted(gone)]
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE.format(names=names))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT)))}

    def python(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    blocked = f"import {names[0]}"
    assert subprocess.run([sys.executable, "-c", blocked], env=environment, capture_output=True).returncode
    modules = modules_without(gone)
    assert len(modules) > 300
    check_pages(python("-c", IMPORTING, *modules), *gone)

    simulated = [sys.executable, "-m", "smpc_dp", "simulate", "average", "--parties", "10"]
    done = subprocess.run(simulated, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "simulations need all capabilities, of which one is not in this installation" in done.stderr

    session = create_local_session(tmp_path, PARTIES, SUM)
    (tmp_path / "inputs").mkdir()
    for place, party in enumerate(PARTIES):
        (tmp_path / "inputs" / f"{party}.json").write_text(json.dumps([place, 2.0]))
    printed = python("-m", "smpc_dp", "run", str(session), "--inputs", str(tmp_path / "inputs"), "--json")
    result = json.loads(printed)
    assert result["survivors"] == list(PARTIES), result
    assert result["value"] == [1.0, 2.0]


def test_what_builds_on_capabilities_is_there() -> None:
    assert all(name in modules_without(set()) for name in ABOVE)


SAMPLE = """
import subprocess, sys, pytest

def test_of_the_core():
    from smpc_dp import secagg

def test_that_imports():
    from smpc_dp.capabilities import {name}

def test_of_a_process():
    subprocess.run([sys.executable, "-c", "from smpc_dp.capabilities import {name}"], check=True)

def test_of_a_protocol():
    from smpc_dp.engine.registry import find_protocol
    assert find_protocol("{name}") is not None

@pytest.fixture(scope="module")
def protocol():
    from smpc_dp.engine.registry import find_protocol
    assert find_protocol("{name}") is not None

@pytest.mark.parametrize("number", range(2))
def test_of_a_fixture(number, protocol):
    pass

@pytest.mark.parametrize("number", range(2))
def test_of_a_module_that_looks_when_it_is_imported(number):
    from smpc_dp.cli import simulate
    assert simulate._gopa is not None

def test_of_the_core_that_fails():
    assert False

def test_of_a_module_that_a_capability_there_has_not():
    import smpc_dp.capabilities.{present}.nothing
"""


def test_tests_of_what_is_absent_are_skipped_and_others_are_not(tmp_path: Path) -> None:
    """`make test-without` runs all tests so."""
    sample = tmp_path / "test_sample.py"
    sample.write_text(SAMPLE.format(name="gopa", present="pairs"))
    (tmp_path / "pytest.ini").write_text("[pytest]")
    command = [sys.executable, "-m", "pytest", "-p", "tests.without", "--without", "gopa", "-rf", str(sample)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 failed, 1 passed, 7 skipped" in done.stdout, done.stdout
    for failed in ("test_of_the_core_that_fails", "test_of_a_module_that_a_capability_there_has_not"):
        assert f"FAILED test_sample.py::{failed}" in done.stdout
    unknown = [*command[:-3], "gossip", str(sample)]
    done = subprocess.run(unknown, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "'gossip' is none of gopa, learn, pairs, reports, servers" in done.stderr
