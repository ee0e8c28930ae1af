"""No single change of a stored result passes, and both auditors refuse it by the same check."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smpc_dp.results.audit import audit_result
from smpc_dp_verify import result as second

VECTORS = Path(__file__).parents[3] / "protocols" / "secagg" / "vectors"
NAMES = ("checked", "unchecked", "gopa-keep")
KINDS = ("last", "first", "removed", "null", "another type")
# Fields of later releases may stand there, and those of logs.
FREE = {("evidence", "log")}
Keys = tuple[str | int, ...]


def vector(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((VECTORS / f"result-{name}.json").read_bytes())
    return content


def leaves(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """Yield the way to each value that has none within it, and to each table and array."""
    if keys:
        yield keys
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from leaves(each, (*keys, key))


SETS, NUMBERS = ("survivors", "absent"), ("value", "fixed_point", "step", "weight", "residual_pairs")
EVIDENCE = ("evidence", "kind", *SETS, *NUMBERS)
# The second auditor plans no noise.
PLANNED = ("standard_error", "curator_standard_error", "bias", "privacy")
CASES = [
    (name, keys, kind)
    for name in NAMES
    for keys in leaves(vector(name)["result"])
    if keys[0] in (EVIDENCE if name == "gopa-keep" else (*EVIDENCE, *PLANNED)) and keys not in FREE
    for kind in KINDS
]


def changed(value: Any, kind: str) -> Any:
    """Return another value for a field."""
    match value:
        case _ if kind == "null":
            return None
        case _ if kind == "another type":
            return {"a": 1} if isinstance(value, str | None) else "a"
        case "":
            return "00"
        case str() if set(value) <= set("0123456789abcdef") and len(value) % 2 == 0:
            at = 0 if kind == "first" else len(value) - 1
            return f"{value[:at]}{int(value[at], 16) ^ 1:x}{value[at + 1 :]}"
        case str():
            return f"{value}x" if kind == "last" else f"x{value}"
        case bool() | None:
            return not value
        case int():
            return value + 1 if kind == "last" else value - 1
        case float():
            return value * 2 + 1 if kind == "last" else value / 2 - 1
        case list():
            return value[:-1] if kind == "last" else value[1:]
        case dict():
            return dict(list(value.items())[:-1] if kind == "last" else list(value.items())[1:])
    raise AssertionError(value)


@pytest.mark.thin(40)
@pytest.mark.parametrize(("name", "keys", "kind"), CASES, ids=lambda part: str(part))
def test_no_change_passes(name: str, keys: Keys, kind: str, tmp_path: Path) -> None:
    base = vector(name)
    result = copy.deepcopy(base["result"])
    inner = result
    for key in keys[:-1]:
        inner = inner[key]
    before = inner[keys[-1]]
    if kind == "removed":
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = changed(before, kind)
        if inner[keys[-1]] == before:
            pytest.skip("the same value")
    file, session = tmp_path / "result.json", tmp_path / "session.toml"
    file.write_text(json.dumps(result))
    session.write_text(base["session"])
    first = audit_result(file, session=session, run=base["run"])
    other = second.audit_result(file, session, base["run"])
    assert (first.code, first.check, first.culprit) == (other.code, other.check, other.culprit)
    assert first.code != 0, f"{first.conclusion}"
    # Who changes a file has no signature of the aggregator for it.
    assert first.culprit is None
