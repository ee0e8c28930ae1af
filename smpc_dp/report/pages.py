"""Environment of the HTML templates: every value is escaped, made visible and cut to a length."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from smpc_dp.errors import printable

# Characters of one value that a page shows; of a name in a table or a heading.
MOST_TEXT = 2_000
MOST_NAME = 60


def visible(text: str, most: int = MOST_TEXT) -> str:
    """Return untrusted text with unprintable characters escaped, cut to `most` characters with a note."""
    shown = "\n".join(printable(line, most) for line in text[:most].split("\n"))
    return shown if len(text) <= most else f"{shown}… ({len(text):,} characters, the first {most:,} here)"


def short(text: object) -> str:
    """Return any value as a short printable name for a table or heading."""
    return visible(str(text), MOST_NAME)


def environment() -> Environment:
    """Return a new Jinja environment with the templates of HTML reports.

    Values of expressions go through `visible` and are escaped; a name that is not defined is an error.
    `styles` are those of all pages, `style_source` their hash for a content security policy.
    """
    result = Environment(
        loader=PackageLoader("smpc_dp.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    result.filters["short"] = short
    result.globals["styles"] = Markup(styles())  # noqa: S704, a file of this package
    result.globals["style_source"] = style_source()
    return result


def _finalize(value: object) -> object:
    """Return a text that a template prints made `visible`; markup and other values are unchanged."""
    # Markup is what a template has escaped already: its macros and filters.
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@functools.cache
def styles() -> str:
    """Return the CSS that all HTML reports and pages share."""
    return files("smpc_dp.report").joinpath("templates", "styles.css").read_text("utf-8")


@functools.cache
def style_source() -> str:
    """Return the hash expression of the CSS for a Content-Security-Policy: 'sha256-...'."""
    digest = base64.b64encode(hashlib.sha256(styles().encode()).digest()).decode()
    return f"'sha256-{digest}'"
