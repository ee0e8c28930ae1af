"""The options `--workers` and `--ray` of a command that computes in shards."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from smpc_dp.executors.opened import open_executor

if TYPE_CHECKING:
    from smpc_dp.console.options import Command

Workers = Annotated[
    int | None,
    typer.Option(help="Processes that compute. Left out: one for each processor.", show_default=False),
]
Ray = Annotated[
    str | None,
    typer.Option(help="A cluster of Ray that computes: HOST:PORT, ray://... or auto.", show_default=False),
]


def with_workers(command: Command) -> Command:
    """Return a command with options `--workers` and `--ray`, which make the executor of its own `executor`.

    The executor is open while the command runs.
    """
    signature = inspect.signature(command, eval_str=True)
    options: dict[str, Any] = {"workers": Workers, "ray": Ray}
    kind = inspect.Parameter.KEYWORD_ONLY
    added = [inspect.Parameter(name, kind, default=None, annotation=of) for name, of in options.items()]
    own = [
        parameter.replace(kind=kind) for name, parameter in signature.parameters.items() if name != "executor"
    ]

    @functools.wraps(command)
    def called(workers: int | None = None, ray: str | None = None, **given: Any) -> None:
        with open_executor(workers, ray) as executor:
            command(**given, executor=executor)

    vars(called)["__signature__"] = signature.replace(parameters=[*own, *added])
    return called
