"""Check of the platform. Python 3.8 can read this file and `__init__.py`."""

from __future__ import annotations

import sys

OLDEST_PYTHON = (3, 11)


def check_platform() -> None:
    """Raise ImportError, naming everything missing, if this platform is not supported; else do nothing."""
    faults = []
    if sys.version_info[:2] < OLDEST_PYTHON:
        faults.append(f"Python 3.11 or later is needed, this is {sys.version_info[0]}.{sys.version_info[1]}")
    if sys.platform in ("win32", "cygwin"):
        faults.append("Windows is not supported: Linux is needed")
    if sys.maxsize < 2**63 - 1:
        faults.append("a 64-bit Python is needed")
    if sys.byteorder != "little":
        faults.append("a little-endian processor is needed")
    if faults:
        raise ImportError(f"smpc-dp does not run here (docs/reference/compatibility.md): {'; '.join(faults)}")
