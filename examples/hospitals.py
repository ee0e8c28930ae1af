"""Twenty hospitals average two numbers each with differential privacy; two are killed on the way.

Each hospital is a process of its own. What is protected is the hospital: the two numbers that it brings, as a
whole, even if the relay and another hospital collude; there is no separate claim for a patient. With --direct
there is no relay: the twenty have channels to each other, and agree on the total.
Data: Breast Cancer Wisconsin (Original), CC BY 4.0, see examples/data/README.md.
Run: python examples/hospitals.py [--direct]
"""

import argparse
import asyncio
import csv
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import smpc_dp
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.events import Event
from smpc_dp.session.local import Timeouts, create_local_session

DATA = Path(__file__).parent / "data" / "breast_cancer_wisconsin_original.csv"
HOSPITALS = tuple(f"hospital-{number:02d}" for number in range(1, 21))
# Share of malignant findings, and mean clump thickness over its range 1 to 10: both from 0 to 1.
PARAMETERS = {
    "length": 2,
    "lower": 0.0,
    "upper": 1.0,
    "epsilon": 4.0,
    "delta": 1e-5,
    "dropout": 0.2,
    "corrupt": 0.1,
    "on_dropout": "roll-back",
}
# Who is killed, and in which step: before it has sent a vector, and after.
LOST = {"hospital-03": "roll", "hospital-07": "survivors-certificate"}
# The same between hospitals alone: before it has published, and after.
DIRECT = {"topology": "direct", "on_dropout": "keep"}
LOST_DIRECT = {"hospital-03": "roll", "hospital-07": "published"}
# Seconds. Between hospitals alone nobody goes on before all are connected, or this time has passed.
TIMEOUTS = Timeouts(connect=60.0, step=10.0)


def statistics(name: str) -> np.ndarray:
    """Return one hospital's own two numbers, over every twentieth record of the file."""
    rows = list(csv.DictReader(DATA.open()))[HOSPITALS.index(name) :: len(HOSPITALS)]
    malignant = np.mean([row["Class"] == "malignant" for row in rows])
    thickness = np.mean([(int(row["Cl.thickness"]) - 1) / 9 for row in rows])
    return np.array([malignant, thickness])


async def take_part(path: str, name: str, dies_at: str) -> None:
    """Be one hospital."""

    def watch(event: Event) -> None:
        if event.kind == "step" and event.step == dies_at:
            os._exit(1)

    ledger = Path(path).parent / f"{name}.ledger"
    Ledger.create(ledger, party=name, dataset="2026", relation="substitution", epsilon=5.0, delta=1e-4)
    async with smpc_dp.connect(path, party=name, ledger=ledger, on_event=watch) as session:
        result = await session.average(
            statistics(name), expect={"protocol": "gopa", "epsilon": 4.0, "delta": 1e-5}
        )
    print(json.dumps(result.to_json()))


async def main(lost: Mapping[str, str] = LOST, *, direct: bool = False) -> dict[str, Any]:
    """Start twenty hospitals as processes, and unless `direct` a relay here; print average and truth."""
    parameters = PARAMETERS | (DIRECT if direct else {})
    with tempfile.TemporaryDirectory() as folder:
        path = str(create_local_session(folder, HOSPITALS, parameters, protocol="gopa", timeouts=TIMEOUTS))
        relay = None if direct else asyncio.create_task(smpc_dp.serve(path, requests=1))
        processes = {
            name: await asyncio.create_subprocess_exec(
                *(sys.executable, __file__, "--as", name, "--session", path),
                *("--dies-at", lost.get(name, "")),
                stdout=asyncio.subprocess.PIPE,
            )
            for name in HOSPITALS
        }
        outputs = {name: (await process.communicate())[0] for name, process in processes.items()}
        if relay is not None:
            await relay
    result: dict[str, Any] = json.loads(next(output for output in outputs.values() if output))
    truth = np.mean([statistics(name) for name in result["survivors"]], axis=0)
    print(f"killed:          {', '.join(lost) or 'nobody'}")
    print(f"not in it:       {', '.join(result['absent']) or 'nobody'} (killed before its vector was sent)")
    print(f"noise left:      of {result['residual_pairs']} pairs, shared with those who were lost too late")
    print(f"average:         {np.round(result['value'], 3)} of {len(result['survivors'])} hospitals")
    print(f"without noise:   {np.round(truth, 3)} (nobody sees this)")
    print(f"standard error:  {result['standard_error']:.3f} in each of the two")
    print(f"trusted curator: {result['curator_standard_error']:.3f} over the honest hospitals only")
    print(f"privacy:         epsilon {result['privacy']['epsilon']}, delta {result['privacy']['delta']}")
    print(f"assuming that    {result['privacy']['guarantee']['assumption']}")
    spent = result["privacy"]["receipt"]["spent"]
    print(f"ledger of one:   epsilon {spent['epsilon']:.2f} of 5 spent at delta {spent['delta']:g}")
    return result | {"truth": truth.tolist()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as", dest="name", default="", help=argparse.SUPPRESS)
    parser.add_argument("--session", default="", help=argparse.SUPPRESS)
    parser.add_argument("--dies-at", default="", help=argparse.SUPPRESS)
    parser.add_argument("--direct", action="store_true", help="channels between hospitals, no relay")
    arguments = parser.parse_args()
    if arguments.name:
        asyncio.run(take_part(arguments.session, arguments.name, arguments.dies_at))
    else:
        asyncio.run(main(LOST_DIRECT if arguments.direct else LOST, direct=arguments.direct))
