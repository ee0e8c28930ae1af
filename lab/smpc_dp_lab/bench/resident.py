"""What this process has used so far: processor time, peak resident memory, and writes to disk."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_WRITES = re.compile(r"^(write_bytes|cancelled_write_bytes): (\d+)$", re.MULTILINE)


def peak_bytes() -> int:
    """Return the peak resident memory of this process in bytes, without its parent's."""
    result = _PEAK.search(_read("/proc/self/status"))
    if result is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 1024 * int(result[1])


def written_bytes() -> int:
    """Return the bytes that this process wrote to disks, less those of removed files; 0 if unknown."""
    counted = {name: int(number) for name, number in _WRITES.findall(_read("/proc/self/io"))}
    return counted.get("write_bytes", 0) - counted.get("cancelled_write_bytes", 0)


def usage() -> dict[str, float]:
    """Return seconds of processor time (`cpu`), and bytes of peak memory (`peak`) and on disk (`written`)."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": used.ru_utime + used.ru_stime, "peak": peak_bytes(), "written": written_bytes()}


def _read(path: str) -> str:
    """Return the text of a file of the kernel, "" where there is none."""
    try:
        return Path(path).read_text("ascii")
    except OSError:
        return ""
