"""The peer's side of the benchmark of learners: the authors' `gosta` code, called in turn by `bench.peer`.

Run as a script, with the folder that holds `gossip_solver.py`, by a Python with numpy below 1.23, which that
code needs; it must not import anything of ours. Reads one JSON object a line, `{"task": ..., "parties": ...,
"ticks": ...}`, and answers each with one: `{"seconds": CPU time}`.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from typing import Any

import numpy as np


def solver(module: Any, task: str, parties: int, ticks: int) -> Any:
    """Return a solver that is set up, with only the steps left to run."""
    draws = np.random.RandomState(1)
    labels, scores = np.arange(parties) % 4 == 0, draws.permutation(parties)
    # 1 where the record with the label has the greater score, as int8: it need not touch more memory.
    matrix = (labels[:, None] & ~labels[None] & (scores[:, None] > scores[None])).astype(np.int8)
    matrix |= matrix.T
    first = draws.randint(parties, size=ticks)
    second = (first + 1 + draws.randint(5, size=ticks)) % parties
    made = module.GoStaSolver(
        scores[:, None].astype(float),
        None,
        edges_seq=np.column_stack([first, second]),
        is_asynchronous=task == "asynchronous",
        saving_step=ticks,
        target=1.0,
        h_gram=matrix,
        asynchronous_weights=np.full(parties, parties / 2.0),
    )
    # Its matrix is of int8, where the code expects a copy of its own.
    made.h_gram = matrix
    return made


def main() -> None:
    """Print whether the authors' code works, then time the task on each input line."""
    # Its way to index was given up after numpy 1.22.
    warnings.simplefilter("ignore")
    sys.path.insert(0, sys.argv[1])
    try:
        module = __import__("gossip_solver")
        solver(module, "synchronous", 20, 5).update_from_sequence()
    except (ImportError, ValueError, IndexError) as error:
        print(json.dumps({"absent": str(error)}), flush=True)
        return
    print(json.dumps({"version": f"numpy {np.__version__}"}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        made = solver(module, request["task"], request["parties"], request["ticks"])
        begun = time.process_time()
        made.update_from_sequence()
        print(json.dumps({"seconds": time.process_time() - begun}), flush=True)


if __name__ == "__main__":
    main()
