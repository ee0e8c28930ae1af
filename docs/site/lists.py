"""Lists that pages of the site have beside their text: options, keys, codes of errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from types import UnionType
from typing import Any, Literal, get_args, get_origin

import typer

from smpc_dp import errors
from smpc_dp.capabilities.learn.registry import LEARNERS, keys_of
from smpc_dp.cli import app
from smpc_dp.console.schemas import SCHEMA, SCHEMA_VERSION, SCHEMAS, schema_of
from smpc_dp.settings import items

_CHECKS = re.compile(r"<!-- checks: (\w+) -->")
_SETTINGS = re.compile(r"<!-- keys: ([\w.]+)\.(\w+) -->")
_COMMON = ("as_json", "install_completion", "show_completion")


def with_lists(page: str, text: str) -> str:
    """Return a page of the reference with its lists; another page as it is."""
    match page:
        case "docs/reference/commands":
            options = f"## Options of each command\n\n{_options()}"
            return f"{text}\n\n{options}\n\n## Keys of each object\n\n{_keys()}\n"
        case "docs/reference/session-file":
            learners = [f"### {name}\n\n" + "\n".join(keys_of(name)) for name in LEARNERS]
            text = _SETTINGS.sub(lambda found: _settings(found[1], found[2]), text)
            return f"{text}\n\n## Keys of each learner\n\n" + "\n\n".join(learners) + "\n"
        case "docs/reference/errors":
            return _CHECKS.sub(lambda found: _codes(getattr(errors, found[1])), text)
    return text


def _codes(checks: Any) -> str:
    """Return the codes of an enum with their meaning."""
    return "\n".join(f"- `{check.value}`: {check.meaning}" for check in checks)


def _settings(module: str, name: str) -> str:
    """Return the keys of a table of settings."""
    return "\n".join(items(getattr(import_module(module), name)))


def _options() -> str:
    """Return the options of each command: required ones in bold letters, values, defaults in brackets."""
    lines = []
    for name, command in _commands(typer.main.get_command(app)):
        texts = [
            _option(parameter)
            for parameter in command.params
            if parameter.name not in _COMMON and not getattr(parameter, "hidden", False)
        ]
        lines += [f"- `{name}`: {', '.join(texts)}"] if texts else []
    return "\n".join(lines)


def _keys() -> str:
    """Return the keys of each printed object that its schema explains."""
    parts = []
    for name, listed in SCHEMAS.items():
        rows = [
            f"- `{key}`: {field['description']}"
            for key, field in schema_of(name)["properties"].items()
            if key not in (SCHEMA, SCHEMA_VERSION) and "description" in field
        ]
        parts += [f"### {name}", f"Printed by {listed.about}.", "\n".join(rows)] if rows else []
    return "\n\n".join(parts)


def _commands(command: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and command of each command of this package that is not hidden."""
    for word, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {word}".strip())
    if hasattr(command, "commands") or command.hidden or command.callback is None:
        return
    if command.callback.__module__.split(".")[0] == "smpc_dp":
        yield name, command


def _values(kind: Any) -> str:
    """Return the values of a literal type, else its kind: of the first alternative, of elements with dots."""
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if isinstance(kind, UnionType):
        return _values(get_args(kind)[0])
    if get_origin(kind) is list:
        return f"{_values(get_args(kind)[0])}..."
    return str(kind.__name__).upper()


def _option(parameter: Any) -> str:
    """Return an option or an argument with its values and its default, in bold letters if it is required."""
    values = _values(parameter.type_descriptor.annotation)
    if parameter.param_type_name == "option":
        text = "/".join((*parameter.opts, *parameter.secondary_opts))
        text += "" if parameter.is_flag else f"={values}"
    else:
        text = parameter.metavar or parameter.name.upper()
        text += f": {values}" if "|" in values else ""
    default = parameter.default
    if parameter.show_default not in (True, False, None):
        default = parameter.show_default
    if parameter.required:
        return f"**`{text}`**"
    is_given = isinstance(default, str | int | float) and not isinstance(default, bool)
    return f"`{text}` ({default})" if is_given else f"`{text}`"
