"""Write the baselines anew: `python -m tests.baselines [NAME ...]`, all if none is named.

They hold what users see and have: help of commands, JSON and its schemas, claims, saved states, public names.
Whoever changes one changes that for users, and says so in CHANGELOG.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from tests.baselines import claims, printed, public, saved, schemas
from tests.baselines import help as shown

WRITERS: dict[str, tuple[Path, Callable[[], str]]] = {
    "help": (shown.FILE, shown.text),
    "printed": (printed.FILE, printed.text),
    "claims": (claims.FILE, claims.text),
    "public": (public.FILE, public.text),
    "saved": (saved.FILE, saved.text),
    "schemas": (schemas.FILE, schemas.text),
}


if __name__ == "__main__":
    for name in sys.argv[1:] or WRITERS:
        path, text = WRITERS[name]
        path.write_text(text(), "utf-8")
