"""A mutation: in one function of one file an expression takes the place of another."""

from __future__ import annotations

import ast
import functools
import tomllib
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.toml")


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mutation.

    `function` is the qualified name of a function, or of a class, in `file`; `old` stands in it exactly once
    and becomes `new`. `tests` are arguments of pytest.
    """

    name: str
    file: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, text: str) -> str:
        """Return the text of the file with the mutation; raise ValueError if it does not apply."""
        first, last = self._lines_in(text)
        lines = text.splitlines(keepends=True)
        body = "".join(lines[first - 1 : last])
        if body.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.file}: {self.function} has {body.count(self.old)} times: {self.old}"
            )
        changed = body.replace(self.old, self.new)
        # A mutant that is no Python would be caught by anything. Only what is changed is parsed.
        ast.parse(f"if True:\n{changed}" if changed[0].isspace() else changed)
        return "".join((*lines[: first - 1], changed, *lines[last:]))

    def _lines_in(self, text: str) -> tuple[int, int]:
        """Return the first and the last line of the function or class; raise ValueError if it is not one."""
        found = _lines_of(text).get(self.function, [])
        if len(found) != 1:
            raise ValueError(f"there is no one {self.function}")
        return found[0]


def load() -> list[Mutant]:
    """Return the mutants of the list; raise ValueError for one that names a test that is not there."""
    result = msgspec.convert(tomllib.loads(LIST.read_text("utf-8"))["mutant"], list[Mutant])
    for mutant in result:
        for test in mutant.tests:
            if not test.startswith("-") and not (ROOT / test.partition("::")[0]).exists():
                raise ValueError(f"{mutant.name}: no such test: {test}")
    return result


@functools.cache
def _lines_of(text: str) -> dict[str, list[tuple[int, int]]]:
    """Return the lines of each function and class of a file by qualified name: of all that have the name."""
    result: dict[str, list[tuple[int, int]]] = {}
    nodes: list[tuple[str, ast.AST]] = [("", ast.parse(text))]
    for path, node in nodes:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{path}.{child.name}" if path else child.name
                result.setdefault(name, []).append((child.lineno, child.end_lineno or child.lineno))
                nodes.append((name, child))
    return result
