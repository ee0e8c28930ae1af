"""The names of the code against the words that the glossary replaces."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sorted(
    file
    for folder in ("smpc_dp", "lab/smpc_dp_lab", "verify/smpc_dp_verify")
    for file in (ROOT / folder).rglob("*.py")
)
RUST = sorted(file for folder in ("core/src", "bindings/src") for file in (ROOT / folder).rglob("*.rs"))

# Words that names do not have, and the term of docs/glossary.md for each; of most the plural too.
TERMS = {
    "user users": "party",
    "hub hubs star": "aggregator, aggregator rounds",
    "link links": "connection, connection pool; a line to peers is a connection",
    "news": "inbound event",
    "lobby": "acceptor",
    "turn turns": "effect",
    "stage stages": "row of a table",
    "cast": "simulated run",
    "play": "roles",
    "asking question questions": "operation",
    "tell told": "notify, reported",
    "roll rolls": "Merkle commitment",
    "kept": "stored, retained",
    "deferred": "batch verifier",
    "ending endings": "outcome",
    "found": "result",
    "what": "reason, name",
    "place places": "index, position, neighbourhood",
    "due": "expected",
    "said": "claimed, accuser",
    "needs means": "requirements, context",
    "meeting meetings": "pairing, pairing schedule",
    "rival rivals": "baseline",
    "law laws": "distribution",
    "mark marks": "public label",
    "screen": "plausibility check",
    "lane lanes": "element of a ring vector",
}
REPLACED = {word: term for listed, term in TERMS.items() for word in listed.split()}
# Identifiers with such a word that are others' names, or ordinary English for something else.
EXCEPTIONS: dict[str, str] = {
    "cast": "typing.cast and memoryview.cast",
    "tell": "of a file object",
    "link": "os.link",
    "means": "the plural of mean",
    "roll_back": "to undo: the policy of GOPA on dropout",
    "FileNotFoundError": "Python's",
    "ModuleNotFoundError": "Python's",
    "BlockSizeUser": "a trait of the crate cipher",
    "LineEnding": "a type of the crate der",
}
# Of Rust: SIMD has lanes, and pointers and slices are cast.
RUST_WORDS = frozenset({"lane", "lanes", "cast"})
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Nodes of a syntax tree that have an identifier, and its field.
NAMED: dict[type[ast.AST], str] = {
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.arg: "arg",
    ast.keyword: "arg",
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
}
# Of Python strings and comments, but for strings with code in braces; of Rust both.
NOT_PYTHON = re.compile(
    r'''([fF][rR]?|[rR][fF])?("""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|\#[^\n]*''',
    re.DOTALL,
)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)


@functools.cache
def words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in WORD.findall(name))


@functools.cache
def python_names(file: Path) -> list[tuple[str, int]]:
    """Return each identifier with its line, the module's name with line 0.

    Of a file without a replaced word in its code the module's name alone: it is not parsed.
    """
    text = file.read_text("utf-8")
    code = NOT_PYTHON.sub(lambda part: part[0] if part[1] else "''", text)
    if any(words(name) & REPLACED.keys() for name in set(re.findall(r"[^\W\d]\w*", code))):
        return [(file.stem, 0), *_python_names(text)]
    return [(file.stem, 0)]


def _python_names(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        # A keyword without a name is `**given`.
        if (field := NAMED.get(type(node))) and (name := getattr(node, field)) is not None:
            yield name, getattr(node, "lineno", 0)


@functools.cache
def rust_names(file: Path) -> list[tuple[str, int]]:
    code = NOT_CODE.sub("", file.read_text("utf-8"))
    return [
        (file.stem, 0),
        *(
            (name, number)
            for number, line in enumerate(code.splitlines(), 1)
            for name in re.findall(r"[A-Za-z_]\w*", line)
        ),
    ]


def replaced(names: Iterable[tuple[str, int]], file: Path, allowed: frozenset[str]) -> list[str]:
    refused = REPLACED.keys() - allowed
    return [
        f"{file.relative_to(ROOT)}:{line} {name}: {REPLACED[word]}"
        for name, line in names
        if name not in EXCEPTIONS
        for word in sorted(words(name) & refused)
    ]


def test_no_name_has_a_word_that_the_glossary_replaces() -> None:
    faults = [fault for file in PYTHON for fault in replaced(python_names(file), file, frozenset())]
    faults += [fault for file in RUST for fault in replaced(rust_names(file), file, RUST_WORDS)]
    assert faults == []


def test_the_exceptions_are_few_and_each_is_needed() -> None:
    names = {name for file in PYTHON for name, _ in python_names(file)}
    names |= {name for file in RUST for name, _ in rust_names(file)}
    assert len(EXCEPTIONS) <= 20
    assert all(EXCEPTIONS.values())
    assert names.issuperset(EXCEPTIONS)


def test_a_replaced_word_is_seen_in_every_kind_of_name(tmp_path: Path) -> None:
    file = tmp_path / "lobby.py"
    file.write_text("class Hub: ...\ndef tell(due): x.kept = f(mark=1)\n")
    assert [name for name, _ in python_names(file) if words(name) & REPLACED.keys()] == [
        "lobby",
        "Hub",
        "tell",
        "due",
        "kept",
        "mark",
    ]


def test_a_fault_says_which_term_to_take() -> None:
    file = ROOT / "smpc_dp" / "file.py"
    assert replaced([("hub_of", 3), ("cast", 4), ("aggregator", 5)], file, frozenset()) == [
        "smpc_dp/file.py:3 hub_of: aggregator, aggregator rounds"
    ]
