"""Tables of settings: session files are checked and documented from one definition.

A table is a `msgspec.Struct`. Its fields are the keys; their types and `msgspec.Meta` give the ranges, and
`Meta(description=...)` is the meaning of a key. `extra` of Meta may have "range" and "default" where the type
does not determine them. A key with `UNLISTED` is in no list of keys, of errors or documents. Checks, command-
line options and docs/reference/session-file.md are derived from them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

import msgspec
from msgspec import inspect

from smpc_dp.decoding import convert
from smpc_dp.encoding import shown
from smpc_dp.errors import ConfigCheck, ConfigIssue, Issues
from smpc_dp.values import plain_value

# No setting reaches this; float64 ends there.
NUMBER_BITS = 1023
# Kind, name in documents, name in errors, and Python type of a command-line option: the first alternative's.
_NAMES: tuple[tuple[type[inspect.Type], str, str, type | None], ...] = (
    (inspect.BoolType, "boolean", "true or false", bool),
    (inspect.FloatType, "number", "a number", float),
    (inspect.IntType, "integer", "an integer", int),
    (inspect.StrType, "string", "a string", str),
    (inspect.LiteralType, "string", "", None),
    (inspect.ListType, "array", "an array", None),
    (inspect.VarTupleType, "array", "an array", None),
    (inspect.DictType, "table", "a table", None),
    (inspect.StructType, "table", "a table", None),
)
# Of a key that a table of settings has for its own use, and that a session file should not have.
UNLISTED = msgspec.Meta(extra={"unlisted": ""})
# A remark with a link, which documents alone have.
_REFERENCE = re.compile(r" \(\[[^]]*\]\([^)]*\)\)")
_ARRAYS = inspect.ListType | inspect.VarTupleType


def read(
    table: type[msgspec.Struct],
    given: Mapping[str, object],
    where: str = "",
    *,
    unknown: str = "unknown key",
    refused: Mapping[str, str] | None = None,
    explained: Collection[str] = (),
) -> tuple[dict[str, Any], list[ConfigIssue]]:
    """Validate settings against a struct; return the valid ones with defaults filled in, and all faults.

    Args:
        table: the struct of the settings.
        given: the settings of a session file; numbers and arrays of NumPy count as those of Python.
        where: prefix of the keys in faults.
        unknown: beginning of the fault of an unknown key.
        refused: keys of other tables, each with the reason why this one does not have it.
        explained: further keys in the list of known keys.
    """
    refused = refused or {}
    given = {key: plain_value(value) for key, value in given.items()}
    fields = {field.encode_name: field for field in msgspec.structs.fields(table)}
    issues = Issues()
    for key in given:
        if key in refused:
            issues.add_issue(f"{where}{key}", refused[key], ConfigCheck.UNSUPPORTED)
        elif key not in fields:
            listed = {name for name, field in fields.items() if _is_listed(field)}
            known = ", ".join(sorted({*listed, *explained} - {*refused}))
            issues.add_issue(f"{where}{key}", f"{unknown} (known: {known})", ConfigCheck.UNKNOWN_KEY)
    good: dict[str, Any] = {}
    for key, field in fields.items():
        if key in refused or key not in given:
            if not field.required:
                good[key] = _default(field)
            elif key not in refused:
                issues.add_issue(f"{where}{key}", "is missing", ConfigCheck.MISSING)
            continue
        inner, value = _table_of(field.type), given[key]
        if inner is not None and isinstance(value, dict):
            settings, faults = read(inner, value, f"{where}{key}.")
            issues += faults
            if not faults:
                good[key] = inner(**settings)
            continue
        try:
            good[key] = _converted(field.type, given[key])
        except ValueError as error:
            issues.add_issue(f"{where}{key}", str(error), _check_of(field.type, given[key]))
    return good, issues


def _table_of(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct class of a field that is a nested table; None for other fields."""
    kinds, _, _ = _parts(kind)
    if len(kinds) == 1 and isinstance(kinds[0], inspect.StructType) and kinds[0].tag is None:
        return kinds[0].cls
    return None


