"""The site before it is built: every page has its place and a link to it; terms are found where used."""

from __future__ import annotations

import re
from collections import Counter
from importlib import import_module

import pytest

from docs.site.lists import with_lists
from docs.site.pages import HOME, MODULES, address, below, documents, linked, navigation, relinked, trees
from docs.site.terms import GLOSSARY, Term, anchor_of, first_uses, terms_of
from smpc_dp.capabilities.learn.registry import LEARNERS
from smpc_dp.errors import Check, ConfigCheck
from smpc_dp.settings import items
from tests.documents import ROOT

ROLES = [
    "I run a session",
    "I embed an average",
    "I audit",
    "I add a protocol or a statistic",
    "I read the proofs",
]
TERMS = terms_of(documents()[GLOSSARY])


def test_no_document_lacks_a_link_from_another() -> None:
    inbound = Counter(target for page, text in documents().items() for target in linked(page, text))
    assert [page for page in documents() if not inbound[page]] == []
    assert linked("docs/a", "[b](b.md#c) [c](../d.md) [a](a.md)\n```\n[e](e.md)\n```\n") == ["docs/b", "d"]


def test_every_document_stands_once_below_the_home_page() -> None:
    assert [role for role in navigation() if role] == ROLES
    placed = Counter(one for page in documents() for _, pages in trees(page, []) for one in pages)
    assert {page: placed[page] for page in documents() if placed[page] != 1} == {HOME: 0}
    assert "benchmarks/tables" in below("benchmarks/README")


def test_addresses_are_short_and_no_two_pages_have_one() -> None:
    assert address(HOME) == "index"
    assert address("README") == "README"
    assert address("docs/guides/choose") == "guides/choose"
    assert address("protocols/secagg/README") == "protocols/secagg/index"
    assert address(f"{MODULES}/smpc_dp.sync") == "api/smpc_dp.sync"
    assert max(Counter(map(address, documents())).values()) == 1


def test_links_to_folders_lead_to_their_readme_or_are_none() -> None:
    text = "[a](circuits), [b](smpc_dp), [c](LICENSE), [d](https://example.org)"
    assert relinked("README", text) == "[a](circuits/README.md), b, [c](LICENSE), [d](https://example.org)"


def words(text: str) -> list[str]:
    return [text[start:end] for start, end, _ in first_uses(text, TERMS)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("A corrupt party and two parties", ["corrupt party", "parties"]),
        ("Rosters, a roster; counterparty", ["Rosters"]),
        ("run it, tests run; each run ends", ["run"]),
        ("differential privacy by GOPA, not by gopa", ["differential privacy", "GOPA"]),
        ("verifiable GOPA", ["verifiable GOPA"]),
        ("dropouts and survivors", ["dropouts", "survivors"]),
        ("the kernel of Linux", []),
    ],
)
def test_terms_are_found_where_they_are_used_first(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_a_term_has_the_text_and_the_anchor_of_its_entry() -> None:
    (term,) = [term for term in TERMS if term.word == "survivor"]
    assert isinstance(term, Term)
    assert term.anchor == anchor_of("dropout, survivor") == "term-dropout-survivor"
    assert term.meaning.startswith("a party that is lost in a run; a party whose input")


def test_setting_up_tests_and_demo_installs_nothing_of_the_site_or_the_release() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    ready = makefile.partition("\n$(READY): ")[2].partition("\n")[0]
    assert ready.startswith("$(VENV)/.installed")
    assert not {".venv-site", ".venv-release"} & set(ready.replace("/", " ").split())
    locked = (ROOT / "requirements" / "dev.lock").read_text("utf-8")
    assert "\nsphinx==" not in locked
    assert "\nauditwheel==" not in locked


def test_the_page_of_commands_lists_options_and_keys_of_printed_objects() -> None:
    text = with_lists("docs/reference/commands", "# Commands\n")
    assert "\n- `plan secagg`: **`--parties=INT`**, `--length=INT` (10000), " in text
    assert "\n- `plan check`: `MECHANISM: laplace|gaussian|" in text
    assert "\n### plan-budget\n\nPrinted by plan budget.\n\n" in text
    assert "\n- `mu`: Gaussian mean shift of one request\n" in text


def test_pages_of_the_reference_list_codes_of_errors_and_keys_of_learners_and_tables() -> None:
    text = with_lists("docs/reference/errors", documents()["docs/reference/errors"])
    assert re.findall(r"^- `([a-z-]+)`: \S", text, re.MULTILINE) == [*Check, *ConfigCheck]
    source = documents()["docs/reference/session-file"]
    text = with_lists("docs/reference/session-file", source)
    assert all(f"\n### {name}\n\n- `" in text for name in LEARNERS)
    # tests/unit/test_docs.py has the tables that are marked.
    assert "<!-- keys: " not in text
    for module, table in re.findall(r"<!-- keys: ([\w.]+)\.(\w+) -->", source):
        assert "\n\n" + "\n".join(items(getattr(import_module(module), table))) + "\n\n" in text
    assert with_lists(HOME, "text") == "text"
