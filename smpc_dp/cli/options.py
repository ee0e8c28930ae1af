"""Command-line options that have the meaning of a setting of a session file."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from smpc_dp.settings import help_of


def option(table: type[msgspec.Struct], key: str) -> Any:
    """Return the option of a setting, with the help that the setting's definition gives."""
    return typer.Option(help=help_of(table, key))
