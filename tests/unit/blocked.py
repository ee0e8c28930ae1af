"""Packages that are absent for an import."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import FrameType, ModuleType

# Where it is set, the path of the file that is made when a process imports something of an absent package.
ASKED = "SMPC_DP_TESTS_ASKED"
# In every process that is started with this file's folder in its path, also by others.
SITECUSTOMIZE = """
import sys
from tests.unit.blocked import Blocked
sys.meta_path[:0] = [Blocked(name) for name in {names!r}]
"""


def _importer() -> str:
    """Return the name of the module that is imported now; that of the program, if none is."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return "__main__" if frame is None else str(frame.f_globals["__name__"])


class AbsentModule(ModuleNotFoundError):
    """An import of an absent package failed; other modules that are missing raise ModuleNotFoundError."""


class Blocked(MetaPathFinder):
    """Finds nothing of a package, as if its folder were absent.

    Attributes:
        importers: names of the modules that have asked for it when they were imported.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self.importers: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        del path, target
        if f"{name}.".startswith(f"{self._package}."):
            self.importers.add(_importer())
            if asked := os.environ.get(ASKED):
                Path(asked).touch()
            raise AbsentModule(f"No module named {name!r}", name=name)
