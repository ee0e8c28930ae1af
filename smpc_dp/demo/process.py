"""Common code of the demonstration's processes: arguments, events of failures, results as JSON."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

import smpc_dp
from smpc_dp.session.events import Event
from smpc_dp.session.launcher import print_event, run_child
from smpc_dp.session.planned import UnchargedWarning


def parser(description: str, *, shard: bool = True) -> argparse.ArgumentParser:
    """Return a parser for a member's session, name, loans if it has some, and result file."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("session", type=Path, help="the session file")
    result.add_argument("name", help="the member's name in it")
    if shard:
        result.add_argument("shard", type=Path, help="the lender's loans, CSV")
    result.add_argument("--out", type=Path, required=True, help="where the result goes, JSON")
    return result


def run_member(arguments: argparse.Namespace, act: Callable[[], Awaitable[object]]) -> int:
    """Write the result of `act` as JSON; on a failure print an event for the launcher, and return 1."""
    # The loans are made up.
    warnings.simplefilter("ignore", UnchargedWarning)

    async def supervised() -> int:
        try:
            text = json.dumps(await act(), allow_nan=False) + "\n"
            arguments.out.write_text(text, "utf-8")
        except (smpc_dp.SmpcError, OSError) as error:
            print_event(Event(arguments.name, "failed", detail=str(error)))
            return 1
        return 0

    return run_child(supervised, supervised=True)
