"""The site that `make site` has built: its links, what it loads, its search, and who can read it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.site.pages import HOME, address, documents, navigation
from tests.accessibility import VIEWS, serious_findings
from tests.baselines.public import modules
from tests.browser import CHROMIUM, Page, browser

BUILT = os.environ.get("SMPC_DP_SITE")
SITE = Path(BUILT or ".").resolve()
pytestmark = pytest.mark.skipif(BUILT is None, reason="needs the site: make site")

# One page of each kind, and the longest.
KINDS = (
    *("index", "README", "glossary", "search", "genindex", "guides/secure-sum", "reference/session-file"),
    *(
        "api/smpc_dp",
        "notebooks/audit",
        "proofs/records",
        "protocols/secagg/index",
        "decisions/index",
        "guides/deployment",
    ),
)
LOADING = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Read(HTMLParser):
    """The anchors of a page, what it links to and what it loads, and which links stand in its article."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.own: list[str] = []
        self._article = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.update(given[name] for name in ("id", "name") if name in given)
        self._article += tag == "article"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
            self.own += [given["href"]] * (self._article > 0)
        if tag in LOADING and LOADING[tag] in given:
            self.loaded.append(given[LOADING[tag]])

    def handle_endtag(self, tag: str) -> None:
        self._article -= tag == "article"


@functools.cache
def pages() -> Mapping[Path, Read]:
    return {file: Read(file.read_text("utf-8")) for file in sorted(SITE.rglob("*.html"))}


def led(page: Path, target: str) -> tuple[Path, str]:
    """Return the file and the anchor that a link of a page leads to."""
    path, _, anchor = target.partition("#")
    path = path.partition("?")[0]
    return ((page.parent / unquote(path)).resolve() if path else page), unquote(anchor)


def test_every_document_and_public_module_has_its_page() -> None:
    found = {file.relative_to(SITE).with_suffix("").as_posix() for file in pages()}
    wanted = {address(page) for page in documents()} | {f"api/{name}" for name in modules()}
    assert found - wanted == {"search", "genindex", "py-modindex"}
    assert wanted <= found


def test_links_lead_to_files_and_anchors() -> None:
    broken = []
    for page, read in pages().items():
        for target in read.links:
            if re.match(r"https?://|mailto:", target):
                continue
            file, anchor = led(page, target)
            lost = not file.is_file() or not file.is_relative_to(SITE)
            if lost or (anchor and file.suffix == ".html" and anchor not in pages()[file].ids):
                broken.append(f"{page.relative_to(SITE)}: {target}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere() -> None:
    loaded = {target for read in pages().values() for target in read.loaded}
    assert loaded
    assert [
        target for target in loaded if re.match(r"[a-z]+:|//", target) and not target.startswith("data:")
    ] == []
    for page, read in pages().items():
        files = [target for target in read.loaded if not target.startswith("data:")]
        assert [target for target in files if not led(page, target)[0].is_file()] == [], page
    styles = {file.name: file.read_text("utf-8") for file in SITE.rglob("*.css")}
    assert styles
    assert [
        name for name, text in styles.items() if re.search(r"url\(['\"]?(https?:)?//|@import", text)
    ] == []


def test_every_page_is_linked_from_the_text_of_another() -> None:
    linked = {
        led(page, target)[0]
        for page, read in pages().items()
        for target in read.own
        if led(page, target)[0] != page
    }
    made = {SITE / name for name in ("index.html", "search.html", "genindex.html", "py-modindex.html")}
    assert [file for file in pages() if file not in linked | made] == []


def test_the_roles_are_the_navigation() -> None:
    home = (SITE / "index.html").read_text("utf-8")
    captions = re.findall(r'class="caption"[^>]*><span class="caption-text">(.*?)</span>', home)
    assert captions == [role for role in navigation() if role]
    assert len(captions) == 5


def test_terms_are_linked_at_their_first_use() -> None:
    guide = (SITE / "guides" / "secure-sum.html").read_text("utf-8")
    links = re.findall(
        r'<a class="term reference internal" href="\.\./glossary\.html#term-(\w+)" title="([^"]+)">', guide
    )
    assert ("party", "a member of the roster that takes part with data of its own") in links
    assert len({name for name, _ in links}) == len(links)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    with browser() as result:
        yield result


def uri(name: str) -> str:
    return (SITE / f"{name}.html").as_uri()


@pytest.mark.parametrize("width", [390, 1400])
def test_pages_are_quiet_and_fit_the_screen(page: Page, width: int) -> None:
    page.console.clear()
    for file in pages():
        page.open(file.as_uri(), width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, file
    assert page.console == []
    elsewhere = [one for one in page.requests if not one.startswith((SITE.as_uri(), "about:", "data:"))]
    assert elsewhere == []


@pytest.mark.parametrize("name", KINDS)
def test_people_with_disabilities_can_read_it(page: Page, name: str) -> None:
    for width, scheme in VIEWS:
        page.open(uri(name), width, scheme)
        assert serious_findings(page) == [], (width, scheme)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("quorum certificate", "glossary.html"),
        ("Session.average", "api/smpc_dp.html"),
        ("ledger", "guides/private-average.html"),
    ],
)
def test_the_search_finds_pages_without_a_server(page: Page, words: str, found: str) -> None:
    page.open(f"{uri('search')}?q={words.replace(' ', '+')}")
    summary = "document.querySelector('#search-results .search-summary').innerText"
    shown = "document.querySelectorAll('#search-results ul.search > li').length"
    page.until(f"{summary}.startsWith('Search finished') && {shown} === Number({summary}.match(/[0-9]+/)[0])")
    targets = page.evaluate("[...document.querySelectorAll('#search-results li a')].map(a => a.href)")
    assert any(target.partition("#")[0].partition("?")[0].endswith(found) for target in targets), targets
    files = {led(SITE / "search.html", target.removeprefix(f"{SITE.as_uri()}/"))[0] for target in targets}
    assert [file for file in files if not file.is_file()] == []


def test_the_home_page_is_the_list_of_documents() -> None:
    assert address(HOME) == "index"
    assert "<h1>smpc-dp" in (SITE / "index.html").read_text("utf-8")
