"""The page for newcomers, docs/concepts.md, and the table of CONTRIBUTING that says where things are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from smpc_dp.engine.registry import built_in_protocols
from tests.documents import FENCE, ROOT

CONCEPTS = ROOT / "docs" / "concepts.md"
# The words in the order in which a party meets them, and for each the name that defines it.
DEFINED = {
    "session": "Session",
    "setup": "prepare",
    "request": "PartyRequests",
    "role": "PartyRole",
    "state": "State",
    "event": "Event",
    "envelope": "Envelope",
    "driver": "Driver",
    "ledger": "Ledger",
    "claim": "Claim",
    "result": "Result",
    "evidence": "Evidence",
    "auditor": "LogAuditor",
}
WORDS = tuple(DEFINED)
MOST_WORDS, MOST_NODES = 500, 12
LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s]+)\)")
BOLD = re.compile(r"\*\*(.+?)\*\*")
CORE = {"secagg", "records"}
CAPABILITIES = {file.parent.name for file in ROOT.glob("smpc_dp/capabilities/*/__init__.py")}
PARTS = sorted(CORE | CAPABILITIES)
COLUMNS = ["part", "code", "tests", "specification", "vectors", "proofs"]


def page() -> str:
    return CONCEPTS.read_text("utf-8")


def drawings(text: str) -> list[str]:
    return [content for language, content in FENCE.findall(text) if language == "mermaid"]


def word_count(text: str) -> int:
    """Count what stands between blanks and has a letter or digit, but for drawings and targets of links."""
    read = FENCE.sub(lambda block: "" if block[1] == "mermaid" else block[2], text)
    return len(re.findall(r"\S*\w\S*", LINK.sub(r"\1", read)))


def items(text: str) -> list[str]:
    """Return the numbered items of the page, each as one line."""
    numbered = re.findall(r"^\d+\. (.*\n(?: +.*\n)*)", text, re.MULTILINE)
    return [" ".join(item.split()) for item in numbered]


def defines(file: Path, symbol: str) -> bool:
    """Tell whether a module has a class, function or variable of its own, not an imported one."""
    for node in ast.parse(file.read_text("utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                own = {name}
            case ast.Assign(targets=targets):
                own = {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                own = {name}
            case _:
                own = set()
        if symbol in own:
            return True
    return False


def test_the_page_is_short_and_has_one_small_drawing() -> None:
    assert word_count(page()) <= MOST_WORDS
    (drawing,) = drawings(page())
    nodes = set(re.findall(r"^ +(?!subgraph)(\w+)[\[(]", drawing, re.MULTILINE))
    edges = re.findall(r"^ +(\w+) [-<.>]+(?:\|[^|]+\|)? (\w+)$", drawing, re.MULTILINE)
    # Every node is connected, and every end of a connection is a node with a text.
    assert nodes == {end for edge in edges for end in edge}
    assert len(nodes) <= MOST_NODES
    assert len(drawing.splitlines()) == 1 + len(nodes) + len(edges) + 2 * drawing.count("subgraph")


def test_words_are_counted_without_drawing_and_targets() -> None:
    text = "Two [words](../a/b.py) - and *three*\n```mermaid\nflowchart LR\n```\n```python\nx = y\n```\n"
    assert word_count(text) == len(["Two", "words", "and", "*three*", "x", "y"])


def test_the_page_defines_each_word_once_in_order() -> None:
    assert tuple(BOLD.findall(page())) == WORDS
    assert tuple(BOLD.findall(item)[0] for item in items(page())) == WORDS


def test_definitions_of_the_glossary_are_those_of_the_page() -> None:
    text = " ".join(LINK.sub(r"\1", page()).split())
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    defined = dict(re.findall(r"^- \*\*(?:privacy )?(\w+)\*\*: ([^;(\n]+)", glossary, re.MULTILINE))
    shared = defined.keys() & set(WORDS)
    assert shared == {"session", "setup", "request", "ledger", "evidence"}
    assert not [word for word in sorted(shared) if defined[word].strip() not in text]
    (elsewhere,) = [line for line in glossary.splitlines() if "(concepts.md)" in line]
    assert set(re.findall(r"\w+", elsewhere.lower())) >= set(WORDS) - shared


def test_every_file_of_the_page_defines_what_is_said_of_it() -> None:
    links = [(text, target) for text, target in LINK.findall(page()) if target.endswith(".py")]
    missing = [
        f"{text} in {target}"
        for text, target in links
        if not re.fullmatch(r"`\w+`", text) or not defines((CONCEPTS.parent / target).resolve(), text[1:-1])
    ]
    assert not missing
    for item, name in zip(items(page()), DEFINED.values(), strict=True):
        assert f"`{name}`" in dict(LINK.findall(item))


def test_what_a_module_imports_it_does_not_define() -> None:
    file = ROOT / "smpc_dp" / "session" / "driver.py"
    assert defines(file, "Drive")
    assert not defines(file, "Driver")


def test_readers_are_led_to_the_page_early() -> None:
    for name, most in (("README.md", 8), ("CONTRIBUTING.md", 4), ("docs/README.md", 4)):
        target = "concepts.md" if name.startswith("docs/") else "docs/concepts.md"
        lines = (ROOT / name).read_text("utf-8").splitlines()[:most]
        assert [line for line in lines if f"]({target})" in line], name


def rows() -> dict[str, dict[str, str]]:
    """Return the cells of the table, by part and column."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("\n## Where things are\n")[2].partition("\n## ")[0]
    table = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    assert table[0] == COLUMNS
    return {cells[0].partition(":")[0]: dict(zip(COLUMNS, cells, strict=True)) for cells in table[1:]}


def paths(cell: str) -> list[str]:
    """Return the paths that a cell names: targets of its links, and patterns in code."""
    return [target.partition("#")[0] for _, target in LINK.findall(cell)] + re.findall(r"`([^`]+)`", cell)


def test_the_table_has_a_row_for_each_capability() -> None:
    assert rows().keys() == CORE | CAPABILITIES
    for part, row in rows().items():
        folder = "smpc_dp" if part in CORE else "smpc_dp/capabilities"
        assert paths(row["code"])[0] == f"{folder}/{part}"
        assert paths(row["tests"])[0] == f"tests/unit/{part}/"


@pytest.mark.parametrize("part", PARTS)
def test_every_path_of_the_table_exists(part: str) -> None:
    row = rows()[part]
    for column in COLUMNS[1:]:
        named = paths(row[column])
        assert named or (column, row[column]) == ("vectors", "none")
        assert not [path for path in named if not any(ROOT.glob(path))]


@pytest.mark.parametrize("part", PARTS)
def test_the_table_has_the_vectors_of_each_specification(part: str) -> None:
    row = rows()[part]
    folders = {str(Path(path).parent / "vectors") for path in paths(row["specification"])}
    assert {*paths(row["vectors"])} == {folder for folder in folders if (ROOT / folder).is_dir()}


def test_the_table_has_the_vectors_of_every_protocol() -> None:
    named = {path for row in rows().values() for path in paths(row["vectors"])}
    folders = {folder for protocol in built_in_protocols() for folder in protocol.vectors}
    assert folders
    assert named >= {f"protocols/{folder}/vectors" for folder in folders}
