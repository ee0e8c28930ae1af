"""Every public name with its parameters, fields and methods, read from syntax trees: no module is imported.

A table of `docs/reference/api.md` lists the public modules, and says what of them is stable; the `__all__` of
each has its public names.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("public.txt")
PAGE = ROOT / "docs/reference/api.md"
CODE = re.compile(r"`([^`]+)`")
ROW = re.compile(r"^\| (.*) \| (.*) \| (stable|experimental)(?:; experimental: (.*))? \|$", re.MULTILINE)
# What callers of a class do not use.
INTERNAL = ("__delattr__", "__new__", "__post_init__", "__reduce__", "__repr__", "__setattr__", "__slots__")


class Row(NamedTuple):
    """A row of a table: its first cell, the codes of its second, and its status.

    `others`: the names, `Class.method` too, that are experimental in a row that is stable.
    """

    subject: str
    codes: tuple[str, ...]
    stable: bool
    others: frozenset[str]


@functools.cache
def rows(heading: str) -> tuple[Row, ...]:
    """Return the rows of the table below a heading of the page."""
    section = PAGE.read_text("utf-8").split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return tuple(
        Row(subject, tuple(CODE.findall(codes)), status == "stable", frozenset(CODE.findall(others)))
        for subject, codes, status, others in ROW.findall(section)
    )


@functools.cache
def modules() -> dict[str, Row]:
    """Return the public modules, each with its row."""
    return {module: row for row in rows("Public modules") for module in row.codes}


def file_of(module: str) -> Path | None:
    """Return a module's file, None if there is none."""
    path = ROOT.joinpath(*module.split("."))
    return next((one for one in (path / "__init__.py", path.with_suffix(".py")) if one.is_file()), None)


@functools.cache
def scope(module: str) -> dict[str, ast.stmt]:
    """Return the statement of a module that binds each of its names."""
    file = file_of(module)
    assert file is not None, f"{module}: no such module"
    return dict(_bindings(ast.parse(file.read_text("utf-8")).body))


def _bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    for one in body:
        match one:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield one.name, one
            case ast.ImportFrom():
                yield from ((alias.asname or alias.name, one) for alias in one.names)
            case ast.If():
                # Of TYPE_CHECKING: names that are loaded at their first use are imported there.
                yield from _bindings(one.body)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, one


@functools.cache
def public(module: str) -> tuple[str, ...]:
    """Return the names of `__all__`."""
    statement = scope(module).get("__all__")
    assert isinstance(statement, ast.Assign), f"{module}: is public and has no __all__"
    return tuple(ast.literal_eval(statement.value))


def defined(module: str, name: str) -> tuple[str, ast.stmt | None]:
    """Return the module that defines a name, and the statement; a module and None where the name is one."""
    assert name in scope(module), f"{module}: has no {name}"
    match scope(module)[name]:
        case ast.ImportFrom(module=str(source), names=names) if source.split(".")[0] == "smpc_dp":
            first = next(alias.name for alias in names if name == (alias.asname or alias.name))
            inner = f"{source}.{first}"
            return (inner, None) if file_of(inner) else defined(source, first)
        case statement:
            return module, statement


def names(module: str) -> dict[str, str]:
    """Return the line about each public name of a module, and about each `Class.member` and `module.name`."""
    result: dict[str, str] = {}
    for name in public(module):
        home, statement = defined(module, name)
        if home != module and home in modules() and (statement is None or name in public(home)):
            result[name] = f"{name}: see {home}"
        elif statement is None:
            result[name] = f"module {name}"
            result |= {f"{name}.{inner}": line for inner, line in names(home).items()}
        else:
            result[name] = _line(name, statement)
            if isinstance(statement, ast.ClassDef):
                result |= {f"{name}.{inner}": line for inner, line in _members(home, statement).items()}
    return result


def _line(name: str, statement: ast.stmt) -> str:
    """Return what callers must know of a name; of a class without its members."""
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            asynchronous = "async " if isinstance(statement, ast.AsyncFunctionDef) else ""
            returns = f" -> {ast.unparse(statement.returns)}" if statement.returns else ""
            text = f"{asynchronous}def {name}({ast.unparse(statement.args)}){returns}"
        case ast.ClassDef():
            bases = ", ".join(map(ast.unparse, [*statement.bases, *statement.keywords]))
            text = f"class {name}({bases})"
        case ast.AnnAssign():
            value = f" = {ast.unparse(statement.value)}" if statement.value else ""
            return f"{name}: {ast.unparse(_Plain().visit(statement.annotation))}{value}"
        case ast.Assign(value=ast.Tuple(elts=[code, ast.Constant(value=str())])):
            # Of a check, without its meaning.
            return f"{name} = {ast.unparse(code)}"
        case ast.Assign(value=value) if not isinstance(value, ast.Call) and name != "__version__":
            return f"{name} = {ast.unparse(value)}"
        case _:
            return name
    return " ".join([*(f"@{ast.unparse(one)}" for one in statement.decorator_list), text])


class _Plain(ast.NodeTransformer):
    """Replaces `Annotated` types, whose ranges and descriptions `docs/reference/session-file.md` has."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        return node.slice.elts[0] if annotated and isinstance(node.slice, ast.Tuple) else node


def _members(module: str, statement: ast.ClassDef) -> dict[str, str]:
    """Return the lines about the public members of a class: fields, then methods by name.

    Inherited ones too, unless they are written with the public class that has them.
    """
    result: dict[str, str] = {}
    for base in reversed(statement.bases):
        name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        home, inherited = defined(module, name) if name in scope(module) else ("", None)
        if isinstance(inherited, ast.ClassDef) and not (home in modules() and name in public(home)):
            result |= _members(home, inherited)
    # Sessions and the like are not made by their class.
    hidden = (*INTERNAL, "__init__") if "Made by" in (ast.get_docstring(statement) or "") else INTERNAL
    for name, one in _bindings(statement.body):
        if name not in hidden and (name.startswith("__") or not name.startswith("_")):
            result[name] = _line(name, one)
        for node in ast.walk(one) if name == "__init__" else ():
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=field, ctx=ast.Store()):
                    result |= {} if field.startswith("_") else {field: f"self.{field}"}
    return dict(sorted(result.items(), key=lambda item: item[0] if "def " in item[1] else ""))


def text() -> str:
    """Return the content of the stored file."""
    lines = []
    for module, row in modules().items():
        lines.append(f"{module}: {'stable' if row.stable else 'experimental'}")
        for name, line in names(module).items():
            lines.append(f"  {'  ' * name.count('.')}{'experimental ' * (name in row.others)}{line}")
        lines.append("")
    return "\n".join(lines)
