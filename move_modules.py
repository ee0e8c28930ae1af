"""Moves the modules of a part of `smpc_dp` to the folders of `moves.toml`, and rewrites what names them.

    python move_modules.py PART        # with libcst 1.9, in a checkout without changes

Imports are rewritten on the syntax tree; texts that name a module or its file (`smpc_dp.net.session`,
`smpc_dp/net/session.py`, or `net.session` between backquotes in the package) by their longest name.
Afterwards: ruff check --select I --fix .; ruff format .
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import libcst as cst
from libcst.helpers import get_full_name_for_node

ROOT = Path(__file__).parent
PACKAGE = "smpc_dp"
# Names of modules that stay where they are the whole name: entry-point groups, and a public function.
OTHERS = frozenset(
    f"{PACKAGE}.{name}"
    for name in ("commands", "kernels", "learners", "protocols", "simulate.names", "statistics")
)
# The history of changes, and tables of modules that are written anew by hand.
KEPT = frozenset(
    [
        "CHANGELOG.md",
        "move_modules.py",
        "moves.toml",
        "tests/unit/capabilities.toml",
    ]
)
TEXTS = frozenset([".ini", ".json", ".md", ".py", ".pyi", ".rs", ".toml", ".txt"])

MOVES = tomllib.loads((ROOT / "moves.toml").read_text("utf-8"))
NEW_NAMES = {old: new for moves in MOVES.values() for old, new in moves.items()}


def module_name(path: Path) -> str:
    """Return the name of a module by its file, below the package."""
    parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


KNOWN = frozenset(f"{PACKAGE}.{module_name(path)}" for path in (ROOT / PACKAGE).rglob("*.py"))


def rule_of(module: str) -> str | None:
    """Return the longest old name that a module stands below."""
    name = module
    while name and name not in NEW_NAMES:
        name = name.rpartition(".")[0]
    return name or None


def moved_names(part: str) -> dict[str, str]:
    """Return old and new name of each module of a part, without the package's."""
    result = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        module = module_name(path)
        rule = rule_of(module)
        if rule in MOVES[part]:
            result[module] = NEW_NAMES[rule] + module.removeprefix(rule)
    return result


class Imports(cst.CSTTransformer):
    """Rewrites the imports of moved modules; one statement may become two."""

    def __init__(self, moved: dict[str, str]) -> None:
        self.moved = {f"{PACKAGE}.{old}": f"{PACKAGE}.{new}" for old, new in moved.items()}
        self.known = KNOWN

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:  # noqa: ARG002, N802
        """Leave imports to the line that they stand in."""
        return False

    def visit_Import(self, node: cst.Import) -> bool:  # noqa: ARG002, N802
        """Leave imports to the line that they stand in."""
        return False

    def leave_SimpleStatementLine(  # noqa: N802
        self,
        original_node: cst.SimpleStatementLine,  # noqa: ARG002
        updated_node: cst.SimpleStatementLine,
    ) -> cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]:
        """Rewrite a line that is an import."""
        statement = updated_node.body[0]
        if isinstance(statement, cst.ImportFrom) and not isinstance(statement.names, cst.ImportStar):
            lines = list(self._lines(updated_node, statement))
            if lines:
                return cst.FlattenSentinel(lines)
        elif isinstance(statement, cst.Import):
            names = [self._import(alias) for alias in statement.names]
            return updated_node.with_changes(body=[statement.with_changes(names=names)])
        return updated_node

    def visit_Attribute(self, node: cst.Attribute) -> bool:  # noqa: N802
        """Look at a dotted name as a whole."""
        return not (get_full_name_for_node(node) or "").startswith(f"{PACKAGE}.")

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """Rewrite the whole name of a module where code has it."""
        name = get_full_name_for_node(original_node) or ""
        module = name
        while module and module not in self.known:
            module = module.rpartition(".")[0]
        if module in self.moved and name not in OTHERS:
            return cst.parse_expression(self.moved[module] + name.removeprefix(module))
        return updated_node

    def _import(self, alias: cst.ImportAlias) -> cst.ImportAlias:
        name = get_full_name_for_node(alias.name)
        return alias.with_changes(name=dotted(self.moved[name])) if name in self.moved else alias

    def _lines(
        self, line: cst.SimpleStatementLine, statement: cst.ImportFrom
    ) -> Iterator[cst.SimpleStatementLine]:
        module = get_full_name_for_node(statement.module) if statement.module else None
        if module is None or statement.relative or not f"{module}.".startswith(f"{PACKAGE}."):
            return
        if module not in self.moved and not any(
            f"{module}.{get_full_name_for_node(alias.name)}" in self.moved for alias in statement.names
        ):
            return
        homes: dict[str, list[cst.ImportAlias]] = {}
        for alias in statement.names:
            name = get_full_name_for_node(alias.name)
            new = self.moved.get(f"{module}.{name}")
            if new is None:
                # Another part moves what is a module.
                home = module if f"{module}.{name}" in KNOWN else self.moved.get(module, module)
                homes.setdefault(home, []).append(alias)
                continue
            home, _, last = new.rpartition(".")
            if last != name and alias.asname is None:
                alias = alias.with_changes(name=cst.Name(last), asname=cst.AsName(cst.Name(name)))
            else:
                alias = alias.with_changes(name=cst.Name(last))
            homes.setdefault(home, []).append(alias)
        for place, (home, aliases) in enumerate(homes.items()):
            aliases[-1] = aliases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            changes = {"module": dotted(home), "names": aliases}
            changed = line.with_changes(body=[statement.with_changes(**changes)])
            yield changed if place == 0 else changed.with_changes(leading_lines=[])


