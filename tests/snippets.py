"""Programs in documents, run as parties of a session over real sockets."""

from __future__ import annotations

import ast
import asyncio
import builtins
import inspect
import re
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import smpc_dp
from smpc_dp.capabilities.pairs.ustatistic.result import StatisticResult
from smpc_dp.engine.result import Result

ROOT = Path(__file__).parents[1]


def block(page: str, language: str, containing: str) -> str:
    """Return the one block of a page of this language with this text in it."""
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    (result,) = [text for text in blocks if containing in text]
    return str(result)


async def run_as(party: str, program: str, names: Mapping[str, Any]) -> dict[str, Any]:
    """Run a program of a document, written for alice, as one party; return its variables."""
    code = compile(program.replace("alice", party), "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    variables = {"__builtins__": builtins, "smpc_dp": smpc_dp, **names}
    running = FunctionType(code, variables)()
    assert inspect.iscoroutine(running)
    await running
    return variables


async def execute(programs: Mapping[str, Coroutine[Any, Any, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Serve session.toml until every party has run its program; return the variables of each."""
    serving = asyncio.create_task(smpc_dp.serve("session.toml"))
    ended = await asyncio.gather(*programs.values())
    assert all(isinstance(served, Result | StatisticResult) for served in await serving)
    return list(ended)
