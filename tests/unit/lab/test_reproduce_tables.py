"""Every command of `smpc-dp reproduce` prints the fields that its result has, whatever they hold."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from smpc_dp.cli import app
from smpc_dp_lab.cli import figure, reproduce

COMMANDS = [command.name for command in reproduce.app.registered_commands]


def example(kind: Any, *, missing: bool) -> Any:
    """Return a value of a type; `missing`: None where it may be, else the first of the other types."""
    origin, of = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return None if missing and type(None) in of else example(of[0], missing=missing)
    if origin is typing.Literal:
        return of[0]
    if origin is dict:
        return {example(of[0], missing=missing): example(of[1], missing=missing)}
    if origin is tuple and of[-1] is not Ellipsis:
        return tuple(example(one, missing=missing) for one in of)
    if origin in (list, tuple):
        return origin([example(of[0], missing=missing)])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind)
        return kind(**{name: example(hints[name], missing=missing) for name in kind.__struct_fields__})
    return {float: 0.125, int: 3, bool: False, str: "text"}[kind]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("missing", [False, True])
def test_every_command_prints_its_table(
    command: str, missing: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is measured: the result is an example of the type that the command's plot takes."""
    results = []

    def measured(
        name: str, measure: object, plot: Callable[..., None], plot_file: object, as_json: object
    ) -> tuple[Any, None]:
        kinds = dict(typing.get_type_hints(plot))
        results.append(example(kinds["result"], missing=missing))
        return results[-1], None

    monkeypatch.setattr(figure, "measured", measured)
    # Data that come with the project are there, wherever the command runs.
    monkeypatch.chdir(tmp_path)
    few = ["--quick"] if command == "movielens" else []
    shown = CliRunner().invoke(app, ["reproduce", command, *few])
    assert shown.exit_code == 0, shown.exception
    (result,) = results
    assert result.points if hasattr(result, "points") else result.curves
    # A row of values, and not the headings alone.
    assert "0.125" in shown.output


def test_a_field_that_a_point_lacks_is_an_error() -> None:
    with pytest.raises(AttributeError, match="method"):
        figure.show_points([msgspec.defstruct("Point", [("size", int)])(size=1)], {"method": "method"})
