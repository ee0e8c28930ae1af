"""Moves files of the tests as `test_moves.toml` says, and rewrites what names them.

    python move_tests.py        # in a checkout without changes

Imports are rewritten on the syntax tree, with the uses of a module whose name changes; elsewhere whole paths
and dotted names, and names of files alone where they are of one file. What is left is printed.
Afterwards: ruff check --select I --fix .; ruff format .
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
# The history of changes, and what is deleted after the move.
KEPT = frozenset(["CHANGELOG.md", "move_modules.py", "move_tests.py", "moves.toml", "test_moves.toml"])
TEXTS = frozenset(["", ".ini", ".json", ".md", ".py", ".pyi", ".rs", ".toml", ".txt", ".yml"])
# Folders that are named as such.
FOLDERS = {"tests/unit/protocols/engine": "tests/unit/engine"}
# Folders below `tests/unit` that the move empties.
OLD = ("circuits", "kernels", "log", "net", "protocols", "statistics")

TABLE = tomllib.loads((ROOT / "test_moves.toml").read_text("utf-8"))
MOVES = {f"tests/{old}": f"tests/{new}" for moves in TABLE.values() for old, new in moves.items()}
MODULES = {
    old.removesuffix(".py").replace("/", "."): new.removesuffix(".py").replace("/", ".")
    for old, new in MOVES.items()
    if old.endswith(".py")
}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def parts(module: str) -> tuple[str, str]:
    """Return the home of a module, and its own name."""
    home, _, name = module.rpartition(".")
    return home, name


class Code:
    """The code of a file, with the imports of moved modules."""

    def __init__(self, text: str) -> None:
        # Places of the syntax tree count bytes.
        self.lines = text.encode().splitlines(keepends=True)
        self.tree = ast.parse(text)
        # First and last line, first and last byte in them, and the new text.
        self.edits: list[tuple[int, int, int, int, str]] = []

    def rewritten(self) -> str:
        """Return the code with its new imports."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and any(self._moved(node)):
                self._rewrite(node)
        for first, last, start, end, new in sorted(self.edits, reverse=True):
            head, tail = self.lines[first - 1][:start], self.lines[last - 1][end:]
            self.lines[first - 1 : last] = [head + new.encode() + tail]
        return b"".join(self.lines).decode()

    def _moved(self, node: ast.ImportFrom) -> Iterator[str]:
        return (alias.name for alias in node.names if f"{node.module}.{alias.name}" in MODULES)

    def _rewrite(self, node: ast.ImportFrom) -> None:
        lines = []
        for alias in node.names:
            home, name = parts(MODULES.get(f"{node.module}.{alias.name}", f"{node.module}.{alias.name}"))
            as_name = alias.asname
            if as_name is None and name != alias.name and not self._rename(alias.name, name):
                as_name = alias.name
            lines.append(f"from {home} import {name}" + (f" as {as_name}" if as_name else ""))
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        new = f"\n{' ' * node.col_offset}".join(lines)
        self.edits.append((node.lineno, node.end_lineno, node.col_offset, node.end_col_offset, new))

    def _rename(self, old: str, new: str) -> bool:
        """Rename the uses of a name; return whether it is the module in all of them."""
        edits = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.arg) and node.arg == old:
                return False
            if not isinstance(node, ast.Name) or node.id != old:
                continue
            start, end = node.col_offset, node.end_col_offset
            there = self.lines[node.lineno - 1][start:end]
            if not isinstance(node.ctx, ast.Load) or there != old.encode() or end is None:
                return False
            edits.append((node.lineno, node.lineno, start, end, new))
        self.edits += edits
        return True


class Names:
    """Rewrites texts that name moved files."""

    def __init__(self, files: list[str]) -> None:
        places = defaultdict(set)
        for file in files:
            places[Path(file).name].add(file)
        # Names of files alone, of which some change.
        self.alone = {
            name: found
            for name, found in places.items()
            if any(Path(MOVES.get(file, file)).name != name for file in found)
        }
        self.whole = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, [*MOVES, *FOLDERS]))})(?!\w)")
        self.modules = re.compile(rf"(?<![\w.])({'|'.join(map(re.escape, MODULES))})(?!\w)")
        names = "|".join(re.escape(name) for name in self.alone)
        stems = "|".join(re.escape(name[:-3]) for name in self.alone if re.fullmatch(r"\w+_\w+\.py", name))
        self.names = re.compile(rf"(?<![\w/*.-])({names})(?!\w)|(?<=`)({stems})(?=`)")

    def rewritten(self, text: str, file: str) -> str:
        """Return the text of a file with the new names."""
        text = self.whole.sub(lambda match: MOVES.get(match[1]) or FOLDERS[match[1]], text)
        text = self.modules.sub(lambda match: MODULES[match[1]], text)
        return self.names.sub(lambda match: self._alone(match, file), text)

    def _alone(self, match: re.Match[str], file: str) -> str:
        name = match[1] or f"{match[2]}.py"
        found = self.alone[name]
        # In the folder of the file, if there is one.
        near = {one for one in found if Path(one).parent == Path(file).parent} or found
        new = {Path(MOVES.get(one, one)).name for one in near}
        if len(new) > 1:
            print(f"{file}: {match[0]}: which of {', '.join(sorted(near))}?")
            return match[0]
        result = new.pop()
        if result == name:
            return match[0]
        print(f"{file}: {match[0]} -> {result}")
        return result if match[1] else result.removesuffix(".py")


def check(files: list[str]) -> None:
    """Refuse a table that does not fit, and name tests in folders that are left."""
    gone = sorted({*MOVES} - {*files})
    after = [MOVES.get(file, file) for file in files]
    twice = sorted({file for file in after if after.count(file) > 1})
    deeper = [
        old
        for old, new in MOVES.items()
        if old.count("/") != new.count("/")
        and re.search(r"parents\[|\.parent\b", (ROOT / old).read_text("utf-8"))
    ]
    if gone or twice or deeper:
        raise SystemExit(f"not there: {gone}; one path: {twice}; places that count folders: {deeper}")
    for file in after:
        if file.startswith(tuple(f"tests/unit/{folder}/" for folder in OLD)):
            print(f"{file}: has no place in the table")


def main() -> None:
    """Rewrite all files that git has, and move those of the table."""
    files = git("ls-files").splitlines()
    check(files)
    names = Names(files)
    for name in files:
        path = ROOT / name
        if name in KEPT or path.suffix not in TEXTS or path.is_symlink() or not path.is_file():
            continue
        try:
            text = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        result = Code(text).rewritten() if path.suffix == ".py" and "from tests." in text else text
        result = names.rewritten(result, name)
        if result != text:
            path.write_text(result, "utf-8")
    for old, new in MOVES.items():
        (ROOT / new).parent.mkdir(parents=True, exist_ok=True)
        git("mv", old, new)


if __name__ == "__main__":
    main()
