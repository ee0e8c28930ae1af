"""The table of commands, and commands of other packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.cli.commands import COMMANDS, Commands
from smpc_dp.cli.plan import PLANS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_has_the_help_of_each_command(name: str) -> None:
    assert Commands()[name].get_short_help_str(100) == COMMANDS[name].help


@pytest.mark.parametrize("name", PLANS)
def test_the_table_of_plans_has_the_first_sentence_of_each(name: str) -> None:
    assert Commands(PLANS, are_all=True)[name].get_short_help_str(1000) == PLANS[name].help


def test_lists_of_commands_fit_the_terminal() -> None:
    """What is too long goes on below in the list of all commands, and is cut in that of plans."""
    every, plans = (
        CliRunner().invoke(app, [*words, "--help"], terminal_width=78).stdout.splitlines()
        for words in ([], ["plan"])
    )
    assert "  audit       Check the log of a verifiable run or of a pairwise statistic, a" in every
    assert "              party's result, or a certificate." in every
    assert "  check          Look for a violation of the claimed privacy of a..." in plans
    assert "  verifiable     Plan the noise of verifiable averaging (experimental),..." in plans
    assert max(map(len, plans)) <= 78


def test_a_plan_loads_no_other_one() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from smpc_dp.cli import app; "
        "CliRunner().invoke(app, ['plan', 'secagg', '--help']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("smpc_dp.")}
    assert {name for name in loaded if name.rpartition(".")[2].startswith("plan_")} == {
        "smpc_dp.cli.plan_secagg"
    }


def test_the_lab_adds_its_commands() -> None:
    assert [name for name in Commands() if name not in COMMANDS] == ["bench", "reproduce", "vectors"]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "smpc_dp", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(folder)},
        check=False,
    )


def install(folder: Path, value: str) -> None:
    """Make a package `greeter` with an entry point of this value, as an installer would."""
    (folder / "greeter.py").write_text(
        "import typer\n"
        "def hello(name: str) -> None:\n"
        '    """Greet someone."""\n'
        '    typer.echo(f"hello {name}")\n'
    )
    info = folder / "greeter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[smpc_dp.commands]\nhello = {value}\n")


def test_a_package_adds_a_command(tmp_path: Path) -> None:
    install(tmp_path, "greeter:hello")
    done = run(tmp_path, "hello", "ann")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello ann\n", "")
    assert "hello       Greet someone.\n" in run(tmp_path, "--help").stdout


def test_a_command_that_cannot_be_loaded_is_named_with_its_package(tmp_path: Path) -> None:
    install(tmp_path, "greeter:goodbye")
    done = run(tmp_path, "hello", "ann")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("smpc-dp: the command 'hello' of greeter cannot be loaded (")
    # The others still work.
    assert run(tmp_path, "keygen", "--help").returncode == 0


def test_a_package_cannot_replace_a_command(tmp_path: Path) -> None:
    install(tmp_path, "greeter:hello")
    entry = tmp_path / "greeter-1.0.dist-info" / "entry_points.txt"
    entry.write_text("[smpc_dp.commands]\nkeygen = greeter:hello\n")
    assert "Make a new identity" in run(tmp_path, "keygen", "--help").stdout
