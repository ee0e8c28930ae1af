"""Settings of Sphinx for the site, which `make site` builds from the documents as they stand."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from docs.site.pages import HOME, MODULES, ROOT, documents
from release.notes import notes_of

project = "smpc-dp"
release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
_date = notes_of((ROOT / "CHANGELOG.md").read_text("utf-8"), release)[1]
html_title = f"smpc-dp {release}, {'not released' if _date == 'unreleased' else _date}"
language = "en"

root_doc = HOME
include_patterns = [*(f"{page}.md" for page in documents()), f"{MODULES}/*.rst"]
exclude_patterns = [".*", "target", "dist", "**/node_modules"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "docs.site.extension"]

myst_heading_anchors = 6
smartquotes = False

# Docstrings write code between single backticks.
default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_mock_imports = ["flwr", "pandas", "ray", "sklearn", "torch"]
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# A name that two public modules export is linked to one of them.
suppress_warnings = ["ref.python"]

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
# The summaries of results would be fetched, which browsers refuse for pages that are opened from a disk.
html_show_search_summary = False
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}
html_use_index = True
