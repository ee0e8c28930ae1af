"""Fuzz the Python decoders for as long as wanted: `python -m tests.fuzz --inputs 1000000`.

Goes through all targets in turns until each has had so many inputs. How many each has had is kept in a
folder, so that a run that was stopped goes on where it was. The first input that shows a bug ends the run:
correct the bug, and put the input into `tests/fuzz/corpus/TARGET/`. An input that needs more memory, or more
time, than the options allow is such a bug too; where the process is ended within it, it is left in
`STATE/python.TARGET.input`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.fuzz.targets import TARGETS
from tests.fuzz.watching import watched

# Inputs of one turn of a target whose inputs cost as little as a message's.
EFFECT = 50_000
# A target whose inputs cost more than that has accordingly fewer.
CHEAP = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--inputs",
        type=int,
        default=1_000_000,
        help="of each target, in all runs together; fewer of expensive ones",
    )
    parser.add_argument("--state", type=Path, default=Path(".fuzz"), help="the folder of the counts")
    parser.add_argument("--memory", type=int, default=4096, help="MiB that the process may take")
    parser.add_argument("--seconds", type=float, default=600.0, help="that one input may take")
    parser.add_argument("targets", nargs="*", help="names of targets; all without any")
    given = parser.parse_args()
    given.state.mkdir(parents=True, exist_ok=True)
    names = given.targets or list(TARGETS)
    goals = {name: given.inputs * CHEAP // max(CHEAP, TARGETS[name].cost) for name in names}
    counts = {name: given.state / f"python.{name}.count" for name in names}
    done = {name: int(file.read_text()) if file.exists() else 0 for name, file in counts.items()}
    while left := [name for name in names if done[name] < goals[name]]:
        for name in left:
            effect = min(max(500, EFFECT // TARGETS[name].cost), goals[name] - done[name])
            try:
                with watched(given.state / f"python.{name}.input", given.memory, given.seconds) as watch:
                    TARGETS[name].run(done[name], effect, watch)
            except AssertionError as error:
                sys.exit(f"{error}\n{error.__cause__!r}")
            done[name] += effect
            counts[name].write_text(f"{done[name]}\n")
        print(f"{min(done.values())} to {max(done.values())} inputs a target", flush=True)


main()
