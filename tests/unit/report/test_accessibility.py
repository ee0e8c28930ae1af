"""The check of pages by axe-core sees what is wrong; the tests of each kind of page use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.accessibility import check_accessible, program

WRONG = '<!doctype html><html lang="en"><title>a</title><main><h1>a</h1>{}</main></html>'


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ('<img src="data:,">', "image-alt"),
        ('<p style="color: #ccc; background: #fff">pale</p>', "color-contrast"),
        ("<input>", "label"),
    ],
)
def test_a_fault_is_found(fault: str, rule: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(WRONG.format(fault), "utf-8")
    program()
    with pytest.raises(AssertionError, match=rule):
        check_accessible(tmp_path / "page.html")
