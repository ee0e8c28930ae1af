"""TOML text of the values in a session file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from smpc_dp.errors import ConfigCheck, ConfigError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def toml_key(key: str) -> str:
    """Return a key as TOML text, quoted only if needed."""
    return key if _BARE_KEY.fullmatch(key) else toml(key, key)


def toml(value: object, where: str) -> str:
    """Return a value as TOML text; raise ConfigError that names `where` for unsupported values."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # A JSON string is a TOML basic string, once DEL is escaped and no surrogate pair is.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(inner, f"{where}[{index}]") for index, inner in enumerate(value)) + "]"
    if isinstance(value, Mapping):
        return (
            "{"
            + ", ".join(f"{toml_key(key)} = {toml(inner, f'{where}.{key}')}" for key, inner in value.items())
            + "}"
        )
    raise ConfigError.at(where, f"a session file cannot hold a {type(value).__name__}", ConfigCheck.TYPE)
