"""The peer's side of the sampling benchmark: OpenDP, called in turn by `smpc_dp_lab.bench.peer`.

Run as a script by whichever Python has `opendp`, so it must not import anything of ours. Reads one JSON
object a line, `{"task": ..., ...}`, and answers each with one: `{"seconds": CPU time}`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
import time
from typing import Any


def measurement(dp: Any, task: str, scale: float) -> Any:
    """Return OpenDP's measurement that adds noise of `scale` to a vector of integers."""
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if task == "gaussian":
        return dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    return dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=scale)


def main() -> None:
    """Report whether OpenDP is available, then do one task per line until the input ends."""
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
        key = (request["task"], float(request["scale"]))
        if key not in made:
            made[key] = measurement(dp, *key)
        zeros = [0] * request["count"]
        begun = time.process_time()
        made[key](zeros)
        print(json.dumps({"seconds": time.process_time() - begun}), flush=True)


if __name__ == "__main__":
    main()
