"""The terms of the glossary, and where a text uses them first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

GLOSSARY = "docs/glossary"
ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.+)$", re.MULTILINE)
# Everyday words, also verbs: they are the glossary's after an article alone.
EVERYDAY = frozenset({"operation", "outcome", "request", "round", "run", "setup", "step"})
# Words that mean something else in most places: kernels of the core, opening a session.
OTHER = frozenset({"composition", "kernel", "last results", "mechanism", "opening", "state of a session"})
ARTICLE = r"(?<=\b[Aa] )|(?<=\b[Tt]he )|(?<=\b[Ee]ach )|(?<=\b[Oo]ne )|(?<=\b[Tt]his )|(?<=\b[Ee]very )"


@dataclass(frozen=True)
class Term:
    """A word of the glossary: the anchor and the text of its entry, and what matches it in a text."""

    word: str
    anchor: str
    meaning: str
    pattern: re.Pattern[str]


def anchor_of(entry: str) -> str:
    """Return the anchor of an entry by its bold words."""
    return "term-" + re.sub(r"\W+", "-", entry.lower()).strip("-")


def terms_of(glossary: str) -> list[Term]:
    """Return the terms, longest first, so that "corrupt party" is not taken for "party"."""
    result = []
    for entry, meaning in ENTRY.findall(glossary):
        for word in entry.replace("(ε, δ)-", "").split(", "):
            if word in OTHER:
                continue
            plural = (
                f"(?:{re.escape(word[:-1])}ies|{re.escape(word)})"
                if word.endswith("y")
                else f"{re.escape(word)}(?:s|es)?"
            )
            before = f"(?:{ARTICLE})" if word in EVERYDAY else r"(?<![\w-])"
            plain = re.sub(r"\[([^\]]+)\]\([^)]*\)|[*`]", r"\1", meaning)
            pattern = re.compile(rf"{before}{plural}(?![\w-])", re.IGNORECASE if word.islower() else 0)
            result.append(Term(word, anchor_of(entry), plain, pattern))
    return sorted(result, key=lambda term: -len(term.word))


def first_uses(text: str, terms: Sequence[Term]) -> list[tuple[int, int, Term]]:
    """Return the first use of each term in a text: where it begins and ends; none within another one."""
    result: list[tuple[int, int, Term]] = []
    for term in terms:
        for found in term.pattern.finditer(text):
            if all(found.end() <= start or end <= found.start() for start, end, _ in result):
                result.append((found.start(), found.end(), term))
                break
    return sorted(result, key=lambda use: use[0])
