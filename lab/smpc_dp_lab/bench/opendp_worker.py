"""The peer's side of the benchmarks of sampling and of records: OpenDP, called by `smpc_dp_lab.bench.peer`.

Run as a script by whichever Python has `opendp`, so it must not import anything of ours. Reads one JSON
object a line, `{"task": ..., ...}`, and answers each with one: `{"seconds": CPU time}`, or to `noise`
`{"noise": [...]}`, all vectors in one list.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import math
import sys
import time
from typing import Any


def measurement(dp: Any, task: str, scale: float) -> Any:
    """Return OpenDP's measurement that adds noise of `scale` to a vector of integers."""
    # `int` would be 32 bits for OpenDP, at whose ends it cuts sums with their noise
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    if task == "gaussian":
        return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    return dp.m.make_laplace(domain, dp.l1_distance(T="i64"), scale=scale)


def noise(dp: Any, request: dict[str, Any]) -> list[int]:
    """Return noise of the law with the least deviation, at the least scale that OpenDP finds for it."""
    epsilon, delta = request["epsilon"], request["delta"]
    l1, l2 = math.ceil(request["l1"]), float(request["l2"])

    def gaussian(scale: float) -> Any:
        private = dp.c.make_zCDP_to_approxDP(measurement(dp, "gaussian", scale))
        return dp.c.make_fix_delta(private, delta=delta)

    by_deviation = {}
    for task, make, near, cost, wide in (
        ("laplace", lambda scale: measurement(dp, "laplace", scale), l1, epsilon, math.sqrt(2)),
        ("gaussian", gaussian, l2, (epsilon, delta), 1.0),
    ):
        bounds = (0.01 * near, 10_000.0 * near)
        scale = dp.binary_search_param(make, near, cost, T=float, bounds=bounds)
        by_deviation[wide * scale] = (task, scale)
    made = measurement(dp, *by_deviation[min(by_deviation)])
    zeros = [0] * request["length"]
    return [value for _ in range(request["count"]) for value in made(zeros)]


def main() -> None:
    """Print whether OpenDP is installed, then do the task on each input line and print its result."""
    try:
        # By name: OpenDP may be in another environment than the one that checks our types.
        dp = importlib.import_module("opendp.prelude")
    except ImportError as error:
        print(json.dumps({"absent": str(error)}), flush=True)
        return
    dp.enable_features("contrib")
    print(json.dumps({"version": importlib.metadata.version("opendp")}), flush=True)
    made: dict[tuple[str, float], Any] = {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["task"] == "noise":
            print(json.dumps({"noise": noise(dp, request)}), flush=True)
            continue
        key = (request["task"], float(request["scale"]))
        if key not in made:
            made[key] = measurement(dp, *key)
        zeros = [0] * request["count"]
        begun = time.process_time()
        made[key](zeros)
        print(json.dumps({"seconds": time.process_time() - begun}), flush=True)


if __name__ == "__main__":
    main()
