"""The pages of the site: which documents they are, where each stands, and their order below five roles."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The home page: its headings are the roles, its links the pages of each.
HOME = "docs/README"
API = "docs/reference/api"
# Where the pages of public modules are written before the site is built.
MODULES = "build/site/api"
NOTEBOOKS = "docs/notebooks"
# Where `make notebooks` writes what they show.
EXECUTED = "build/notebooks"
PATTERNS = (
    *("*.md", "docs/**/*.md", "protocols/**/*.md", "benchmarks/**/*.md", "circuits/*.md", "core/*.md"),
    *("examples/**/*.md", "lab/**/*.md", "verify/*.md"),
)
FENCE = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s]+)\)")
SECTION = re.compile(r"^## +(.+?) *$", re.MULTILINE)


@functools.cache
def documents() -> Mapping[str, str]:
    """Return the text of each document by its path without `.md`."""
    files = {file for pattern in PATTERNS for file in ROOT.glob(pattern)}
    return {
        file.relative_to(ROOT).with_suffix("").as_posix(): file.read_text("utf-8") for file in sorted(files)
    }


def address(page: str) -> str:
    """Return where a page stands on the site, without `.html`: what is below `docs` stands at the top.

    A README is the index of its folder, but for the repository's own.
    """
    if page.startswith(f"{MODULES}/"):
        return f"api/{page.removeprefix(f'{MODULES}/')}"
    short = page.removeprefix("docs/")
    if page != "README" and posixpath.basename(short) == "README":
        return posixpath.join(posixpath.dirname(short), "index")
    return short


def linked(page: str, text: str) -> list[str]:
    """Return the pages that a text of a page links to, each once, in their order."""
    result: dict[str, None] = {}
    for _, target in LINK.findall(FENCE.sub("", text)):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0]))
        if path.endswith(".md") and path.removesuffix(".md") != page:
            result[path.removesuffix(".md")] = None
    return [*result]


@functools.cache
def navigation() -> Mapping[str, Sequence[str]]:
    """Return the pages of each role, those that its part of the home page links to; "" for what is before."""
    first, *parts = SECTION.split(documents()[HOME])
    placed: set[str] = {HOME}
    result: dict[str, list[str]] = {}
    for heading, text in zip(["", *parts[::2]], [first, *parts[1::2]], strict=True):
        result[heading] = [page for page in linked(HOME, text) if page not in placed]
        placed.update(result[heading])
    return result


def below(page: str) -> list[str]:
    """Return the pages below a README: those of its folder that it links to, and the home page does not."""
    folder, name = posixpath.split(page)
    if name != "README" or not folder or page == HOME:
        return []
    placed = {one for pages in navigation().values() for one in pages}
    pages = linked(page, documents()[page])
    return [one for one in pages if one.startswith(f"{folder}/") and one not in placed]


def trees(page: str, modules: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what stands below a page in the navigation, with its heading, "" without one."""
    if page == HOME:
        yield from navigation().items()
    elif page == API:
        yield "", [f"{MODULES}/{name}" for name in modules]
    elif pages := below(page):
        yield "", pages


def executed(page: str) -> str:
    """Return a notebook with its outputs; raise FileNotFoundError where `make notebooks` has not run."""
    return (ROOT / EXECUTED / f"{posixpath.basename(page)}.md").read_text("utf-8")


def relinked(page: str, text: str) -> str:
    """Return a text whose links to folders lead to the README there, or are none."""

    def replace(found: re.Match[str]) -> str:
        label, target = found.groups()
        path = ROOT / posixpath.dirname(page) / target
        if ":" in target or not path.is_dir():
            return found[0]
        return f"[{label}]({target}/README.md)" if (path / "README.md").is_file() else label

    return LINK.sub(replace, text)
