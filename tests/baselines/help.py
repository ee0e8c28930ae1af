"""The help of every command, as `smpc-dp COMMAND --help` prints it.

The page of commands on the site lists names, values and defaults of options, and no sentence about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp.cli.commands import COMMANDS

FILE = Path(__file__).with_name("help.txt")
# Columns, whatever the terminal has.
WIDTH = 100


def text() -> str:
    """Return the help of all commands, in the order in which they are listed."""
    return "\n".join(page(words) for words in names(typer.main.get_command(app)))


def names(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command and group of this package, but for hidden ones."""
    yield words
    for word, inner in getattr(command, "commands", {}).items():
        if not inner.hidden and (words or word in COMMANDS):
            yield from names(inner, (*words, word))


def page(words: tuple[str, ...]) -> str:
    """Return the help of one command, below the line that asks for it."""
    shown = CliRunner().invoke(app, [*words, "--help"], terminal_width=WIDTH, color=False)
    if shown.exit_code:
        raise ValueError(f"{' '.join(words)} --help: exit code {shown.exit_code}: {shown.output}")
    lines = shown.stdout.splitlines()
    if not words:
        # Commands of other packages that are installed.
        first = lines.index("Commands:") + 1
        lines = [*lines[:first], *(line for line in lines[first:] if line.split()[0] in COMMANDS)]
    return "\n".join([f"$ smpc-dp {' '.join((*words, '--help'))}", *lines, ""])
