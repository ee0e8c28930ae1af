"""What the site adds to Sphinx: navigation by roles, API pages, links of terms, short addresses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

from docs.site.lists import with_lists
from docs.site.pages import API, MODULES, NOTEBOOKS, ROOT, address, executed, relinked, trees
from docs.site.terms import GLOSSARY, anchor_of, first_uses, terms_of
from tests.baselines.public import modules

# What holds no running text, or is a link already.
WITHOUT_TERMS = (nodes.reference, nodes.literal, nodes.title, nodes.literal_block, nodes.raw, nodes.comment)
# Lists of changes and API pages use every term: links would only be noise there.
PAGES_WITHOUT_TERMS = ("CHANGELOG", GLOSSARY, f"{MODULES}/")


class SiteBuilder(StandaloneHTMLBuilder):
    """Writes each page to its address, not to the path of its document."""

    def get_target_uri(self, docname: str, typ: str | None = None) -> str:
        return str(super().get_target_uri(address(docname), typ))

    def get_output_path(self, page_name: str, /) -> Path:
        return Path(super().get_output_path(address(page_name)))

    def get_outfilename(self, pagename: str) -> Any:
        return super().get_outfilename(address(pagename))

    def dump_search_index(self) -> None:
        # The index names documents; the script that reads it takes their names for addresses.
        freeze = self.indexer.freeze

        def frozen() -> dict[str, Any]:
            result = freeze()
            return {**result, "docnames": [address(name) for name in result["docnames"]]}

        self.indexer.freeze = frozen
        super().dump_search_index()


def write_modules(app: Sphinx) -> None:
    """Write a page for each public module, which `autodoc` fills from docstrings."""
    folder = Path(app.srcdir) / MODULES
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, row in modules().items():
        others = f", but for {', '.join(sorted(row.others))}" if row.others else ""
        status = f"Status: {'stable' if row.stable else 'experimental'}{others}."
        lines = [name, "=" * len(name), "", status, ""]
        lines += [f".. automodule:: {name}", "   :members:", "   :imported-members:", "   :undoc-members:"]
        (folder / f"{name}.rst").write_text("\n".join([*lines, ""]), "utf-8")


def read_source(_app: Sphinx, page: str, content: list[str]) -> None:
    """Take a notebook with its outputs, mend links to folders, and add generated lists and navigation."""
    if page.startswith(f"{MODULES}/"):
        return
    source = executed(page) if page.startswith(f"{NOTEBOOKS}/") else content[0]
    text = with_lists(page, relinked(page, source))
    for heading, pages in trees(page, [*modules()]):
        # The list of public modules is the only one that its page does not have itself.
        options = "" if page == API else ":hidden:\n"
        options += f":caption: {heading}\n" if heading else ""
        listed = "\n".join(f"/{one}" for one in pages)
        text += f"\n\n```{{toctree}}\n{options}\n{listed}\n```\n"
    content[0] = text


def anchor_terms(_app: Sphinx, document: nodes.document, page: str) -> None:
    """Give each entry of the glossary its anchor."""
    if page != GLOSSARY:
        return
    for item in document.findall(nodes.list_item):
        for entry in [*item.findall(nodes.strong)][:1]:
            item["ids"].append(anchor_of(entry.astext()))


def link_terms(app: Sphinx, document: nodes.document, page: str) -> None:
    """Link the first use of each term on a page to its entry, with the entry's text as title."""
    if page.startswith(PAGES_WITHOUT_TERMS):
        return
    terms = terms_of((ROOT / f"{GLOSSARY}.md").read_text("utf-8"))
    where = app.builder.get_relative_uri(page, GLOSSARY)
    for paragraph in document.findall(nodes.paragraph):
        for text in [*paragraph.findall(nodes.Text)]:
            if any(isinstance(node, WITHOUT_TERMS) for node in _parents(text)):
                continue
            uses = first_uses(text.astext(), terms)
            terms = [term for term in terms if all(term is not used for _, _, used in uses)]
            if uses:
                text.parent.replace(text, _with_links(text.astext(), uses, where))


def _parents(node: nodes.Node) -> list[nodes.Node]:
    result = []
    while (node := node.parent) is not None:
        result.append(node)
    return result


def _with_links(text: str, uses: list[Any], where: str) -> list[nodes.Node]:
    result: list[nodes.Node] = []
    done = 0
    for start, end, term in uses:
        link = nodes.reference(
            "", "", nodes.Text(text[start:end]), refuri=f"{where}#{term.anchor}", internal=True
        )
        link["reftitle"], link["classes"] = term.meaning, ["term"]
        result += [nodes.Text(text[done:start]), link]
        done = end
    return [*result, nodes.Text(text[done:])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all of it."""
    app.add_builder(SiteBuilder, override=True)
    # Diagrams are shown as their source.
    app.add_lexer("mermaid", TextLexer)
    app.connect("builder-inited", write_modules)
    app.connect("source-read", read_source)
    app.connect("doctree-resolved", anchor_terms)
    app.connect("doctree-resolved", link_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
