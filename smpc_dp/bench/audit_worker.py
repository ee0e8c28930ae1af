"""Audits one log in a process of its own, and prints what that took."""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from pathlib import Path

_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def _peak_bytes() -> int:
    """Return the most memory that this program had; getrusage would count whoever started it."""
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text("ascii"))
    except OSError:
        found = None
    if found is None:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return 1024 * int(found[1])


def main(path: str, threads: str) -> None:
    """Audit a log; print seconds, processor seconds, and bytes of memory before it and at most."""
    from smpc_dp.runtime.audit import audit

    before, begun, used = _peak_bytes(), time.perf_counter(), time.process_time()
    report = audit(path, threads=int(threads))
    answer = {
        "ok": report.ok,
        "seconds": time.perf_counter() - begun,
        "processor": time.process_time() - used,
        "before": before,
        "peak": _peak_bytes(),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
