"""Programs on shares in one process: by a single server, or the ideal functionality with the same noise.

mpyc has one runtime for a process, which it makes from the command line when it is imported. Here it is
imported with a command line of its own, off the caller's event loop, and used by one thread at a time. A
single party opens no socket, and its calls return at once.
"""

from __future__ import annotations

import importlib
import logging
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np

from smpc_dp.capabilities.pairs.kernels.fields import Codes
from smpc_dp.capabilities.servers.statistics.plan import Program
from smpc_dp.capabilities.servers.statistics.program import design_pairs, kernel_in, output_spans, run_program
from smpc_dp.crypto.randomness import Randomness
from smpc_dp.errors import ConfigCheck, ConfigError

_LOCK = Lock()


def run_alone(program: Program, records: Sequence[Sequence[int]]) -> list[int]:
    """Run the real program on shares with a single server in this process, which sees all records.

    Real random bits. Raises ConfigError, also in a process that is one of several mpyc parties.
    """
    terms = program.terms
    rows = [[value % terms.prime for value in record] for record in records]
    with _LOCK:
        mpc = _lone_runtime()
        before, mpc.options.sec_param = mpc.options.sec_param, terms.security
        running = run_program(mpc, terms, rows)
        try:
            running.send(None)
        except StopIteration as stop:
            opened: list[int] = stop.value
            return opened
        finally:
            running.close()
            mpc.options.sec_param = before
    raise RuntimeError("a single mpyc party waits")


def run_ideal(program: Program, records: Codes, source: Randomness) -> list[int]:
    """Return the integers that a program on shares would open, computed in the clear, noise from `source`.

    Records are all in bounds, shape (parties, length).
    """
    terms = program.terms
    if program.plan is not None:
        pairs = design_pairs(terms)
        integers = kernel_in(terms).integer(records[pairs[:, 0]], records[pairs[:, 1]])
        return [int(raw) for raw in program.plan.noise.draw(integers.astype(np.int64), source)]
    if terms.kind == "statistic":
        kernel, pairs = kernel_in(terms), design_pairs(terms)
        # Python integers: a sum over pairs may have more than 63 bits.
        exact = [sum(kernel.integer(records[pairs[:, 0]], records[pairs[:, 1]]).tolist())]
        if kernel.labels == "private":
            exact.append(int(records[:, 1].sum()))
    elif terms.kind == "weighted-mean":
        plain = records.astype(object)
        exact = [int(sum(column * plain[:, -1])) for column in plain[:, :-1].T] + [int(sum(plain[:, -1]))]
    else:
        exact = [int(sum(column)) for column in records.astype(object).T]
    if not program.noise:
        return exact
    results = []
    for noise, value, (low, _), distribution in zip(
        program.noises, exact, output_spans(terms), terms.noise * len(exact), strict=False
    ):
        base = 0 if distribution.distribution == "gaussian" else low
        results.append(noise.draw(value - low, source) + base)
    return results


def _lone_runtime() -> Any:
    """Return mpyc's runtime for this process alone; ConfigError if it is one of several mpyc parties."""
    if "mpyc.runtime" not in sys.modules:
        root, argv = logging.getLogger(), sys.argv
        handlers, level = list(root.handlers), root.level
        sys.argv = [argv[0] if argv else "", "--no-log", "--no-uvloop"]
        try:
            # In a thread, so that it makes an event loop of its own and does not touch the caller's.
            with ThreadPoolExecutor(1) as pool, warnings.catch_warnings():
                # mpyc 0.11 imports numpy's internals by their old name.
                warnings.simplefilter("ignore", DeprecationWarning)
                pool.submit(importlib.import_module, "mpyc.runtime").result()
        finally:
            sys.argv = argv
            root.handlers[:] = handlers
            root.setLevel(level)
    mpc = sys.modules["mpyc.runtime"].mpc
    if len(mpc.parties) != 1 or not mpc.options.no_async:
        raise ConfigError.at("engine", "this process is one of several mpyc parties", ConfigCheck.UNSUPPORTED)
    return mpc
