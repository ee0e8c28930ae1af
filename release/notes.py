"""Notes of a release: its section of CHANGELOG.md."""

from __future__ import annotations

import re


def notes_of(changelog: str, version: str) -> tuple[str, str]:
    """Return the section of a version, and its date or "unreleased".

    Raises ValueError if the file has no section, or no text in it.
    """
    sections = re.split(r"^(?=## )", changelog, flags=re.MULTILINE)
    for section in sections:
        heading, _, text = section.partition("\n")
        found = re.fullmatch(rf"## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d|unreleased)", heading)
        if found and text.strip():
            return f"# smpc-dp {version}\n\n{text.strip()}\n", found[1]
    raise ValueError(f"CHANGELOG.md has no section [{version}] with a date or 'unreleased', or no text there")
