"""Twelve clinics learn to tell malignant from benign cell samples; no clinic shows a patient or a gradient.

Each clinic is a process with its own patients. In every step a random group of six averages clipped gradients
by secure aggregation, with noise once for the group. One clinic comes late and joins the next request, one is
killed half-way. Data: Breast Cancer Wisconsin (Original), UCI, CC BY 4.0. docs/proofs/learning.md has the
claims. Run: python examples/gossip_processes.py
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from smpc_dp import simulate
from smpc_dp.capabilities.learn.data import Dataset, wisconsin
from smpc_dp.capabilities.learn.models import Model
from smpc_dp.capabilities.learn.requests.learning import learn, serve_learning
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.events import Event
from smpc_dp.session.local import Timeouts, create_local_session

CLINICS = tuple(f"clinic-{number:02d}" for number in range(1, 13))
DATA = Path(__file__).parent / "data" / "breast_cancer_wisconsin_original.csv"
SEED, TEST = 1, 0.3
PARAMETERS: dict[str, Any] = {
    "learner": "block-gossip",
    "features": 9,
    "steps": 24,
    "group": 6,
    "epsilon": 8.0,
    "delta": 1e-4,
    "rate": 0.5,
    "seed": SEED,
    "averager": {"method": "secagg", "colluders": 1, "missing": 1},
}
TIMEOUTS = Timeouts(connect=60.0, gather=60.0, step=30.0)
LATE, KILLED = CLINICS[-1], CLINICS[3]
# The requests, two in each step, at which the one is let in and the other killed.
STARTS_AT, KILLED_AT = 9, 31


async def take_part(path: str, name: str) -> None:
    """Be one clinic."""
    folder = Path(path).parent
    if name == LATE:
        # Everything is loaded, so that how late it comes does not depend on how fast this machine starts it.
        print("loaded", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    ledger = folder / f"{name}.ledger"
    Ledger.create(ledger, party=name, dataset="patients", relation="substitution", epsilon=8.0, delta=1e-4)
    learned = await learn(path, name, folder / f"{name}.npy", ledger=ledger)
    spent = Ledger.open(ledger).spent()
    print(json.dumps(learned.to_json() | {"spent": spent.epsilon}))


async def run(path: str) -> dict[str, dict[str, Any]]:
    """Start the clinics as processes, and the aggregator here; return what each clinic printed."""
    processes: dict[str, asyncio.subprocess.Process] = {}

    for name in CLINICS:
        processes[name] = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "--as", name, "--session", path),
            stdin=asyncio.subprocess.PIPE if name == LATE else None,
            stdout=asyncio.subprocess.PIPE,
        )
    loaded, let_in = processes[LATE].stdout, processes[LATE].stdin
    # Nothing begins before the late one can come at once: else all may be over before it is there.
    if loaded is not None:
        await loaded.readline()
    come: list[str] = []
    killed: list[str] = []

    def watch(event: Event) -> None:
        if event.kind == "connected" and event.detail == LATE:
            print(f"{LATE} has come")
            come.append(LATE)
        if event.request >= STARTS_AT and let_in is not None and not let_in.is_closing():
            let_in.write(b"\n")
            let_in.close()
        # Only when the late one is there: a group of six can do without one of its members.
        if event.request >= KILLED_AT and come and not killed:
            print(f"{KILLED} is killed")
            killed.append(KILLED)
            processes[KILLED].kill()

    failures = await serve_learning(path, on_event=watch, begin_with=len(CLINICS) - 1)
    outputs = {name: (await process.communicate())[0] for name, process in processes.items()}
    for request, reason in failures.items():
        print(f"request {request} failed: {reason}")
    return {name: json.loads(output) for name, output in outputs.items() if output}


def accuracies(models: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Return the accuracy of each model on the test points."""
    return np.array([Model("logistic", 9).accuracy(model, test) for model in models])


async def main() -> dict[str, Any]:
    """Learn between processes and in a simulation; print both."""
    data: Dataset = wisconsin(DATA)
    tables, test = data.split(len(CLINICS), TEST, SEED)
    print(f"{data.source}: {len(data.table)} patients, {data.left_out} with missing values left out")
    with tempfile.TemporaryDirectory() as folder:
        path = str(create_local_session(folder, CLINICS, PARAMETERS, protocol="learn", timeouts=TIMEOUTS))
        for name, table in zip(CLINICS, tables, strict=True):
            np.save(Path(folder) / f"{name}.npy", table)
        results = await run(path)
    outcome = accuracies(np.array([result["values"][0] for result in results.values()]), test)
    for name, result in results.items():
        taken = f"{result['done'][0]} of {result['steps'][0]} steps"
        print(f"{name}: {taken}, epsilon spent {result['spent'] or 0:.2f}")
    simulated = await asyncio.to_thread(simulate_same, tables, test)
    print(
        f"mean accuracy between processes: {outcome.mean():.3f} "
        f"(of a clinic {outcome.min():.3f} to {outcome.max():.3f})"
    )
    print(
        f"mean accuracy in ten simulations: {simulated.mean():.3f} "
        f"({simulated.min():.3f} to {simulated.max():.3f})"
    )
    print("the same data and schedule; the noise of the processes is nobody's to repeat, so ten are drawn")
    guarantee = next(iter(results.values()))["guarantee"]
    print(
        f"privacy: epsilon {guarantee['epsilon']:g} for all patients of a clinic; {guarantee['assumption']}"
    )
    return {"results": results, "processes": outcome, "simulation": simulated}


def simulate_same(tables: list[np.ndarray], test: np.ndarray) -> np.ndarray:
    """Return the mean accuracy of the clinics' models in ten simulations without any clinic missing."""
    runs = [simulate.learn(PARAMETERS, tables, seed_for_simulation=seed) for seed in range(10)]
    return np.array([accuracies(run.values, test).mean() for run in runs])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as", dest="name", default="", help=argparse.SUPPRESS)
    parser.add_argument("--session", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.name:
        asyncio.run(take_part(arguments.session, arguments.name))
    else:
        asyncio.run(main())
