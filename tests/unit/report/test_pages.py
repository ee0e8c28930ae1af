"""The frame of pages: values appear as text, nothing is loaded, and templates cannot leave a value out."""

from __future__ import annotations

import re
from importlib.resources import files

import jinja2
import pytest

from smpc_dp.report.pages import MOST_NAME, MOST_TEXT, environment, short, style_source, styles, visible
from tests.pages import Page

PAGE = """{% extends "base.html" %}{% import "parts.html" as parts %}
{% block title %}{{ name }}{% endblock %}{% block heading %}{{ name }}{% endblock %}
{% block content %}{{ parts.table("t", name, [(name, ""), ("n", "number")], [(name, 1), (short, 2)]) }}
{{ parts.facts([(name, name)]) }}{{ parts.sentences([name]) }}
{{ parts.contents([{"id": "t", "heading": name}]) }}{{ parts.state(name, "bad") }}{% endblock %}"""
HOSTILE = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "{{ 7 * 7 }}{% include 'x' %}",
    "\x1b[31mred\x1b[0m\x00\x7f\x9b2J",
    "abc\u202edef\u2066ghi\u200f\u061c",
    "lone \ud800 surrogate",
    "x" * 1_000_000,
]


def rendered(name: str) -> Page:
    html = environment().from_string(PAGE).render(name=name, short=short(name))
    assert len(html.encode()) < 60_000
    return Page(html)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_values_are_text(name: str) -> None:
    page, plain = rendered(name), rendered("plain")
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert [list(given) for _, given in page.tags] == [list(given) for _, given in plain.tags]
    assert page.faults == page.loads == []
    assert visible(name) in page.text
    assert all(char.isprintable() or char == "\n" for char in page.text)


def test_what_is_not_seen_is_named_and_what_is_long_is_cut_with_a_note() -> None:
    assert visible("a\x1b\u202e\ud800b\nc") == r"a\x1b\u202e\ud800b" + "\nc"
    assert visible("شركة 株式会社 é") == "شركة 株式会社 é"
    assert visible("x" * MOST_TEXT) == "x" * MOST_TEXT
    assert visible("x" * 1_000_000).startswith("x" * MOST_TEXT + "… (1,000,000 characters, the first 2,000")
    assert short("y" * 61).startswith("y" * MOST_NAME + "… (61 characters")


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="name"):
        environment().from_string(PAGE).render()


def test_templates_load_nothing_and_escape_everything() -> None:
    templates = [file for file in files("smpc_dp.report").joinpath("templates").iterdir() if file.is_file()]
    assert {"base.html", "parts.html", "styles.css"} <= {file.name for file in templates}
    for file in templates:
        source = file.read_text("utf-8")
        assert not re.search(r"\bsafe\b|autoescape|Markup|https?:|url\(|@import", source), file.name
        # A strict content security policy has no styles in attributes and no scripts in them.
        assert not re.search(r"\s(style|on\w+)=", source), file.name


def test_the_policy_names_the_styles_by_their_hash() -> None:
    page = rendered("a")
    assert page.style == styles()
    policies = [given["content"] for _, given in page.tags if "http-equiv" in given]
    assert policies == [
        f"default-src 'none'; style-src {style_source()}; base-uri 'none'; form-action 'none'"
    ]


def _luminance(colour: str) -> float:
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_text_has_the_contrast_of_wcag_aa(scheme: int) -> None:
    blocks = re.findall(r":root \{([^}]*)\}", styles())
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", blocks[scheme]))
    assert len(colours) >= 8
    for ground in (colours["ground"], colours["raised"]):
        for name, colour in colours.items():
            if name not in ("ground", "raised", "rule"):
                lighter, darker = sorted((_luminance(ground), _luminance(colour)), reverse=True)
                assert (lighter + 0.05) / (darker + 0.05) >= 4.5, name