def dotted(name: str) -> cst.Attribute | cst.Name:
    """Return a dotted name as an expression."""
    result = cst.parse_expression(name)
    if not isinstance(result, cst.Attribute | cst.Name):
        raise TypeError(name)
    return result


class Names:
    """Rewrites texts that name moved modules."""

    def __init__(self, moved: dict[str, str], rules: dict[str, str]) -> None:
        self.moved = moved
        self.rules = rules
        self.own = ""

    def rewritten(self, text: str, file: str) -> str:
        """Return the text of a file with the new names of moved modules."""
        text = re.sub(rf"\bfrom {PACKAGE}((?:\.\w+)*) import (\w+)", self._import, text)
        text = re.sub(rf"(?<![\w./-]){PACKAGE}((?:\.\w+)+)(?![\w.]| import)", self._dotted, text)
        text = re.sub(rf"(?<![\w-])(?<!\w/){PACKAGE}((?:/\w+)+)((?:\.py)?)", self._path, text)
        text = re.sub(rf"((?:\.\./)+){PACKAGE}((?:/\w+)+)((?:\.py)?)", self._linked, text)
        if file.startswith(PACKAGE):
            own = module_name(ROOT / file)
            rule = rule_of(own)
            capability = re.match(r"capabilities\.\w+\.", NEW_NAMES[rule] if rule else own)
            self.own = capability[0] if capability else "smpc_dp."
            text = re.sub(r"`(\w+(?:\.\w+)+)", self._short, text)
        return text

    def _new(self, name: str) -> str | None:
        """Return the new form of a name of the part; None for others."""
        rule = rule_of(name)
        return None if rule not in self.rules else self.rules[rule] + name.removeprefix(rule)

    def _import(self, match: re.Match[str]) -> str:
        """Rewrite an import in a text; those of code are written already."""
        home, name = match[1].removeprefix("."), f"{match[1]}.{match[2]}".removeprefix(".")
        if f"{PACKAGE}.{name}" in KNOWN:
            new = self.moved.get(name)
            if new is None:
                return match[0]
            home, _, last = f"{PACKAGE}.{new}".rpartition(".")
            return f"from {home} import {last}"
        new = self._new(home)
        return match[0] if new is None else f"from {PACKAGE}.{new} import {match[2]}"

    def _dotted(self, match: re.Match[str]) -> str:
        new = self._new(match[1][1:])
        return match[0] if new is None or match[0] in OTHERS else f"{PACKAGE}.{new}"

    def _path(self, match: re.Match[str]) -> str:
        new = self._new(match[1][1:].replace("/", "."))
        return match[0] if new is None else f"{PACKAGE}/{new.replace('.', '/')}{match[2]}"

    def _linked(self, match: re.Match[str]) -> str:
        new = self._new(match[2][1:].replace("/", "."))
        return match[0] if new is None else f"{match[1]}{PACKAGE}/{new.replace('.', '/')}{match[3]}"

    def _short(self, match: re.Match[str]) -> str:
        known = match[1]
        while "." in known and known not in self.moved:
            known = known.rpartition(".")[0]
        if "." not in known or f"{PACKAGE}.{match[1]}" in OTHERS:
            return match[0]
        # In a capability's own files its modules stand without its name.
        return f"`{self.moved[known].removeprefix(self.own)}{match[1].removeprefix(known)}"


def git(*arguments: str) -> str:
    """Run git and return what it prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _any(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(names))


def rewrite(moved: dict[str, str], rules: dict[str, str]) -> None:
    """Rewrite all files that git has."""
    names = Names(moved, rules)
    last = {old.rpartition(".")[2] for old in moved}
    parents = {f"{PACKAGE}.{old}".rpartition(".")[0] for old in moved}
    mentioned = re.compile(
        rf"\b{PACKAGE}\.(?:{_any(moved)})\b"
        rf"|\bfrom (?:{_any(parents)}) import (?:\(|.*\b(?:{_any(last)})\b)"
    )
    for name in git("ls-files").split("\n"):
        path = ROOT / name
        if name in KEPT or path.suffix not in TEXTS or path.is_symlink() or not path.is_file():
            continue
        text = path.read_text("utf-8")
        if not re.search(rf"{PACKAGE}[./]", text) and not name.startswith(PACKAGE):
            continue
        result = text
        # To parse all files takes minutes.
        if path.suffix == ".py" and mentioned.search(text):
            result = cst.parse_module(text).visit(Imports(moved)).code
        result = names.rewritten(result, name)
        if result != text:
            path.write_text(result, "utf-8")


def move(moved: dict[str, str]) -> None:
    """Move the files; a package's file that its new folder has already is deleted."""
    for old, new in moved.items():
        folder = ROOT / PACKAGE / old.replace(".", "/")
        is_package = folder.is_dir()
        source = folder / "__init__.py" if is_package else folder.with_suffix(".py")
        target = ROOT / PACKAGE / new.replace(".", "/")
        target = target / "__init__.py" if is_package else target.with_suffix(".py")
        if target.exists():
            git("rm", "-q", str(source))
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        git("mv", str(source), str(target))
        make_package(target.parent)


def make_package(folder: Path) -> None:
    """Add the file of a new package, and of those that it is in."""
    file = folder / "__init__.py"
    if not file.exists():
        file.write_text(f'"""{folder.name.capitalize()} of `{folder.parent.name}`."""\n', "utf-8")
        git("add", str(file))
        make_package(folder.parent)


def main() -> None:
    """Move one part."""
    moved = moved_names(sys.argv[1])
    rewrite(moved, MOVES[sys.argv[1]])
    move(moved)


if __name__ == "__main__":
    main()
