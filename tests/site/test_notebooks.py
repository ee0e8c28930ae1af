"""The notebooks: their form, and that one that fails, or must not be shown, makes `make notebooks` fail."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from docs.site.pages import NOTEBOOKS, ROOT, documents, executed

PYTHON = os.environ.get("SMPC_DP_NOTEBOOKS")
SOURCES = sorted(page for page in documents() if page.startswith(f"{NOTEBOOKS}/"))
HEAD = "---\njupytext:\n  text_representation:\n    extension: .md\n    format_name: myst\n---\n\n"
LAST = "## What was protected, and what was not\n\n**What was protected.** A.\n\n**What was not.** B.\n"
# A block of code in a page or a source: what stands after its fence, and its text.
CODE = re.compile(
    r"^```(?:python|\{code-cell\}[^\n]*)\n((?::\w+: [^\n]*\n)*)(.*?)^```$", re.MULTILINE | re.DOTALL
)


def execute(source: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [str(PYTHON), "-m", "docs.site.notebooks", str(source), "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def cell(code: str, options: str = "") -> str:
    return f"```{{code-cell}}\n{options}{code}\n```\n\n"


@pytest.mark.skipif(PYTHON is None, reason="needs what executes notebooks: make site")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (cell("assert 1 + 1 == 3") + LAST, "a cell fails:"),
        (cell("1 + 1"), "the last cell does not begin with"),
        (cell("1 + 1") + LAST.partition("**What was not.**")[0], "lacks one of"),
        (12 * cell("1 + 1") + LAST, "has 13 cells, at most are 12"),
        (cell("import sys; print('odd', file=sys.stderr)") + LAST, "a cell writes to stderr:"),
        (cell("import matplotlib.pyplot as plt\nplt.plot([1, 2]);") + LAST, "a picture has no text"),
    ],
    ids=["fails", "no-end", "half-an-end", "long", "warns", "no-alternative"],
)
def test_a_notebook_that_must_not_be_shown_ends_the_target(content: str, reason: str, tmp_path: Path) -> None:
    source = tmp_path / "bad.md"
    source.write_text(HEAD + content, "utf-8")
    done = execute(source, tmp_path / "out")
    assert done.returncode == 1, done.stderr
    assert reason in done.stderr
    assert not (tmp_path / "out" / "bad.md").exists()


@pytest.mark.skipif(PYTHON is None, reason="needs what executes notebooks: make site")
def test_outputs_stand_on_the_page_below_their_cells(tmp_path: Path) -> None:
    source = tmp_path / "good.md"
    picture = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);"
    shown = cell("print('```\\n<b>')") + cell(picture, ':alt: a "line"\n') + cell("1 + 1")
    source.write_text(HEAD + shown + LAST, "utf-8")
    assert execute(source, tmp_path).returncode == 0
    page = source.read_text("utf-8")
    assert "````{code-block} text\n:class: output\n```\n<b>\n````" in page
    assert '<img class="output" alt="a &quot;line&quot;" src="data:image/png;base64,' in page
    assert page.endswith(LAST)


@pytest.mark.skipif("SMPC_DP_SITE" not in os.environ, reason="needs the notebooks' pages: make site")
@pytest.mark.parametrize("page", SOURCES)
def test_a_page_has_the_cells_of_its_notebook_and_their_outputs(page: str) -> None:
    shown, source = executed(page), documents()[page]
    assert [code for _, code in CODE.findall(shown)] == [code for _, code in CODE.findall(source)]
    assert "{code-block} text\n:class: output" in shown
    assert '<div class="smpc-dp-result">' in shown


def test_there_are_five() -> None:
    assert len(SOURCES) == 5
