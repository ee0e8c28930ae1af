"""Differences between two canonical sessions, one of which a peer sent."""

from __future__ import annotations

from collections.abc import Mapping

# A digest in hex, with its quotes, is shown whole.
MAX_SHOWN = 66
MAX_DEPTH = 8


def difference(mine: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
    """Return one line per difference, as `parameters.length: 10 here, 12 there`; empty when there is none.

    `theirs` may have any shape that JSON can carry. Values are shown with at most `MAX_SHOWN` characters.
    """
    lines: list[str] = []
    _compare("", mine, theirs, lines, 0)
    return lines


def _compare(path: str, mine: object, theirs: object, lines: list[str], depth: int) -> None:
    """Append the differences of two values under `path`."""
    if _same(mine, theirs):
        return
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping) and depth < MAX_DEPTH:
        for key in sorted({*mine, *theirs}, key=str):
            inner = f"{path}.{_label(key)}" if path else _label(key)
            if key not in theirs:
                lines.append(f"{inner}: {_show(mine[key])} only here")
            elif key not in mine:
                lines.append(f"{inner}: {_show(theirs[key])} only there")
            else:
                _compare(inner, mine[key], theirs[key], lines, depth + 1)
    elif path == "roster" and (named := _by_name(mine, theirs)) is not None:
        _compare_rosters(*named, lines)
    else:
        lines.append(f"{path}: {_show(mine)} here, {_show(theirs)} there")


def _compare_rosters(mine: dict[str, object], theirs: dict[str, object], lines: list[str]) -> None:
    """Append the differences of two rosters, compared by name."""
    lines += [f"roster: '{_label(name)}' only here" for name in mine if name not in theirs]
    lines += [f"roster: '{_label(name)}' only there" for name in theirs if name not in mine]
    common = [name for name in mine if name in theirs]
    if common != [name for name in theirs if name in mine]:
        lines.append("roster: the members are in another order")
    for name in common:
        _compare(f"roster[{_label(name)}]", mine[name], theirs[name], lines, 2)


def _by_name(mine: object, theirs: object) -> tuple[dict[str, object], dict[str, object]] | None:
    """Return both rosters as name -> entry, or None when one is no list of uniquely named entries."""
    result: list[dict[str, object]] = []
    for roster in (mine, theirs):
        if not isinstance(roster, list):
            return None
        named: dict[str, object] = {}
        for entry in roster:
            if not isinstance(entry, dict) or not isinstance(name := entry.get("name"), str) or name in named:
                return None
            named[name] = entry
        result.append(named)
    return result[0], result[1]


def _same(mine: object, theirs: object) -> bool:
    """Tell whether two values are the same JSON."""
    # JSON distinguishes 1 from 1.0 and from true, Python's == does not.
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return mine.keys() == theirs.keys() and all(_same(mine[key], theirs[key]) for key in mine)
    if isinstance(mine, list) and isinstance(theirs, list):
        return len(mine) == len(theirs) and all(map(_same, mine, theirs))
    return type(mine) is type(theirs) and mine == theirs


def _label(key: object) -> str:
    """Return a key as printable text."""
    # Keys may come from the peer: nothing unprintable reaches a terminal or a log.
    text = str(key)[:MAX_SHOWN]
    return text if text.isprintable() else repr(text)


def _show(value: object) -> str:
    """Return a value as short printable text."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 2]}.."
