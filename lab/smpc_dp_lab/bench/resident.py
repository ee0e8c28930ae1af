"""Peak resident memory of this program."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def peak_bytes() -> int:
    """Return the peak memory of this program; on Linux getrusage would count its parent's too."""
    try:
        result = _PEAK.search(Path("/proc/self/status").read_text("ascii"))
    except OSError:
        result = None
    if result is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 1024 * int(result[1])
