"""Reads a page as browsers and screen readers do: its tags, its text, and faults of its markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

EMPTY = frozenset({"meta", "link", "br", "img", "input", "hr", "line", "circle", "polyline"})
# Attributes that make a browser load something.
LOADING = frozenset(
    {"src", "srcset", "href", "xlink:href", "action", "formaction", "data", "poster", "background"}
)


class Page(HTMLParser):
    """A page: its tags with their attributes, its text, the text of each cell, and its faults."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.style = ""
        self.cells: list[str] = []
        self.faults: list[str] = []
        self._heading = 0
        self.feed(html)
        self.close()
        self._check()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag in EMPTY:
            return
        self.opened.append(tag)
        if tag in ("th", "td"):
            self.cells.append("")
        if tag == "th" and attributes.get("scope") not in ("row", "col"):
            self.faults.append("a header without scope")
        if re.fullmatch(r"h\d", tag):
            level = int(tag[1])
            if level > self._heading + 1:
                self.faults.append(f"{tag} after h{self._heading}")
            self._heading = level

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.opened or self.opened.pop() != tag:
            self.faults.append(f"{tag} is closed and not open")

    def handle_data(self, data: str) -> None:
        if "style" in self.opened:
            self.style += data
            return
        self.text += data
        if {"th", "td"} & set(self.opened):
            self.cells[-1] += data

    def _check(self) -> None:
        if self.opened:
            self.faults.append(f"not closed: {self.opened}")
        ids = [given["id"] for _, given in self.tags if "id" in given]
        self.faults += [f"id twice: {name}" for name in set(ids) if ids.count(name) > 1]
        for tag, given in self.tags:
            if any(name.startswith("on") or name == "style" for name in given):
                self.faults.append(f"{tag} with a script or a style of its own")
            pointed = [given.get("aria-labelledby"), (given.get("href") or "").removeprefix("#") or None]
            self.faults += [f"no id {name}" for name in pointed if name is not None and name not in ids]
            if tag == "svg" and "aria-hidden" not in given and "aria-labelledby" not in given:
                self.faults.append("a picture without a name")
        names = [tag for tag, _ in self.tags]
        for needed in ("html", "head", "title", "body", "main", "h1"):
            if names.count(needed) != 1:
                self.faults.append(f"{names.count(needed)} times {needed}")
        for tag in ("table", "figure"):
            caption = "caption" if tag == "table" else "figcaption"
            if names.count(tag) != names.count(caption):
                self.faults.append(f"{tag} without {caption}")

    @property
    def loads(self) -> list[str]:
        """What a browser would load from elsewhere, or run."""
        result = [
            f"{tag} {name}={value}"
            for tag, given in self.tags
            for name, value in given.items()
            if name in LOADING and not (value or "").startswith("#")
        ]
        result += [
            tag
            for tag, _ in self.tags
            if tag in ("script", "iframe", "object", "embed", "link", "base", "img")
        ]
        return result + re.findall(r"url\([^)]*\)|@import[^;]*", self.style)
