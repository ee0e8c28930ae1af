"""The schemas of what `--json` prints, as `smpc-dp schema NAME` prints them.

Whoever removes a key, or changes its kind or its meaning, raises the version of its schema.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from smpc_dp.console.schemas import SCHEMAS, schema_of, with_schema

FILE = Path(__file__).with_name("schemas.json")


def text() -> str:
    """Return the content of the file, made anew."""
    return "{" + ",\n".join(f'"{name}": {json.dumps(schema_of(name))}' for name in SCHEMAS) + "}\n"


def closed(schema: Any) -> Any:
    """Return a schema in which objects have no further keys."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        result["additionalProperties"] = False
    return result


def faults(value: Any) -> list[str]:
    """Return what is wrong with a printed object by its own schema, keys that the schema lacks too."""
    validator = Draft202012Validator(closed(schema_of(value["schema"])))
    return [f"{one.json_path}: {one.message}" for one in validator.iter_errors(value)]


def faults_of_result(result: Any) -> list[str]:
    """Return what is wrong with a result as a command prints it."""
    return faults(json.loads(json.dumps(with_schema(result.schema, result.to_json()))))
