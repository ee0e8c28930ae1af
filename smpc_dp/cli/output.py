"""How commands print: errors in one line each on standard error, results as text or as one JSON object."""

from __future__ import annotations

import json
import sys

from rich.console import Console

from smpc_dp.errors import ConfigError, SmpcError


def console() -> Console:
    """Return the console for results that a person reads."""
    return Console(highlight=False, soft_wrap=True, markup=False)


def progress_console() -> Console:
    """Return the console for progress, on standard error, so that it never mixes with results."""
    return Console(stderr=True, highlight=False, markup=False)


def print_json(value: object) -> None:
    """Print one JSON object."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def report_error(error: SmpcError) -> None:
    """Print an error: one line, or one line for each fault of a configuration."""
    lines = (
        [str(fault) if fault.where else fault.what for fault in error.faults]
        if isinstance(error, ConfigError)
        else [str(error)]
    )
    for line in lines:
        # Parts of it may come from a peer: no control character of theirs reaches the terminal.
        shown = "".join(char if char.isprintable() else "?" for char in " ".join(line.split()))
        sys.stderr.write(f"smpc-dp: {shown}\n")
