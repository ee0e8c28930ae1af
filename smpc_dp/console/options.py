"""Command-line options generated from the settings of a table (`smpc_dp.settings`)."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any

import msgspec
import typer

from smpc_dp.settings import default_text, help_of, plain_type

Command = Callable[..., None]


def refuse_given(options: Mapping[str, object], why: str, error: Callable[[str, str], Exception]) -> None:
    """Raise `error(option, why)` for the first command-line option that has a value; else do nothing."""
    for option, value in options.items():
        if value is not None:
            raise error(option, why)


def option(table: type[msgspec.Struct], key: str, default: str | None = None) -> Any:
    """Return the `typer.Option` for field `key` of a settings struct, with the field's help text."""
    return typer.Option(help=help_of(table, key), show_default=default or True)


def with_settings(
    table: type[msgspec.Struct], without: Collection[str] = (), **defaults: object
) -> Callable[[Command], Command]:
    """Return a decorator that gives a command one command-line option for each field of a settings struct.

    The command takes them as keyword arguments; those without a value are left out. A parameter that the
    command names itself stands in the place of the setting of this name.

    Args:
        without: settings that are no option.
        defaults: defaults that stand in the place of the table's.
    """

    def decorate(command: Command) -> Command:
        """Return the command with the options."""
        signature = inspect.signature(command, eval_str=True)
        own = [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for parameter in signature.parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        hidden = {*without, *(parameter.name for parameter in own)}
        fields = [field for field in msgspec.structs.fields(table) if field.encode_name not in hidden]
        needed = [parameter for parameter in own if parameter.default is parameter.empty]
        made = [_parameter(table, field, defaults) for field in fields]
        others = [parameter for parameter in own if parameter not in needed]

        @functools.wraps(command)
        def called(**given: object) -> None:
            command(**{name: value for name, value in given.items() if value is not None})

        vars(called)["__signature__"] = signature.replace(parameters=[*needed, *made, *others])
        return called

    return decorate


def _parameter(
    table: type[msgspec.Struct], field: msgspec.structs.FieldInfo, defaults: dict[str, object]
) -> inspect.Parameter:
    """Return the function parameter that declares one settings field as a command-line option."""
    key = field.encode_name
    default = defaults.get(key, inspect.Parameter.empty if field.required else field.default)
    text = None if key in defaults else default_text(table, key)
    kind: Any = plain_type(table, key)
    annotated: Any = Annotated
    return inspect.Parameter(
        key,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=annotated[kind | None if default is None else kind, option(table, key, text)],
    )
