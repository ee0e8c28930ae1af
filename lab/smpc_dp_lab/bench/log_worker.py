"""Make or audit one log in a process of its own, and print its time and memory.

`python -m smpc_dp_lab.bench.log_worker make PATH PARTIES STEPS EPSILON DELTA CORRUPT`,
or `audit PATH THREADS`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from smpc_dp_lab.bench.resident import peak_bytes


def _making(
    path: str, parties: str, steps: str, epsilon: str, delta: str, corrupt: str
) -> Callable[[], bool]:
    """Return a function that writes the log of a simulated run, with real randomness, values on a grid."""
    import numpy as np

    from smpc_dp.simulate.average import average

    count = int(parties)
    values = np.random.default_rng(count).random((count, 1))

    def make() -> bool:
        average(
            values,
            lower=0,
            upper=1,
            precision=1 / int(steps),
            method="gopa",
            epsilon=float(epsilon),
            delta=float(delta),
            planned_dropout=0.0,
            corrupt=float(corrupt),
            verifiable=True,
            board=path,
        )
        return True

    return make


def _auditing(path: str, threads: str) -> Callable[[], bool]:
    """Return a function that audits the log at `path`, and tells whether it has no faults."""
    from smpc_dp.logs.audits.audit import audit

    return lambda: not audit(path, threads=int(threads)).faults


def main(task: str, *arguments: str) -> None:
    """Run the task; print seconds, processor seconds, and bytes of memory before it and at most."""
    tasks: dict[str, Callable[..., Callable[[], bool]]] = {"make": _making, "audit": _auditing}
    work = tasks[task](*arguments)
    before, begun, used = peak_bytes(), time.perf_counter(), time.process_time()
    ok = work()
    answer = {
        "ok": ok,
        "seconds": time.perf_counter() - begun,
        "processor": time.process_time() - used,
        "before": before,
        "peak": peak_bytes(),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
