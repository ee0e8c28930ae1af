"""Measuring processes: modules of this package, each run by the interpreter that runs us."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from smpc_dp.errors import LocalError


def together(
    module: str,
    calls: Sequence[Sequence[str]],
    title: str,
    seconds: float | None = None,
    inputs: Sequence[bytes] = (),
    **started: Any,
) -> list[bytes]:
    """Run the module `smpc_dp_lab.bench.MODULE` once for each call, all at once; return the outputs.

    Args:
        module: its name.
        calls: the arguments of each process.
        what: what an error names.
        seconds: how long to wait for each; None for ever.
        inputs: what each reads; left out: nothing.
        started: further arguments of `subprocess.Popen`, for each process a list of them.

    Raises LocalError if one fails or takes longer.
    """
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for index, call in enumerate(calls):
            worker = subprocess.Popen(
                [sys.executable, "-m", f"smpc_dp_lab.bench.{module}", *call],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                **{name: values[index] for name, values in started.items()},
            )
            workers.append(worker)
            # At once: a process may wait for what another one reads.
            if worker.stdin is not None:
                with suppress(BrokenPipeError), worker.stdin:
                    worker.stdin.write(inputs[index] if inputs else b"")
                worker.stdin = None
        ended = [worker.communicate(timeout=seconds) for worker in workers]
    except subprocess.TimeoutExpired:
        raise LocalError(f"{title} took more than {seconds} s") from None
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    for worker, (_, errors) in zip(workers, ended, strict=True):
        if worker.returncode:
            lines = errors.decode("utf-8", "replace").strip().splitlines() or ["no message"]
            raise LocalError(f"{title} failed: {lines[-1]}")
    return [output for output, _ in ended]
