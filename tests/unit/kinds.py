"""What code says of kinds of sessions, from the nodes of its syntax tree: classes, comparisons, texts."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple


class Compared(NamedTuple):
    """A text that code compares.

    Attributes:
        line: of the comparison.
        text: the text, or the dotted name of what may be a constant.
        is_text: whether `text` is the text itself.
        other: the code of what it is compared with.
        is_looked_for: whether it is looked for in `other`, which may be a mapping.
    """

    line: int
    text: str
    is_text: bool
    other: str
    is_looked_for: bool = False


class Kinds(NamedTuple):
    """What a file says of kinds of sessions. Names are dotted, by the file's imports.

    Attributes:
        classes: its classes with their bases.
        aliases: its names for classes of others, and for several.
        constants: its constants that are texts.
        returned: what the public methods of its class `Session` return.
        tested: classes by which it tests the kind of an object, with the lines.
        compared: texts that it compares.
        modules: modules that it names as text, with the lines.
    """

    classes: dict[str, tuple[str, ...]]
    aliases: dict[str, tuple[str, ...]]
    constants: dict[str, str]
    returned: frozenset[str]
    tested: list[tuple[str, int]]
    compared: list[Compared]
    modules: list[tuple[str, int]]


class _Names:
    """The dotted names of a file's expressions."""

    def __init__(self, nodes: Iterable[ast.AST], module: str) -> None:
        self._module = module
        self._bound: dict[str, str] = {}
        for node in nodes:
            if isinstance(node, ast.ImportFrom):
                self._bound |= {
                    alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
                }
            elif isinstance(node, ast.Import):
                self._bound |= {
                    alias.asname or alias.name.split(".")[0]: alias.name
                    if alias.asname
                    else alias.name.split(".")[0]
                    for alias in node.names
                }

    def exported(self) -> dict[str, tuple[str, ...]]:
        """Return for each imported class its name in this module, with its name where it is defined."""
        return {
            f"{self._module}.{name}": (imported,)
            for name, imported in self._bound.items()
            if name[0].isupper()
        }

    def of(self, node: ast.expr | None) -> Iterator[str]:
        """Yield the name of an expression, or of each class of a tuple or a union."""
        match node:
            case ast.Name(id=name):
                yield self._bound.get(name, f"{self._module}.{name}")
            case ast.Attribute(value=value, attr=attr):
                yield from (f"{name}.{attr}" for name in self.of(value))
            case ast.Tuple(elts=several) | ast.List(elts=several) | ast.Set(elts=several):
                for one in several:
                    yield from self.of(one)
            case ast.BinOp(left=left, right=right):
                yield from self.of(left)
                yield from self.of(right)
            case ast.IfExp(body=body, orelse=orelse):
                yield from self.of(body)
                yield from self.of(orelse)
            case (
                ast.Subscript(value=value)
                | ast.Starred(value=value)
                | ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[value])
            ):
                yield from self.of(value)


def kinds_in(nodes: Collection[ast.AST], module: str, modules: Collection[str] = ()) -> Kinds:
    """Return what the nodes of a module say; `modules`: those whose names as text are collected."""
    names = _Names(nodes, module)
    result = Kinds({}, names.exported(), {}, frozenset(), [], [], [])
    for node in nodes:
        match node:
            case ast.ClassDef():
                result = _add_class(result, node, module, names)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                _add_constant(result, f"{module}.{name}", value, names)
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
                result.tested.extend((name, node.lineno) for name in names.of(kinds))
            case ast.Call(func=ast.Attribute(attr="startswith" | "endswith", value=whole), args=[part]):
                _add_texts(result, part, whole, names)
            case (
                ast.Subscript(value=ast.Dict() as known, slice=sought)
                | ast.Call(func=ast.Attribute(attr="get", value=ast.Dict() as known), args=[sought, *_])
            ):
                _add_lookup(result, known, sought, names)
            case ast.MatchClass():
                result.tested.extend((name, node.lineno) for name in names.of(node.cls))
            case ast.Match():
                _add_match(result, node, names)
            case ast.Compare():
                _add_comparison(result, node, names)
            case ast.Constant(value=str() as text) if text in modules:
                result.modules.append((text, node.lineno))
    return result


