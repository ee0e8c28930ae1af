"""Ten hospitals answer questions about all their patients' records with differential privacy; one is killed.

Each hospital is a process of its own with 200 to 2,000 rows. What is protected is a record: whether it is
there, and what is in it. The aggregator sees the noisy sums alone, also if it colludes with one hospital.
The rows are made up, from a seed that each hospital has for itself.
Run: python examples/hospital_statistics.py
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import smpc_dp
from smpc_dp.privacy.accountant.ledger import Ledger
from smpc_dp.session.events import Event
from smpc_dp.session.local import Timeouts, create_local_session

HOSPITALS = tuple(f"hospital-{number:02d}" for number in range(1, 11))
REGIONS = ("centre", "east", "north", "south")
STAGES = ("I", "II", "III", "IV", "unknown")
PARAMETERS: dict[str, Any] = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "ask": [
        "count",
        "mean(age)",
        "mean(pressure) by region",
        "quantile(age, 0.25, 0.5, 0.75)",
        "stage x region",
        "regression(pressure ~ age + bmi)",
    ],
    # A regression needs much of the noise's budget: here the table matters more.
    "answer_weights": {"regression(pressure ~ age + bmi)": 0.02},
    "dropout": 0.1,
    "corrupt": 0.1,
    "records": {
        "unit": "record",
        "rows": "private",
        "max_rows": 2000,
        "rows_expected": 10_000,
        "columns": {
            "age": {"lower": 18.0, "upper": 98.0},
            "bmi": {"lower": 15.0, "upper": 45.0},
            "pressure": {"lower": 80.0, "upper": 200.0},
            "region": {"values": list(REGIONS)},
            "stage": {"values": list(STAGES), "other": "unknown"},
        },
    },
}
# Who is killed, and in which step: before it has sent its vector.
LOST = {"hospital-07": "roll"}
TIMEOUTS = Timeouts(connect=60.0, step=10.0)


def table(name: str) -> dict[str, Any]:
    """Return one hospital's own rows."""
    number = HOSPITALS.index(name)
    source = np.random.default_rng(number)
    rows = 200 * (number + 1)
    age = np.clip(source.normal(58, 16, rows), 18, 98)
    bmi = np.clip(source.normal(26, 4, rows), 15, 45)
    return {
        "age": age,
        "bmi": bmi,
        "pressure": np.clip(80 + 0.5 * age + 0.8 * bmi + source.normal(0, 9, rows), 80, 200),
        "region": source.choice(REGIONS, rows, p=[0.4, 0.3, 0.2, 0.1]),
        "stage": source.choice(STAGES, rows, p=[0.4, 0.25, 0.2, 0.1, 0.05]),
    }


async def take_part(path: str, name: str, dies_at: str) -> None:
    """Be one hospital."""

    def watch(event: Event) -> None:
        if event.kind == "step" and event.step == dies_at:
            os._exit(1)

    ledger = Path(path).parent / f"{name}.ledger"
    terms: dict[str, Any] = {"relation": "add-remove", "unit": "record", "epsilon": 2.0, "delta": 1e-6}
    Ledger.create(ledger, party=name, dataset="2026", **terms)
    async with smpc_dp.connect(path, party=name, table=table(name), ledger=ledger, on_event=watch) as session:
        result = await session.statistics(level=1 - 1e-6, simultaneous=True)
    print(json.dumps(result.to_json()))


async def main() -> dict[str, Any]:
    """Start ten hospitals as processes, and an aggregator here; print the plan and the answers."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(create_local_session(folder, HOSPITALS, PARAMETERS, timeouts=TIMEOUTS))
        serving = asyncio.create_task(smpc_dp.serve(path, requests=1))
        processes = {
            name: await asyncio.create_subprocess_exec(
                *(sys.executable, __file__, "--as", name, "--session", path),
                *("--dies-at", LOST.get(name, "")),
                stdout=asyncio.subprocess.PIPE,
            )
            for name in HOSPITALS
        }
        outputs = {name: (await process.communicate())[0] for name, process in processes.items()}
        await serving
    result: dict[str, Any] = json.loads(next(output for output in outputs.values() if output))
    print(f"killed: {', '.join(LOST)}; in it: {len(result['survivors'])} hospitals")
    for one in result["estimates"]:
        cell = ", ".join(one["cell"].values())
        value = "not shown" if one["value"] is None else f"{one['value']:.5g}"
        print(f"{one['name']} {cell}: {value} in [{one['low']}, {one['high']}] {one['unit']} {one['note']}")
    privacy = result["privacy"]
    print(f"protected: one {privacy['unit']}, epsilon {privacy['epsilon']}, delta {privacy['delta']}")
    print(f"assuming that {privacy['guarantee']['assumption']}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as", dest="name", default="", help=argparse.SUPPRESS)
    parser.add_argument("--session", default="", help=argparse.SUPPRESS)
    parser.add_argument("--dies-at", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.name:
        asyncio.run(take_part(arguments.session, arguments.name, arguments.dies_at))
    else:
        asyncio.run(main())