def _default(field: msgspec.structs.FieldInfo) -> Any:
    """Return the default value of a setting."""
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def _converted(kind: Any, value: object) -> Any:
    """Convert a setting's value to its type; raise ValueError with the reason if it is not valid."""
    each = value if isinstance(value, list) else [value]
    outside = any(
        number.bit_length() > NUMBER_BITS
        if isinstance(number, int)
        else isinstance(number, float) and not math.isfinite(number)
        for number in each
    )
    try:
        if not outside:
            return convert(value, kind)
    except msgspec.ValidationError as error:
        result = str(error)
        element = re.search(r" - at `\$\[(\d+)\]`$", result)
        if element and isinstance(value, list):
            index = int(element[1])
            items = (one.item_type for one in _parts(kind)[0] if isinstance(one, _ARRAYS))
            needed = " or ".join(map(_range, items))
            raise ValueError(f"element {index} must be {needed}, is {shown(value[index])}") from None
        # The fault of a value further inside is reported unchanged, with its path.
        if isinstance(value, dict) or " - at `" in result:
            raise ValueError(result) from None
    expected = _range(kind)
    if outside:
        expected += (
            f", below 2^{NUMBER_BITS}" if any(isinstance(number, int) for number in each) else ", finite"
        )
    raise ValueError("is missing" if value is None else f"must be {expected}, is {shown(value)}")


def _check_of(kind: Any, value: object) -> ConfigCheck:
    """Return which kind of fault a value has that is not valid for a type: type, range..."""
    if value is None:
        return ConfigCheck.MISSING
    kinds, _, _ = _parts(kind)
    if any(isinstance(one, inspect.LiteralType) for one in kinds):
        return ConfigCheck.CHOICE
    named = {known: plain for known, _, _, plain in _NAMES}
    plain = {type_ for one in kinds for known, type_ in named.items() if isinstance(one, known)}
    is_plain = type(value) in plain or (float in plain and type(value) is int)
    return ConfigCheck.RANGE if is_plain or isinstance(value, list | dict) else ConfigCheck.TYPE


def help_of(table: type[msgspec.Struct], key: str) -> str:
    """Return the help text of the command-line option for a setting: its meaning and range."""
    kind, about = _field(table, key).type, meaning_of(table, key)
    # The command line lists choices itself.
    values = "" if isinstance(_parts(kind)[0][0], inspect.LiteralType) else _range(kind, plain=False)
    text = f"{about[:1].upper()}{about[1:]}" if about else key
    if values[:1] in ("(", "["):
        return f"{text}; range {values}.".replace("`", "")
    return (f"{text} ({values})." if values else f"{text}.").replace("`", "")


def meaning_of(table: type[msgspec.Struct], key: str) -> str:
    """Return the description of a setting without links; "" if it has none."""
    return _REFERENCE.sub("", _parts(_field(table, key).type)[1])


def plain_type(table: type[msgspec.Struct], key: str) -> Any:
    """Return the type of the command-line option for a setting, without its bounds."""
    kinds, _, _ = _parts(_field(table, key).type)
    if isinstance(kinds[0], inspect.LiteralType):
        choices: Any = Literal
        return choices[tuple(kinds[0].values)]
    return next(plain for known, _, _, plain in _NAMES if any(isinstance(kind, known) for kind in kinds))


def default_text(table: type[msgspec.Struct], key: str) -> str | None:
    """Return the description of a setting's default if that is computed; None if there is none."""
    text = _parts(_field(table, key).type)[2].get("default")
    return None if text is None else text.replace("`", "")


def _field(table: type[msgspec.Struct], key: str) -> msgspec.structs.FieldInfo:
    """Return the struct field of a setting, by its key in the session file."""
    return next(field for field in msgspec.structs.fields(table) if field.encode_name == key)


def _is_listed(field: msgspec.structs.FieldInfo) -> bool:
    """Tell whether lists of known keys have a setting."""
    return "unlisted" not in _parts(field.type)[2]


def items(table: type[msgspec.Struct], without: Collection[str] = ()) -> list[str]:
    """Return Markdown list items that document a table's settings: key, default, type, range, meaning.

    A default among listed values is in bold letters. The kind is left out where values are listed, and where
    the range shows it: in brackets of numbers, with "to" of integers.
    """
    lines = []
    for field in msgspec.structs.fields(table):
        if field.encode_name in without or not _is_listed(field):
            continue
        kinds, about, extra = _parts(field.type)
        is_listed = any(isinstance(kind, inspect.LiteralType) for kind in kinds)
        names = "" if is_listed else " or ".join(dict.fromkeys(_name(kind) for kind in kinds))
        values = extra.get("range", _range(field.type, plain=False, code=True))
        if values and (names == "number" or (names == "integer" and " to " in values)):
            names = ""
        separator = "" if not names else " " if values[:1] in "([" else ", "
        need = _need(field, extra)
        if is_listed and need and (marked := values.replace(need[2:-1], f"**{need[2:-1]}**")) != values:
            values, need = marked, ""
        kind = f"{names}{separator if values else ''}{values}"
        meaning = f"{kind}: {about}" if about else kind
        lines.append(f"- `{field.encode_name}`{need}: {meaning}.")
    return lines


