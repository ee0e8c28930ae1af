"""The table of commands, and commands of other packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.cli.commands import COMMANDS, Command, Commands
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
    assert "  audit       Check the log of a verifiable run or of a pairwise statistic, or" in every
    assert "              a certificate of cheating." in every
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


def ways_to_take(
    path: Annotated[Path, typer.Argument()],
    text: str | None = None,
    count: Annotated[int | None, typer.Option(min=1)] = None,
    few: Annotated[int | None, typer.Option(max=9)] = None,
    texts: Annotated[list[str] | None, typer.Option()] = None,
    real: float | None = None,
    kind: Literal["sum", "average"] = "sum",
    there: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    sure: bool = False,
) -> None:
    typer.echo(repr((path, text, count, few, texts, real, kind, there, sure)))


@pytest.mark.parametrize(
    "given",
    [
        "",
        "a.txt",
        "- --text= --sure",
        "a/../b/ --text=3 --count=1 --few=9",
        ". --count=007 --few=-3 --real=1e3 --kind=average --texts=a --texts=b",
        "a --count=0",
        "a --count=-1",
        "a --count=1_000",
        "a --count=x",
        "a --count=1.0",
        "a --count=",
        "a --count=\u0663",
        "a --count=\u00b2",
        "a --count=12345678901234567890",
        "a --few=10",
        "a --real=x",
        "a --kind=x",
        "a --kind=SUM",
        "a --there=nowhere",
        "a --there=.",
        "closed",
        "closed --text=b",
    ],
)
def test_plain_values_are_what_typer_makes_of_them(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "closed").touch()
    # For root every file can be read.
    can = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != "closed" and can(path, mode))
    outcomes = []
    for kind in (Command, None):
        one = typer.Typer(rich_markup_mode=None)
        one.command(cls=kind)(ways_to_take)
        outcomes.append(CliRunner().invoke(one, given.split()))
    ours, typers = [(outcome.exit_code, outcome.output, outcome.stderr) for outcome in outcomes]
    assert ours == typers


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
