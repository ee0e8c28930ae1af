"""Checks pages with axe-core, the engine of npm's package of that name, in a browser."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.browser import CHROMIUM, Page, browser

# A distribution of PyPI that has axe.min.js.
PACKAGE = "axe_core_python"
NEEDED = "needs Chromium and axe-core-python"
SERIOUS = ("serious", "critical")
# Phone and desktop, each in one of the two colour schemes and in both together.
VIEWS = ((390, "light"), (390, "dark"), (1400, "light"), (1400, "dark"))


@functools.cache
def axe() -> str | None:
    """Return the program of axe-core; None where it, or a browser, is missing."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None or CHROMIUM is None:
        return None
    return Path(found.origin).with_name("axe.min.js").read_text("utf-8")


def program() -> str:
    """Return the program of axe-core; skip what needs it where it, or a browser, is missing."""
    if (found := axe()) is None:
        pytest.skip(NEEDED)
    return found


def serious_findings(page: Page) -> list[str]:
    """Return the serious findings on the page that is open, each with the first element."""
    page.evaluate(f"{program()}; 0")
    found: list[dict[str, Any]] = page.evaluate("axe.run().then(result => result.violations)")
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}: {each['nodes'][0].get('failureSummary', '')}"
        for each in found
        if each["impact"] in SERIOUS
    ]


def check_accessible(*reports: Path) -> None:
    """Assert that reports have no serious finding, write nothing to a console and load nothing else.

    A test that looks at more calls it in a subtest, which alone is skipped where axe-core is missing.
    """
    program()
    with browser() as page:
        for report in reports:
            for width, scheme in VIEWS:
                page.open(report.as_uri(), width, scheme)
                found = serious_findings(page)
                assert not found, (report.name, width, scheme, found)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (report.name, width)
        assert page.console == []
        assert {*page.requests} <= {"about:blank", *(report.as_uri() for report in reports)}