def _add_class(kinds: Kinds, node: ast.ClassDef, module: str, names: _Names) -> Kinds:
    own = f"{module}.{node.name}"
    kinds.classes[own] = tuple(name for base in node.bases for name in names.of(base))
    for statement in node.body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                _add_constant(kinds, f"{own}.{name}", value, names)
    if node.name != "Session":
        return kinds
    returned = (
        part
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and method.returns is not None
        and not method.name.startswith("_")
        for part in ast.walk(method.returns)
        if isinstance(part, ast.Name | ast.Attribute)
    )
    return kinds._replace(returned=frozenset(name for part in returned for name in names.of(part)))


def _add_constant(kinds: Kinds, own: str, value: ast.expr, names: _Names) -> None:
    match value:
        case ast.Constant(value=str() as text):
            kinds.constants[own] = text
        case ast.Tuple() | ast.BinOp(op=ast.BitOr()) | ast.Name() | ast.Attribute():
            kinds.aliases[own] = tuple(names.of(value))


def _is_kind(node: ast.expr) -> bool:
    """Tell whether an expression is the class of an object."""
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[_]) | ast.Attribute(attr="__class__"):
            return True
    return False


def _texts(node: ast.expr, names: _Names) -> Iterator[tuple[str, bool]]:
    """Yield the texts, and the names of what may be constants, among the values of an expression."""
    match node:
        case ast.Constant(value=str() as text):
            yield text, True
        case ast.Name() | ast.Attribute():
            yield from ((name, False) for name in names.of(node))
        case ast.Tuple(elts=several) | ast.List(elts=several) | ast.Set(elts=several):
            for one in several:
                yield from _texts(one, names)
        case ast.Dict(keys=keys):
            for key in keys:
                if key is not None:
                    yield from _texts(key, names)
        case (
            ast.Starred(value=several)
            | ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[several])
        ):
            yield from _texts(several, names)


def _add_comparison(kinds: Kinds, node: ast.Compare, names: _Names) -> None:
    for left, operator, right in zip(
        [node.left, *node.comparators[:-1]], node.ops, node.comparators, strict=True
    ):
        for side, other in ((left, right), (right, left)):
            if _is_kind(side):
                kinds.tested.extend((name, node.lineno) for name in names.of(other))
        if isinstance(operator, ast.Eq | ast.NotEq):
            _add_texts(kinds, left, right, names)
            _add_texts(kinds, right, left, names)
        elif isinstance(operator, ast.In | ast.NotIn):
            _add_texts(kinds, right, left, names)
            _add_texts(kinds, left, right, names, is_looked_for=True)


def _add_lookup(kinds: Kinds, known: ast.Dict, sought: ast.expr, names: _Names) -> None:
    """Add what a value is compared with that is looked up among written keys."""
    _add_texts(kinds, known, sought, names)
    if _is_kind(sought):
        for key in known.keys:
            kinds.tested.extend((name, sought.lineno) for name in names.of(key))


def _add_texts(
    kinds: Kinds, side: ast.expr, other: ast.expr, names: _Names, *, is_looked_for: bool = False
) -> None:
    texts = [*_texts(side, names)]
    if texts:
        code = ast.unparse(other)
        kinds.compared.extend(
            Compared(side.lineno, text, is_text, code, is_looked_for) for text, is_text in texts
        )


def _add_match(kinds: Kinds, node: ast.Match, names: _Names) -> None:
    for case in node.cases:
        for pattern in ast.walk(case.pattern):
            if isinstance(pattern, ast.MatchValue):
                _add_texts(kinds, pattern.value, node.subject, names)
                if _is_kind(node.subject):
                    kinds.tested.extend((name, pattern.lineno) for name in names.of(pattern.value))
