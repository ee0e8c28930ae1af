"""What is public is the stored description, and documents and examples use nothing else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from smpc_dp.engine.registry import BUILT_IN
from tests.baselines import public as stored
from tests.baselines.public import ROOT, defined, modules, names, public, rows

FENCE = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [
    path
    for pattern in ("*.md", "docs/**/*.md", "protocols/**/*.md", "examples/**/*.py")
    for path in sorted(ROOT.glob(pattern))
]
README = ROOT / "README.md"
# The reference names the documents and examples that show internals; each of them says it too.
SAID = "internals, which may change in any release"
(LINKED,) = re.findall(r"^\*\*Internals, .*", stored.PAGE.read_text("utf-8"), re.MULTILINE)
INTERNALS = {(stored.PAGE.parent / link).resolve() for link in re.findall(r"\]\((.+?)\)", LINKED)}


def test_public_names_and_their_parameters_are_the_stored_ones() -> None:
    assert stored.text() == stored.FILE.read_text("utf-8"), "see tests/baselines/__main__.py"


def test_a_name_has_one_status_in_all_modules() -> None:
    for row in rows("Public modules"):
        # A name that does not exist has none.
        assert row.others <= {name for module in row.codes for name in names(module)}
    for module, row in modules().items():
        for name in public(module):
            home, statement = defined(module, name)
            if statement is not None and home in modules() and name in public(home):
                first = modules()[home]
                assert (row.stable, name in row.others) == (first.stable, name in first.others), name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_and_examples_use_public_names_alone(path: Path) -> None:
    """Those that show internals must use some, and say so."""
    content = path.read_text("utf-8")
    programs = [content] if path.suffix == ".py" else FENCE.findall(content)
    used = {name for program in programs for name in names_used(program)}
    # Proofs and specifications name other modules as evidence.
    if path.is_relative_to(ROOT / "docs/guides") or path in {stored.PAGE, README}:
        used |= set(re.findall(r"`(?:await )?(smpc_dp(?:\.\w+)+)", content))
    others = [name for name in sorted(used) if not is_public(name)]
    assert (SAID in content) == (path in INTERNALS)
    assert others if path in INTERNALS else not others, others


def names_used(program: str) -> Iterator[str]:
    """Yield the whole names that a program imports of the package, and those that it takes of its modules."""
    tree = ast.parse(program)
    bound = {"smpc_dp": "smpc_dp"}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(home), names=aliases) if home.split(".")[0] == "smpc_dp":
                bound |= {alias.asname or alias.name: f"{home}.{alias.name}" for alias in aliases}
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases if alias.name.split(".")[0] == "smpc_dp")
    yield from bound.values()
    taken = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for name in taken:
        first, *rest = name.split(".")
        longer = any(other.startswith(f"{name}.") for other in taken)
        if bound.get(first) in modules() and re.fullmatch(r"[\w.]+", name) and not longer:
            yield ".".join((bound[first], *rest))


def is_public(name: str) -> bool:
    """Tell whether a whole name is a public module's, or begins with that of one of its public names."""
    return name in modules() or any(
        name.removeprefix(f"{home}.").split(".")[0] in public(home)
        for home in modules()
        if name.startswith(f"{home}.")
    )


def test_the_readme_calls_experimental_what_the_reference_does() -> None:
    content, capabilities = README.read_text("utf-8"), rows("Stable and experimental")
    for row in capabilities:
        assert row.subject in content
        assert row.stable == (re.search(rf"{re.escape(row.subject)}\W*experimental", content) is None)
    assert content.count("xperimental") == sum(not row.stable for row in capabilities)
    assert {code for row in capabilities for code in row.codes} >= set(BUILT_IN)