def _need(field: msgspec.structs.FieldInfo, extra: Mapping[str, str]) -> str:
    """Return a setting's default as " (...)", " (needed)" if it has none, or "" if the default is nothing."""
    if field.required:
        return " (needed)"
    default = _default(field)
    text = extra.get("default", "" if default is None else _literal(default))
    return f" ({text})" if text not in ("", "none") else ""


def _parts(kind: Any) -> tuple[list[inspect.Type], str, dict[str, str]]:
    """Return the alternatives of a setting's type, its description, and further metadata."""
    result = kind if isinstance(kind, inspect.Type) else inspect.type_info(kind)
    about, extra = "", dict[str, str]()
    parts: list[inspect.Type] = [result]
    kinds: list[inspect.Type] = []
    while parts:
        part = parts.pop(0)
        if isinstance(part, inspect.Metadata):
            # The outermost description stands: it is of this key, an inner one of the type that keys share.
            about = about or (part.extra_json_schema or {}).get("description", "")
            extra = (part.extra or {}) | extra
            parts.insert(0, part.type)
        elif isinstance(part, inspect.UnionType):
            parts = [*part.types, *parts]
        elif not isinstance(part, inspect.NoneType):
            kinds.append(part)
    return kinds, about, extra


def _name(kind: inspect.Type) -> str:
    """Return the name of a type in documents, such as "integer"."""
    return next(name for known, name, *_ in _NAMES if isinstance(kind, known))


def _range(kind: Any, *, plain: bool = True, code: bool = False) -> str:
    """Return the permitted range of a setting's type as text, such as "from 1 to 100"; "" if none.

    `plain`: with the kind of value, for errors; without it, for documents.
    """
    kinds, _, extra = _parts(kind)
    if not plain and "range" in extra:
        return extra["range"]
    texts = []
    for one in kinds:
        if isinstance(one, inspect.LiteralType):
            values = [f'`"{value}"`' if code else f"'{value}'" for value in one.values]
            texts.append(" or ".join([", ".join(values[:-1]), values[-1]]) if len(values) > 1 else values[0])
            continue
        known = next((text for kind_of, _, text, _ in _NAMES if isinstance(one, kind_of)), "")
        if plain and isinstance(one, _ARRAYS) and one.min_length:
            most = f" to {one.max_length}" if one.max_length else " or more"
            known += f" of {one.min_length}{most} elements"
        within = _bounds(one, not plain)
        if plain:
            texts.append(" ".join(part for part in (known, _joined(within)) if part))
        elif within:
            texts.append(within)
    return " or ".join(dict.fromkeys(text for text in texts if text))


def _joined(within: str) -> str:
    """Reword a range so that it can follow "a number" in an error message."""
    if within.startswith("above ") and ", below " in within:
        return within.replace(", below ", " and below ")
    if " to " in within:
        return f"from {within}"
    return f"of {within}" if within.startswith("at ") else within


def _bounds(kind: inspect.Type, separated: bool) -> str:
    """Return the bounds of a number's type as text, such as "1 to 100"; "" for other types or without any."""
    if not isinstance(kind, inspect.IntType | inspect.FloatType):
        return ""
    if (
        kind.ge is not None
        and kind.le is not None
        and not (separated and isinstance(kind, inspect.FloatType))
    ):
        return f"{_number(kind.ge, separated)} to {_number(kind.le, separated)}"
    least, most = kind.gt if kind.ge is None else kind.ge, kind.lt if kind.le is None else kind.le
    if separated and least is not None and most is not None:
        return f"{'[('[kind.ge is None]}{_number(least)}, {_number(most)}{'])'[kind.le is None]}"
    low = f"above {_number(kind.gt, separated)}" if kind.gt is not None else ""
    low = low or (f"at least {_number(kind.ge, separated)}" if kind.ge is not None else "")
    high = f"below {_number(kind.lt, separated)}" if kind.lt is not None else ""
    high = high or (f"at most {_number(kind.le, separated)}" if kind.le is not None else "")
    return ", ".join(part for part in (low, high) if part)


def _number(value: float, separated: bool = True) -> str:
    """Format a number, with separators of thousands if `separated`; large powers of two as 2^n."""
    if isinstance(value, int) and value >= 1 << 30:
        for whole, less in ((value, ""), (value + 1, " - 1")):
            if whole & (whole - 1) == 0:
                return f"2^{whole.bit_length() - 1}{less}"
    if separated and isinstance(value, int):
        return f"{value:,}"
    return re.sub(r"e\+0*", "e", f"{value:g}") if separated else f"{value:g}"


def _literal(value: object) -> str:
    """Format a setting's default as Markdown code; return "none" for None and arrays."""
    if isinstance(value, str):
        return f'`"{value}"`' if value else '`""`'
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return _number(value) if isinstance(value, int | float) else "`{}`" if isinstance(value, dict) else "none"
