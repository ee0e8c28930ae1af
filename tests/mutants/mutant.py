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
        first, last = _lines_of(_parsed(text), self.function.split("."))
        lines = text.splitlines(keepends=True)
        body = "".join(lines[first - 1 : last])
        if body.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.file}: {self.function} has {body.count(self.old)} times: {self.old}"
            )
        changed = "".join((*lines[: first - 1], body.replace(self.old, self.new), *lines[last:]))
        # A mutant that is no Python would be caught by anything.
        ast.parse(changed)
        return changed


def load() -> list[Mutant]:
    """Return the mutants of the list; raise ValueError for one that names a test that is not there."""
    result = msgspec.convert(tomllib.loads(LIST.read_text("utf-8"))["mutant"], list[Mutant])
    for mutant in result:
        for test in mutant.tests:
            if not test.startswith("-") and not (ROOT / test.partition("::")[0]).exists():
                raise ValueError(f"{mutant.name}: no such test: {test}")
    return result


@functools.lru_cache(16)
def _parsed(text: str) -> ast.Module:
    """Return the syntax tree of a file, once for its mutants in a row."""
    return ast.parse(text)


def _lines_of(tree: ast.AST, path: list[str]) -> tuple[int, int]:
    node = tree
    for name in path:
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        inner = [
            child for child in ast.iter_child_nodes(node) if isinstance(child, kinds) and child.name == name
        ]
        if len(inner) != 1:
            raise ValueError(f"there is no one {'.'.join(path)}")
        node = inner[0]
    if not isinstance(node, ast.stmt) or node.end_lineno is None:
        raise ValueError(f"{'.'.join(path)} has no lines")
    return node.lineno, node.end_lineno
